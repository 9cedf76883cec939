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


@jax.jit
def _next(model, ids, mask):
    logits = model(ids, mask=[mask, None])[0]
    return jnp.argmax(jnp.take(logits, jnp.sum(mask) - 1, axis=0))


def again(model, row, count):
    """The most likely tokens, each from a call on the whole text."""
    row = list(row)
    for _ in range(count):
        ids = np.zeros((1, 40), "int32")
        ids[0, : len(row)] = row
        row.append(int(_next(model, ids, np.arange(40)[None] < len(row))))
    return row[-count:]


@functools.cache
def expected():
    return [again(model_of("longrope"), prompt, 18) for prompt in PROMPTS]


def test_tokens_are_those_of_the_whole_text():
    model = model_of("longrope")
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=18, cache=True)
    assert generated.tokens.tolist() == expected()
    # a part of the batch, and another limit
    alone = fk.generate(model, None, PROMPTS[1:2], max_new_tokens=5)
    assert alone.tokens.tolist() == [expected()[1][:5]]
    # the state after a text that was read again
    state = fk.generate(model, model.init_state(1, 40), PROMPTS[1:2], max_new_tokens=5).state
    more = fk.generate(model, state, [expected()[1][5:6]], max_new_tokens=4)
    assert more.tokens.tolist() == [expected()[1][6:10]]


@pytest.mark.parametrize("kind", ["jit", "draft", "no cache"])
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
    assert tokens.tolist() == expected()


@pytest.mark.exhaustive
def test_beams_depend_on_the_length_of_the_row():
    model, beam = model_of("longrope"), samplers.Beam(3)
    found = fk.generate(model, None, PROMPTS, None, 18, beam)
    again = fk.generate(model, None, PROMPTS, None, 18, beam, cache=False)
    assert found.tokens.tolist() == again.tokens.tolist()


def test_dynamic_rows_depend_on_their_own_length():
    model = model_of("dynamic")
    both = fk.generate(model, None, [PROMPTS[0], PROMPTS[3]], max_new_tokens=18).tokens
    for row, prompt in enumerate((PROMPTS[0], PROMPTS[3])):
        alone = fk.generate(model, None, [prompt], max_new_tokens=40).tokens
        assert both[row].tolist() == alone[0, :18].tolist()
    # until 16 tokens, and of the first new token of any text, the tokens of the whole text
    assert both[0, :14].tolist() == again(model, PROMPTS[0], 14)
    assert int(both[1, 0]) == again(model, PROMPTS[3], 1)[0]


def test_earlier_tokens_without_ids_are_an_error():
    model = model_of("longrope")
    state = fk.generate(model, model.init_state(1, 64), [PROMPTS[0]], max_new_tokens=3).state
    message = "the state holds 6 tokens of row 0 without their ids: expected at most 16 tokens, received 7"
    with pytest.raises(ValueError, match=message):
        fk.generate(model, state, [[5]], max_new_tokens=10)
    assert fk.generate(model, state, [[5]], max_new_tokens=9).lengths.tolist() == [9]
    tokens = jax.jit(lambda s: fk.generate(model, s, [[5]], max_new_tokens=10).tokens)(state)
    assert tokens[0, 0] == -1
