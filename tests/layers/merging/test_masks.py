"""Masks of merged tensors by Keras's rule: layers, losses of models that end in a merge, files."""

import io
import json
import warnings
import zipfile

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from tests.support.keras_oracle import keras, keras_rules

RNG = np.random.default_rng(4)
A, B = (RNG.integers(0, 3, (5, 4)).astype("int32") for _ in "ab")
KINDS = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
PARTS = RNG.normal(size=(3, 2, 4, 3)).astype("float32")
MASKS = RNG.random((3, 2, 4)) < 0.5


def _keras_merged(kind, inputs, masks):
    """Returns value and mask of Keras's layer for inputs with attached masks."""
    with keras_rules():
        arrays = [keras.ops.convert_to_tensor(x) for x in inputs]
        for array, mask in zip(arrays, masks, strict=True):
            if mask is not None:
                keras.src.backend.set_keras_mask(array, keras.ops.convert_to_tensor(mask))
        value = getattr(keras.layers, kind)()(arrays)
        mask = keras.src.backend.get_keras_mask(value)
        return np.asarray(value), None if mask is None else np.asarray(mask)


GIVEN = [(0, 1), (0, None), (None, 1), (0, 1, 2), (0, None, 2)]
MERGES = [(kind, g) for kind in KINDS for g in GIVEN if len(g) == 2 or kind != "Subtract"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "given"), MERGES, ids=str)
def test_masks_any_computes_as_keras(kind, given):
    inputs = list(PARTS[: len(given)])
    masks = [None if i is None else MASKS[i] for i in given]
    out = getattr(layers, kind)(masks="any").apply(inputs, mask=masks)
    value, mask = _keras_merged(kind, inputs, masks)
    np.testing.assert_allclose(out.value, value, rtol=1e-6)
    assert (out.mask is None) == (mask is None)
    if mask is not None:
        np.testing.assert_array_equal(out.mask, mask)


@pytest.mark.parametrize("rule", ["all", "any"])
def test_one_mask_of_several_inputs_stays_one_mask(rule):
    # `mask & mask` in each residual block would be a chain, which XLA computes again in each fusion
    mask = np.array([[True, False]])
    x = np.ones((1, 2, 3), "float32")

    def merge(x, mask):
        y = layers.Add(masks=rule).apply([x, x, x], mask=[mask] * 3)
        assert y.mask is mask
        # an input of more axes without a mask
        return layers.Multiply().apply([y.value, x[:, None]], mask=[y.mask, None]).mask

    assert jax.jit(merge)(x, mask).tolist() == [[[True, False]]]
    out = layers.Add(masks=rule).apply([x, x, x], mask=[mask, mask, ~mask])
    assert out.mask.tolist() == [[rule == "any"] * 2]
    assert layers.Add(masks="any").apply([x, x], mask=[mask, None]).mask is None


def test_any_with_broadcast_inputs_and_fewer_axes():
    x, mask = PARTS[0], MASKS[0]
    row = PARTS[1][:, :1]
    out = layers.Multiply(masks="any").apply([x, row], mask=[mask, np.array([[True], [False]])])
    any_mask = mask | [[True], [False]]
    expected = np.where(mask[..., None], x, 1) * np.where([[[True]], [[False]]], row, 1)
    np.testing.assert_allclose(out.value, np.where(any_mask[..., None], expected, 0), rtol=1e-6)
    np.testing.assert_array_equal(out.mask, any_mask)
    out = layers.Maximum(masks="any").apply([x, row[:, 0]], mask=[mask, None])
    expected = np.where(mask[..., None], np.maximum(x, row), row)
    np.testing.assert_allclose(out.value, expected, rtol=1e-6)
    assert out.mask is None


@pytest.mark.exhaustive
def test_no_gradient_reaches_masked_entries():
    def score(x, layer):
        return layer.apply([x, PARTS[1]], mask=[MASKS[0], MASKS[1]]).value.sum()

    for layer in (layers.Multiply(masks="any"), layers.Minimum(masks="any")):
        gradient = np.asarray(jax.grad(score)(PARTS[0], layer))
        left_out = ~MASKS[0] & MASKS[1]
        assert left_out.any() and not gradient[left_out].any()
        assert gradient[MASKS[0] & ~MASKS[1]].all()


def test_masks_is_in_the_configuration_unless_it_is_the_default():
    for kind in KINDS:
        cls = getattr(layers, kind)
        assert "masks" not in cls().get_config()
        layer = cls(masks="any", name="merge")
        assert cls.from_config(layer.get_config()) == layer != cls(name="merge")
    with pytest.raises(ValueError, match=r"masks.*'all'.*'any'.*'some'"):
        layers.Add(masks="some")


def _keras_model(kind, both=True):
    """Returns a compiled model that merges two masked inputs, with one loss per step."""
    L = keras.layers
    a, b = (keras.Input((4,), dtype="int32", name=name) for name in "ab")
    first = L.Embedding(7, 3, mask_zero=True, name="one")(a)
    second = L.Embedding(7, 3, mask_zero=both, name="two")(b)
    model = keras.Model([a, b], getattr(L, kind)(name="merge")([first, second]))
    model.compile(keras.optimizers.SGD(0.5), "mse")
    rng = np.random.default_rng(1)
    model.set_weights([rng.normal(size=w.shape) for w in model.get_weights()])
    return model


def _targets(kind):
    width = 6 if kind == "Concatenate" else 3
    return np.random.default_rng(2).normal(size=(5, 4, width)).astype("float32")


def _keras_losses(model, kind):
    with keras_rules():
        return [float(model.train_on_batch([A, B], _targets(kind))) for _ in range(3)]


def _losses(trainer, run, kind):
    losses = []
    for _ in range(3):
        run, logs = trainer.step(run, ([A, B], _targets(kind)))
        losses.append(float(logs["loss"]))
    return losses


# each case compiles three programs: CI runs the other merges with one mask
ONE_MASK = [
    pytest.param(k, False, marks=() if k in ("Add", "Concatenate") else pytest.mark.exhaustive)
    for k in KINDS
]


@pytest.mark.exhaustive
@pytest.mark.parametrize(("kind", "both"), [*((k, True) for k in KINDS), *ONE_MASK])
def test_the_loss_of_a_merged_output_is_keras_loss(kind, both, tmp_path):
    path = tmp_path / "m.keras"
    with keras_rules():
        model = _keras_model(kind, both)
        model.save(path)
    trainer, run = fk.load_training(path)
    assert run.model.layers["merge"].masks == "any"
    our_path = tmp_path / "ours.keras"
    fk.save_model(our_path, run.model, run.state, trainer=trainer, run=run)
    expected = _keras_losses(model, kind)
    np.testing.assert_allclose(_losses(trainer, run, kind), expected, rtol=1e-6)
    # fkeras loads an equal training, and Keras resumes it
    again, resumed = fk.load_training(our_path)
    assert again == trainer and resumed.model == run.model
    with keras_rules(), warnings.catch_warnings():
        warnings.simplefilter("error")
        theirs = keras.models.load_model(our_path)
    np.testing.assert_allclose(_keras_losses(theirs, kind), expected, rtol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["Add", "Multiply", "Concatenate"])
def test_a_legacy_file_of_keras_3_has_keras_loss(kind, tmp_path):
    path = tmp_path / "m.h5"
    with keras_rules():
        model = _keras_model(kind)
        model.save(path)
    trainer, run = fk.load_training(path)
    np.testing.assert_allclose(_losses(trainer, run, kind), _keras_losses(model, kind), rtol=1e-6)


def _own(kind, **options):
    a, b = (fk.Input((4,), dtype="int32", name=name) for name in "ab")
    first = layers.Embedding(7, 3, mask_zero=True, name="one")(a)
    second = layers.Embedding(7, 3, mask_zero=True, name="two")(b)
    model = fk.Model([a, b], getattr(layers, kind)(name="merge", **options)([first, second]))
    return model.build(jax.random.key(0))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(
            k, marks=() if k in ("Add", "Multiply", "Concatenate") else pytest.mark.exhaustive
        )
        for k in KINDS
    ],
)
def test_files_keep_the_rule_and_keras_applies_its_own_rule(kind, tmp_path):
    path = tmp_path / "m.keras"
    model = _own(kind)
    trainer = fk.Trainer(optimizer=fk.optimizers.SGD(0.5), loss="mse")
    run = trainer.init(model, jax.random.key(0))
    with pytest.warns(UserWarning, match=r"'merge' merges different masks"):
        fk.save_model(path, model, {}, trainer=trainer, run=run)
    again, resumed = fk.load_training(path)
    assert resumed.model == model
    ours = _losses(trainer, run, kind)
    assert ours == _losses(again, resumed, kind)
    with keras_rules():
        theirs = _keras_losses(keras.models.load_model(path), kind)
    assert abs(ours[0] - theirs[0]) > 1e-3
    like_keras = trainer.init(
        model.replace(
            layers={**model.layers, "merge": getattr(layers, kind)(name="merge", masks="any")}
        ),
        jax.random.key(0),
    )
    np.testing.assert_allclose(_losses(trainer, like_keras, kind), theirs, rtol=1e-6)


def _rewritten(path, **changes):
    """Returns the bytes of an archive with replaced JSON members."""
    target = io.BytesIO()
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            change = changes.get(name.removesuffix(".json"))
            new.writestr(name, data if change is None else json.dumps(change(json.loads(data))))
    return target.getvalue()


def test_keras_before_3_4_lost_the_masks_of_merges(tmp_path):
    path, old = tmp_path / "m.keras", tmp_path / "old.keras"
    with keras_rules():
        _keras_model("Add").save(path)
    old.write_bytes(_rewritten(path, metadata=lambda data: {**data, "keras_version": "3.3.3"}))
    trainer, run = fk.load_training(old)
    assert run.model.layers["merge"].masks == "all"
    assert run.model.apply([A, B]).mask is None
    value = np.asarray(run.model([A, B]))
    expected = float(np.mean(np.square(value - _targets("Add"))))
    assert _losses(trainer, run, "Add")[0] == pytest.approx(expected, rel=1e-6)


def test_a_model_without_masks_is_unchanged(tmp_path):
    path = tmp_path / "m.keras"
    with keras_rules():
        x = keras.Input((3,))
        keras.Model(x, keras.layers.Add()([keras.layers.Dense(3)(x), x])).save(path)
    model, _ = fk.load_model(path)
    assert [layer.masks for layer in model.layers.values() if isinstance(layer, layers.Add)] == [
        "all"
    ]
    json.loads(model.to_json())


def test_keys_beside_a_config_are_checked(tmp_path):
    path, bad = tmp_path / "m.keras", tmp_path / "bad.keras"
    fk.save_model(path, _own("Add", masks="any"), {})

    def beside(value):
        def change(config):
            item = next(i for i in config["config"]["layers"] if i["class_name"] == "Add")
            assert item["fkeras"] == {"masks": "any"} and "masks" not in item["config"]
            item["fkeras"] = value
            return config

        return change

    for value, message in (
        ({"mask": "any"}, r"config\.json.*'merge'.*masks.*'mask'"),
        ({"masks": ["any"]}, r"config\.json.*'merge'.*'masks'"),
        ({"masks": "some"}, r"config\.json.*'some'"),
        ("any", r"config\.json.*'merge'.*'fkeras'"),
    ):
        bad.write_bytes(_rewritten(path, config=beside(value)))
        with pytest.raises(fk.FileError, match=f"(?s){message}"):
            fk.load_model(bad)


@pytest.mark.exhaustive
def test_operator_sums_are_not_layers(tmp_path):
    path = tmp_path / "m.keras"
    with keras_rules():
        x = keras.Input((4, 3))
        y = keras.layers.Masking()(x)
        keras.Model(x, keras.layers.Multiply(name="merge")([y + y, y])).save(path)
    model, _ = fk.load_model(path)
    assert [n for n, layer in model.layers.items() if hasattr(layer, "masks")] == ["merge"]
    assert model(PARTS[0]).shape == (2, 4, 3)
