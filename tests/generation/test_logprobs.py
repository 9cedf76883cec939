"""`fk.generate(..., logprobs=k)`: the log-probabilities of the model, for all ways of choosing tokens."""

import jax
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from tests.generation.test_transformers_numbers import stored
from tests.pretrained import checks
from tests.support import language_models

PROMPTS = [[1, 2, 3, 4, 5], [7, 3]]


@pytest.fixture(scope="module")
def model():
    return language_models.cached(depth=1)


def check(model, limit=6, **options):
    """Compares the log-probabilities with those of `fk.score`, and the tokens with those of a plain call."""
    options |= {"max_new_tokens": limit, "end_ids": [3]}
    found = fk.generate(model, None, PROMPTS, **options, logprobs=2)
    plain = fk.generate(model, None, PROMPTS, **options)
    assert found.tokens.tolist() == plain.tokens.tolist() and plain.logprobs is None
    assert found.logprobs.chosen.shape == (2, limit) and found.logprobs.top.shape == (2, limit, 2)
    rows = [row[:n].tolist() for row, n in zip(found.tokens, found.lengths, strict=True)]
    wanted = fk.score(model, None, PROMPTS, rows, logprobs=2)
    width = wanted.logprobs.chosen.shape[1]
    for array, want in zip(found.logprobs, wanted.logprobs, strict=True):
        np.testing.assert_allclose(array[:, :width], want, rtol=3e-4, atol=3e-4)
        assert not np.asarray(array[:, width:]).any()
    return found


def test_logprobs_equal_the_scores_of_the_same_tokens():
    found = check(language_models.bigram())
    # greedy tokens are the most likely tokens
    assert found.logprobs.top_ids[0, :, 0].tolist() == found.tokens[0].tolist()
    np.testing.assert_array_equal(found.logprobs.top[..., 0], found.logprobs.chosen)


# of the logits of the model, not of the processed logits
DRAWN = samplers.Chain(samplers.Temperature(2.0), samplers.TopK(5))
DRAFT = {"draft": (language_models.bigram(), None)}


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "options",
    [
        {"sampler": DRAWN, "key": jax.random.key(0)},
        {"sampler": samplers.Beam(3)},
        {"sampler": samplers.Chain(samplers.Beam(2), samplers.RepetitionPenalty(1.3))},
        DRAFT,
        DRAFT | {"sampler": DRAWN, "key": jax.random.key(3)},
        {},
        {"cache": False},
        {"stream": lambda row, ids: None},
        {"stop": "77", "decode": lambda ids: "".join(map(str, ids))},
    ],
    ids=[
        "drawn",
        "beam",
        "beam_penalty",
        "draft",
        "draft_drawn",
        "greedy",
        "uncached",
        "stream",
        "stop",
    ],
)
# the arrays grow in the second case
@pytest.mark.parametrize("limit", [6, 600])
def test_all_ways_of_choosing_tokens(model, options, limit):
    check(model, limit, **options)


@pytest.mark.exhaustive
@pytest.mark.parametrize("options", [{}, DRAFT, {"sampler": samplers.Beam(2)}])
def test_compiled_calls(model, options):
    def run(model):
        return fk.generate(model, None, PROMPTS, max_new_tokens=6, logprobs=1, **options).logprobs

    for array, want in zip(jax.jit(run)(model), run(model), strict=True):
        np.testing.assert_allclose(array, want, rtol=3e-4, atol=3e-4)


@pytest.mark.exhaustive
def test_logprobs_equal_the_transition_scores_of_transformers():
    loaded = fk.pretrained.load(checks.DATA / "llama", dtype="float32")
    ids = checks.expected("llama")["ids"][:, :7]
    found = fk.generate(loaded, None, ids, max_new_tokens=9, end_ids=(), logprobs=0)
    np.testing.assert_allclose(found.logprobs.chosen, stored()["transitions"], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [-1, 12, True, 2.0, "all"])
def test_other_numbers_are_errors(value):
    with pytest.raises(
        ValueError, match=r"fk.generate: expected logprobs from 0 to 11, .*received"
    ):
        fk.generate(language_models.bigram(), None, [[1]], max_new_tokens=1, logprobs=value)
