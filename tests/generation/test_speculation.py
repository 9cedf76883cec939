"""Speculative decoding: the tokens of the model, whatever the draft proposes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from fkeras.generation import prompts, requests
from fkeras.generation.decoding import Sampling, read_prompt
from fkeras.generation.speculation import Speculation
from tests.support import language_models

PROMPTS = [[1, 2, 3, 4, 5], [7, 3]]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("draft_seed", "window"),
    [(4, True), (0, True), (4, False)],
)
def test_greedy_tokens_are_those_of_the_model(draft_seed, window):
    mask = fk.masks.Causal() & fk.masks.Window(3) if window else None
    model = language_models.cached(depth=1, mask=mask)
    draft = language_models.cached(draft_seed, depth=1, mask=mask)
    plain = fk.generate(model, None, PROMPTS, max_new_tokens=9)
    generated = fk.generate(
        model, None, PROMPTS, max_new_tokens=9, draft=(draft, None), draft_tokens=3
    )
    assert generated.tokens.tolist() == plain.tokens.tolist()
    # the rejected tokens left the caches
    assert generated.state["positions"]["length"].tolist() == [14, 11]
    again = (
        fk.generate(model, generated.state, [[1], [1]], max_new_tokens=1) if not window else None
    )
    assert again is None or again.lengths.tolist() == [1, 1]


def test_end_token_of_a_draft_ends_the_row():
    model = language_models.bigram(scale=20.0)
    plain = fk.generate(model, None, [[1], [2]], max_new_tokens=6)
    options = {"max_new_tokens": 6, "end_ids": int(plain.tokens[0, 1])}
    expected = fk.generate(model, None, [[1], [2]], **options)
    generated = fk.generate(model, None, [[1], [2]], **options, draft=(model, None))
    assert int(expected.lengths[0]) <= 2
    assert generated.tokens.tolist() == expected.tokens.tolist()
    assert generated.lengths.tolist() == expected.lengths.tolist()


@pytest.mark.exhaustive
def test_end_token_among_accepted_tokens_ends_the_row():
    model = language_models.cached(depth=1)
    plain = fk.generate(model, None, PROMPTS, max_new_tokens=9)
    end = int(plain.tokens[0, 4])
    options = {"max_new_tokens": 9, "end_ids": end}
    expected = fk.generate(model, None, PROMPTS, **options)
    generated = fk.generate(model, None, PROMPTS, **options, draft=(model, None))
    assert generated.tokens.tolist() == expected.tokens.tolist()
    assert generated.lengths.tolist() == expected.lengths.tolist()
    lengths = [state["positions"]["length"].tolist() for state in (generated.state, expected.state)]
    assert lengths[0] == lengths[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", ["encoder_decoder", "bigram"])
def test_encoder_and_decoder_verify_a_draft(kind):
    model = language_models.encoder_decoder(depth=1)
    draft = getattr(language_models, kind)(3)
    options = {"max_new_tokens": 7, "inputs": np.array([[1, 2, 3], [4, 5, 6]]), "cache": True}
    plain = fk.generate(model, None, [[1], [2]], **options)
    generated = fk.generate(model, None, [[1], [2]], **options, draft=(draft, None))
    assert generated.tokens.tolist() == plain.tokens.tolist()
    lengths = [g.state["decoder"]["positions"]["length"].tolist() for g in (plain, generated)]
    assert lengths == [[8, 8], [8, 8]]


@pytest.mark.exhaustive
def test_models_without_caches_draft_and_verify():
    model, draft = language_models.uncached(0), language_models.uncached(1)
    plain = fk.generate(model, None, PROMPTS, max_new_tokens=7)
    generated = fk.generate(model, None, PROMPTS, max_new_tokens=7, draft=(draft, None))
    assert generated.tokens.tolist() == plain.tokens.tolist()


@pytest.mark.exhaustive
def test_sampled_tokens_have_the_distribution_of_the_model():
    model = language_models.bigram(0, vocabulary=5, scale=25.0)
    draft = language_models.bigram(1, vocabulary=5, scale=25.0)
    sampler = samplers.Chain(samplers.Temperature(1.3), samplers.TopK(4))
    count = 6000
    ids = np.full((count, 1), 2)
    generated = fk.generate(
        *(model, None, ids, jax.random.key(0), 3, sampler), draft=(draft, None), draft_tokens=2
    )
    scores = model(jnp.arange(5)[None])[0] / 1.3
    least = jnp.sort(scores, axis=1)[:, 1:2]
    table = np.asarray(jax.nn.softmax(jnp.where(scores >= least, scores, -jnp.inf)))
    expected = np.einsum("a,ab,bc->abc", table[2], table, table)
    tokens = np.asarray(generated.tokens)
    found = np.zeros((5, 5, 5))
    np.add.at(found, tuple(tokens.T), 1 / count)
    # the expected total variation of 6000 draws from 125 cells is about 0.05
    assert 0.5 * np.abs(found - expected).sum() < 0.08
    other = np.asarray(jax.nn.softmax(draft(jnp.arange(5)[None])[0]))
    wrong = np.einsum("a,ab,bc->abc", other[2], other, other)
    assert 0.5 * np.abs(found - wrong).sum() > 0.3


def test_equal_draft_is_accepted_whole_in_each_round():
    model = language_models.bigram(scale=20.0)
    prompt = prompts.prompt_of([[1], [2]], None)
    reader, _ = requests.reader_of(model, None, 2, (None, None), None, None)
    reader, state, scores, _ = read_prompt(reader, {}, prompt, 32, 0, False, jnp.int32(9))
    for keys, sampler in (
        (None, samplers.Greedy()),
        (jax.random.key(0), samplers.Temperature(1.0)),
    ):
        keys = requests.keys_of(keys, [sampler], 2)
        ends, starts = requests.ends_of((), 11), prompts.starts_of(reader, None, prompt)
        sampling = Sampling((sampler,), None, keys, prompt[:2], ends, jnp.int32(9), starts)
        copies = [jax.tree.map(jnp.copy, state) for _ in range(2)]
        method = Speculation(reader, copies[1], 2)
        carry = method.first(reader, sampling, copies[0], scores, 9)
        for rounds in (1, 2):
            carry = method.advance(reader, sampling, carry, jnp.int32(1), donate=False)
            assert carry.lengths.tolist() == [3 * rounds, 3 * rounds]


@pytest.mark.exhaustive
def test_windows_need_room_for_rejected_tokens():
    mask = fk.masks.Causal() & fk.masks.Window(3)
    model, draft = (language_models.cached(n, depth=1, mask=mask) for n in (0, 4))
    plain = fk.generate(model, None, PROMPTS, max_new_tokens=9)

    def drafted(state, draft_state=None):
        options = {"draft": (draft, draft_state), "draft_tokens": 3}
        return fk.generate(model, state, PROMPTS, max_new_tokens=9, **options).tokens.tolist()

    states = [m.init_cache(2, 32, slack=4) for m in (model, draft)]
    assert drafted(*states) == plain.tokens.tolist()
    message = r"4 rejected tokens of a draft .* model.init_cache\(2, length, slack=4\)"
    for pair in ((model.init_cache(2, 32, slack=3), None), (None, draft.init_cache(2, 32))):
        with pytest.raises(ValueError, match=message):
            drafted(*pair)


@pytest.mark.exhaustive
def test_the_padding_of_the_vocabularies_may_differ():
    model = language_models.bigram()
    plain = fk.generate(model, None, PROMPTS, max_new_tokens=9, vocabulary_size=8)
    for size in (8, 12):
        generated = fk.generate(
            *(model, None, PROMPTS),
            max_new_tokens=9,
            vocabulary_size=8,
            draft=(language_models.bigram(1, vocabulary=size), None),
        )
        assert generated.tokens.tolist() == plain.tokens.tolist()


def test_draft_that_does_not_fit_is_an_error():
    model = language_models.bigram()
    decoder = language_models.cached(depth=1)
    for size in (5, 12):
        draft = (language_models.bigram(vocabulary=size), None)
        message = f"the vocabulary of 'decoder' .*, 11 tokens, received Model with {size} tokens"
        with pytest.raises(ValueError, match=message):
            fk.generate(decoder, None, [[1]], draft=draft)
    with pytest.raises(ValueError, match="received Model with 5 tokens"):
        small = (language_models.bigram(vocabulary=5), None)
        fk.generate(model, None, [[1]], draft=small, vocabulary_size=6)
    with pytest.raises(ValueError, match="at least 1 for draft_tokens"):
        fk.generate(model, None, [[1]], draft=(model, None), draft_tokens=0)
    with pytest.raises(TypeError, match="expected a model for `draft`"):
        fk.generate(model, None, [[1]], draft=(None, None))
