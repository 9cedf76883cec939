"""Quantized models in files: Keras's open and compute the same, and Keras opens ours."""

import functools
import json
import unittest.mock
import zipfile

import h5py
import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras.saving.weights.quantized_codes import old_shapes, renewed
from tests.support.keras_oracle import keras, keras_rules
from tests.support.legacy_files import array, file_bytes
from tests.support.paths import DATA

RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 11, (3, 4))
INT4, INT8 = keras.quantizers.Int4QuantizationConfig, keras.quantizers.Int8QuantizationConfig
ABS_MAX = keras.quantizers.AbsMaxQuantizer


def _model():
    """Returns a model with every layer that can be quantized; the inputs are ids."""
    ids = keras.Input((4,), dtype="int32", name="ids")
    tied = keras.layers.ReversibleEmbedding(11, 6, name="tied", logit_soft_cap=3.0)
    free = keras.layers.ReversibleEmbedding(11, 6, tie_weights=False, name="free")
    y = keras.layers.Embedding(11, 6, name="plain")(ids)
    y = keras.layers.Add(name="sum")([y, tied(ids), free(ids)])
    y = keras.layers.Dense(5, activation="relu", name="first")(y)
    y = keras.layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de", name="heads")(y)
    y = keras.layers.EinsumDense("abde,dec->abc", (None, 6), name="back")(y)
    y = keras.layers.MultiHeadAttention(2, 3, name="att")(y, y)
    y = keras.layers.GroupQueryAttention(3, 2, 1, use_bias=False, name="group")(y, y)
    last = keras.layers.Dense(2, use_bias=False, name="last")
    inner = keras.Sequential([keras.Input((4, 6), name="x"), last], name="inner")
    return keras.Model(ids, [inner(y), tied(y, reverse=True), free(y, reverse=True)], name="m")


MODES = {
    "int8": "int8",
    "int8 weights": INT8(activation_quantizer=None),
    "int4": "int4",
    "int4 blocks": INT4(block_size=2),
    "int4 inputs": INT4(block_size=None, activation_quantizer=ABS_MAX()),
    "float8": "float8",
}
OURS = {
    **MODES,
    "int8 weights": fk.quantizers.Int8QuantizationConfig(activation_quantizer=None),
    "int4 blocks": "int4/2",
    "int4 inputs": fk.quantizers.Int4QuantizationConfig(
        activation_quantizer=fk.quantizers.AbsMaxQuantizer(), block_size=None
    ),
}
# dtypes of the quantized weights of modes other than int8
CODES = {"float8": {"float32"}}


@pytest.fixture(scope="module")
def weights():
    """Returns random weights of the model by path."""
    with keras_rules():
        model = _model()
        rng = np.random.default_rng(1)
        return {w.path: rng.normal(size=w.shape).astype("float32") / 3 for w in model.weights}


@pytest.fixture(scope="module")
def floats(weights, tmp_path_factory):
    """Returns the model before quantization, opened in fkeras."""
    path = tmp_path_factory.mktemp("floats") / "k.keras"
    _save(_quantized(weights, None), path)
    return fk.load_model(path)[0]


def _save(model, path):
    with keras_rules():
        model.save(path)


def _outputs(model, x=IDS):
    with keras_rules():
        return [np.asarray(y) for y in jax.tree.leaves(jax.jit(lambda x: model(x))(x))]


def _close(ours, theirs, limit=2e-6):
    for value, expected in zip(jax.tree.leaves(ours), theirs, strict=True):
        assert np.abs(np.asarray(value) - expected).max() <= limit * np.abs(expected).max()


def _quantized(weights, mode):
    """Returns Keras's model with these weights, quantized unless the mode is None."""
    with keras_rules():
        model = _model()
        for weight in model.weights:
            weight.assign(weights[weight.path])
        if mode is not None:
            _quantize(model, mode)
    return model


def _quantize(model, mode):
    # Keras runs the garbage collector for each weight that it drops
    with unittest.mock.patch("gc.collect"):
        model.quantize(mode) if isinstance(mode, str) else model.quantize(config=mode)


def _some(*exhaustive):
    """Returns all modes; `exhaustive` lists modes whose code other modes run too."""
    marks = {mode: pytest.mark.exhaustive if mode in exhaustive else () for mode in MODES}
    return [pytest.param(mode, marks=mark) for mode, mark in marks.items()]


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", _some("int8 weights", "int4 blocks", "int4 inputs"))
def test_files_of_keras(weights, floats, mode, tmp_path):
    model = _quantized(weights, MODES[mode])
    expected = _outputs(model)
    _save(model, tmp_path / "k.keras")
    ours, state = fk.load_model(tmp_path / "k.keras")
    _close(ours(IDS), expected)
    if mode != "int4 blocks":  # Keras loses blocks whose weights have one sign
        assert fk.quantize(floats, OURS[mode]) == ours
    assert {w.dtype.name for w in jax.tree.leaves(ours)} >= CODES.get(mode, {"int8"})
    with keras_rules():
        model.save_weights(tmp_path / "k.weights.h5")
    empty = jax.tree.map(np.zeros_like, ours)
    assert fk.load_weights(tmp_path / "k.weights.h5", empty)[0] == ours
    if mode in ("int8 weights", "int4 inputs"):
        with pytest.raises(ValueError, match="with the default quantizers of"):
            fk.save_model(tmp_path / "o.keras", ours, state)
        ours = fk.dequantize(ours, ["att", "group"])
        expected = [np.asarray(y) for y in ours(IDS)]
    fk.save_model(tmp_path / "o.keras", ours, state)
    reopened, _ = fk.load_model(tmp_path / "o.keras")
    assert reopened == ours
    with keras_rules():
        theirs = keras.saving.load_model(tmp_path / "o.keras")
    _close(_outputs(theirs), expected)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", _some("int8 weights", "int4", "int4 inputs", "float8"))
def test_legacy_files_of_keras(weights, mode, tmp_path):
    """Keras itself opens neither float8 nor quantized attention in this form."""
    model = _quantized(weights, MODES[mode])
    for name in ("k.h5", "k.keras"):
        _save(model, tmp_path / name)
    from_h5, from_archive = (fk.load_model(tmp_path / name)[0] for name in ("k.h5", "k.keras"))
    assert from_h5 == from_archive
    assert from_h5.layers["att"].quantization is not None


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["float8", "int8"])
def test_trainings_resume(mode, tmp_path):
    x, y = RNG.normal(size=(8, 6)).astype("float32"), RNG.normal(size=(8, 3)).astype("float32")
    with keras_rules():
        members = [keras.layers.Dense(5, activation="tanh", kernel_regularizer="l2")]
        members.append(keras.layers.EinsumDense("ab,bc->ac", 3, bias_axes="c"))
        model = keras.Sequential([keras.Input((6,)), *members])
        for weight in model.weights:
            weight.assign(np.random.default_rng(weight.shape[0]).normal(size=weight.shape))
        _quantize(model, mode)
        model.compile(keras.optimizers.Adam(0.05), "mse")
        for _ in range(3):
            model.train_on_batch(x, y)
        model.save(tmp_path / "k.keras")
        expected = [float(model.train_on_batch(x, y)) for _ in range(4)]
    trainer, run = fk.load_training(tmp_path / "k.keras")
    for number, loss in enumerate(expected):
        run, logs = trainer.step(run, (x, y))
        np.testing.assert_allclose(logs["loss"], loss, rtol=1e-6)
        if number == 1:
            fk.save_model(tmp_path / "o.keras", run.model, run.state, trainer=trainer, run=run)
    with keras_rules():
        again = keras.saving.load_model(tmp_path / "o.keras")
        np.testing.assert_allclose(float(again.train_on_batch(x, y)), expected[2], rtol=1e-6)


@functools.lru_cache(maxsize=1)
def _calibrated():
    """Returns Keras's calibrated models, of tools/references/keras_quantized_reference.py."""
    path = DATA / "keras_quantized.json"
    return json.loads(path.read_text())["cases"]


def _case(name, path):
    """Writes the file of a case; returns the inputs and Keras's outputs."""
    case = _calibrated()[name]
    path.write_bytes(file_bytes(case))
    return np.array(case["inputs"]), array(case["outputs"])


def test_every_case_is_here():
    calibrated = {"gptq/4/2", "gptq/3/-1", "awq/4/2", "lost, symmetric", "lost"}
    assert set(_calibrated()) == {*calibrated, "int4", "int4, h5"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["int4", "int4, h5"])
def test_old_4_bit_codes_are_converted(name, tmp_path):
    """Keras 3.11 to 3.13 packed along another axis, and quantized inputs too."""
    path = tmp_path / ("k.h5" if "h5" in name else "k.keras")
    ids, expected = _case(name, path)
    ours, _ = fk.load_model(path)
    _close(ours(ids), [expected])
    kinds = {layer.quantization.policy_mode for layer in (ours.layers["wide"], ours.layers["out"])}
    assert kinds == {"int4/-1"} and ours.layers["wide"].kernel.shape == (6, 3)
    assert set(ours.layers["att"].quantization) == {
        *("query_dense", "key_dense", "value_dense", "output_dense"),
    }


def test_old_4_bit_codes_need_contracted_axes_first():
    """A kernel that is contracted over its last axis has no form in later versions."""
    layer = fk.layers.EinsumDense("ab,cb->ac", 4).build(jax.random.key(0), (None, 6))
    layer = fk.quantize(layer, "int4/-1")
    assert old_shapes(layer) == {"kernel": (4, 3), "kernel_scale": (1, 4)}
    with pytest.raises(ValueError, match="expected an equation that sums over the first axes"):
        renewed(layer, "kernel", np.zeros((4, 3), "int8"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["gptq/4/2", "gptq/3/-1", "awq/4/2"])
def test_calibrated_models(mode, tmp_path):
    ids, expected = _case(mode, tmp_path / "k.keras")
    ours, state = fk.load_model(tmp_path / "k.keras")
    assert ours.layers["block"].layers["in"].quantization.policy_mode == mode
    _close(ours(ids), [expected])
    fk.save_model(tmp_path / "o.keras", ours, state)
    assert fk.load_model(tmp_path / "o.keras")[0] == ours
    with keras_rules():
        theirs = keras.saving.load_model(tmp_path / "o.keras")
    _close(_outputs(theirs, ids), [expected])
    floats = fk.dequantize(ours)
    _close(floats(ids), [expected])
    assert type(floats.layers["block"].layers["wide"]) is fk.layers.Dense


@pytest.mark.exhaustive
def test_omitted_zero_points_are_restored_for_symmetric_codes(tmp_path):
    """Keras's GPTQ files lack zero points; only fkeras opens them, for symmetric codes."""
    ids, expected = _case("lost, symmetric", tmp_path / "k.keras")
    _close(fk.load_model(tmp_path / "k.keras")[0](ids), [expected])
    with keras_rules(), pytest.raises(ValueError, match="could not be loaded"):
        keras.saving.load_model(tmp_path / "k.keras")
    _case("lost", tmp_path / "k.keras")
    with pytest.raises(fk.FileError, match="omits them") as error:
        fk.load_model(tmp_path / "k.keras")
    assert error.value.layer == "block/wide"


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """Returns the path of a file with a quantized Dense."""
    path = tmp_path_factory.mktemp("good") / "m.keras"
    model = fk.Sequential([fk.Input((4,), name="x"), fk.layers.Dense(3, name="d")])
    fk.save_model(path, fk.quantize(model.build(jax.random.key(0)), "int4/2"))
    return path


def _changed(good, path, change):
    """Copies a file with a changed configuration of its layer; returns the new path."""
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            data = source.read(name)
            if name == "config.json":
                config = json.loads(data)
                change(config["config"]["layers"][1]["config"])
                data = json.dumps(config).encode()
            target.writestr(name, data)
    return path


def _set(key, value):
    return lambda config: config["dtype"]["config"].update({key: value})


BAD = {
    "mode": (_set("mode", "int7/2"), "expected a mode or a configuration"),
    "no word": (_set("mode", 3), "expected a mode or a configuration"),
    "size": (_set("mode", "int4/0"), "block_size"),
    "text": (_set("mode", "int4/many"), "received 'int4/many'"),
    "numbers": (_set("mode", "int8/4"), "expected a mode or a configuration"),
    "source": (_set("source_name", "float31"), "no dtype policy 'float31'"),
    "half": (
        lambda c: c.update(dtype="int8_from_float16", quantization_config=None),
        "computes in float32 or bfloat16",
    ),
    "two modes": (_set("mode", "int8"), "of the policy's mode 'int8'"),
    "another object": (
        lambda c: c.update(
            quantization_config={
                "class_name": "Zeros",
                "module": "keras.initializers",
                "config": {},
            }
        ),
        "expected a mode or a configuration",
    ),
    "no such class": (
        lambda c: c["quantization_config"].update(class_name="QuantizationConfig"),
        "there is no 'QuantizationConfig'",
    ),
    "history": (
        lambda c: c.update(
            quantization_config=None,
            dtype={
                "config": {"mode": "float8", "source_name": None, "amax_history_length": 1 << 40}
            },
        ),
        "amax_history_length",
    ),
    "other codes": (lambda c: c.update(units=9), "expected an array of shape"),
    "floats": (lambda c: c.update(dtype="float32"), "expected an array of shape|no layer of the"),
}


@pytest.mark.one_in(7)
@pytest.mark.parametrize("case", BAD)
def test_damaged_files(good, tmp_path, case):
    change, message = BAD[case]
    path = _changed(good, tmp_path / "bad.keras", change)
    with pytest.raises(fk.FileError, match=message):
        fk.load_model(path)


@pytest.mark.exhaustive
def test_float_kernels_of_quantized_layers_are_rejected(good, tmp_path):
    with zipfile.ZipFile(good) as file:
        (tmp_path / "w.h5").write_bytes(file.read("model.weights.h5"))
        members = {n: file.read(n) for n in file.namelist()}
    with h5py.File(tmp_path / "w.h5", "a") as file:
        place = next(p for p in ("layers/dense/vars",) if p in file)
        codes = file[f"{place}/0"][()]
        del file[f"{place}/0"]
        file[f"{place}/0"] = codes.astype("float32")
    members["model.weights.h5"] = (tmp_path / "w.h5").read_bytes()
    with zipfile.ZipFile(tmp_path / "bad.keras", "w") as file:
        for name, data in members.items():
            file.writestr(name, data)
    with pytest.raises(fk.FileError, match="expected int8 for 'd/kernel', received float32"):
        fk.load_model(tmp_path / "bad.keras")
