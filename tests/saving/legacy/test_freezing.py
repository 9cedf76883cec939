"""Frozen BatchNormalization in files of Keras 1 and 2, which normalized by the batch."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules
from tests.support.legacy_files import load, model_file

X = np.random.default_rng(0).normal(3.0, 2.0, (6, 3)).astype("float32")


def _file(version, kind="BatchNormalization", trainable=False, around=None, **config):
    """Returns a file of one layer, optionally in a Sequential, with averages unlike the batch's."""
    layer_config = {
        "name": "norm",
        "trainable": trainable,
        "batch_input_shape": [None, 3],
        **config,
    }
    item = {"class_name": kind, "config": layer_config}
    if around is not None:
        model_config = {"name": "inner", "layers": [item], **around}
        item = {"class_name": "Sequential", "config": model_config}
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    arrays = {f"norm/{name}:0": np.full(3, 0.5, "float32") for name in names}
    weights = {item["config"]["name"]: arrays}
    return model_file({"class_name": "Sequential", "config": [item]}, weights, version)


def _norm(data):
    model, state = load(data)
    layer = model.layers["norm"] if "norm" in model.layers else model.layers["inner"].layers["norm"]
    return model, state, layer


OLD_ZEROS = {"beta_initializer": {"class_name": "Zeros", "config": {"dtype": "float32"}}}
NEW_ZEROS = {"beta_initializer": {"class_name": "Zeros", "config": {}}}


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    ("version", "kind", "config", "frozen"),
    [
        ("1.2.2", "BatchNormalization", {}, "batch"),
        ("2.0.8", "BatchNormalization", {}, "batch"),
        ("2.3.1", "BatchNormalization", NEW_ZEROS, "batch"),
        ("2.1.6-tf", "BatchNormalization", {}, "batch"),
        ("2.2.4-tf", "BatchNormalizationV1", NEW_ZEROS, "batch"),
        ("2.2.4-tf", "BatchNormalization", OLD_ZEROS, "batch"),
        ("2.11.0", "BatchNormalization", OLD_ZEROS, "batch"),
        ("2.2.4-tf", "BatchNormalization", NEW_ZEROS, "moving"),
        ("2.2.4-tf", "BatchNormalizationV2", OLD_ZEROS, "moving"),
        ("2.3.0-tf", "BatchNormalization", NEW_ZEROS, "moving"),
        ("2.4.0", "SyncBatchNormalization", OLD_ZEROS, "moving"),
        ("2.15.0", "BatchNormalization", {}, "moving"),
        ("3.5.0", "BatchNormalization", NEW_ZEROS, "moving"),
    ],
)
def test_frozen_layers_of_files_normalize_as_in_their_version(version, kind, config, frozen):
    model, state, layer = _norm(_file(version, kind, **config))
    assert (layer.frozen, layer.trainable) == (frozen, False)
    out = model.apply(X, state=state, training=True)
    assert out.updates == {}
    mean, variance = (X.mean(0), X.var(0)) if frozen == "batch" else (0.5, 0.5)
    expected = (X - mean) / np.sqrt(variance + layer.epsilon) * 0.5 + 0.5
    np.testing.assert_allclose(out.value, expected, rtol=1e-4, atol=1e-5)


def test_trainable_normalization_follows_keras_3():
    _, _, layer = _norm(_file("2.3.1", trainable=True))
    assert layer == layer.replace(frozen="moving")


def test_a_layer_inside_a_frozen_model_is_frozen():
    _, _, layer = _norm(_file("2.3.1", trainable=True, around={"trainable": False}))
    assert (layer.frozen, layer.trainable) == ("batch", False)
    _, _, layer = _norm(_file("2.3.1", trainable=True, around={}))
    assert (layer.frozen, layer.trainable) == ("moving", True)


def test_a_custom_class_receives_the_config_of_the_file():
    class Mine(layers.BatchNormalization):
        @classmethod
        def from_config(cls, config, custom_objects=None):
            assert "frozen" not in config
            return cls(name=config["name"], trainable=config["trainable"])

    model, _ = load(_file("2.3.1"), custom_objects={"BatchNormalization": Mine})
    assert model.layers["norm"].frozen == "moving"


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["BatchNormalization", "BatchNormalizationV1"])
def test_renormalization_preserves_the_bounds_of_the_file(kind):
    """The reference is a training call of TensorFlow 2.11, whose V1 class is frozen here."""
    bounds = {"rmax": 1.5, "rmin": 0.5, "dmax": 0.25}
    options = {"renorm": True, "renorm_clipping": bounds, "renorm_momentum": 0.75, "momentum": 0.5}
    layer_config = {"name": "norm", "trainable": kind == "BatchNormalization", **options}
    item = {"class_name": kind, "config": {**layer_config, "batch_input_shape": [None, 3]}}
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    names += ("moving_stddev", "renorm_mean", "renorm_stddev")
    weights = {f"{n}:0": np.full(3, 2.0 if "stddev" in n else 0.5, "float32") for n in names}
    config = {"class_name": "Sequential", "config": [item]}
    model, state = load(model_file(config, {"norm": weights}, "2.4.0"))
    x = np.array([[1, 2, 0], [3, -1, 0.5], [0, 4, 2], [5, 1, 1]], "float32")
    out = model.apply(x, state=state, training=True)
    expected = [
        [0.3125, 0.75, 0.2982161045074463],
        [0.8125, 0.0, 0.4670926332473755],
        [0.0625, 1.25, 0.9737221598625183],
        [1.3125, 0.5, 0.6359691619873047],
    ]
    np.testing.assert_allclose(out.value, expected, rtol=1e-6, atol=1e-6)
    if kind == "BatchNormalizationV1":
        assert out.updates == {}
        return
    updated = out.updates["norm"]
    np.testing.assert_allclose(updated["renorm_mean"], [0.9375, 0.75, 0.59375], rtol=1e-6)
    np.testing.assert_allclose(
        updated["moving_variance"], [3.8416717, 3.6148028, 1.8761544], rtol=1e-6
    )


def test_settings_of_a_disabled_renormalization_are_ignored():
    _, _, layer = _norm(_file("2.4.0", renorm=False, renorm_clipping=None, renorm_momentum=None))
    assert layer == layer.replace(renorm_momentum=0.99, renorm_clipping={})


@pytest.mark.exhaustive
@pytest.mark.parametrize("wrapped", [False, True])
def test_files_preserve_the_frozen_rule_and_open_in_keras(wrapped, tmp_path):
    path = tmp_path / "m.keras"
    norm = layers.BatchNormalization(trainable=False, frozen="batch", name="norm")
    last = layers.TimeDistributed(norm) if wrapped else norm
    inner = fk.Sequential([fk.Input((2, 3)), layers.Dense(3), last], name="inner")
    x = fk.Input((2, 3))
    model = fk.Model(x, layers.Dense(1)(inner(x))).build(jax.random.key(0))
    state = jax.tree.map(lambda array: array + 0.5, model.init_state())
    fk.save_model(path, model, state)
    again, _ = fk.load_model(path)
    assert again == model
    values = np.random.default_rng(1).normal(3.0, 2.0, (4, 2, 3)).astype("float32")
    with keras_rules():
        theirs = keras.models.load_model(path)
        trained = np.asarray(theirs(values, training=True))
        tested = np.asarray(theirs(values))
    np.testing.assert_allclose(model(values, state=state), tested, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(trained, tested)
    ours = model.apply(values, state=state, training=True)
    assert ours.updates == {}
    assert np.abs(np.asarray(ours.value) - trained).max() > 0.1
    # the configuration also survives a round trip through JSON
    assert type(model).from_config(model.get_config()) == fk.engine.unbuilt(model)
