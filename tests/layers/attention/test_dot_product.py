"""`DotProductAttention`: masks, packed rows, and the cache against a computation without a cache."""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import layers, masks
from fkeras.engine.tree.axes import weight_axis_roles

B, T, H, G, D, F = 3, 12, 4, 2, 4, 3
KEY = jax.random.key(0)


def _inputs(seed=0, batch=B, time=T):
    rng = np.random.default_rng(seed)
    shapes = ((H, D), (G, D), (G, F))
    return [rng.normal(size=(batch, time, *s)).astype("float32") for s in shapes]


def _allowed(mask, query, key):
    match mask:
        case None:
            return True
        case masks.Causal():
            return key <= query
        case masks.Window(size=n, both_sides=False):
            return query - key < n
        case masks.Window(size=n):
            return abs(query - key) < n
        case masks.Prefix(size=n):
            return key < n
        case masks.Chunk(size=n):
            return key // n == query // n
        case masks.And(masks=parts):
            return all(_allowed(m, query, key) for m in parts)
        case masks.Or(masks=parts):
            return any(_allowed(m, query, key) for m in parts)
        case masks.Not(mask=m):
            return not _allowed(m, query, key)


def _expected(mask, q, k, v, lengths, soft_cap=None, bias=None):
    """Attention by loops; rows of zeros where a query sees no key."""
    y = np.zeros((*q.shape[:3], v.shape[-1]))
    for b, t, h in itertools.product(*map(range, q.shape[:3])):
        keys = [s for s in range(lengths[b]) if t < lengths[b] and _allowed(mask, t, s)]
        if not keys:
            continue
        g = h // (q.shape[2] // k.shape[2])
        scores = np.array([q[b, t, h] @ k[b, s, g] / math.sqrt(q.shape[-1]) for s in keys])
        scores = scores if soft_cap is None else soft_cap * np.tanh(scores / soft_cap)
        scores = scores if bias is None else scores + bias[0, h, t, keys]
        weights = np.exp(scores - scores.max())
        y[b, t, h] = sum(w * v[b, s, g] for w, s in zip(weights / weights.sum(), keys, strict=True))
    return y


def _positions(lengths, time=T):
    steps = np.arange(time)
    return np.where(steps[None] < np.array(lengths)[:, None], steps[None], -1).astype("int32")


CAUSAL = masks.Causal()
MASKS = [
    CAUSAL,
    CAUSAL & masks.Window(3),
    CAUSAL & masks.Window(5) & ~masks.Window(2),
    CAUSAL & (masks.Window(2) | masks.Prefix(2)),
    CAUSAL & masks.Chunk(5),
]


@pytest.mark.one_in(7)
@pytest.mark.parametrize("mask", [None, *MASKS, masks.Window(2, both_sides=True)], ids=repr)
def test_numbers(mask):
    q, k, v = _inputs()
    lengths = [12, 5, 0]
    bias = np.random.default_rng(1).normal(size=(1, H, T, T)).astype("float32")
    layer = layers.DotProductAttention(mask, soft_cap=1.5)
    y = np.asarray(layer(q, k, v, _positions(lengths), bias))
    expected = _expected(mask, q, k, v, lengths, 1.5, bias)
    np.testing.assert_allclose(y, expected, atol=1e-5)
    assert not y[2].any()


def _decode(layer, arrays, positions, pieces, length, slack=0):
    """The results of a prefill in pieces, and the last cache."""
    q, k, v = arrays
    state = layer.init_cache(len(q), length, q, k, v, positions, slack=slack)
    values, start = [], 0
    for size in pieces:
        part = slice(start, start + size)
        out = layer.apply(q[:, part], k[:, part], v[:, part], positions[:, part], state=state)
        state, start = state | out.updates, start + size
        values.append(out.value)
    return np.concatenate(values, axis=1), state


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(6))
def test_a_cache_equals_one_computation(seed):
    # few sizes of pieces: each is a program to compile
    rng = np.random.default_rng(seed)
    mask = MASKS[seed % len(MASKS)]
    arrays, lengths = _inputs(seed), rng.integers(1, T + 1, B)
    layer = layers.DotProductAttention(mask)
    expected = _expected(mask, *arrays, lengths)
    for pieces in ([1] * T, [6, 1, 1, 1, 3], [3, 6, 3]):
        y, state = _decode(layer, arrays, _positions(lengths), pieces, 16, slack=seed % 3)
        np.testing.assert_allclose(y, expected, atol=1e-5)
    ring = mask.reach[0] + 1 + seed % 3
    assert state["positions"].shape == (B, 16 if math.isinf(ring) else min(16, ring))


@pytest.mark.exhaustive
@pytest.mark.parametrize("mask", MASKS[:2], ids=repr)
def test_a_cache_with_sinks_equals_one_computation(mask):
    arrays, positions = _inputs(), _positions([12, 7, 1])
    layer = layers.DotProductAttention(mask, use_sinks=True)
    layer = layer.build(KEY, *arrays, positions).replace(sinks=np.arange(H, dtype="float32"))
    expected = layer(*arrays, positions)
    assert np.abs(expected - layers.DotProductAttention(mask)(*arrays, positions)).max() > 0.1
    for cached, tolerance in ((layer, 1e-6), (layer.replace(cache="int8"), 0.03)):
        y, _ = _decode(cached, arrays, positions, [6, 1, 1, 1, 3], 16)
        np.testing.assert_allclose(y, expected, atol=tolerance)


def test_sinks_have_the_role_of_heads():
    layer = layers.DotProductAttention(use_sinks=True, sinks_initializer="ones")
    with pytest.raises(fk.FKerasError, match="has no weights yet"):
        layer(X, X, X)
    layer = layer.build(KEY, X, X, X)
    assert layer.sinks.tolist() == [1, 1, 1, 1]
    assert weight_axis_roles(layer) == {"sinks": ("heads",)}
    with pytest.raises(fk.FKerasError, match=r"one sink for each query head.*\(4,\).*2, 8"):
        layer(X[:, :, :2], X[:, :, :2], X[:, :, :2])
    with pytest.raises(fk.FKerasError, match=r"one sink for each query head.*\(4, 1\)"):
        layer.replace(sinks=np.zeros((4, 1), "float32"))(X, X, X)
    with pytest.raises(fk.FKerasError, match=r"a query of shape.*received.*\(2, 8\).*EinsumDense"):
        layers.DotProductAttention(use_sinks=True).build(KEY, (2, 8), (2, 8), (2, 8))
    assert layers.DotProductAttention().build(KEY, X, X, X).sinks is None


@pytest.mark.exhaustive
def test_a_prompt_longer_than_the_ring_in_one_call():
    mask, arrays = CAUSAL & masks.Window(3), _inputs()
    y, state = _decode(layers.DotProductAttention(mask), arrays, _positions([T] * B), [T], T)
    np.testing.assert_allclose(y, _expected(mask, *arrays, [T] * B), atol=1e-5)
    assert state["keys"].shape == (B, 3, G, D)
    assert sorted(state["positions"][0].tolist()) == [9, 10, 11]


@pytest.mark.exhaustive
def test_tokens_that_were_taken_back_are_not_seen():
    # speculative decoding: the lengths go back, the slots keep the rejected tokens
    mask, slack = CAUSAL & masks.Window(3), 4
    q, k, v = _inputs(batch=1)
    layer = layers.DotProductAttention(mask)
    positions = _positions([T])[:1]
    _, state = _decode(layer, (q, k, v), positions, [8], 16, slack)
    other = [x[:, ::-1] for x in (q, k, v)]
    state |= layer.apply(*(x[:, :4] for x in other), positions[:, 8:12], state=state).updates
    for size in (1, 4):  # written first, and beside the ring
        part = slice(8, 8 + size)
        y = layer.apply(*(x[:, part] for x in (q, k, v)), positions[:, part], state=state).value
        np.testing.assert_allclose(
            y, _expected(mask, q, k, v, [T])[:, part], atol=1e-5, err_msg=str(size)
        )


@pytest.mark.exhaustive
def test_other_rows_leave_a_row_bit_equal():
    layer = layers.DotProductAttention(CAUSAL)
    step = jax.jit(lambda q, k, v, p, s: layer.apply(q, k, v, p, state=s))
    first, second = _inputs(0), _inputs(1)
    mixed = [np.concatenate([a[:1], b[1:]]) for a, b in zip(first, second, strict=True)]
    state = layer.init_cache(B, 16, *first, _positions([T] * B))
    one = step(*first, _positions([7, 12, 0]), state)
    other = step(*mixed, _positions([7, 2, 9]), state)
    np.testing.assert_array_equal(one.value[0], other.value[0])
    for name, entry in one.updates.items():
        np.testing.assert_array_equal(entry[0], other.updates[name][0], err_msg=name)


@pytest.mark.exhaustive
def test_a_row_without_keys_is_zero_with_zero_gradient():
    q, k, v = _inputs()
    for layer, positions in (
        (layers.DotProductAttention(CAUSAL), _positions([3, 0, 12])),
        (layers.DotProductAttention(~masks.Window(99)), None),
        (layers.DotProductAttention(~masks.Window(99), kernel="xla"), None),
    ):

        def total(q, k, v, layer=layer, positions=positions):
            return jnp.sum(layer(q, k, v, positions)[1] ** 2)

        value, grads = jax.value_and_grad(total, (0, 1, 2))(q, k, v)
        assert value == 0
        assert not any(np.asarray(g).any() for g in grads)


@pytest.mark.exhaustive
def test_a_full_cache_is_an_error_or_nan():
    arrays, layer = _inputs(), layers.DotProductAttention(CAUSAL)
    positions = _positions([T, 8, 3])
    state = layer.init_cache(B, 8, *arrays, positions)
    with pytest.raises(fk.FKerasError, match=r"row 0: expected at most 8 tokens.*received 12"):
        layer.apply(*arrays, positions, state=state)
    out = jax.jit(lambda *a: layer.apply(*a, state=state))(*arrays, positions)
    assert np.isnan(out.value[0, 8:]).all()
    assert np.isfinite(out.value[0, :8]).all()
    assert np.isfinite(out.value[1:]).all()
    assert out.updates["positions"][0].tolist() == list(range(8))
    # a ring has no end
    ring = layers.DotProductAttention(CAUSAL & masks.Window(3))
    y, _ = _decode(ring, arrays, positions, [6, 6], 8)
    assert np.isfinite(y).all()


@pytest.mark.exhaustive
def test_codes_of_8_bits():
    layer = layers.DotProductAttention(CAUSAL, cache="int8")
    arrays = [np.repeat(x, 16, axis=-1) for x in _inputs()]  # heads of 64 channels
    y, state = _decode(layer, arrays, _positions([T] * B), [6, 6], T)
    full, floats = _decode(
        layers.DotProductAttention(CAUSAL), arrays, _positions([T] * B), [6, 6], T
    )
    np.testing.assert_allclose(y, full, atol=0.05)
    assert np.abs(y - full).max() > 0
    sizes = [sum(a.nbytes for a in jax.tree.leaves(s)) for s in (state, floats)]
    assert sizes[0] <= 0.3 * sizes[1]
    # beside a ring, new tokens are rounded like those of the cache
    ring = layers.DotProductAttention(CAUSAL & masks.Window(3), cache="int8")
    pieces = [_decode(ring, arrays, _positions([T] * B), p, T)[0] for p in ([6, 6], [1] * T)]
    np.testing.assert_allclose(*pieces, atol=1e-5)


@pytest.mark.exhaustive
def test_packed_rows_equal_rows_of_their_own():
    q, k, v = _inputs(batch=1)
    layer = layers.DotProductAttention(CAUSAL)
    positions = np.array([[0, 1, 2, -1, 3, 0, 1, 0, 5, 6, -1, -1]], "int32")
    y = layer(q, k, v, positions)
    for first, last in ((0, 5), (5, 7), (7, 10)):
        alone = [x[:, first:last] for x in (q, k, v)]
        expected = layer(*alone, positions[:, first:last])
        np.testing.assert_allclose(y[:, first:last], expected, atol=1e-6)


@pytest.mark.exhaustive
def test_masks_of_the_inputs_mark_padding():
    q, k, v = _inputs()
    valid = np.arange(T)[None] < np.array([4, 12, 7])[:, None]
    layer = layers.DotProductAttention(CAUSAL)
    expected = _expected(CAUSAL, q, k, v, [4, 12, 7])
    for positions, mask in (
        (_positions([T] * B), [valid, None, None, None]),
        (_positions([T] * B), [None, valid, None, None]),
        (None, [valid, valid, None]),
    ):
        inputs = (q, k, v) if positions is None else (q, k, v, positions)
        out = layer.apply(*inputs, mask=tuple(mask))
        np.testing.assert_allclose(
            np.where(valid[..., None, None], out.value, 0), expected, atol=1e-5
        )


@pytest.mark.exhaustive
def test_attention_masks():
    q, k, v = _inputs()
    ids = np.array([[1] * 5 + [2] * 4 + [0] * 3] * B, "int32")
    same = (ids[:, :, None] == ids[:, None]) & (ids[:, None] > 0)
    layer = layers.DotProductAttention(CAUSAL)
    segments = masks.Segments(ids)
    plain = layer(q, k, v, attention_mask=same)
    np.testing.assert_array_equal(layer(q, k, v, attention_mask=segments), plain)
    np.testing.assert_array_equal(layer(q, k, v, attention_mask=same[:, None]), plain)
    np.testing.assert_array_equal(layer(q, k, v, attention_mask=same[0]), plain)
    with_positions = layer(q, k, v, _positions([T] * B), attention_mask=segments)
    np.testing.assert_allclose(with_positions, plain, atol=1e-6)
    jitted = jax.jit(lambda i: layer(q, k, v, attention_mask=masks.Segments(i)))(ids)
    np.testing.assert_allclose(jitted, plain, atol=1e-6)
    # each row has its own prefix
    prefix = masks.Prefix(np.array([1, 2, 3]))
    y = layers.DotProductAttention()(q, k, v, attention_mask=prefix)
    for row in range(B):
        alone = layers.DotProductAttention(masks.Prefix(row + 1))(*(x[row:][:1] for x in (q, k, v)))
        np.testing.assert_allclose(y[row], alone[0], atol=1e-6)


@pytest.mark.exhaustive
def test_a_graph_takes_masks_with_tensors(tmp_path):
    q, k, v = (fk.Input((None, n, d)) for n, d in ((H, D), (G, D), (G, F)))
    ids = fk.Input((None,), dtype="int32", name="ids")
    attention = layers.DotProductAttention(CAUSAL, name="attention")
    y = attention(q, k, v, attention_mask=masks.Segments(ids) | masks.Prefix(1))
    model = fk.Model([q, k, v, ids], y)
    numbers = np.array([[1] * 5 + [2] * 7] * B, "int32")
    expected = attention(*_inputs(), attention_mask=masks.Segments(numbers) | masks.Prefix(1))
    np.testing.assert_allclose(model([*_inputs(), numbers]), expected, atol=1e-6)
    fk.save_model(tmp_path / "m.keras", model)
    assert fk.load_model(tmp_path / "m.keras")[0] == model


def test_positions_by_name_make_a_cache():
    q, k, v = (fk.Input((None, n, d)) for n, d in ((H, D), (G, D), (G, F)))
    positions = fk.Input((None,), dtype="int32")
    y = layers.DotProductAttention(CAUSAL, name="attention")(q, k, v, positions=positions)
    state = fk.Model([q, k, v, positions], y).init_cache(2, 5)
    assert state["attention"]["values"].shape == (2, 5, G, F)


def test_no_cache_without_positions():
    q, k, v = (fk.Input((None, n, d)) for n, d in ((H, D), (G, D), (G, F)))
    assert fk.Model([q, k, v], layers.DotProductAttention()(q, k, v)).init_cache(2, 5) == {}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kernel", ["xla", "cudnn"])
def test_kernels(kernel):
    q, k, v = _inputs()
    positions = _positions([12, 5, 1])
    layer = layers.DotProductAttention(CAUSAL, kernel=kernel)
    for value in (k, v):
        y, expected = layer(q, k, value, positions), _expected(CAUSAL, q, k, value, [12, 5, 1])
        np.testing.assert_allclose(y, expected, atol=1e-5)
    x = jnp.zeros((2, 5, 4, 8), "bfloat16")
    assert layer.kernel_for(q, k, "cpu") == ("xla" if kernel == "xla" else "einsum")
    assert layer.kernel_for(x, x, "gpu") == kernel
    assert layer.kernel_for(x, x[..., :4], "gpu") == "einsum"
    assert layer.replace(soft_cap=3.0).kernel_for(x, x, "gpu") == "einsum"
    dropping = layer.replace(dropout=0.1)
    assert dropping.kernel_for(x, x, "gpu", training=True) == "einsum"
    assert dropping.kernel_for(x, x, "gpu") == kernel


@pytest.mark.parametrize("kernel", [None, "einsum", "blockwise"])
def test_long_sequences_are_computed_by_blocks(kernel):
    layer = layers.DotProductAttention(CAUSAL, kernel=kernel, soft_cap=2.0, dropout=0.1)
    for length in (1024, 4096, None):
        x = (1, length, 2, 8)
        expected = kernel or ("blockwise" if length == 4096 else "einsum")
        assert layer.kernel_for(x, x, "cpu") == expected
        assert layer.kernel_for(x, x, "cpu", training=True) == expected


def test_kernels_of_platforms():
    long, short = (jax.ShapeDtypeStruct((2, n, 4, 64), "bfloat16") for n in (4096, 1024))
    layer = layers.DotProductAttention(CAUSAL)

    def kernels(layer, x=long, **options):
        return [layer.kernel_for(x, x, platform, **options) for platform in ("tpu", "gpu", "cpu")]

    assert kernels(layer) == ["splash", "cudnn", "blockwise"]
    assert kernels(layer, short) == ["einsum", "cudnn", "einsum"]
    assert kernels(layer, jax.ShapeDtypeStruct((2, 127, 4, 64), "bfloat16")) == ["einsum"] * 3
    assert kernels(layer, short.update(dtype="float32")) == ["einsum"] * 3
    for options in ({"positions": (2, 1024)}, {"bias": 1.0}, {"attention_mask": masks.Chunk(9)}):
        assert kernels(layer, short, **options) == ["einsum"] * 3
    assert kernels(layer.replace(kernel="splash"), short) == ["splash", "cudnn", "blockwise"]
    assert kernels(layer.replace(soft_cap=2.0)) == ["splash", "blockwise", "blockwise"]
    assert kernels(layer.replace(use_sinks=True)) == ["splash", "blockwise", "blockwise"]
    named = layer.replace(use_sinks=True, kernel="cudnn")
    assert kernels(named) == ["splash", "blockwise", "blockwise"]
    assert kernels(named, short) == ["einsum"] * 3
    assert kernels(layer, long.update(dtype="float32")) == ["splash", "blockwise", "blockwise"]
    assert kernels(layer, long.update(dtype="float16")) == ["blockwise", "cudnn", "blockwise"]
    both_sides = layers.DotProductAttention(masks.Window(9, both_sides=True))
    assert kernels(both_sides) == ["splash", "blockwise", "blockwise"]
    assert kernels(layer.replace(mask=CAUSAL & masks.Chunk(9))) == ["splash", "cudnn", "blockwise"]
    both = {"attention_mask": masks.Segments(np.ones((2, 4096), int))}
    assert kernels(layer.replace(mask=masks.Chunk(9)), **both) == ["blockwise"] * 3
    for options in ({"bias": 1.0}, {"attention_mask": np.ones((1, 1), bool)}):
        assert kernels(layer, **options) == ["blockwise"] * 3
    assert kernels(layer.replace(mask=CAUSAL | masks.Prefix(3))) == ["blockwise"] * 3
    assert kernels(layer.replace(dropout=0.1), training=True) == ["blockwise"] * 3


@pytest.mark.exhaustive
def test_dropout_in_training_only():
    arrays = _inputs()
    layer = layers.DotProductAttention(CAUSAL, dropout=0.5, soft_cap=2.0)
    plain = layers.DotProductAttention(CAUSAL, soft_cap=2.0)(*arrays)
    np.testing.assert_allclose(layer(*arrays), plain, atol=1e-6)
    dropped = layer.apply(*arrays, training=True, key=KEY).value
    assert np.abs(dropped - plain).max() > 0.1


X = np.zeros((2, 5, 4, 8), "float32")
P = np.zeros((2, 5), "int32")
ERRORS = [
    ((X[0], X, X), {}, r"shape \(b, t, heads, d\), received query \(5, 4, 8\)"),
    ((X, X[:, :4], X), {}, r"received query .* key \(2, 4, 4, 8\)"),
    ((X, X[..., :7], X), {}, r"expected query \(b, t, h, d\)"),
    ((X, X[:1], X[:1]), {}, r"expected query \(b, t, h, d\)"),
    ((X, X[:, :, :2], X), {}, r"expected query \(b, t, h, d\)"),
    ((X, X[:, :, :3], X[:, :, :3]), {}, "divides 4"),
    ((X, X, X, P[0]), {}, r"positions of shape \(b, t\).*received \(5,\)"),
    ((X, X, X, P[:, :4]), {}, r"received \(2, 4\)"),
    ((X[:, :3], X, X, P[:, :3]), {}, "between two sequences takes no positions"),
    ((X, X), {"positions": P}, "received 2 inputs"),
    ((X, X, X, P, None, None, None), {}, "received 7 inputs"),
    ((X, X, X, P, X), {"bias": X}, "each once"),
    (
        (X, X, X, P),
        {"bias": np.zeros((1, 3, 5, 5), "float32")},
        r"bias that broadcasts.*received \(1, 3, 5, 5\)",
    ),
    ((X, X, X, P), {"attention_mask": np.ones((5, 6), bool)}, "for each of 5 keys"),
    ((X, X, X, P), {"attention_mask": np.ones(5, bool)}, "attention_mask with 2 to 4 axes"),
    ((X, X, X), {"attention_mask": masks.Segments(P[:, :4])}, "each of the 4 ids"),
]


@pytest.mark.parametrize(("inputs", "options", "message"), ERRORS)
def test_calls_that_do_not_fit(inputs, options, message):
    with pytest.raises((fk.FKerasError, TypeError, ValueError), match=message):
        layers.DotProductAttention()(*inputs, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mask": "causal"}, "expected a mask of fk.masks or None, received 'causal'"),
        ({"mask": masks.Segments(P)}, "without arrays"),
        ({"soft_cap": 0}, "above 0"),
        ({"cache": "int4"}, "expected 'int8' or None"),
        ({"kernel": "flash"}, "'einsum', 'blockwise', 'splash', 'xla' or 'cudnn'"),
        ({"dropout": 2}, "from 0 to 1"),
        ({"use_sinks": 3}, "use_sinks"),
    ],
)
def test_options_that_do_not_exist(options, message):
    with pytest.raises(ValueError, match=message):
        layers.DotProductAttention(**options)


def test_a_cache_needs_shapes_and_positions():
    layer = layers.DotProductAttention(CAUSAL)
    with pytest.raises(fk.FKerasError, match="needs the shapes of the inputs, received 0 shapes"):
        layer.init_cache(2, 8)
    state = layer.init_cache(2, 8, X, X, X, P)
    with pytest.raises(fk.FKerasError, match="expected positions with a cache"):
        layer.apply(X, X, X, state=state)
    with pytest.raises(fk.FKerasError, match="expected a causal mask with a cache"):
        layers.DotProductAttention().apply(X, X, X, P, state=state)
    with pytest.raises(fk.FKerasError, match="entries keys, positions, values, received keys"):
        layer.apply(X, X, X, P, state={"keys": X})
    codes = layer.replace(cache="int8").init_cache(2, 8, X, X, X, P)
    with pytest.raises(fk.FKerasError, match="received key_scales, keys, positions"):
        layer.apply(X, X, X, P, state=codes)
    with pytest.raises(
        fk.FKerasError, match=r"cache of shape \(2, 8, 4, 8\), received \(1, 5, 4, 8\)"
    ):
        layer.apply(X[:1], X[:1], X[:1], P[:1], state=state)
    with pytest.raises(fk.FKerasError, match=r"received \(2, 5, 2, 8\)"):
        layer.apply(X, X[:, :, :2], X[:, :, :2], P, state=state)
    with pytest.raises(fk.FKerasError, match="for each of 8 keys"):
        layer.apply(X, X, X, P, attention_mask=np.ones((5, 5), bool), state=state)
    with pytest.raises(ValueError, match=r"received 5 queries and 8 keys"):
        layer.apply(X, X, X, P, attention_mask=masks.Segments(P), state=state)
