"""GPTQ and AWQ: errors against Keras's on the same samples, files, and rejected values."""

import unittest.mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, transforms
from tests.support.keras_oracle import keras, keras_rules
from tests.support.quick_cases import quick_cases

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
IDS = RNG.integers(0, 30, (48, 8)).astype("int32")
# inputs that depend on each other, with magnitudes that differ
MIX = RNG.normal(size=(16, 16)) * np.geomspace(0.1, 3, 16)
X = (RNG.normal(size=(64, 8, 16)) @ MIX).astype("float32")
OPTIONS = {"num_samples": 48, "sequence_length": 8}


def error(quantized, model, x, state=None):
    expected = np.asarray(model(x, state=state))
    return float(np.mean((np.asarray(quantized(x, state=state)) - expected) ** 2))


def attention():
    x = fk.Input((8, 16), name="x")
    y = layers.Dense(16, "relu", name="first")(x)
    y = layers.MultiHeadAttention(2, 8, name="att")(y, y)
    return fk.Model(x, layers.Dense(12, name="last")(y)).build(KEY)


def keras_model():
    block = [keras.layers.Dense(24, "relu"), keras.layers.Dense(16)]
    rows = keras.layers.Embedding(
        30, 16, embeddings_initializer=keras.initializers.RandomNormal(seed=1)
    )
    blocks = [
        keras.Sequential(
            [keras.Input((8, 16)), *(type(d).from_config(d.get_config()) for d in block)]
        )
        for _ in range(2)
    ]
    ids = keras.Input((8,), dtype="int32")
    x = rows(ids)
    for part in blocks:
        x = part(x)
    return keras.Model(ids, x), rows, blocks


CONFIGS = {
    "gptq": ("GPTQConfig", {"weight_bits": 4, "group_size": -1}),
    "gptq groups": ("GPTQConfig", {"weight_bits": 3, "group_size": 8}),
    "gptq order": (
        "GPTQConfig",
        {"weight_bits": 4, "group_size": 8, "activation_order": True, "symmetric": True},
    ),
    "awq": ("AWQConfig", {"group_size": -1}),
    "awq groups": ("AWQConfig", {"group_size": 8}),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", quick_cases(CONFIGS, "gptq", "awq"))
def test_errors_are_at_most_those_of_keras(case, tmp_path):
    name, options = CONFIGS[case]
    with keras_rules():
        theirs, rows, blocks = keras_model()
        theirs.save(tmp_path / "floats.keras")
        model, _ = fk.load_model(tmp_path / "floats.keras")
        config = getattr(keras.quantizers, name)(
            dataset=list(IDS),
            tokenizer=lambda text: text,
            quantization_layer_structure={"pre_block_layers": [rows], "sequential_blocks": blocks},
            **options,
            **OPTIONS,
        )
        core = f"keras.src.quantizers.{name[:-6].lower()}_core"
        samples = unittest.mock.patch(f"{core}.get_dataloader", return_value=IDS[:, None])
        with samples, unittest.mock.patch("gc.collect"):
            theirs.quantize(config=config)
        expected = np.asarray(model(IDS))
        their_error = float(np.mean((np.asarray(theirs(IDS)) - expected) ** 2))
    ours = fk.quantize(model, getattr(fk.quantizers, name)(**options, **OPTIONS), samples=IDS)
    our_error = error(ours, model, IDS)
    assert 0 < our_error <= 1.02 * their_error
    rounded = fk.quantize(model, f"int4/{options['group_size']}")
    if options.get("weight_bits", 4) == 4 and not options.get("symmetric"):
        assert our_error < error(rounded, model, IDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "mode", ["gptq/4/-1", "gptq/2/8", "gptq/3/5", "gptq/8/-1", "awq/4/8", "awq/4/-1"]
)
def test_calibrated_models_in_files_and_in_keras(mode, tmp_path):
    model = attention()
    ours = fk.quantize(model, mode, samples=X)
    assert ours.layers["att"].query_dense.quantization.policy_mode == mode
    fk.save_model(tmp_path / "m.keras", ours)
    assert fk.load_model(tmp_path / "m.keras")[0] == ours
    np.testing.assert_allclose(fk.dequantize(ours)(X), ours(X), atol=1e-4)
    with keras_rules():
        theirs = np.asarray(keras.saving.load_model(tmp_path / "m.keras")(X))
    np.testing.assert_allclose(theirs, ours(X), atol=2e-5 * np.abs(theirs).max())


@pytest.mark.exhaustive
def test_calibrated_codes_are_better_than_rounding_to_the_nearest():
    model = attention()
    nearest = error(fk.quantize(model, "int4/-1"), model, X)
    for mode in ("gptq/4/-1", "awq/4/-1"):
        assert error(fk.quantize(model, mode, samples=X), model, X) < nearest
    assert error(fk.quantize(model, "gptq/8/-1", samples=X), model, X) < nearest / 100


@pytest.mark.exhaustive
def test_all_rows_of_a_single_layer():
    layer = layers.Dense(5, "relu").build(KEY, (None, 16))
    rows = X.reshape(-1, 16)
    small = fk.quantize(layer, "gptq/4/-1", samples=rows)
    assert small.quantized_kernel.shape == (3, 16) and small.kernel_zero.dtype == "uint8"
    assert error(small, layer, rows) < error(fk.quantize(layer, "int4/-1"), layer, rows)


@pytest.mark.exhaustive
def test_patterns_states_and_folded_models():
    x = fk.Input((16,))
    y = layers.Dense(16, name="a")(x)
    y = layers.Dense(8, name="b")(layers.ReLU()(layers.BatchNormalization(name="bn")(y)))
    model = fk.Model(x, y).build(KEY)
    state = model.init_state()
    state["bn"]["moving_variance"] = jnp.linspace(0.5, 2, 16)
    rows = X.reshape(-1, 16)
    part = fk.quantize(model, "awq/4/8", "b", samples=rows, state=state)
    assert type(part.layers["a"]) is layers.Dense and part.layers["b"].awq_scales.shape == (16,)
    folded, _ = transforms.fold(model, state)
    codes = fk.quantize(folded, "gptq/4/8", samples=rows)
    assert [type(codes.layers[n]).__name__ for n in "ab"] == ["QuantizedDense"] * 2
    assert error(codes, folded, rows) < error(fk.quantize(folded, "int4/-1"), folded, rows)


def test_shared_layers_and_inputs_that_are_always_zero():
    x, dense = fk.Input((16,)), layers.Dense(16, "relu", name="dense")
    model = fk.Model(x, dense(dense(x))).build(KEY)
    rows = X.reshape(-1, 16) * (np.arange(16) > 3)
    small = fk.quantize(model, "gptq/4/-1", samples=rows)
    assert np.isfinite(small(rows)).all()


def test_values_that_calibration_rejects():
    model = attention()
    with pytest.raises(
        ValueError, match=r"needs samples. Write fk.quantize\(model, 'gptq/4/128', samples=x\)"
    ):
        fk.quantize(model, "gptq")
    with pytest.raises(ValueError, match="'int8' uses no samples"):
        fk.quantize(model, "int8", samples=X)
    with pytest.raises(
        ValueError, match="'first': expected finite samples, received inputs with NaN"
    ):
        fk.quantize(model, "awq", samples=np.full_like(X, np.nan))
    with pytest.raises(ValueError, match="expected finite samples, received no samples"):
        fk.quantize(model, "awq", "first", samples=X[:0])
    with pytest.raises(ValueError, match="'first' has no weights to choose codes for"):
        fk.quantize(fk.engine.unbuilt(model), "awq", samples=X)
    undamped = fk.quantizers.GPTQConfig(hessian_damping=0.0)
    with pytest.raises(ValueError, match="'first': expected samples whose inputs vary"):
        fk.quantize(model, undamped, samples=np.ones((1, 8, 16), "float32"))
    with pytest.raises(ValueError, match="is quantized already"):
        fk.quantize(fk.quantize(model, "int8"), "gptq", samples=X)
    last = layers.EinsumDense("ab,cb->ac", 4).build(KEY, (None, 16))
    with pytest.raises(ValueError, match="expected a kernel whose first axes are the inputs"):
        fk.quantize(last, "gptq", samples=X[:, 0])
    steps = layers.TimeDistributed(layers.Dense(2), name="steps").build(KEY, (None, 8, 16))
    with pytest.raises(ValueError, match="'layer' computes all steps of a sequence at once"):
        fk.quantize(steps, "gptq", samples=X)
