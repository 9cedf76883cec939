"""Attention of arrays: products in 16 bits, and blocks of queries against whole arrays."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras import layers, masks
from fkeras.nn.attention import attend
from fkeras.nn.attention_blocks import by_blocks
from fkeras.nn.attention_choice import dot_product_attention
from fkeras.nn.cpu import forms
from fkeras.nn.softmax import _Only
from fkeras.programs.walk import all_equations

CAUSAL = masks.Causal()
LENGTH = 300  # two blocks and a part of a block


def _normal(*shape, number=0):
    return np.random.default_rng(number).normal(size=shape).astype("float32")


def _inputs(length=LENGTH, heads=4, groups=2):
    sizes = (heads, 3), (groups, 3), (groups, 5)
    return [_normal(2, length, *size, number=n) for n, size in enumerate(sizes)]


def _operand_dtypes(jaxpr):
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield from (str(x.aval.dtype) for x in equation.invars)
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _operand_dtypes(inner)


def test_products_of_16_bits():
    layer = layers.MultiHeadAttention(2, 4, dtype="mixed_bfloat16")
    x = np.ones((1, 5, 8), "bfloat16")
    built = layer.build(jax.random.key(0), x, x)

    def loss(layer, x):
        return layer(x, x).astype("float32").sum()

    dtypes = list(_operand_dtypes(jax.make_jaxpr(jax.grad(loss, (0, 1)))(built, x).jaxpr))
    assert len(dtypes) == 36
    assert set(dtypes) == {"bfloat16"}


@pytest.mark.parametrize("masked", [False, True])
def test_arrays_kept_for_the_gradient(masked):
    x = jax.ShapeDtypeStruct((1, 512, 4, 64), "bfloat16")
    mask = np.tri(512, dtype=bool) if masked else None

    def gradient(*heads):
        return jax.vjp(lambda *heads: dot_product_attention(*heads, mask), *heads)[1]

    kept = [a.size * a.dtype.itemsize for a in jax.tree.leaves(jax.eval_shape(gradient, x, x, x))]
    assert sum(kept) <= 7.55 * 2**20


@pytest.mark.exhaustive
def test_gradients_of_16_bits():
    heads = [_normal(2, 40, 2, 8, number=n) for n in range(3)]

    def gradients(attention, dtype):
        def loss(*heads):
            return jnp.square(attention(*(x.astype(dtype) for x in heads)).astype("float32")).sum()

        with jax.numpy_dtype_promotion("standard"):  # JAX's own attention promotes
            return np.stack(jax.jit(jax.grad(loss, (0, 1, 2)))(*heads))

    exact = gradients(dot_product_attention, "float32")
    ours, theirs = (
        np.abs(gradients(attention, "bfloat16") - exact).mean((1, 2, 3, 4))
        for attention in (dot_product_attention, jax.nn.dot_product_attention)
    )
    # JAX's products of the gradient have one operand of 32 bits
    assert (ours <= 1.25 * theirs).all(), (ours, theirs)


@pytest.mark.skipif(
    jax.__version_info__ < (0, 8),
    reason="the CPU compiler of jaxlib 0.7 lacks products of bfloat16 in float32",
)
def test_gpus_divide_weights_of_16_bits_before_the_product(monkeypatch):
    *heads, factors = (_normal(2, 20, 2, 8, number=n).astype("bfloat16") for n in range(4))
    sinks = np.array([0.5, 2.0], "float32")
    mask = np.tri(20, k=-1, dtype=bool)

    def errors():
        def loss(dtype, sinks, *heads):
            heads = [x.astype(dtype) for x in heads]
            y = dot_product_attention(*heads, mask, sinks=sinks)
            return (y.astype("float32") * factors.astype("float32")).sum(), y

        def both(*arrays):
            for dtype in ("bfloat16", "float32"):
                slopes, y = jax.grad(loss, (1, 2, 3, 4), has_aux=True)(dtype, *arrays)
                yield [a.astype("float32") for a in (y, *slopes)]

        short, exact = jax.jit(lambda *arrays: list(both(*arrays)))(sinks, *heads)
        return [abs(a - b).max() / abs(b).max() for a, b in zip(short, exact, strict=True)]

    on_cpu = errors()
    monkeypatch.setattr(forms.On, "fast", forms.On.default)
    on_gpu = errors()
    assert on_gpu != on_cpu
    assert max(*on_cpu, *on_gpu) < 0.015
    lowered = jax.jit(dot_product_attention).trace(*heads).lower
    kept = [
        "optimization_barrier" in lowered(lowering_platforms=(p,)).as_text()
        for p in ("cpu", "tpu", "cuda")
    ]
    assert kept == [False, False, True]


@pytest.mark.exhaustive
def test_infinite_and_masked_scores():
    query, keys = jnp.zeros((1, 1, 1, 2)), jnp.zeros((1, 3, 1, 2))
    values = jnp.array([1.0, 3.0, 8.0]).reshape(1, 3, 1, 1)
    inf = jnp.inf
    for scores, allowed, expected in [
        ([inf, inf, 0.0], [True] * 3, 2.0),
        ([-inf, -inf, -inf], [True] * 3, 0.0),
        ([-inf, 0.0, 0.0], [True, True, False], 3.0),
        ([0.0, 0.0, 0.0], [False] * 3, 0.0),
        ([3e38, 3e38, -3e38], [True] * 3, 2.0),
    ]:
        bias, mask = jnp.array([[[scores]]]), jnp.array([[[allowed]]])

        def result(bias, mask=mask):
            return attend(query, keys, values, mask, bias).sum()

        y, slopes = jax.value_and_grad(result)(bias)
        np.testing.assert_allclose(y, expected, rtol=1e-6)
        assert jnp.isfinite(slopes).all()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_query_has_the_numbers_of_several(dtype):
    query, key, value = (jnp.asarray(x, dtype) for x in _inputs(7))
    # the last query attends to no key
    mask = (np.arange(7)[:, None] >= np.arange(7)) & (np.arange(7)[:, None] < 6)

    def result(query, key, value, mask):
        return attend(query, key, value, mask[None, None], scale=0.5)

    def score(query, key, value, mask):
        return jnp.sum(result(query, key, value, mask).astype("float32") ** 2)

    def one_by_one(function, out_axes):
        def of_step(query, mask):
            return function(query[:, None], key, value, mask[None])

        return jax.vmap(of_step, (1, 0), out_axes)(query, mask)

    y, slopes = (f(query, key, value, mask) for f in (result, jax.grad(score, (0, 1, 2))))
    assert not np.asarray(y[:, 6], "float32").any()
    close = {"atol": 1e-6} if dtype == "float32" else {"rtol": 2e-2, "atol": 2e-2}
    steps = one_by_one(result, 1)[:, :, 0]
    np.testing.assert_allclose(*(np.asarray(x, "float32") for x in (steps, y)), **close)
    of_steps = one_by_one(jax.grad(score, (0, 1, 2)), (1, 0, 0))
    parts = of_steps[0][:, :, 0], *(x.astype("float32").sum(0) for x in of_steps[1:])
    for part, whole in zip(parts, slopes, strict=True):
        close = {"atol": 1e-5} if dtype == "float32" else {"rtol": 5e-2, "atol": 1e-1}
        np.testing.assert_allclose(*(np.asarray(x, "float32") for x in (part, whole)), **close)


def test_no_keys():
    for queries in (1, 2):
        key = jnp.ones((1, 0, 2, 4))
        assert not attend(jnp.ones((1, queries, 2, 4)), key, key).any()


SEGMENTS = np.repeat(np.array([[1, 2, 0], [1, 1, 2]], "int32"), LENGTH // 3, axis=1)


class _Own(masks.Segments):
    def allows(self, query, key):
        return self.ids[:, :, None] != self.ids[:, None, :]


STEPS = np.arange(LENGTH, dtype="int32")
POSITIONS = np.stack([STEPS % 120, STEPS - 40]).clip(-1)
DENSE = np.random.default_rng(9).random((2, 4, LENGTH, LENGTH)) < 0.3
CALLS = {
    "all": (None, {}),
    "causal": (CAUSAL, {}),
    "window": (masks.Window(90, both_sides=True), {}),
    "chunk": (masks.Chunk(70), {}),
    "chunk of positions": (CAUSAL & masks.Chunk(50), {"positions": POSITIONS}),
    "prefix or causal": (CAUSAL | masks.Prefix(7), {}),
    "no key": (~masks.Window(999), {}),
    "segments": (CAUSAL, {"attention_mask": masks.Segments(SEGMENTS)}),
    "other segments": (None, {"attention_mask": ~masks.Segments(SEGMENTS) & masks.Window(200)}),
    "mask of a user": (None, {"attention_mask": _Own(SEGMENTS) & CAUSAL}),
    "sizes of rows": (None, {"attention_mask": masks.Prefix(np.array([4, 200], "int32"))}),
    "array": (None, {"attention_mask": DENSE}),
    "positions": (CAUSAL & masks.Window(50), {"positions": POSITIONS}),
    "positions and array": (CAUSAL, {"positions": POSITIONS, "attention_mask": DENSE[:, 0]}),
    "bias": (CAUSAL, {"bias": _normal(4, LENGTH, LENGTH, number=7)}),
    "bias of keys": (None, {"bias": _normal(2, 1, 1, LENGTH, number=7)}),
}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("name", CALLS)
def test_blocks_equal_one_product(name):
    mask, options = CALLS[name]
    bias = options.get("bias", np.zeros(1, "float32"))
    layer = layers.DotProductAttention(mask, soft_cap=2.0)

    def results(kernel, *arrays):
        def compute(bias, *heads):
            own = {**options, "bias": bias} if "bias" in options else options
            y = layer.replace(kernel=kernel)(*heads, **own)
            return jnp.sum(y * jnp.cos(jnp.arange(y.size).reshape(y.shape))), y

        return jax.tree.leaves(jax.grad(compute, (0, 1, 2, 3), has_aux=True)(*arrays))

    both = jax.jit(lambda *arrays: [results(k, *arrays) for k in ("blockwise", "einsum")])
    for ours, expected in zip(*both(bias, *_inputs()), strict=True):
        np.testing.assert_allclose(ours, expected, atol=2e-5)


SINKS = np.array([-1.0, 0.5, 2.0, 30.0], "float32")


def _with_sinks(query, keys, values, sinks, mask):
    """Attention with the sink as the logit of one more key, whose value is 0."""
    keys, values = (jnp.repeat(x, query.shape[2] // x.shape[2], axis=2) for x in (keys, values))
    scores = jnp.einsum("bthd,bshd->bhts", query, keys) / query.shape[-1] ** 0.5
    scores = jnp.where(mask, scores, -1e30)
    more = jnp.broadcast_to(sinks[None, :, None, None], (*scores.shape[:3], 1))
    weights = jax.nn.softmax(jnp.concatenate([scores, more], axis=-1), axis=-1)
    return jnp.einsum("bhts,bshd->bthd", weights[..., :-1], values)


def _slopes(function, *arrays):
    y, transposed = jax.vjp(function, *arrays)
    return [y, *transposed(jnp.cos(jnp.arange(y.size, dtype="float32").reshape(y.shape)))]


@pytest.mark.parametrize(
    ("kernel", "length"),
    [
        ("einsum", 9),
        pytest.param("einsum", LENGTH, marks=pytest.mark.exhaustive),
        pytest.param("blockwise", LENGTH, marks=pytest.mark.exhaustive),
        pytest.param("splash", LENGTH, marks=pytest.mark.exhaustive),
    ],
)
def test_sinks_are_logits_without_values(kernel, length):
    layer = layers.DotProductAttention(CAUSAL & masks.Window(7), kernel=kernel, use_sinks=True)
    steps = np.arange(length)
    mask = (steps[:, None] >= steps) & (steps[:, None] - steps < 7)

    def ours(query, keys, values, sinks):
        built = layer.build(jax.random.key(0), query, keys, values)
        return built.replace(sinks=sinks)(query, keys, values)

    def exact(*arrays):
        return _with_sinks(*arrays, mask)

    arrays = (*_inputs(length), SINKS)
    both = jax.jit(lambda *arrays: [_slopes(f, *arrays) for f in (ours, exact)])(*arrays)
    for y, expected in zip(*both, strict=True):
        assert np.abs(y - expected).max() < 2e-6 * np.abs(expected).max()
    # the largest sink leaves nothing for the keys
    assert np.abs(both[0][0][:, :, 3]).max() < 1e-6


@pytest.mark.parametrize("order", [1, pytest.param(2, marks=pytest.mark.exhaustive)])
def test_gradients_on_gpus_are_those_on_cpus(order, monkeypatch):
    query, keys, values = (_normal(1, 4, 2, 3, number=n) for n in range(3))
    mask = np.tri(4, dtype=bool)

    def slopes():
        def loss(sinks, query, keys, values):
            y = dot_product_attention(query, keys, values, mask, sinks=sinks)
            return jnp.sum(jnp.sin(3 * y))

        derivative = jax.grad(loss, (0, 1, 2, 3)) if order == 1 else jax.hessian(loss, (0, 1))
        # a new function: `jax.jit` keeps programs
        return jax.tree.leaves(jax.jit(lambda *a: derivative(*a))(SINKS[:2], query, keys, values))

    on_cpu = slopes()
    monkeypatch.setattr(_Only, "fast", _Only.default)
    on_gpu = slopes()
    for a, b in zip(on_cpu, on_gpu, strict=True):
        np.testing.assert_allclose(a, b, atol=3e-6 * np.abs(b).max())
    assert any((a != b).any() for a, b in zip(on_cpu, on_gpu, strict=True))


@pytest.mark.exhaustive
def test_sinks_of_other_axes_dropout_and_rows_without_keys():
    x = _normal(2, 3, 4, 2, 5)
    y = attend(x, x, x, axes=(1, 2), sinks=SINKS[None, :2])
    flat = x.reshape(2, 12, 2, 5)
    expected = _with_sinks(flat, flat, flat, SINKS[:2], np.ones((12, 12), bool))
    # a scale of 1 instead of 1 / sqrt(d)
    scaled = _with_sinks(flat * 5**0.5, flat, flat, SINKS[:2], np.ones((12, 12), bool))
    np.testing.assert_allclose(y.reshape(expected.shape), scaled, atol=1e-6)
    query, keys, values = _inputs(9)
    layer = layers.DotProductAttention(CAUSAL, dropout=0.5, use_sinks=True)
    layer = layer.build(jax.random.key(0), query, keys, values).replace(sinks=SINKS)
    out = layer.apply(query, keys, values, key=jax.random.key(1), training=True).value
    # dropped weights are 0, the others twice as large: the first query has one key
    first = _with_sinks(query, keys, values, SINKS, np.tri(9, dtype=bool))[:, 0]
    ratio = out[:, 0] / first
    np.testing.assert_allclose(np.minimum(abs(ratio), abs(ratio - 2)), 0, atol=1e-5)
    empty = layer.replace(mask=~masks.Window(99))

    def value(sinks, query):
        return empty.replace(sinks=sinks)(query, keys, values)

    results = _slopes(value, SINKS, query)
    assert all(not np.any(result) for result in results)
    # a sink of minus infinity is none
    without = layers.DotProductAttention(CAUSAL)(query, keys, values)
    infinite = layer.replace(sinks=np.full(4, -np.inf, "float32"))(query, keys, values)
    np.testing.assert_allclose(infinite, without, atol=1e-6)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["chunk", "chunk of positions"])
def test_pairs_of_chunks_equal_the_mask(name):
    mask, options = CALLS[name]
    layer, heads = layers.DotProductAttention(mask), _inputs()
    valid = np.arange(LENGTH) % 11 > 0
    ours, expected = (
        layer.replace(kernel=kernel).apply(*heads, **options, mask=(valid[None],) * 3).value
        for kernel in ("splash", "einsum")
    )
    np.testing.assert_allclose(ours, expected, atol=1e-5)


@pytest.mark.exhaustive
def test_blocks_of_padded_rows():
    layer = layers.MultiHeadAttention(2, 3, sliding_window=70, empty_rows="keras")
    x, mask = _normal(2, 2100, 4), jnp.arange(2100)[None] < jnp.array([[300], [2000]])
    built = layer.build(jax.random.key(0), x, x)
    ours, expected = (
        built.replace(flash_attention=flash)(
            x, x, query_mask=mask, value_mask=mask, use_causal_mask=True
        )
        for flash in (None, False)
    )
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    text = str(jax.make_jaxpr(lambda x: built(x, x, use_causal_mask=True))(x))
    assert "2100,2100" not in text
    assert "128,2100" in text


@pytest.mark.exhaustive
@pytest.mark.parametrize("length", [0, 1, 128])
def test_lengths(length):
    heads = _inputs(length)
    layer = layers.DotProductAttention(CAUSAL)
    ours, expected = (layer.replace(kernel=kernel)(*heads) for kernel in ("blockwise", "einsum"))
    np.testing.assert_allclose(ours, expected, atol=1e-6)


@pytest.mark.exhaustive
def test_derivatives_of_blocks():
    heads = _inputs(130)
    tangents = tuple(jnp.ones_like(x) for x in heads)

    def results(kernel):
        layer = layers.DotProductAttention(CAUSAL, kernel=kernel)

        def slope(*heads):
            return jax.jvp(lambda *heads: layer(*heads).sum(), heads, tangents)[1]

        def rows(*heads):
            return jax.vmap(lambda *row: layer(*(x[None] for x in row)))(*heads)

        return jax.jit(lambda *heads: (jax.grad(slope)(*heads), rows(*heads)))(*heads)

    for ours, expected in zip(
        *(results(kernel) for kernel in ("blockwise", "einsum")), strict=True
    ):
        np.testing.assert_allclose(ours, expected, atol=2e-5)


@pytest.mark.exhaustive
def test_memory_of_long_sequences():
    spec = jax.ShapeDtypeStruct((1, 8192, 8, 16), "float32")

    def memory(flash):
        def loss(*heads):
            y = dot_product_attention(*heads, is_causal=True, flash_attention=flash)
            return jnp.square(y).sum()

        compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(spec, spec, spec).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    assert 20 * memory(None) <= memory(False)


@pytest.mark.parametrize(
    "shapes",
    [
        [(3, 5, 4, 2), (2, 5, 4, 2), (2, 5, 4, 2)],
        [(3, 5, 4, 2), (3, 5, 4, 3), (3, 5, 4, 2)],
        [(3, 5, 4, 2), (3, 5, 2, 2), (3, 5, 4, 2)],
        [(3, 5, 4, 2), (3, 6, 4, 2), (3, 5, 4, 2)],
    ],
)
def test_sizes_that_differ_are_an_error(shapes):
    with pytest.raises(ValueError, match=r"expected query .* received \(3, 5, 4, 2\)"):
        dot_product_attention(*(jnp.zeros(shape) for shape in shapes))


@pytest.mark.exhaustive
def test_a_function_of_blocks_sees_its_queries():
    query, starts = jnp.zeros((1, LENGTH, 1, 1), int), jnp.arange(LENGTH)

    def numbers(take, keys, query, bias):
        return query + take(starts, 0)[None, :, None, None]

    np.testing.assert_array_equal(by_blocks(numbers, query, 1).ravel(), starts)


@pytest.mark.parametrize(
    ("length", "size"),
    [
        (600, 600),
        *(pytest.param(*n, marks=pytest.mark.exhaustive) for n in ((300, 130), (140, 700), (1, 5))),
    ],
)
@pytest.mark.parametrize("band", [(math.inf, 0), (7, 0), (200, 3), (0, math.inf), (-1, 150)])
def test_parts_of_blocks_have_the_keys_of_the_band(length, size, band):
    numbers = np.random.default_rng(0)
    query, key, value = (
        jnp.asarray(numbers.normal(size=(1, n, 1, 2)), "float32") for n in (length, size, size)
    )
    distance = np.arange(size)[None] - np.arange(length)[:, None]
    mask = jnp.asarray((distance >= -band[0]) & (distance <= band[1]))[None, None]
    widths = []

    def block(take, keys, rows, _):
        part = take(mask, 2)[..., keys]
        widths.append(part.shape[-1])
        return attend(rows, key[:, keys], value[:, keys], part)

    y = by_blocks(block, query, size, band=band)
    np.testing.assert_allclose(y, attend(query, key, value, mask), rtol=1e-5, atol=1e-6)
    assert length == 1 or min(widths) < size


@pytest.mark.exhaustive
def test_dropout_of_blocks():
    query, keys, values = _inputs()
    layer = layers.DotProductAttention(CAUSAL, dropout=0.5, kernel="blockwise")

    @jax.jit
    def value(key, values):
        return layer.apply(query, keys, values, key=key, training=True).value

    keys_of_calls = jax.random.split(jax.random.key(0))
    y, again, other = (value(keys_of_calls[n], values) for n in (0, 0, 1))
    np.testing.assert_array_equal(y, again)
    assert (y != other).mean() > 0.9
    # each block has its own draw: values that count kept keys of the first two blocks
    kept = value(keys_of_calls[0], jnp.eye(LENGTH)[None, :, None].repeat(2, 0).repeat(2, 2)) > 0
    assert (kept[:, 100:128, :, :100] != kept[:, 228:256, :, :100]).mean() > 0.3
    np.testing.assert_allclose(kept[:, 200:, :, :200].mean(), 0.5, atol=0.01)
    # linear in the values, if the gradient draws the numbers of the value
    slope = jax.grad(lambda values: jnp.vdot(value(keys_of_calls[0], values), jnp.cos(y)))(values)
    np.testing.assert_allclose(jnp.vdot(slope, values), jnp.vdot(y, jnp.cos(y)), rtol=1e-4)


@pytest.mark.exhaustive
def test_training_with_dropout_needs_no_array_of_all_scores():
    layer = layers.MultiHeadAttention(1, 2, dropout=0.1)
    x = jax.ShapeDtypeStruct((1, 2100, 4), "float32")
    built = layer.build(jax.random.key(0), x, x)

    def train(x):
        return built.apply(x, x, key=jax.random.key(0), training=True).value

    for function in (train, lambda x: built(x, x), jax.grad(lambda x: train(x).sum())):
        assert "2100,2100" not in str(jax.make_jaxpr(function)(x))


@pytest.mark.parametrize("axes", [(1,), (1, 2), (2,)])
def test_scores_of_grouped_heads_are_not_transposed(axes):
    query, key = (jnp.ones((2, 33, 32, heads, 3)) for heads in (4, 2))

    def loss(*arrays):
        return attend(*arrays, axes=axes).sum()

    program = jax.make_jaxpr(jax.grad(loss, (0, 1, 2)))(query, key, key)
    sizes = {"exp": [], "transpose": []}
    for equation in all_equations(program.jaxpr):
        sizes.get(equation.primitive.name, []).append(equation.outvars[0].aval.size)
    assert max(sizes["transpose"]) <= query.size < max(sizes["exp"])


@pytest.mark.parametrize(("heads", "groups"), [(4, 4), (4, 2)])
def test_weights_are_the_left_operand(heads, groups):
    # as the right operand, XLA's CPU compiler would transpose the weights
    query, key, value = _inputs(64, heads, groups)
    text = jax.jit(attend).lower(query, key, value).as_text()
    rows = (2, groups, 2, 64) if heads != groups else (2, groups, 64)
    assert f"(tensor<{'x'.join(map(str, rows))}x64xf32>, tensor<2x64x{groups}x5xf32>)" in text


@pytest.mark.parametrize("known", ["keys", "values"])
@pytest.mark.parametrize("groups", [2, 1])
def test_equal_entries_that_the_compiler_knows(groups, known):
    query, key, value = (_normal(1, 64, heads, 64) for heads in (2, groups, groups))
    # a program that reads memory before it writes there reads these numbers
    garbage = [np.full(size, np.nan, "float32") for size in (4096, 8192, 16384) for _ in range(2)]
    del garbage
    if known == "keys":
        mean = jax.jit(lambda query, value: attend(query, jnp.full_like(key, 0.5), value))
        y = mean(query, value)
        expected = np.repeat(value.mean(1, keepdims=True), 2 // groups, axis=2)
        np.testing.assert_allclose(y, np.broadcast_to(expected, y.shape), atol=1e-5)
    else:
        sums = jax.jit(lambda query, key: attend(query, key, jnp.ones_like(value)).sum(-1))
        y = sums(query, key)
        np.testing.assert_allclose(y, np.full_like(y, 64), rtol=1e-5)
