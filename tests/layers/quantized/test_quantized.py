"""Codes and scales, quantized layers as values, and rejected arguments."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import fkeras as fk
from fkeras import layers, quantizers
from fkeras.engine.tree.axes import weight_axis_roles, weight_units
from fkeras.nn.cpu.forms import On
from tests.support.keras_oracle import keras, keras_rules

KEY = jax.random.key(0)
X = np.random.default_rng(0).normal(size=(3, 4, 6)).astype("float32")
FLOATS = st.floats(-100, 100, width=32)
MATRICES = hnp.arrays(
    "float32", hnp.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=FLOATS
)
quick = settings(max_examples=40, deadline=None, derandomize=True, database=None)


@pytest.mark.exhaustive
@quick
@given(x=MATRICES, axis=st.sampled_from([0, 1, -1, (0, 1)]))
def test_codes_are_within_half_a_step(x, axis):
    codes, scale = quantizers.abs_max_quantize(x, axis)
    assert codes.dtype == np.int8 and np.abs(codes.astype("int32")).max() <= 127
    step = 1 / scale.astype("float64")
    assert (np.abs(codes * step - x) <= 0.5001 * step + 1e-6).all()


@pytest.mark.exhaustive
@quick
@given(x=MATRICES, block=st.integers(1, 12))
def test_blocks_are_within_a_step(x, block):
    codes, scale, zero = quantizers.abs_max_quantize_grouped_with_zero_point(x, block)
    groups = np.arange(len(x)) // block
    assert scale.shape == zero.shape == (groups[-1] + 1, x.shape[1])
    assert codes.min() >= -8 and codes.max() <= 7 and zero.dtype == np.int8
    back = (codes - zero[groups].astype("float32")) * scale[groups]
    assert (np.abs(back - x) <= 1.01 * scale[groups] + 1e-5).all()


@pytest.mark.exhaustive
@quick
@given(
    codes=hnp.arrays("int8", hnp.array_shapes(max_dims=3, max_side=7), elements=st.integers(-8, 7)),
    axis=st.integers(-3, 2),
)
def test_two_codes_per_byte(codes, axis):
    axis = axis % codes.ndim
    packed = quantizers.pack_int4(codes, axis)
    assert packed.dtype == np.int8 and packed.shape[axis] == -(-codes.shape[axis] // 2)
    size = codes.shape[axis]
    packed, codes = np.moveaxis(packed, axis, 0), np.moveaxis(codes, axis, 0)
    np.testing.assert_array_equal((packed << 4).astype("int8") >> 4, codes[::2])
    np.testing.assert_array_equal(packed[: size // 2] >> 4, codes[1::2])


def test_codes_under_a_trace_match_the_host():
    x = np.random.default_rng(1).normal(size=(7, 5)).astype("float32")

    def all_of(x):
        codes, scale, zero = quantizers.abs_max_quantize_grouped_with_zero_point(x, 3)
        packed = quantizers.pack_int4(codes, 1)
        unsigned = quantizers.unpack_int4(packed.view("uint8"), 5, 1)
        return codes, packed, unsigned, quantizers.unpack_int4(packed, 5, 1), scale, zero

    traced, host = jax.jit(all_of)(x), all_of(x)
    for actual, expected in zip(traced[:4], host[:4], strict=True):
        np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(host[3], host[0])
    np.testing.assert_array_equal(host[2], host[0].view("uint8") & 15)
    np.testing.assert_allclose(traced[4], host[4], rtol=1e-6)
    np.testing.assert_array_equal(traced[5], host[5])


def _model():
    x = fk.Input((4, 6), name="x")
    y = layers.MultiHeadAttention(2, 3, name="att")(x, x)
    y = layers.TimeDistributed(layers.Dense(5, name="in"), name="each")(y)
    y = layers.EinsumDense("abc,cd->abd", (None, 3), bias_axes="d", name="sum")(y)
    inner = fk.Sequential([fk.Input((4, 3)), layers.Dense(2, name="head")], name="inner")
    return fk.Model(x, inner(y), name="m").build(KEY)


@functools.lru_cache(maxsize=1)
def _floats():
    return _model()


@functools.cache
def _coded(mode):
    return fk.quantize(_floats(), mode)


# 4-bit codes without blocks are computed like 8-bit codes, and packed like codes with blocks
MODES = ("int8", "int4/2", pytest.param("int4/-1", marks=pytest.mark.exhaustive), "float8")


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
def test_a_quantized_model_is_a_value(mode):
    model, floats = _coded(mode), _floats()
    # the relative error is below 2% for 8-bit codes and below 20% for 4-bit codes
    limit = 0.02 if mode == "int8" else 0.2
    value = model(X)
    assert 0 < np.abs(value - floats(X)).max() < limit * np.abs(floats(X)).max()
    np.testing.assert_array_equal(jax.jit(lambda m, x: m(x))(model, X), value)
    if mode == "int8":  # one scale per row
        rows = jax.vmap(lambda x: model(x[None])[0])(X)
        np.testing.assert_allclose(rows, value, rtol=1e-5, atol=1e-5)
    assert fk.engine.unbuilt(model).get_config() == model.get_config()
    assert fk.Model.from_config(model.get_config()) == fk.engine.unbuilt(model)
    again = fk.Model.from_config(model.get_config()).build(KEY)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    chex.assert_trees_all_equal_shapes_and_dtypes(again, model)
    assert fk.quantize(fk.engine.unbuilt(floats), mode) == fk.engine.unbuilt(model)


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", MODES)
def test_trained_weights(mode):
    model = _coded(mode)
    trainable, rest = fk.partition(model)
    names = set(fk.engine.trainable_weights(model))
    kernels = {name for name in names if name.endswith("kernel")}
    assert len(names - kernels) == 7 and len(kernels) == (7 if mode == "float8" else 0)
    assert fk.combine(trainable, rest) == model
    grads = jax.jit(jax.grad(lambda t, r: jnp.sum(fk.combine(t, r)(X) ** 2)))(trainable, rest)
    assert all(jnp.any(g != 0) for g in jax.tree.leaves(grads)[1:])
    frozen = fk.freeze(model)
    assert fk.engine.trainable_weights(frozen) == fk.engine.overwritten_weights(frozen) == {}
    assert fk.unfreeze(frozen) == model


@pytest.mark.exhaustive
@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_gradients_ignore_the_rounding(platform, monkeypatch):
    if platform == "gpu":
        monkeypatch.setattr(On, "fast", On.default)
    for layer in (
        layers.Dense(5, use_bias=False),
        layers.EinsumDense("abc,cde->adbe", (4, None, 2)),
        layers.EinsumDense("ab...,bc->ac...", 5),
    ):
        coded = fk.quantize(layer.build(KEY, X), "int8")
        floats = fk.dequantize(coded)
        weigh = jnp.cos(jnp.arange(floats(X).size, dtype="float32")).reshape(floats(X).shape)

        def slope(layer, weigh=weigh):
            return jax.jit(jax.grad(lambda x: jnp.sum(layer(x) * weigh)))(X)

        np.testing.assert_allclose(slope(coded), slope(floats), rtol=1e-5, atol=1e-6)
        tangents = [jax.jit(lambda x, l=l: jax.jvp(l, (x,), (x,)))(X)[1] for l in (coded, floats)]
        np.testing.assert_allclose(*tangents, rtol=1e-5, atol=1e-6)


@pytest.mark.exhaustive
def test_float8_scales_are_overwritten_by_their_gradients():
    """The gradients of scales and histories are their next values."""
    layer = layers.Dense(2, use_bias=False).build(KEY, (None, 3))
    layer = fk.quantize(layer, quantizers.Float8QuantizationConfig(4))
    weights = fk.engine.overwritten_weights(layer)
    x = jnp.array([[1.0, -3.0, 2.0]])

    def loss(weights, training):
        out = fk.engine.replace_weights(layer, weights).apply(x, training=training)
        return jnp.sum(out.value * jnp.array([[5.0, -7.0]]))

    new = jax.grad(loss)(weights, True)
    assert new["inputs_amax_history"].tolist() == [3, 0, 0, 0]
    assert new["outputs_grad_amax_history"].tolist() == [7, 0, 0, 0]
    assert new["kernel_amax_history"][0] == jnp.max(jnp.abs(layer.kernel))
    assert new["inputs_scale"] == 1  # the scale of the empty history
    later = jax.grad(loss)(new, True)
    assert later["inputs_scale"] == np.float32(3 / 448)
    assert later["outputs_grad_scale"] == np.float32(7 / 57344)
    assert later["inputs_amax_history"].tolist() == [3, 0, 0, 3]
    rest = jax.grad(loss)(later, False)
    assert rest["inputs_scale"] == later["inputs_scale"]
    assert rest["inputs_amax_history"].tolist() == later["inputs_amax_history"].tolist()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["int8", "float8"])
def test_a_trainer_trains_quantized_models(mode):
    model = fk.Sequential([fk.Input((6,)), layers.Dense(5, "tanh"), layers.Dense(1)])
    model = fk.quantize(model.build(KEY), mode)
    trainer = fk.Trainer(fk.optimizers.Adam(0.05), "mse")
    x = X.reshape(12, 6)
    run, history = trainer.fit(trainer.init(model, KEY), x, x[:, :1] + 1, epochs=5, batch_size=12)
    losses = history.history["loss"]
    assert losses[-1] < losses[0]
    first, last = model.layers["dense"], run.model.layers["dense"]
    if mode == "int8":
        np.testing.assert_array_equal(first.kernel, last.kernel)
        np.testing.assert_array_equal(first.kernel_scale, last.kernel_scale)
        assert np.abs(last.bias).max() > 0
    else:
        largest = np.abs(x).max()
        np.testing.assert_allclose(last.inputs_amax_history[:1], largest)
        assert np.count_nonzero(last.inputs_amax_history) == 5
        np.testing.assert_allclose(last.inputs_scale, largest / 448, rtol=1e-6)


@pytest.mark.exhaustive
def test_patterns_choose_layers():
    model = fk.quantize(_floats(), "int8", ["att/query*", "inner"])
    class_names = {p: type(layer).__name__ for p, layer in fk.engine.sublayers(model) if p}
    coded = {path for path, class_name in class_names.items() if class_name == "QuantizedDense"}
    assert coded == {"att/query_dense", "inner/head"}
    assert set(model.layers["att"].quantization) == {"query_dense"}
    mixed = fk.quantize(model, "int4/2", ["sum", "each", "att/k*"])
    assert {k: q.policy_mode for k, q in mixed.layers["att"].quantization.items()} == {
        "query_dense": "int8",
        "key_dense": "int4/2",
    }
    without_attention = fk.dequantize(mixed, "att")
    assert without_attention.layers["att"].quantization is None
    assert type(without_attention.layers["sum"]) is layers.QuantizedDense
    floats = fk.dequantize(mixed)
    assert jax.tree.structure(floats) == jax.tree.structure(_floats())
    np.testing.assert_array_equal(floats.layers["att"].query_dense.bias, 0)


UNGROUPED = quantizers.Int4QuantizationConfig(block_size=None)
CODED = {
    "dense": (
        layers.Dense(12),
        (None, 6),
        {"kernel": ("_h", (6, 6)), "kernel_scale": ("h", (12,))},
    ),
    "narrow": (layers.Dense(4), (None, 6), {"kernel": ("h_", (6, 2)), "kernel_scale": ("_", (4,))}),
    # seven columns need four bytes, one of which two devices would share
    "odd": (layers.Dense(7), (None, 6), {"kernel": ("_h", (6, 1)), "kernel_scale": ("h", (7,))}),
    # two heads of eight channels are two units, not eight bytes
    "to heads": (
        layers.EinsumDense("abc,cde->abde", (None, 2, 8), axis_roles={"d": "heads"}),
        (None, 3, 6),
        {"kernel": ("_n", (6, 2)), "kernel_scale": ("n", (2,))},
    ),
    "from heads": (
        layers.EinsumDense("abcd,cde->abe", (None, 6), axis_roles={"c": "heads"}),
        (None, 3, 2, 8),
        {"kernel": ("n_", (2, 3)), "kernel_scale": ("_", (6,))},
    ),
    # codes flatten another order of axes: no axis of the matrix is one of the kernel
    "scrambled": (
        layers.EinsumDense("abc,dc->abd", (None, 8)),
        (None, 3, 6),
        {"kernel": ("__", (6, 4))},
    ),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", CODED)
def test_codes_of_4_bits_have_the_roles_and_units_of_the_floats(name):
    layer, shape, expected = CODED[name]
    layer = layer.build(KEY, shape)
    letters = {None: "_", "hidden": "h", "heads": "n"}
    for mode, grouped in ((UNGROUPED, False), ("int4/2", True)):
        coded = fk.quantize(layer, mode)
        roles, units = weight_axis_roles(coded), weight_units(coded)
        for weight, (text, sizes) in expected.items():
            if grouped and weight == "kernel_scale":
                assert roles["kernel_zero"] == roles[weight]
                text, sizes = f"_{text}", (coded.kernel_scale.shape[0], *sizes)
            assert "".join(letters[role] for role in roles[weight]) == text
            assert units[weight] == sizes
        if grouped:
            assert letters[roles["g_idx"][0]] == expected["kernel"][0][0]


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["gptq/4/-1", "awq/4/2", "gptq/8/2"])
def test_calibrated_codes_have_the_roles_and_units_of_the_floats(mode):
    layer = fk.quantize(layers.Dense(12).build(KEY, (None, 6)), mode, samples=X[0])
    roles, units = weight_axis_roles(layer), weight_units(layer)
    assert roles["quantized_kernel"] == roles["kernel_scale"] == ("hidden", None)
    assert units["quantized_kernel"] == (12 if "/8/" in mode else 6, 6)
    assert units["kernel_scale"][0] == 12 and roles["g_idx"] == (None,)


@pytest.mark.parametrize("mode", ["int8", UNGROUPED, "int4/2"], ids=str)
def test_coded_embeddings_are_split_by_the_vocabulary(mode):
    layer = layers.ReversibleEmbedding(10, 4, tie_weights=False)
    roles = weight_axis_roles(fk.quantize(layer.build(KEY, (None, 3)), mode))
    places = {name: axes.index("vocab") for name, axes in roles.items() if "vocab" in axes}
    grouped = mode == "int4/2"
    assert places == {
        "embeddings": 0,
        "embeddings_scale": 0,
        "reverse_embeddings": 1,
        "reverse_embeddings_scale": int(grouped),
        **({"embeddings_zero": 0, "reverse_embeddings_zero": 1} if grouped else {}),
    }


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("layer", "shapes", "role", "message"),
    [
        (
            layers.Dense(12, name="up"),
            ((4, 6), (4, 12)),
            "hidden",
            r"of shape \(6, 6\) cannot be split into 4 parts",
        ),
        (
            layers.EinsumDense("abc,cde->abde", (None, 2, 8), axis_roles={"d": "heads"}, name="q"),
            ((4, 3, 6), (4, 3, 2, 8)),
            "heads",
            r"axis of 8 \(2 units of packed codes\)",
        ),
    ],
    ids=["columns", "heads"],
)
def test_rules_that_codes_cannot_follow_name_their_units(layer, shapes, role, message):
    inputs = shapes[0][1:]
    layer = fk.quantize(layer.build(KEY, (None, *inputs)), "int4")
    batch = tuple(jax.ShapeDtypeStruct(shape, "float32") for shape in shapes)
    trainer = fk.Trainer("sgd", "mse", sharding={role: "model"})
    with pytest.raises(ValueError, match=message):
        mesh = {"data": 1, "model": 4}
        fk.plan(fk.Sequential([fk.Input(inputs), layer]), batch, trainer, mesh=mesh)


@pytest.mark.exhaustive
def test_attention_in_keras_json():
    for layer in (
        layers.MultiHeadAttention(2, 3, quantization="int8"),
        layers.MultiHeadAttention(2, 3, name="a.b", use_gate=True, quantization="int4/8"),
        layers.GroupQueryAttention(3, 4, 2, quantization={"query_dense": "float8"}),
    ):
        config = layers.serialize(layer)
        assert layers.deserialize(config) == layer
        with keras_rules():
            reference = keras.layers.deserialize(config)
            reference.build((None, 4, 6), (None, 4, 6))
            modes = {child.name: child.quantization_mode for child in reference._flatten_layers()}
        expected = {FIELDS[name]: config.mode for name, config in layer.quantization.items()}
        assert {name: mode for name, mode in modes.items() if mode is not None} == expected


def test_half_precision():
    layer = layers.Dense(5, dtype="mixed_bfloat16", name="d").build(KEY, X)
    coded = fk.quantize(layer, "int8")
    assert coded(X).dtype == jnp.bfloat16 and coded.kernel_scale.dtype == jnp.float32
    np.testing.assert_allclose(coded(X).astype("float32"), layer(X), rtol=0.1, atol=0.05)
    assert coded.get_config()["dtype"]["config"]["source_name"] == "mixed_bfloat16"
    assert fk.dequantize(coded).dtype == layer.dtype


@pytest.mark.exhaustive
def test_an_embedding_is_looked_up_as_floats():
    ids = np.array([[0, 3, 9]])
    layer = layers.Embedding(10, 5, mask_zero=True).build(KEY, ids)
    for mode in ("int8", "int4/2", "int4/-1"):
        coded = fk.quantize(layer, mode)
        out = coded.apply(ids)
        np.testing.assert_array_equal(out.value, fk.dequantize(coded)(ids))
        assert out.mask.tolist() == [[False, True, True]]
        assert np.isnan(coded(ids + 1)).any(axis=-1).tolist() == [[False, False, True]]


@pytest.mark.exhaustive
def test_weights_round_trip_through_files(tmp_path):
    model = _coded("int4/2")
    fresh = fk.quantize(fk.engine.unbuilt(_floats()), "int4/2").build(jax.random.key(1))
    assert fresh != model
    for name in ("w.weights.h5", "w.safetensors", "w.npz"):
        fk.save_weights(tmp_path / name, model)
        assert fk.load_weights(tmp_path / name, fresh)[0] == model
        with pytest.raises(fk.FileError, match="of another model"):
            fk.load_weights(tmp_path / name, _floats())


FIELDS = {
    "query_dense": "query",
    "key_dense": "key",
    "gate_dense": "gate",
    "value_dense": "value",
    "output_dense": "attention_output",
}


class Other(layers.Dense):
    """A subclass defined by a user."""


BAD = {
    "mode": (lambda: fk.quantize(_floats(), "int9"), "Did you mean 'int8'"),
    "nothing": (lambda: fk.quantize(_floats(), None), "received None"),
    "examples": (lambda: fk.quantize(_floats(), "gptq/4/32"), "needs samples"),
    "no model": (lambda: fk.quantize(3), "expected a layer or model, received int"),
    "no match": (lambda: fk.quantize(_floats(), "int8", "summ"), "Did you mean 'sum'"),
    "no layer": (lambda: fk.quantize(layers.ReLU()), "found no layer for 'int8'"),
    "own class": (lambda: fk.quantize(Other(2).build(KEY, X)), "found no layer"),
    "twice": (lambda: fk.quantize(_coded("int8"), "int4"), "'att/query_dense' is quantized"),
    "convolution": (lambda: layers.QuantizedDense(layers.Conv2D(3, 3)), "received Conv2D"),
    "class": (lambda: layers.QuantizedDense(layers.Dense), "expected a layer, received Dense"),
    "other class": (
        lambda: layers.QuantizedDense(Other(2)),
        "Dense or EinsumDense, not a subclass",
    ),
    "other mode": (
        lambda: layers.QuantizedDense(layers.Dense(2), "float8"),
        "which selects the class",
    ),
    "dtype": (lambda: layers.Dense(2, dtype="int8_from_float32"), "fk.quantize"),
    "half": (
        lambda: fk.quantize(layers.Dense(2, dtype="mixed_float16").build(KEY, X)),
        "overflow float16",
    ),
    "projection": (
        lambda: layers.MultiHeadAttention(2, 3, quantization={"query": "int8"}),
        "among query_dense",
    ),
    "axis": (lambda: _coded("int8")(X[..., :5]), "expected shape"),
    "axis of a layer": (
        lambda: _coded("int8").layers["sum"](X[..., :4]),
        "expected axis 2 of size 5",
    ),
    "both": (
        lambda: quantizers.Int4QuantizationConfig(
            activation_quantizer=quantizers.AbsMaxQuantizer()
        ),
        "no quantizers together with block_size=128",
    ),
    "range": (lambda: quantizers.AbsMaxQuantizer(value_range=(0, 300)), "from -128 to 127"),
    "range below": (lambda: quantizers.AbsMaxQuantizer(value_range=(-8, 0)), "above 0"),
    "range of 4": (
        lambda: quantizers.Int4QuantizationConfig(quantizers.AbsMaxQuantizer(), block_size=None),
        r"expected value_range=\(-8, 7\)",
    ),
    "epsilon": (lambda: quantizers.AbsMaxQuantizer(epsilon=0), "between 0 and 1"),
    "axes": (lambda: quantizers.AbsMaxQuantizer(axis="last"), "received 'last'"),
    "codes": (lambda: quantizers.AbsMaxQuantizer(output_dtype="int4"), r"value_range=\(-8, 7\)"),
    "quantizer": (lambda: quantizers.Int8QuantizationConfig("abs_max"), "or None"),
    "block": (lambda: quantizers.Int4QuantizationConfig(block_size=0), "received 0"),
    "group": (lambda: quantizers.GPTQConfig(group_size=2.5), "received 2.5"),
    "bits": (lambda: quantizers.GPTQConfig(weight_bits=5), "expected an integer from 2 to 4 or 8"),
    "bits of AWQ": (lambda: quantizers.AWQConfig(weight_bits=8), "expected 4"),
    "history": (lambda: quantizers.Float8QuantizationConfig(0), "received 0"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_arguments_are_rejected(what):
    call, words = BAD[what]
    with pytest.raises((ValueError, TypeError), match=words):
        call()


@pytest.mark.parametrize(
    "quantization", ["int8", "int4", fk.quantizers.Int4QuantizationConfig(block_size=2)], ids=str
)
def test_large_tables_are_quantized_in_slices(quantization, monkeypatch):
    layer = layers.ReversibleEmbedding(7, 5, tie_weights=False)
    layer = layer.build(jax.random.key(0), jax.ShapeDtypeStruct((None, 3), "int32"))
    expected = fk.quantize(layer, quantization)
    monkeypatch.setattr("fkeras.layers.quantized.embedding._SLICE", 12)  # 2 vectors, 1 in the last
    assert fk.quantize(layer, quantization) == expected


def test_indices_of_groups_that_a_dtype_rounds_are_an_error():
    layer = fk.quantize(layers.Dense(2).build(KEY, (None, 2 * 258)), "int4/2")
    rounded = layer.replace(g_idx=layer.g_idx.astype("bfloat16"))
    with pytest.raises(ValueError, match="indices of 258 groups in float32"):
        rounded.dequantize()
    exact = layer.replace(g_idx=layer.g_idx.astype("float16")).dequantize()
    assert (exact.kernel == layer.dequantize().kernel).all()
