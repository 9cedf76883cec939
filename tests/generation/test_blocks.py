"""Calls by blocks: equal blocks share one program, with the results of the whole function."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras.generation import blocks
from tests.support import language_models
from tests.support.compile_counts import count_compiles

WEIGHTS = [np.full((4, 4), 0.1 * n, "float32") for n in range(1, 6)]
X, MASK = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4), np.array([[True], [False], [True]])


@jax.jit
def _block(x, mask, table, weight, state):
    turned = x @ weight + jnp.sin(table)[None]
    return jnp.where(mask, turned, x), mask, state + x.sum(0)


@functools.partial(jax.jit, static_argnames="scale")
def _chain(x, mask, weights, *, scale=1.0):
    """Blocks with constants, with values that all calls share, and with operations around the blocks."""
    x, states, table = x * scale, [], jnp.arange(4.0)
    for weight in weights:
        x, mask, state = _block(x, mask, table, weight, jnp.zeros(4))
        states.append(state)
    results = {"sum": x.sum() + weights[0].sum(), "mask": mask, "states": states, "none": None}
    return results, weights[0], jnp.zeros(4)


@pytest.fixture(autouse=True)
def _few_equations(monkeypatch):
    monkeypatch.setattr(blocks, "_LEAST", 12)
    blocks._cut.cache_clear()


def _call(function, *arguments, **static):
    """Returns the results and the number of compiled programs."""
    with count_compiles() as compiled:
        results = blocks.call_by_blocks(function, *arguments, **static)
    return results, len(compiled)


def _assert_equal(results, expected):
    assert jax.tree.structure(results) == jax.tree.structure(expected)
    for result, other in zip(jax.tree.leaves(results), jax.tree.leaves(expected), strict=True):
        assert isinstance(result, jax.Array)
        assert result.dtype == other.dtype
        np.testing.assert_allclose(result, other, rtol=1e-6)


def test_equal_blocks_are_one_program():
    expected = _chain(X, MASK, WEIGHTS, scale=2.0)
    # the operations before, the block, and the operations after
    for count in (3, 0):
        results, compiled = _call(_chain, X, MASK, WEIGHTS, scale=2.0)
        _assert_equal(results, expected)
        assert compiled == count
    with jax.default_matmul_precision("highest"):
        assert _call(_chain, X, MASK, WEIGHTS, scale=2.0)[1] == 3
    _assert_equal(_call(_chain, X, MASK, WEIGHTS)[0], _chain(X, MASK, WEIGHTS))


def test_results_may_be_donated():
    arguments = jax.device_put((X, MASK, WEIGHTS))
    results, _ = _call(_chain, *arguments)
    _assert_equal(results, _chain(*arguments))
    donate = jax.jit(lambda tree: jax.tree.map(jnp.copy, tree), donate_argnums=0)
    _assert_equal(donate(results), _chain(*arguments))
    assert not any(leaf.is_deleted() for leaf in jax.tree.leaves(arguments))


@jax.jit
def _with_numbers(x, mask, weights):
    """Blocks behind constants of equal numbers and several dtypes."""
    small, wide = jnp.full(4, 2, "int8"), jnp.full(4, 2, "int16")
    results, *rest = _chain.__wrapped__(x, mask, weights)
    return {**results, "constants": (small * 100, wide * 100)}, *rest


def test_constants_of_several_dtypes_differ():
    results, compiled = _call(_with_numbers, X, MASK, WEIGHTS)
    _assert_equal(results, _with_numbers(X, MASK, WEIGHTS))
    assert results[0]["constants"][1].tolist() == [200] * 4
    assert compiled == 3


def _two_results(x, mask, weights):
    results = _chain(x, mask, weights)
    return results, results[1]


def _printing(x, mask, weights):
    jax.debug.callback(lambda total: None, x.sum())
    return _chain(x, mask, weights)


@pytest.mark.parametrize("function", [_two_results, _printing], ids=["equal results", "effect"])
def test_other_functions_are_one_program(function):
    program = jax.jit(lambda *arguments: function(*arguments))
    results, compiled = _call(program, X, MASK, WEIGHTS)
    _assert_equal(results, function(X, MASK, WEIGHTS))
    assert compiled == 1


def test_transformed_sharded_and_short_calls_are_one_program():
    whole = jax.jit(lambda *arguments: blocks.call_by_blocks(_chain, *arguments))
    results, compiled = _call(whole, X, MASK, WEIGHTS)
    _assert_equal(results, _chain(X, MASK, WEIGHTS))
    assert compiled == 1
    assert _call(_chain, X, MASK, WEIGHTS[:2])[1] == 1
    with jax.disable_jit():
        _assert_equal(_call(_chain, *jax.device_put((X, MASK, WEIGHTS)))[0], results)
    if jax.device_count() > 1:
        mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])
        everywhere = jax.NamedSharding(mesh, jax.P())
        sharded = jax.device_put((X, MASK, WEIGHTS), everywhere)
        results, compiled = _call(_chain, *sharded)
        assert compiled == 1
        assert all(
            leaf.sharding.device_set == everywhere.device_set for leaf in jax.tree.leaves(results)
        )


MODELS = {
    "cache": (language_models.cached, {}),
    "encoder": (language_models.encoder_decoder, {"inputs": np.array([[3, 4, 5]] * 2, "int32")}),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", MODELS)
def test_tokens_do_not_depend_on_blocks(kind, monkeypatch):
    make, options = MODELS[kind]
    model, prompts = make(depth=3), [[1, 2, 3], [4, 5]]
    with count_compiles() as compiled:
        split = fk.generate(model, None, prompts, max_new_tokens=5, **options)
    monkeypatch.setattr(blocks, "_LEAST", 10**9)
    blocks._cut.cache_clear()
    with count_compiles() as fewer:
        whole = fk.generate(model, None, prompts, max_new_tokens=5, **options)
    assert len(compiled) > len(fewer)
    assert split.tokens.tolist() == whole.tokens.tolist()
    again = [
        fk.generate(model, g.state, [[6], [7]], max_new_tokens=3, **options) for g in (split, whole)
    ]
    assert again[0].tokens.tolist() == again[1].tokens.tolist()
