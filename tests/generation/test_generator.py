"""`Generator`: a model with its sampler, end tokens and draft model, for many calls."""

import dataclasses

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from tests.support import language_models

PROMPTS = [[1, 2, 3, 4, 5], [7, 3]]


def _letters(ids):
    return "".join("abcdefghijk"[i] for i in ids)


@pytest.mark.exhaustive
def test_a_generator_serves_many_calls():
    model = language_models.bigram()
    generator = fk.Generator(model, samplers.Greedy(), end_ids={0, 3})
    for prompts in ([[1, 2], [5]], [[7, 3, 1]]):
        generated = generator(None, prompts, max_new_tokens=5)
        expected = fk.generate(model, None, prompts, max_new_tokens=5, end_ids=[0, 3])
        assert generated.tokens.tolist() == expected.tokens.tolist()
        assert generated.lengths.tolist() == expected.lengths.tolist()
    assert (generated.lengths == 3).any()


@pytest.mark.exhaustive
def test_a_generator_is_a_pytree_of_its_arrays():
    model, draft = language_models.bigram(), language_models.bigram(1)
    ends = np.array([3, 4])
    for options in ({"end_ids": 3}, {"end_ids": ends, "draft": (draft, None), "draft_tokens": 2}):
        generator = fk.Generator(model, **options)
        program = jax.jit(lambda g: g(None, PROMPTS, max_new_tokens=5).tokens)
        assert (
            program(generator).tolist()
            == generator(None, PROMPTS, max_new_tokens=5).tokens.tolist()
        )
    # the arrays are arguments of the program, not constants
    leaves, structure = jax.tree.flatten(fk.Generator(model, end_ids=3))
    assert len(leaves) == len(jax.tree.leaves(model))
    assert structure == jax.tree.structure(fk.Generator(draft, end_ids=3))
    assert structure != jax.tree.structure(fk.Generator(model, end_ids=4))


def test_fields_are_replaced():
    model = language_models.bigram()
    generator = fk.Generator(model, stop=["c"], decode=_letters)
    other = dataclasses.replace(generator, stop=(), end_ids=[2])
    same = [g(None, [[1], [5]], max_new_tokens=9).tokens.tolist() for g in (generator, other)]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"stop": "a"}, "needs `decode`"),
        ({"stop": ["a", ""], "decode": str}, "strings that are not empty"),
        ({"decode": "utf-8"}, "expected a function for decode"),
        ({"draft": (None, None), "draft_tokens": 0}, "at least 1 for draft_tokens"),
        ({"draft": (None, None), "draft_tokens": 2.0}, "expected an integer for draft_tokens"),
    ],
)
def test_wrong_fields_are_reported_before_a_call(options, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fk.Generator(language_models.bigram(), **options)


def test_the_result_of_load_is_no_model():
    class Loaded:
        model = state = None

    with pytest.raises(TypeError, match="expected a model and its state, received Loaded"):
        fk.Generator(Loaded())
