"""Products of few rows with codes of 4 or 8 bits equal those with dequantized matrices."""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers
from fkeras.layers.core.einsum_dense import Equation
from fkeras.layers.quantized.code_sums import column_product, fits_columns, fits_rows, row_product
from fkeras.layers.quantized.packed_products import BlockMatrix, PackedProduct
from fkeras.layers.quantized.products import IntegerProduct
from fkeras.nn.cpu.forms import compute

KEY = jax.random.key(0)
UNGROUPED = fk.quantizers.Int4QuantizationConfig(block_size=None, activation_quantizer=None)
# a layer, its inputs, the options of the call
LAYERS = {
    "many outputs": (layers.Dense(600, "relu"), (4, 20), {}),
    "odd": (layers.Dense(531), (2, 13), {}),
    "few outputs": (layers.Dense(6), (2, 13), {}),
    "outputs in two axes": (
        layers.EinsumDense("abc,cde->abde", (None, 8, 70), bias_axes="e"),
        (2, 3, 16),
        {},
    ),
    "sums of two axes": (layers.EinsumDense("abcd,cde->abe", (None, 520)), (2, 3, 4, 6), {}),
    "another order": (layers.EinsumDense("abc,dc->abd", (None, 130)), (2, 3, 4), {}),
    "many rows": (layers.Dense(130), (40, 16), {}),
    "tied": (layers.ReversibleEmbedding(270, 12), (2, 3, 12), {"reverse": True}),
    "tied, odd": (layers.ReversibleEmbedding(270, 7), (2, 3, 7), {"reverse": True}),
    "untied": (layers.ReversibleEmbedding(270, 12, False), (2, 3, 12), {"reverse": True}),
}
ROWS = [(name, mode) for name in LAYERS for mode in ("int4", "int4/6", "int4/5", UNGROUPED)]
GENERAL = ("another order", "many rows")
# programs for TPUs alone have arrays of int4
_of_tpus = pytest.mark.skipif(
    jax.__version_info__ < (0, 8),
    reason="the CPU compiler of jaxlib 0.7 aborts over int4 arrays, and lacks products of bfloat16 in float32",
)


def quantized(name, mode):
    layer, shape, options = LAYERS[name]
    x = np.random.default_rng(0).normal(size=shape).astype("float32")
    spec = jax.ShapeDtypeStruct((None, 3), "int32") if options else x
    return fk.quantize(layer.build(KEY, spec), mode), x, options


@pytest.mark.exhaustive
@pytest.mark.parametrize(("name", "mode"), ROWS, ids=[f"{n}-{m}"[:30] for n, m in ROWS])
def test_values_and_gradients_are_those_of_the_floats(name, mode):
    layer, x, options = quantized(name, mode)

    def loss(layer, x):
        y = layer(x, **options)
        return jnp.sum(jnp.sin(y)), y

    both = jax.jit(jax.value_and_grad(loss, argnums=1, has_aux=True))
    (_, y), gradient = both(layer, x)
    (_, expected), slope = both(layer.dequantize(), x)
    np.testing.assert_allclose(y, expected, atol=2e-6)
    np.testing.assert_allclose(gradient, slope, atol=1e-5)
    program = str(jax.make_jaxpr(lambda layer, x: layer(x, **options))(layer, x))
    odd_blocks = mode == "int4/5" and bool(options)
    assert ("PackedProduct" in program) == (name not in GENERAL and not odd_blocks)


@_of_tpus
@pytest.mark.one_in(len(ROWS) // 3)
@pytest.mark.parametrize(("name", "mode"), ROWS, ids=[f"{n}-{m}"[:30] for n, m in ROWS])
def test_unpacked_codes_compute_the_same(name, mode):
    layer, x, options = quantized(name, mode)
    ids = np.array([[1, 0, 2]]) if options else x

    def both(layer):
        return layer(x, **options), layer(ids)

    unpacked = jax.jit(lambda layer: layer.unpacked())(layer)
    codes = unpacked.embeddings if options else unpacked.kernel
    assert codes.dtype == "int4"
    assert not unpacked.has_packed_codes
    expected = jax.jit(lambda layer: both(layer.dequantize()))(layer)
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, atol=2e-6), jax.jit(both)(unpacked), expected
    )


@_of_tpus
def test_unpacking_a_16_bit_layer_keeps_the_dtype_of_computations():
    layer, x, _ = quantized("few outputs", "int4/6")
    layer, x = fk.cast(layer, "bfloat16"), x.astype("bfloat16")
    unpacked = layer.unpacked()
    assert unpacked.kernel_scale.dtype == "float32"
    y, expected = jax.jit(lambda layer, other: (layer(x), other(x)))(unpacked, layer)
    assert y.dtype == "bfloat16"
    y, expected = (np.asarray(a, "float32") for a in (y, expected))
    np.testing.assert_allclose(y, expected, atol=0.02 * np.abs(expected).max())


def test_unpacked_scales_of_groups_out_of_order_are_nan():
    layer, x, _ = quantized("few outputs", "int4/6")
    mixed = layer.replace(g_idx=layer.g_idx[::-1])
    assert np.isnan(np.asarray(mixed.unpacked()(x))).all()


@pytest.mark.parametrize("mode", ["int4", "int8"])
def test_products_of_no_rows(mode):
    layer, x, _ = quantized("few outputs", mode)
    assert layer(x[:0]).shape == (0, 6)


def test_layers_without_packed_codes_stay():
    layer, x, _ = quantized("few outputs", "int8")
    assert layer.unpacked() is layer


@pytest.mark.exhaustive
def test_rows_may_be_mapped_and_models_too():
    layer, x, _ = quantized("many outputs", "int4/6")
    others = fk.quantize(layers.Dense(600, "relu").build(jax.random.key(1), x), "int4/6")
    xs = jnp.stack([x, 2 * x])
    pair = jax.tree.map(lambda a, b: jnp.stack([a, b]), layer, others)
    y = jax.jit(jax.vmap(lambda layer, x: layer(x)))(pair, xs)
    expected = jnp.stack([layer.dequantize()(xs[0]), others.dequantize()(xs[1])])
    np.testing.assert_allclose(y, expected, atol=2e-6)
    y = jax.jit(jax.vmap(lambda x: layer(x)))(xs)
    np.testing.assert_allclose(y, jax.vmap(layer.dequantize())(xs), atol=2e-6)


@pytest.mark.exhaustive
def test_derivatives_of_scales_with_blocks():
    layer, x, _ = quantized("many outputs", "int4/6")

    def loss(scale, call):
        return jnp.sum(jnp.sin(call(layer.replace(kernel_scale=scale))))

    ours = jax.grad(loss)(layer.kernel_scale, lambda layer: layer(x))
    theirs = jax.grad(loss)(layer.kernel_scale, lambda layer: layer.dequantize()(x))
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-4)


@pytest.mark.exhaustive
def test_half_precision_sums_halves_of_bytes_in_one_product():
    layer = layers.Dense(256, dtype="bfloat16").build(KEY, (None, 64))
    layer, x = fk.quantize(layer, "int4"), jnp.linspace(-1, 1, 128, dtype="bfloat16").reshape(2, 64)
    np.testing.assert_allclose(layer(x), layer.dequantize()(x), atol=2e-2)
    assert layer(x).dtype == jnp.bfloat16


def loop_of(outputs, size, rows) -> Any:
    layer = fk.quantize(layers.Dense(outputs).build(KEY, (None, size)), "int4")

    def steps(layer, x):
        return jax.lax.fori_loop(0, 9, lambda _, x: jnp.sin(layer(x)[:, :size]), x)

    return jax.jit(steps).lower(layer, np.ones((rows, size), "float32")).compile()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("outputs", [512, 4096])
def test_no_loop_holds_the_floats(outputs):
    shapes = re.findall(r"f32\[([\d,]+)\]", loop_of(outputs, 64, 2).as_text())
    most = max(np.prod([int(n) for n in shape.split(",")]) for shape in shapes)
    assert most <= 64 * outputs // 2


def test_no_loop_of_single_rows_holds_the_floats():
    program = loop_of(512, 512, 1)
    assert "column_product" in program.as_text()
    assert program.memory_analysis().temp_size_in_bytes < 512 * 512


# inputs with the same scales, inputs, outputs, rows: one and several groups in a step of the loop, rests of both
UNROLLED = {
    "columns": [
        (96, 160, 6, 1),
        (128, 288, 6, 1),
        (32, 352, 4098, 2),
        (None, 272, 6, 4),
        (16, 48, 2100, 1),
    ],
    "rows": [(128, 288, 6, 1), (32, 352, 4098, 2), (None, 288, 6, 4), (96, 192, 3, 8)],
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("kind", "sizes"), [(k, sizes) for k, rows in UNROLLED.items() for sizes in rows]
)
def test_unrolled_sums_of_few_rows_equal_those_of_the_floats(kind, sizes):
    block, size, outputs, rows = sizes
    random, groups = np.random.default_rng(0), 1 if block is None else -(-size // block)
    codes = random.integers(-8, 8, (size, outputs), "int8")
    scale = random.uniform(0.5, 1.5, (groups, outputs)).astype("float32")
    zero = [] if block is None else [random.integers(-8, 8, (groups, outputs), "int8")]
    x = random.normal(size=(rows, size)).astype("float32")
    spread = [f.repeat(block or size, axis=0)[:size].astype("float64") for f in (scale, *zero)]
    floats = (codes - spread[1]) * spread[0] if zero else codes / spread[0]
    packed, factors = fk.quantizers.pack_int4(codes, axis=1), [scale, *zero]
    fits: Any = fits_columns
    product: Any = column_product
    if kind == "rows":
        packed, factors = fk.quantizers.pack_int4(codes.T, axis=1), [f.T for f in factors]
        fits, product = fits_rows, row_product
    assert fits(x, packed, block)
    y = jax.jit(lambda *operands: product(*operands, block=block))(x, packed, *factors)
    np.testing.assert_allclose(y, x @ floats, rtol=1e-5, atol=1e-5 * np.abs(x @ floats).max())


# equations, shapes of the codes of x and of a kernel
INTEGERS = {
    "columns": ("abx,xy->aby", (2, 1, 64), (64, 70)),
    "wide columns": ("ax,xy->ay", (3, 352), (352, 4100)),
    "rows": ("abx,yx->aby", (1, 4, 352), (7, 352)),
    "several axes": ("abcd,cdef->abef", (2, 1, 4, 8), (4, 8, 3, 5)),
    "no output": ("ab,b->a", (2, 64), (64,)),
}


@pytest.mark.one_in(4)
@pytest.mark.parametrize("name", INTEGERS)
def test_sums_of_integers_in_floats_are_exact(name):
    text, *shapes = INTEGERS[name]
    random = np.random.default_rng(0)
    operands = [random.integers(-127, 128, shape, "int8") for shape in shapes]
    form = IntegerProduct(Equation.parse(text), "float32")
    program = jax.jit(form.fast).lower(*operands)
    assert f"byte_{'row' if name == 'rows' else 'column'}_product" in program.as_text()
    expected = np.einsum(text, *(operand.astype("int32") for operand in operands))
    np.testing.assert_array_equal(program.compile()(*operands), expected)
    mapped = jax.jit(jax.vmap(lambda x: compute(form, x, operands[1])))(operands[0][None])
    np.testing.assert_array_equal(mapped[0], expected)


@pytest.mark.parametrize("other", ["abx,cxy->abcy", "abx,xy->yab"])
def test_other_equations_sum_integers(other):
    random, (_, kernel) = np.random.default_rng(0), other.split("->")[0].split(",")
    sizes = {"a": 2, "b": 1, "c": 3, "x": 32, "y": 5}
    shapes = [[sizes[n] for n in letters] for letters in ("abx", kernel)]
    operands = [jnp.asarray(random.integers(-127, 128, shape, "int8")) for shape in shapes]
    y = IntegerProduct(Equation("abx", kernel, other.split("->")[1], None), "float32").fast(
        *operands
    )
    expected = np.einsum(other, *(operand.astype("int32") for operand in operands))
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("pairs", ["inputs", "outputs"])
@pytest.mark.parametrize(("block", "axis"), [(None, 1), (6, 0)])
def test_products_of_accelerators_equal_those_of_cpus(pairs, block, axis):
    random, rows = np.random.default_rng(0), 10
    groups = 1 if block is None else -(-rows // block)
    codes = random.integers(-128, 128, (5, 6) if pairs == "inputs" else (10, 3), "int8")
    operands = [codes, random.uniform(0.5, 1.5, (groups, 6)).astype("float32")]
    operands += [] if block is None else [random.integers(-8, 8, (groups, 6), "int8")]
    operands = [operand if axis else operand.T for operand in operands]
    form = PackedProduct(block, pairs, axis)
    x = random.normal(size=(3, rows)).astype("float32")
    both = jax.jit(lambda x, *operands: (form.fast(x, *operands), form.default(x[None], *operands)))
    expected, actual = both(x, *operands)
    assert expected.shape == (3, 6)
    np.testing.assert_allclose(actual[0], expected, atol=2e-5)


@_of_tpus
@pytest.mark.parametrize(
    ("size", "columns", "packs"), [(264, 250, True), (262, 255, True), (3, 22000, False)]
)
def test_floats_of_tpus_equal_those_of_other_platforms(size, columns, packs):
    random, groups = np.random.default_rng(0), (np.arange(size) // 6).astype("float32")
    codes: Any = jnp.asarray(random.integers(-8, 8, (size, columns), "int8"))
    codes = fk.quantizers.pack_int4(codes, axis=1) if packs else codes.astype("int4")
    scale = jnp.asarray(random.uniform(0.5, 1.5, (-(-size // 6), columns)), "bfloat16")
    zero = jnp.asarray(random.integers(-8, 8, scale.shape, "int8"))
    form, operands = BlockMatrix(6), (codes, scale, zero, groups)
    actual = jax.jit(form.tpu)(*operands)
    np.testing.assert_array_equal(actual, jax.jit(form.default)(*operands))
    assert actual.shape == (size, columns) and actual.dtype == "bfloat16"
    assert np.isnan(np.asarray(form.tpu(*operands[:3], groups[::-1] + 1), "float32")).all()


def test_only_programs_of_tpus_have_int4_arrays():
    x = np.ones((40, 256), "float32")
    layer = fk.quantize(layers.Dense(256).build(KEY, x), "int4")
    traced = jax.jit(lambda layer, x: layer(x)).trace(layer, x)
    texts = {p: traced.lower(lowering_platforms=(p,)).as_text() for p in ("tpu", "cpu", "cuda")}
    assert [p for p, text in texts.items() if "xi4>" in text] == ["tpu"]


@pytest.mark.exhaustive
def test_groups_in_another_order_are_no_number():
    layer, x, _ = quantized("many outputs", "int4/6")
    changed = layer.replace(g_idx=layer.g_idx.at[0].set(3))
    assert np.isnan(changed(x)[:, 0]).all() and np.isfinite(layer(x)).all()
