"""`.keras` archives of tf.keras 2.13 and 2.15: outputs, weights and trainings equal TensorFlow's."""

import copy
import functools
import gzip
import json

import jax
import numpy as np
import pytest

import fkeras as fk
from tests.support.file_damages import with_member
from tests.support.keras_oracle import keras, keras_rules
from tests.support.legacy_files import archive, array
from tests.support.paths import DATA


@functools.lru_cache(maxsize=2)
def cases(version):
    """Returns the reference cases written by tools/references/tf215_reference.py."""
    return json.loads(gzip.decompress((DATA / f"{version}.json.gz").read_bytes()))["cases"]


ROWS = [(version, name) for version in ("tf215", "tf213") for name in cases(version)]
TRAINED = [name for name, case in cases("tf215").items() if "later" in case]


def _written(folder, name, version="tf215", keras_version=None, config=None, weights=None):
    """Writes a case's archive, with changes of version, config or weights; returns its path."""
    members = copy.deepcopy(cases(version)[name]["members"])
    if keras_version is not None:
        members["metadata.json"] = json.dumps({"keras_version": keras_version})
    if config is not None:
        changed = json.loads(members["config.json"])
        config(changed)
        members["config.json"] = json.dumps(changed)
    if weights is not None:
        weights(members["model.weights.h5"]["arrays"])
    path = folder / "m.keras"
    path.write_bytes(archive(members))
    return path


def _inputs(case):
    values = [array(x) if isinstance(x, dict) else np.array(x) for x in case["inputs"]]
    config = json.loads(case["members"]["config.json"])["config"]
    if isinstance(config.get("input_layers"), dict):
        return dict(zip(case["names"], values, strict=True))
    return values if len(values) > 1 else values[0]


def _check(model, state, case, key="outputs"):
    results = jax.tree.leaves(model.apply(_inputs(case), state=state).value)
    for value, expected in zip(results, case[key], strict=True):
        np.testing.assert_allclose(value, array(expected), rtol=2e-6, atol=2e-6)


@pytest.mark.one_in(28)
@pytest.mark.parametrize(("version", "name"), ROWS, ids=lambda value: value)
def test_outputs_equal_tensorflows(tmp_path, version, name):
    model, state = fk.load_model(_written(tmp_path, name, version))
    _check(model, state, cases(version)[name])


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TRAINED)
def test_trainings_resume_as_in_tensorflow(tmp_path, name):
    case = cases("tf215")[name]
    trainer, run = fk.load_training(_written(tmp_path, name))
    assert int(run.step) == 2
    targets = [array(y) for y in case["targets"]]
    for _ in range(2):
        run, _ = trainer.step(run, (_inputs(case), targets if len(targets) > 1 else targets[0]))
    _check(run.model, run.state, case, "later")


@pytest.mark.exhaustive
def test_old_optimizers_start_with_a_new_state(tmp_path):
    with pytest.warns(UserWarning, match="m.keras: the file holds no state of the optimizer Adam"):
        trainer, run = fk.load_training(_written(tmp_path, "legacy"))
    assert type(trainer.optimizer).__name__ == "Adam"
    assert int(run.step) == 0
    run, _ = trainer.step(run, (np.ones((2, 3), "float32"), np.ones((2, 2), "float32")))
    assert int(run.step) == 1


@pytest.mark.exhaustive
def test_the_product_of_nadam_follows_from_the_step_count(tmp_path):
    trainer, run = fk.load_training(_written(tmp_path, "Nadam"))
    expected = trainer.init(run.model, jax.random.key(0), state=run.state)
    batch = np.ones((2, 3), "float32"), np.ones((2, 2), "float32")
    for _ in range(2):
        expected, _ = trainer.step(expected, batch)
    assert int(run.step) == 2
    for path, product in run.opt_state.slots["product"].items():
        np.testing.assert_allclose(product, expected.opt_state.slots["product"][path], rtol=1e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["3.0.0", "2.12.0"])
def test_the_form_of_the_calls_overrides_the_version(tmp_path, version):
    model, state = fk.load_model(_written(tmp_path, "nested", keras_version=version))
    _check(model, state, cases("tf215")["nested"])


@pytest.mark.exhaustive
def test_calls_of_keras_3_in_an_archive_of_keras_2(tmp_path):
    with keras_rules():
        x = keras.Input((4, 3))
        y = keras.layers.LSTM(2, return_sequences=True)(x)
        theirs = keras.Model(x, keras.layers.Dense(2)(keras.layers.Add()([y, y])))
        theirs.save(tmp_path / "k.keras")
        expected = theirs(np.ones((2, 4, 3), "float32"))
    data = with_member(
        (tmp_path / "k.keras").read_bytes(), "metadata.json", {"keras_version": "2.15.0"}
    )
    (tmp_path / "m.keras").write_bytes(data)
    model, state = fk.load_model(tmp_path / "m.keras")
    np.testing.assert_allclose(
        model(np.ones((2, 4, 3), "float32"), state=state), expected, atol=1e-6
    )


@pytest.mark.exhaustive
def test_weights_of_an_archive_go_into_a_model(tmp_path):
    path = _written(tmp_path, "attention")
    model, state = fk.load_model(path)
    fresh = jax.tree.map(lambda leaf: leaf * 0, model)
    again, _ = fk.load_weights(path, fresh, state=state)
    for loaded, expected in zip(jax.tree.leaves(again), jax.tree.leaves(model), strict=True):
        np.testing.assert_array_equal(loaded, expected)


def _layer(config, name):
    return next(layer for layer in config["config"]["layers"] if layer["name"] == name)


REJECTED = {
    "a layer that is not there": (
        {"config": lambda c: _layer(c, "out").update(inbound_nodes=[[["nowhere", 0, 0, {}]]])},
        r"refers to the unknown layer 'nowhere'",
    ),
    "a call that is not there": (
        {"config": lambda c: _layer(c, "out").update(inbound_nodes=[[["joined", 4, 0, {}]]])},
        r"refers to tensor 0 of call 4 of the layer 'joined'",
    ),
    "no tensor": (
        {"config": lambda c: _layer(c, "out").update(inbound_nodes=[[]])},
        "a call without a tensor",
    ),
    "an unknown class": (
        {"config": lambda c: _layer(c, "out").update(class_name="Dence")},
        "unknown layer 'Dence'",
    ),
    "no weight": (
        {"weights": lambda arrays: arrays.pop("layers/dense_2/vars/0")},
        "for 'out/kernel', received none",
    ),
    "a weight too many": (
        {"weights": lambda arrays: arrays.update({"layers/dense_7/vars/0": np.ones(2)})},
        "1 arrays that belong to no layer of the model: layers/dense_7/vars/0",
    ),
    "an old version": ({"keras_version": "1.2.2"}, "expected 'keras_version' of Keras 2 or 3"),
    "a new version": ({"keras_version": "20.1"}, "expected 'keras_version' of Keras 2 or 3"),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", REJECTED)
def test_damaged_archives_are_rejected(tmp_path, name):
    changes, message = REJECTED[name]
    with pytest.raises(fk.FileError, match=message):
        fk.load_model(_written(tmp_path, "functional", **changes))


def _wrapped(config):
    inner = config["compile_config"]["optimizer"]
    config["compile_config"]["optimizer"] = {
        "class_name": "LossScaleOptimizer",
        "config": {"inner_optimizer": inner},
    }


NO_TRAINING = {
    "never compiled": (
        {"config": lambda c: c.pop("compile_config")},
        "the model was never compiled",
    ),
    "no optimizer": (
        {"config": lambda c: c["compile_config"].update(optimizer=None)},
        "compiled without an optimizer",
    ),
    "an unknown name": (
        {"config": lambda c: c["compile_config"].update(optimizer="addam")},
        "addam",
    ),
    "an unknown optimizer": (
        {"config": lambda c: c["compile_config"]["optimizer"].update(class_name="Addam")},
        "unknown optimizer 'Addam'",
    ),
    "a scaled loss": ({"config": _wrapped}, "LossScaleOptimizer"),
    "too few arrays": (
        {"weights": lambda arrays: arrays.pop("optimizer/vars/2")},
        "expected 3 arrays of SGD for 2 trainable weights, received 2",
    ),
    "another shape": (
        {"weights": lambda arrays: arrays.update({"optimizer/vars/1": np.ones((3, 3))})},
        r"expected the momentum of 'out/kernel' of shape \(3, 2\), received shape \(3, 3\)",
    ),
    "a negative count": (
        {"weights": lambda arrays: arrays.update({"optimizer/vars/0": np.array(-1)})},
        "received -1",
    ),
}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", NO_TRAINING)
def test_trainings_that_cannot_resume_are_rejected(tmp_path, name):
    changes, message = NO_TRAINING[name]
    path = _written(tmp_path, "SGD", **changes)
    with pytest.raises(fk.FileError, match=message):
        fk.load_training(path)
    model, state = fk.load_model(path)
    _check(model, state, cases("tf215")["SGD"])


@pytest.mark.exhaustive
def test_a_negative_seed_opens_and_draws(tmp_path):
    def change(config):
        _layer(config, "drop")["config"]["seed"] = -1
        _layer(config, "drop")["inbound_nodes"] = [[["joined", 0, 0, {}]]]

    path = _written(tmp_path, "functional", config=change)
    model, state = fk.load_model(path)
    x = np.ones((2, 3), "float32")
    drawn = [
        model.apply(x, state=state, training=True, key=jax.random.key(key)).value
        for key in (0, 0, 1)
    ]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
