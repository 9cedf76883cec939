"""Rotary positions that depend on the length of a text: each row by its own length, at each step."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers

SIZES = {
    **{"vocab_size": 67, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 1},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}
LONG = {"short_factor": [1.0, 1.2, 1.5], "long_factor": [1.0, 3.0, 4.0], "type": "longrope"}
CONFIGS = {
    "longrope": {
        **{"model_type": "phi3", "rope_scaling": LONG, "max_position_embeddings": 64},
        "original_max_position_embeddings": 16,
    },
    "dynamic": {
        **{"model_type": "llama", "rope_scaling": {"type": "dynamic", "factor": 4.0}},
        "max_position_embeddings": 16,
    },
}
# below, crossing at different steps, at, and above the length of 16
PROMPTS = [[5, 6, 7], [*range(10, 24)], [*range(20, 36)], [*range(30, 50)]]


@functools.cache
def model_of(name):
    config = fk.pretrained.LlamaConfig.read(SIZES | CONFIGS[name])
    model = fk.pretrained.build(config).build(jax.random.key(0))
    return jax.tree.map(lambda a: a * 4 if a.ndim > 1 else a, model)


# the tokens of transformers 5.24, each row alone, with a new model: the class keeps its last base
LONGROPE = [
    [10, 48, 6, 48, 16, 25, 2, 46, 31, 48, 5, 32, 31, 35, 38, 35, 43, 2],
    [31, 23, 31, 3, 42, 35, 25, 63, 46, 57, 46, 18, 43, 15, 64, 12, 52, 24],
    [25, 48, 43, 31, 31, 6, 42, 16, 31, 39, 1, 18, 2, 25, 6, 48, 16, 0],
    [48, 22, 22, 31, 31, 35, 21, 10, 16, 31, 31, 48, 33, 5, 18, 41, 63, 46],
]
DYNAMIC = [
    [10, 43, 56, 1, 45, 24, 65, 47, 56, 1, 45, 42, 12, 6, 44, 45, 17, 25],
    [31, 23, 31, 3, 42, 35, 25, 63, 46, 57, 46, 18, 43, 15, 64, 12, 52, 24],
    [25, 6, 18, 12, 15, 7, 41, 42, 52, 25, 15, 15, 34, 23, 18, 12, 15, 15],
    [2, 15, 24, 12, 7, 43, 50, 54, 16, 7, 6, 4, 46, 31, 31, 31, 31, 35],
]


@pytest.mark.exhaustive
def test_tokens_are_those_of_transformers():
    model = model_of("longrope")
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=18, cache=True)
    assert generated.tokens.tolist() == LONGROPE
    # of calls on the whole texts: transformers reads a text again that becomes long
    ids = np.array([PROMPTS[1] + LONGROPE[1]])
    assert jnp.argmax(model(ids[:, :15])[0, 13:15], -1).tolist() == LONGROPE[1][:2]
    assert jnp.argmax(model(ids[:, :24])[0, -1:], -1).tolist() == LONGROPE[1][10:11]
    # a part of the batch, and another limit
    alone = fk.generate(model, None, PROMPTS[1:2], max_new_tokens=5)
    assert alone.tokens.tolist() == [LONGROPE[1][:5]]
    # the state after a text that was read again
    state = fk.generate(model, model.init_cache(1, 40), PROMPTS[1:2], max_new_tokens=5).state
    more = fk.generate(model, state, [LONGROPE[1][5:6]], max_new_tokens=4)
    assert more.tokens.tolist() == [LONGROPE[1][6:10]]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "kind", ["draft", *(pytest.param(k, marks=pytest.mark.exhaustive) for k in ("jit", "no cache"))]
)
def test_all_loops_depend_on_the_length_of_the_row(kind):
    model = model_of("longrope")
    run = functools.partial(fk.generate, max_new_tokens=18)
    if kind == "jit":
        tokens = jax.jit(lambda model: run(model, None, PROMPTS).tokens)(model)
    elif kind == "draft":
        # rounds that cross the length with accepted and with rejected tokens
        draft = jax.tree.map(lambda a: a * 1.05, model)
        tokens = run(model, None, PROMPTS, draft=(draft, None)).tokens
    else:
        tokens = run(model, None, PROMPTS, cache=False).tokens
    assert tokens.tolist() == LONGROPE


@pytest.mark.exhaustive
def test_beams_depend_on_the_length_of_the_row():
    model, beam = model_of("longrope"), samplers.Beam(3)
    found = fk.generate(model, None, PROMPTS, None, 18, beam)
    again = fk.generate(model, None, PROMPTS, None, 18, beam, cache=False)
    assert found.tokens.tolist() == again.tokens.tolist()


@pytest.mark.exhaustive
def test_dynamic_rows_depend_on_their_own_length():
    model = model_of("dynamic")
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=18)
    assert generated.tokens.tolist() == DYNAMIC
    alone = fk.generate(model, None, PROMPTS[:1], max_new_tokens=5)
    assert alone.tokens.tolist() == [DYNAMIC[0][:5]]


@pytest.mark.exhaustive
def test_earlier_tokens_without_ids_are_an_error():
    model = model_of("longrope")
    state = fk.generate(model, model.init_cache(1, 64), [PROMPTS[0]], max_new_tokens=3).state
    message = "the state holds 6 tokens of row 0 without their ids: expected at most 16 tokens, received 7"
    with pytest.raises(ValueError, match=message):
        fk.generate(model, state, [[5]], max_new_tokens=10)
    assert fk.generate(model, state, [[5]], max_new_tokens=9).lengths.tolist() == [9]
    tokens = jax.jit(lambda s: fk.generate(model, s, [[5]], max_new_tokens=10).tokens)(state)
    assert tokens[0, 0] == -1
