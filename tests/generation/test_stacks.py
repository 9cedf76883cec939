"""Steps with equal blocks in a loop: tokens and states are those of separate blocks."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from fkeras.authoring.engine import weights_by_path
from fkeras.generation import blocks, decoding, loops, running, stacks
from fkeras.host.memory import as_one, placed_in, room_for
from fkeras.nn.cpu.products import block_product, row_product, sum_terms
from tests.support import language_models
from tests.support.compile_counts import count_compiles

PROMPT = [[1, 2, 3, 4, 5]]
KEY = jax.random.key(0)
CHAIN = samplers.Chain(samplers.Temperature(0.8), samplers.RepetitionPenalty(1.2))


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "_LEAST", 100)
    for module in (loops, stacks):
        monkeypatch.setattr(module, "LEAST_BYTES", 512)
    monkeypatch.setattr(loops, "_STATE_SHARE", 10)
    stacks._loop.cache_clear()
    yield
    stacks._loop.cache_clear()


@functools.cache
def _models(**options):
    """A model with weights side by side, and the same model with separate weights."""
    model = language_models.cached(width=32, depth=3, **options)
    # smaller weights, so that rounding differences do not grow from token to token
    model = jax.tree.map(lambda weight: weight / 2, model)
    weights = {path: w for path, w in weights_by_path(model).items() if w is not None}
    groups = {}
    for path, weight in weights.items():
        groups.setdefault((re.sub(r"\d+", "#", path), weight.shape), []).append(path)
    placed = dict(weights)
    for (_, shape), paths in groups.items():
        room = room_for(len(paths), shape, "float32")
        for path, place in zip(paths, [] if room is None else room, strict=room is not None):
            placed[path] = placed_in(place, np.asarray(weights[path]))
    return fk.engine.replace_weights(model, placed), model


@pytest.fixture
def calls(monkeypatch):
    """Whether each call of the decoding loop had a loop over blocks."""
    found = []

    def spy(*arguments):
        result = stacks.call_in_loop(*arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(decoding, "call_in_loop", spy)
    return found


def _assert_equal(results):
    one, other = results
    assert one.tokens.tolist() == other.tokens.tolist()
    assert jax.tree.structure(one.state) == jax.tree.structure(other.state)
    jax.tree.map(_assert_close, one.state, other.state)


def _assert_close(array, other):
    """Compares arrays of sums of terms in another order, relative to the largest number."""
    array, other = (np.asarray(x, "float64") for x in (array, other))
    assert array.shape == other.shape
    assert np.abs(array - other).max(initial=0) <= 1e-5 * np.abs(other).max(initial=0)


def test_tokens_and_states_are_those_of_separate_blocks(calls):
    results = [fk.generate(model, None, PROMPT, max_new_tokens=9) for model in _models()]
    assert calls[0]
    assert not calls[-1]
    _assert_equal(results)
    # the state is continued, and stays the caller's
    before = [np.asarray(leaf) for leaf in jax.tree.leaves(results[0].state)]
    again = [
        fk.generate(model, result.state, [[6]], KEY, 7, sampler=CHAIN, logprobs=2)
        for model, result in zip(_models(), results, strict=True)
    ]
    _assert_equal(again)
    for found, expected in zip(again[0].logprobs, again[1].logprobs, strict=True):
        _assert_close(found, expected)
    for leaf, array in zip(jax.tree.leaves(results[0].state), before, strict=True):
        assert (np.asarray(leaf) == array).all()


@pytest.mark.parametrize("kind", ["growth", "stop", "ring"])
def test_loops_end_where_states_change(kind, calls, monkeypatch):
    options = {"mask": fk.masks.Causal() & fk.masks.Window(11)} if kind == "ring" else {}
    call = {"max_new_tokens": 28}
    if kind == "stop":
        text = fk.generate(_models()[1], None, PROMPT, max_new_tokens=9).tokens[0].tolist()
        call |= {"stop": "".join(chr(97 + t) for t in text[4:6])}
        call |= {"decode": lambda ids: "".join(chr(97 + int(t)) for t in ids)}
        calls.clear()
    else:
        for name, value in (("_FIRST", 2), ("_POWERS", 2), ("_LEAST", (8, 8))):
            monkeypatch.setattr(running, name, value)
    results = [fk.generate(model, None, PROMPT, **call) for model in _models(**options)]
    assert calls[0]
    _assert_equal(results)


@pytest.mark.parametrize("size", [8, 31, 32, 509, 576, 1536, 2018, 11008, 14336])
def test_products_of_a_stack_are_those_of_its_kernels(size):
    draw = np.random.default_rng(size).standard_normal
    stack, x = draw((3, size, 5), "float32"), draw((1, 1, size), "float32")
    terms = sum_terms(size)
    assert (terms > 1) == (size not in (8, 31, 509, 2018))
    assert size % terms == 0
    if terms > 1:
        y = jax.jit(lambda *arrays: block_product(*arrays, 1))(x, stack, jnp.int32(2))
        expected = x.astype("float64") @ stack[2].astype("float64")
        _assert_close(y, expected)


def test_another_limit_compiles_nothing_and_blocks_are_one_loop(calls):
    model = _models()[0]
    fk.generate(model, None, PROMPT, max_new_tokens=2)
    with count_compiles() as compiled:
        fk.generate(model, None, PROMPT, max_new_tokens=31)
    assert all(calls)
    assert not compiled


def test_separate_or_large_programs_have_no_loop(calls, monkeypatch):
    side_by_side, separate = _models()
    fk.generate(separate, None, PROMPT, max_new_tokens=2)
    fk.generate(side_by_side, None, PROMPT * 2, max_new_tokens=2)
    monkeypatch.setattr(loops, "_STATE_SHARE", 0)
    fk.generate(side_by_side, None, PROMPT, max_new_tokens=2)
    with jax.disable_jit():
        fk.generate(side_by_side, None, PROMPT, max_new_tokens=1)
    assert not any(calls)


def test_stacks_are_not_donated_and_copies_do_not_lie_side_by_side():
    model = _models()[0]
    kernels = [w for path, w in weights_by_path(model).items() if path.endswith("up/kernel")]
    whole = as_one(kernels)
    assert whole.shape == (3, *kernels[0].shape)
    before = np.array(whole)
    jax.jit(lambda x: 2 * x, donate_argnums=0)(kernels[1])
    assert (np.asarray(whole) == before).all()
    assert as_one([jnp.copy(kernel) for kernel in (kernels[0], kernels[2])]) is None
    assert as_one([kernels[0], kernels[2]]) is None


@jax.jit
def _block(x, weight, state):
    return row_product(x, weight, 1), state + x.sum(), state * 2.0


def _in_order(weights, x, states):
    after = []
    for weight, state in zip(weights, states, strict=True):
        x, state, _ = _block(x, weight, state)
        after.append(state)
    return x, after


def _reading_a_state(weights, x, states):
    x, after = _in_order(weights, x, states)
    return x + states[1], after


def _reading_a_weight(weights, x, states):
    x, after = _in_order(weights, x, states)
    return row_product(x, weights[2], 1), after


def _reading_a_result(weights, x, states):
    x, after = _in_order(weights, x, states)
    return x + after[1], after


def _in_another_order(weights, x, states):
    x, after = _in_order(weights, x, states)
    return x, after[::-1]


def _of_one_input(weights, x, states):
    found = [_block(x, weight, state) for weight, state in zip(weights, states, strict=True)]
    return found[-1][0], [state for _, state, _ in found]


def _with_equal_states(weights, x, states):
    x, after = _in_order(weights, x, [states[0]] * 4)
    return x, after


OTHERS = (
    _reading_a_state,
    _reading_a_weight,
    _reading_a_result,
    _in_another_order,
    _of_one_input,
    _with_equal_states,
)


def _chain_in(body):
    def steps(weights, x, states):
        def step(carry):
            return body(weights, *carry)

        return jax.lax.while_loop(lambda carry: carry[0].sum() < 9, step, (x, states))

    program = jax.make_jaxpr(steps)(
        [jnp.ones((32, 32))] * 4, jnp.ones((1, 1, 32)), [jnp.zeros(())] * 4
    )
    (loop,) = [e for e in program.jaxpr.eqns if e.primitive.name == "while"]
    return loops.chain_of(loop)


@pytest.mark.parametrize("body", OTHERS)
def test_other_code_than_a_chain_has_no_loop(body, monkeypatch):
    monkeypatch.setattr(blocks, "_LEAST", 1)
    assert _chain_in(_in_order) is not None
    assert _chain_in(body) is None
