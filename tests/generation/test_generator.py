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


class _Letters:
    """A tokenizer of six ids."""

    size = 6
    decode = staticmethod(_letters)


def loaded(tokenizer, *end_ids, **state):
    generation = fk.pretrained.Generation(end_ids)
    config = fk.pretrained.Config()
    return fk.pretrained.Loaded(
        language_models.bigram(), state, tokenizer, config, generation=generation
    )


def test_a_loaded_model_has_the_defaults_of_its_folder():
    free = fk.generate(language_models.bigram(), None, [[1]], None, 9, vocabulary_size=6)
    end = int(free.tokens[0, 2])
    first = free.tokens[0].tolist().index(end) + 1
    pieces = []
    result = fk.generate(
        loaded(_Letters, end), None, [[1]], None, 9, stream=lambda row, piece: pieces.append(piece)
    )
    # the text does not run past the end token
    assert result.lengths.tolist() == [first]
    assert "".join(pieces) == _letters(free.tokens[0, :first].tolist())
    generator = fk.Generator(loaded(_Letters, end), end_ids=(), vocabulary_size=11)
    assert generator.vocabulary_size == 11 and generator.decode is _letters
    assert generator(None, [[1]], max_new_tokens=9).lengths.tolist() == [9]
    without = fk.Generator(loaded(None, 3))
    assert (without.end_ids, without.decode, without.vocabulary_size) == ((3,), None, None)


def test_a_loaded_state_is_passed_apart_from_the_model():
    message = (
        r"received Loaded, which holds both. Write fk.generate\(loaded.model, loaded.state, ids"
    )
    with pytest.raises(TypeError, match=message):
        fk.Generator(loaded(None, norm=np.ones(2)))

    class Other:
        model = state = None

    with pytest.raises(TypeError, match="expected a model and its state, received Other"):
        fk.Generator(Other())
