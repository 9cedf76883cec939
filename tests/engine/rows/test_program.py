"""Rows of programs: every answer is compared with the numbers of both programs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fkeras.engine.rows.program import RowProgram
from fkeras.engine.rows.values import MIXED, WHOLE, Value, rows
from tests.cases import all_cases

LARGE, SMALL = 7, 5
KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(LARGE, 4, 6)).astype("float32")
IDS = RNG.integers(0, 5, (LARGE, 3)).astype("int32")
VALID = np.arange(LARGE) < SMALL
TABLE = RNG.normal(size=(5, 2)).astype("float32")
KERNEL = RNG.normal(size=(3, 6, 2)).astype("float32")


def values_of(function, arguments, row_values, ordered=True, small=SMALL):
    """The value of each result, as a list."""
    large = jax.make_jaxpr(function)(*arguments)
    if small is None:
        return RowProgram(ordered).results(large, large, row_values)
    cut = [_real(a, v) for a, v in zip(arguments, row_values, strict=True)]
    return RowProgram(ordered).results(large, jax.make_jaxpr(function)(*cut), row_values)


def _real(array, value):
    return array[:SMALL] if value.is_rows else array


def check(function, arguments, row_values, ordered=True):
    """The values of the results, after a comparison with the numbers of both programs."""
    values = values_of(function, arguments, row_values, ordered)
    both = jax.jit(lambda *given: [jax.tree.leaves(function(*arguments)) for arguments in given])
    pair = both(arguments, list(map(_real, arguments, row_values)))
    for value, a, b in zip(values, *pair, strict=True):
        a, b = np.asarray(a), np.asarray(b)
        if value.is_rows:
            size = b.shape[value.axis]
            padded = np.take(a, np.arange(size, a.shape[value.axis]), value.axis)
            assert value.fill is None or (padded == value.fill).all()
            a = np.take(a, np.arange(size), value.axis)
        if value != MIXED:
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return values


def _loop(x):
    return jax.lax.fori_loop(0, 3, lambda i, c: jnp.tanh(c) + x, jnp.zeros_like(x))


def _mixing_loop(x):
    return jax.lax.fori_loop(0, 3, lambda i, c: c - c.mean(0, keepdims=True), x)


def _until(x):
    return jax.lax.while_loop(lambda c: jnp.abs(c).max() > 1, lambda c: c / 2, x)


def _scan(x):
    carry, outputs = jax.lax.scan(lambda c, t: (c + t, c * t), x[:, 0], x.swapaxes(0, 1))
    return carry, outputs


def _scan_rows(x):
    return jax.lax.scan(lambda c, t: (c + t, c), x[0], x)[1]


def _heads(x):
    y = x.reshape(len(x), 4, 2, 3).swapaxes(1, 2)
    return jnp.einsum("bhtd,bhsd->bhts", y, y)


def _convolve(x, **options):
    numbers = ("NWC", "WIO", "NWC")
    return jax.lax.conv_general_dilated(x, KERNEL, (1,), "SAME", dimension_numbers=numbers)


def _pool(x):
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 1), (1, 2, 1), "VALID")


def _square(x):
    a = x[:, :, :4] @ x[:, :, :4].swapaxes(1, 2) + jnp.eye(4)
    return jnp.linalg.cholesky(a), jnp.linalg.solve(a, x)


ROW = "rows"
# function of X (b, 4, 6), and the axis of the rows in each result; None for a whole result
FUNCTIONS = [
    (jnp.tanh, [0]),
    (lambda x: x * 2 + jnp.arange(6.0)[None, None], [0]),
    (lambda x: jax.nn.softmax(x), [0]),
    (lambda x: jax.nn.relu(x) - x.mean(1, keepdims=True), [0]),
    (lambda x: x - x.mean(0, keepdims=True), [ROW]),
    (lambda x: x / len(x), [ROW]),
    (lambda x: x + jnp.zeros(len(x))[:, None, None], [0]),
    (lambda x: jnp.ones(len(x)), [0]),
    (lambda x: jnp.arange(len(x)), [0]),
    (lambda x: x.reshape(-1, 6), [0]),
    (lambda x: x.reshape(-1, 6).reshape(-1, 24), [0]),
    (lambda x: x.reshape(-1, 2, 3, 1), [0]),
    (lambda x: x.swapaxes(0, 1).reshape(-1, 6), [ROW]),
    (lambda x: x.swapaxes(0, 1).reshape(4, -1, 2), [1]),
    (lambda x: x.transpose(2, 0, 1), [1]),
    (lambda x: x[..., None].squeeze(-1), [0]),
    (lambda x: (x[:, 1], x[:, ::2], x[:, ::-1]), [0, 0, 0]),
    (lambda x: (x[0], x[:2], x[-1]), [None, None, ROW]),
    (lambda x: (x[::-1], x[1:]), [ROW, ROW]),
    (lambda x: jnp.concatenate([x, x], 1), [0]),
    (lambda x: jnp.concatenate([x, x], 0), [ROW]),
    (lambda x: (jnp.stack([x, x], 1), jnp.stack([x, x], 0)), [0, 1]),
    (lambda x: jnp.unstack(x, axis=1), [0, 0, 0, 0]),
    (lambda x: jnp.split(x, 2, axis=1), [0, 0]),
    (lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 0))), [0]),
    (lambda x: jnp.pad(x, ((1, 0), (0, 0), (0, 0))), [ROW]),
    (lambda x: (x.sum((1, 2)), x.max(2), x.sum(0)), [0, 0, ROW]),
    (lambda x: (jnp.argmax(x, 1), jnp.argmax(x, 0)), [0, ROW]),
    (lambda x: (jnp.cumsum(x, 1), jnp.cumsum(x, 0)), [0, 0]),
    (lambda x: jax.lax.cumsum(x, 0, reverse=True), [ROW]),
    (lambda x: (jnp.sort(x, 1), jnp.sort(x, 0)), [0, ROW]),
    (lambda x: jax.lax.top_k(x, 2), [0, 0]),
    (lambda x: x @ jnp.ones((6, 2)), [0]),
    (lambda x: jnp.ones((2, 4)) @ x, [0]),
    (lambda x: x[:, 0] @ x[:, 0].T, [ROW]),
    (lambda x: x[:, 0].T @ x[:, 0], [ROW]),
    (_heads, [0]),
    (_convolve, [0]),
    (_pool, [0]),
    (lambda x: jax.lax.cummax(x, 2), [0]),
    (lambda x: jnp.fft.rfft(x).real, [0]),
    (_square, [0, ROW]),
    (lambda x: x.at[:, 1].set(0.0), [0]),
    (lambda x: x.at[1].set(0.0), [ROW]),
    (lambda x: jax.lax.dynamic_slice_in_dim(x, 1, 2, 1), [0]),
    (lambda x: jax.lax.dynamic_update_slice_in_dim(x, x[:, :1], 2, 1), [0]),
    (lambda x: jnp.take_along_axis(x, jnp.argsort(x, 1), 1), [0]),
    (lambda x: x[jnp.arange(len(x)), 1], [ROW]),
    (lambda x: jax.random.bernoulli(KEY, 0.5, x.shape), [0]),
    (lambda x: jax.random.normal(KEY, (3, len(x))), [ROW]),
    (lambda x: jax.vmap(lambda k: jax.random.uniform(k, (3,)))(jax.random.split(KEY, len(x))), [0]),
    (lambda x: jax.random.permutation(KEY, x), [ROW]),
    (_loop, [0]),
    (_mixing_loop, [ROW]),
    (_until, [ROW]),
    (_scan, [0, 1]),
    (_scan_rows, [ROW]),
    (lambda x: jax.lax.cond(jnp.float32(1) > 0, jnp.sin, jnp.cos, x), [0]),
    (lambda x: jax.lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), [ROW]),
    (lambda x: jax.lax.platform_dependent(x, cpu=jnp.sin, default=jnp.sin), [0]),
    (jax.checkpoint(jnp.sin), [0]),
    (lambda x: jnp.eye(len(x)), [ROW]),
    (lambda x: jnp.where(jnp.eye(len(x))[..., None] > 0, x[:, 0], 0.0).sum(1), [ROW]),
    (lambda x: np.ones(3, "float32") * x[:, 0, :3], [0]),
]


@pytest.mark.one_in(32)
@pytest.mark.parametrize("index", range(len(FUNCTIONS)))
def test_rows_of_functions(index):
    function, expected = FUNCTIONS[index]
    with jax.numpy_rank_promotion("allow"):
        values = check(function, [X], [rows(0)])
    found = [v.axis if v.is_rows else None if v.is_whole else ROW for v in values]
    assert found == expected


def _masked(valid, x):
    return jnp.where(valid[:, None, None], x, 0.0)


MASKED = [
    (lambda v, x: _masked(v, x).sum(0), True),
    (lambda v, x: _masked(v, x).sum() / v.sum(), True),
    (lambda v, x: (x * v[:, None, None]).sum(), True),
    (lambda v, x: jnp.where(~v[:, None, None], 0.0, x).sum(), True),
    (lambda v, x: jnp.where((v == 0)[:, None, None], 0.0, x).sum(), True),
    (lambda v, x: jnp.where(v[:, None, None], x, -jnp.inf).max(0), True),
    (lambda v, x: jnp.where(v[:, None, None], x, jnp.inf).min(0), True),
    (lambda v, x: jnp.where(v[:, None, None], x, 1.0).prod(0), True),
    (lambda v, x: (v & (x[:, 0, 0] > 0)).any(), True),
    (lambda v, x: (~v | (x[:, 0, 0] > 0)).all(), True),
    (lambda v, x: jnp.tanh(_masked(v, x)[:, 0]).T @ x[:, 0], True),
    (lambda v, x: jnp.where(v, -(x[:, 0, 0] ** 2), 0.0).reshape(-1, 1).sum(), True),
    (lambda v, x: jnp.cos(_masked(v, x)).sum(), False),
    (lambda v, x: _masked(v, x).max(), False),
    (lambda v, x: _masked(v, x).mean(), False),
    (lambda v, x: (x + v[:, None, None]).sum(), False),
    (lambda v, x: jnp.where(v[:, None, None], x, 0.0).at[1].set(1.0).sum(), False),
]


@pytest.mark.one_in(9)
@pytest.mark.parametrize("index", range(len(MASKED)))
def test_sums_over_masked_rows(index):
    function, whole = MASKED[index]
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        [value] = check(function, [VALID, X], [rows(0, fill=False), rows(0)])
    assert value == (WHOLE if whole else MIXED)


@pytest.mark.exhaustive
def test_tables():
    def lookup(table, ids, valid):
        found = table[ids]
        weights = jnp.where(valid, jnp.ones(len(ids)), 0.0)
        counts = jax.ops.segment_sum(weights, ids[:, 0], 5)
        gradient = jax.grad(lambda t: (t[ids].sum((1, 2)) * weights).sum())(table)
        return found, counts, gradient, jax.ops.segment_sum(jnp.ones(len(ids)), ids[:, 0], 5)

    marks = [WHOLE, rows(0), rows(0, fill=False)]
    values = check(lookup, [TABLE, IDS, VALID], marks)
    assert [v.kind for v in values] == ["rows", "whole", "whole", "mixed"]


def test_gradients_of_convolutions_and_products():
    def gradient(kernel, x, valid):
        def loss(kernel):
            y = jax.lax.conv_general_dilated(
                x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
            )
            return jnp.where(valid, (y**2).sum((1, 2)), 0.0).sum()

        return jax.grad(loss)(kernel), jax.grad(lambda k: loss(k) / len(x))(kernel)

    values = check(gradient, [KERNEL, X, VALID], [WHOLE, rows(0), rows(0, fill=False)])
    assert values == [WHOLE, MIXED]


def test_padding_between_real_rows_changes_what_depends_on_positions():
    def positions(x):
        return jnp.arange(len(x)), jnp.cumsum(x, 0), jax.random.uniform(KEY, x.shape), x[:2], -x

    values = values_of(positions, [X], [rows(0)], ordered=False)
    assert [v.kind for v in values] == ["mixed"] * 4 + ["rows"]


def test_other_generators_draw_other_numbers():
    key = jax.random.key(0, impl="rbg")
    [value] = values_of(lambda x: jax.random.uniform(key, x.shape), [X], [rows(0)])
    assert value == MIXED


def test_a_program_that_depends_on_the_number_of_rows():
    def function(x):
        return jnp.sin(x) if len(x) == SMALL else x

    assert values_of(function, [X], [rows(0)]) == [MIXED]


def test_one_program_alone():
    def function(x):
        return x.reshape(LARGE, -1), x.mean(0), x[:2], jnp.tanh(x)

    values = values_of(function, [X], [rows(0)], small=None)
    assert [v.kind for v in values] == ["rows", "mixed", "mixed", "rows"]


def test_constants_and_unknown_operations():
    positions = np.arange(LARGE, dtype="float32")

    def function(x):
        doubled = jax.pure_callback(lambda a: 2 * a, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        return doubled, x[:, 0, 0] + positions[: len(x)], x + np.float32(3)

    values = values_of(function, [X], [rows(0)])
    assert values == [MIXED, MIXED, rows(0)]


def test_custom_gradients_are_noted():
    @jax.custom_vjp
    def identity(x):
        return x

    identity.defvjp(lambda x: (x, None), lambda _, g: (g,))
    for function, noted in ((identity, True), (jnp.tanh, False), (jax.nn.relu, False)):
        program = RowProgram()
        jaxprs = [jax.make_jaxpr(function)(x) for x in (X, X[:SMALL])]
        assert program.results(*jaxprs, [rows(0)]) == [rows(0)]
        assert program.custom_gradients == noted


def test_values_are_comparable():
    assert rows(1) == Value("rows", 1) and rows(0) != WHOLE != MIXED


# layers


def _layer_program(case, training):
    inputs = case.arrays(batch=LARGE)
    layer = case.layer.build(jax.random.key(0), *inputs)
    state = layer.init_state(*inputs)
    mask = None
    if case.mask is not None:
        mask = RNG.random((LARGE, *case.mask[1:])) < 0.6
        mask[:, 0] = True

    def call(layer, state, inputs, mask):
        out = layer.apply(
            *inputs, state=state, training=training, key=KEY, mask=mask, **case.options
        )
        return (out.value, out.mask), (out.updates, out.losses)

    return call, layer, state, inputs, mask


def _has_arrays(options):
    return any(getattr(leaf, "shape", ()) for leaf in jax.tree.leaves(dict(options)))


# arrays among the options have rows, too
LAYERS = [case for case in all_cases() if not _has_arrays(case.options)]


@pytest.mark.exhaustive
@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("case", LAYERS, ids=lambda case: case.id)
def test_rows_of_layers(case, training):
    call, layer, state, inputs, mask = _layer_program(case, training)
    large = jax.make_jaxpr(call)(layer, state, inputs, mask)
    real = jax.tree.map(lambda a: a[:SMALL], (inputs, mask))
    try:
        small = jax.make_jaxpr(call)(layer, state, *real)
    except ValueError as error:  # the state of a recurrent layer has a row for each sample
        assert "samples" in str(error)
        return
    count = len(jax.tree.leaves((layer, state)))
    marks = [WHOLE] * count + [rows(0)] * len(jax.tree.leaves((inputs, mask)))
    values = RowProgram().results(large, small, marks)
    padded = jax.tree.map(lambda a: np.concatenate([a, a[-1:], a[-1:]]), real)
    one = jax.jit(call)(layer, state, *padded)
    two = jax.jit(call)(layer, state, *real)
    for value, a, b in zip(values, jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        if value == MIXED:
            continue
        if value.is_rows:
            a = np.take(np.asarray(a), np.arange(b.shape[value.axis]), value.axis)
        np.testing.assert_allclose(
            np.asarray(a, "float32"), np.asarray(b, "float32"), rtol=1e-4, atol=1e-5
        )
