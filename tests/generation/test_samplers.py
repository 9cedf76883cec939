"""Samplers: their numbers, their order in a chain, and their form as values."""

import dataclasses
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from tests.support import language_models

SCORES = np.log(np.array([0.4, 0.1, 0.25, 0.05, 0.2], "float32"))


def history(*ids, count=0):
    return samplers.History(np.array(ids or (0,), "int32"), np.int32(count))


@jax.jit
def process(sampler, scores, history):
    return sampler.process(scores, history)


def kept(sampler, scores=SCORES, **options):
    return np.flatnonzero(np.isfinite(process(sampler, scores, history(**options)))).tolist()


@pytest.mark.parametrize(
    ("sampler", "expected"),
    [
        (samplers.TopK(2), [0, 2]),
        (samplers.TopK(9), [0, 1, 2, 3, 4]),
        (samplers.TopP(0.39), [0]),
        (samplers.TopP(0.6), [0, 2]),
        (samplers.TopP(0.66), [0, 2, 4]),
        (samplers.TopP(1.0), [0, 1, 2, 3, 4]),
        (samplers.MinP(0.49), [0, 2, 4]),
        (samplers.MinP(0.0), [0, 1, 2, 3, 4]),
        # distances to the entropy 1.416: 0.500, 0.887, 0.029, 1.580, 0.194
        (samplers.Typical(0.2), [2]),
        (samplers.Typical(0.4), [2, 4]),
        (samplers.Typical(0.8), [0, 2, 4]),
        (samplers.SuppressedIds((0, 3)), [1, 2, 4]),
        (samplers.SuppressedIds((0, 99)), [1, 2, 3, 4]),
        (samplers.MinNewTokens(1, [2]), [0, 1, 3, 4]),
        (samplers.Sampler(), [0, 1, 2, 3, 4]),
    ],
    ids=repr,
)
def test_sampler_keeps_the_tokens_of_its_definition(sampler, expected):
    assert kept(sampler) == expected


def test_samplers_of_the_first_tokens_end():
    assert kept(samplers.MinNewTokens(1, (2,)), count=1) == [0, 1, 2, 3, 4]
    first = samplers.SuppressedIds((2,), first_only=True)
    assert (kept(first), kept(first, count=1)) == ([0, 1, 3, 4], [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("sampler", "ids", "expected"),
    [
        (samplers.NoRepeatedNgrams(1), (3, -1, 1, -1), [0, 2, 4]),
        # behind 1 2: 3, and behind the padding 4; the last n-gram is not complete
        (samplers.NoRepeatedNgrams(3), (1, 2, 3, 1, -1, 2, 4, 1, 2), [0, 1, 2]),
        (samplers.NoRepeatedNgrams(3), (1, 1, -1), [0, 1, 2, 3, 4]),
        (samplers.NoRepeatedNgrams(3), (1, 1, 1, -1), [0, 2, 3, 4]),
        (samplers.NoRepeatedNgrams(5), (1, 1, 1, 1), [0, 1, 2, 3, 4]),
        (samplers.NoRepeatedNgrams(2), (1, 99, 1), [0, 1, 2, 3, 4]),
        (samplers.SuppressedSequences([(0,), (1, 2, 3), (2, 1), (2, 4)]), (1, -1, 2), [2]),
        (samplers.SuppressedSequences([(1, 2, 1, 2, 3)]), (1, -1, 2), [0, 1, 2, 3, 4]),
        (samplers.SuppressedSequences([(0, 2)]), (-1, -1), [0, 1, 2, 3, 4]),
        (samplers.MinLength(3, (2,)), (1, 1, -1), [0, 1, 3, 4]),
        (samplers.MinLength(3, (2,)), (1, -1, 1, 1), [0, 1, 2, 3, 4]),
        (samplers.ForcedIds(1, (2, 3)), (4, -1), [2, 3]),
        (samplers.ForcedIds(1, (2, 3)), (4, 4), [0, 1, 2, 3, 4]),
        (samplers.ForcedIds(0, (3,), with_prompt=False), (4, 4), [3]),
        (samplers.ForcedIds(2, (3,), with_prompt=False), (4, 4), [0, 1, 2, 3, 4]),
    ],
    ids=repr,
)
def test_samplers_of_sequences_keep_the_tokens_of_their_definition(sampler, ids, expected):
    found = np.asarray(process(sampler, SCORES, history(*ids)))
    assert np.flatnonzero(np.isfinite(found)).tolist() == expected
    # forced tokens have the probability 1 in beam searches
    is_forced = isinstance(sampler, samplers.ForcedIds) and len(expected) < 5
    assert found[expected].tolist() == (np.zeros(5) if is_forced else SCORES)[expected].tolist()


@pytest.mark.exhaustive
def test_ties_are_kept():
    equal = np.zeros(4, "float32")
    for sampler in (samplers.TopK(1), samplers.TopP(0.1), samplers.Typical(0.1)):
        assert kept(sampler, equal) == [0, 1, 2, 3]


def test_forbidden_tokens_stay_forbidden():
    scores = np.array([-np.inf, *SCORES[1:]], "float32")
    for sampler in (
        samplers.TopK(5),
        samplers.TopP(1.0),
        samplers.MinP(0.0),
        samplers.Typical(1.0),
    ):
        assert kept(sampler, scores) == [1, 2, 3, 4]


def test_repetition_penalty_counts_each_token_once():
    scores = np.array([2.0, -2.0, 2.0], "float32")
    found = process(samplers.RepetitionPenalty(2.0), scores, history(0, 0, 1, -1))
    np.testing.assert_array_equal(found, [1.0, -4.0, 2.0])


def test_chain_has_hugging_faces_order():
    parts = (
        *(samplers.RepetitionPenalty(1.1), samplers.NoRepeatedNgrams(2)),
        *(samplers.SuppressedSequences([(1, 2)]), samplers.MinLength(1, (0,))),
        *(samplers.MinNewTokens(1, (0,)), samplers.ForcedIds(9, (1,))),
        *(samplers.SuppressedIds((1,)), samplers.Temperature(0.5), samplers.TopK(4)),
        *(samplers.TopP(0.9), samplers.MinP(0.1), samplers.Typical(0.9), samplers.Normalized()),
        samplers.Greedy(),
    )
    chain = samplers.Chain(*reversed(parts))
    assert chain.parts == parts
    assert samplers.Chain(*parts) == chain and hash(samplers.Chain(*parts)) == hash(chain)
    # the temperature comes before the sum of top-p, whatever the order of the arguments
    hot = samplers.Chain(samplers.TopP(0.5), samplers.Temperature(100.0))
    assert kept(hot) == [0, 2, 4]


def test_chain_applies_all_parts():
    chain = samplers.Chain(samplers.Temperature(2.0), samplers.SuppressedIds((0,)))
    found = process(chain, SCORES, history())
    np.testing.assert_allclose(found, [-np.inf, *SCORES[1:] / 2])


def test_draws_unless_greedy_or_beam():
    assert samplers.Temperature(0.5).draws and samplers.Chain().draws
    assert not samplers.Chain(samplers.RepetitionPenalty(1.2), samplers.Greedy()).draws
    assert not samplers.Beam(2).draws


def test_numbers_are_leaves_and_samplers_are_values():
    chain = samplers.Chain(samplers.Temperature(0.5), samplers.TopK(3), samplers.MinP(0.1))
    assert jax.tree.leaves(chain) == [0.5, 0.1]
    assert jax.tree.map(lambda a: a, chain) == chain
    assert pickle.loads(pickle.dumps(chain)) == chain
    halved = jax.jit(lambda c: jax.tree.map(lambda a: a / 2, c))(chain)
    assert float(halved.parts[0].temperature) == 0.25 and halved.parts[1] == samplers.TopK(3)


def test_sampler_of_a_user_stands_before_the_temperature():
    @dataclasses.dataclass(frozen=True)
    class Even(samplers.Sampler):
        def process(self, scores, history):
            return jnp.where(jnp.arange(scores.size) % 2 == 0, scores, -jnp.inf)

    chain = samplers.Chain(samplers.Temperature(1.0), Even(), samplers.SuppressedIds((0,)))
    assert [type(part).__name__ for part in chain.parts] == ["SuppressedIds", "Even", "Temperature"]
    assert kept(chain) == [2, 4]
    assert jax.tree.leaves(Even()) == []


@dataclasses.dataclass(frozen=True)
class Applied(samplers.Sampler):
    """Applies a function, or adds an array or a list."""

    value: object

    def process(self, logits, history):
        return self.value(logits) if callable(self.value) else logits + jnp.asarray(self.value)


MODEL = language_models.bigram()


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "make", [lambda s: s, lambda s: [s], lambda s: samplers.Chain(s, samplers.Beam(2))]
)
@pytest.mark.parametrize(
    ("function", "received"),
    [
        (lambda logits: None, "None"),
        (lambda logits: 1.0, "1.0"),
        (lambda logits: logits[:3], r"float32 of the shape \(3,\)"),
        (lambda logits: logits[None], r"float32 of the shape \(1, 11\)"),
        (lambda logits: logits.astype("int32"), r"int32 of the shape \(11,\)"),
    ],
)
def test_sampler_of_a_user_that_returns_no_logits_is_an_error(make, function, received):
    message = rf"Applied.process: expected an array of logits of the shape \(11,\) .* {received}\."
    with pytest.raises(TypeError, match=message):
        fk.generate(MODEL, None, [[1]], jax.random.key(0), 2, make(Applied(function)))


def test_logits_of_another_float_dtype_are_cast():
    sampler = samplers.Chain(Applied(lambda logits: logits.astype("bfloat16")), samplers.Greedy())
    assert fk.generate(MODEL, None, [[1]], None, 2, sampler).tokens.shape == (1, 2)


@pytest.mark.parametrize("value", [[0.0] * 11, np.zeros(11), {}])
def test_fields_without_a_hash_are_errors(value):
    with pytest.raises(
        TypeError, match="a hash in the fields of Applied.* in `value`. Use a tuple"
    ):
        fk.generate(MODEL, None, [[1]], None, 2, samplers.Chain(samplers.Greedy(), Applied(value)))


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: samplers.Temperature(0), ValueError, "Temperature: expected a number above 0"),
        (lambda: samplers.Temperature("hot"), TypeError, "received 'hot'"),
        (lambda: samplers.Temperature(None), TypeError, "received None"),
        (lambda: samplers.Temperature(float("nan")), ValueError, "received nan"),
        (lambda: samplers.Temperature(jnp.ones(2)), TypeError, "a number above 0"),
        (lambda: samplers.Temperature(True), TypeError, "received True"),
        (lambda: samplers.TopK(0), ValueError, "at least 1 for `k`, received 0"),
        (lambda: samplers.TopK(2.5), TypeError, "an integer for `k`"),
        (lambda: samplers.TopP(0), ValueError, "above 0 and at most 1"),
        (lambda: samplers.TopP(40), ValueError, "received 40"),
        (lambda: samplers.MinP(-0.1), ValueError, "from 0 to 1"),
        (lambda: samplers.Typical(2), ValueError, "received 2"),
        (lambda: samplers.RepetitionPenalty(0), ValueError, "above 0"),
        (lambda: samplers.SuppressedIds(()), ValueError, "at least 0"),
        (lambda: samplers.SuppressedIds((-1,)), ValueError, "at least 0"),
        (lambda: samplers.SuppressedIds(3), TypeError, "a sequence of ids"),
        (lambda: samplers.SuppressedIds("ab"), TypeError, "a sequence of ids"),
        (lambda: samplers.SuppressedIds([1.5]), TypeError, "integers for `ids`, received [1.5]"),
        (lambda: samplers.SuppressedIds([True]), TypeError, "integers for `ids`"),
        (lambda: samplers.MinNewTokens(1, ["2"]), TypeError, "integers for `end_ids`"),
        (lambda: samplers.MinNewTokens(-1, (0,)), ValueError, "at least 0"),
        (lambda: samplers.MinNewTokens(1, ()), ValueError, "`end_ids`"),
        (lambda: samplers.NoRepeatedNgrams(0), ValueError, "at least 1 for `size`, received 0"),
        (lambda: samplers.NoRepeatedNgrams(2.0), TypeError, "an integer for `size`, received 2.0"),
        (lambda: samplers.SuppressedSequences([]), ValueError, "at least one sequence"),
        (lambda: samplers.SuppressedSequences([3]), TypeError, "a sequence of ids for `sequences`"),
        (lambda: samplers.SuppressedSequences([[]]), ValueError, "at least 0 for `sequences`"),
        (lambda: samplers.SuppressedSequences("ab"), TypeError, "expected sequences of ids"),
        (lambda: samplers.MinLength(-1, (0,)), ValueError, "at least 0 for `count`"),
        (lambda: samplers.ForcedIds(1, ()), ValueError, "`ids`"),
        (lambda: samplers.ForcedIds("1", (0,)), TypeError, "a number of at least 0 for `position`"),
        (lambda: samplers.Beam(0), ValueError, "at least 1 for `width`"),
        (lambda: samplers.Beam(2, "long"), TypeError, "`length_penalty`"),
        (lambda: samplers.Chain([samplers.Greedy()]), TypeError, "not a list"),
        (
            lambda: samplers.Chain(samplers.TopK(1), samplers.TopK(2)),
            ValueError,
            "one TopK, received 2",
        ),
        (lambda: samplers.Chain(samplers.Greedy(), samplers.Beam()), ValueError, "received both"),
    ],
)
def test_error_names_sampler_argument_and_value(make, error, message):
    with pytest.raises(error, match=re.escape(message)):
        make()


def test_names_are_published():
    assert fk.samplers.TopK is samplers.TopK and "Typical" in dir(fk.samplers)


CONFIGURED = [
    ({}, "Chain(Greedy())"),
    ({"temperature": 0.3, "top_p": 0.5, "eos_token_id": 2, "max_length": 20}, "Chain(Greedy())"),
    ({"do_sample": True}, "Chain(TopK(k=50))"),
    ({"do_sample": True, "top_k": 0, "temperature": 1.0, "top_p": 1.0}, "Chain()"),
    (
        {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20, "min_p": 0.05},
        "Chain(Temperature(temperature=0.6), TopK(k=20), TopP(p=0.9), MinP(p=0.05))",
    ),
    (
        {"num_beams": 3, "length_penalty": 2.0, "early_stopping": True},
        "Chain(Beam(width=3, length_penalty=2.0, early_stopping=True))",
    ),
    (
        {"repetition_penalty": 1.1, "suppress_tokens": [1, 2], "begin_suppress_tokens": [3]},
        "Chain(RepetitionPenalty(penalty=1.1), SuppressedIds(ids=(1, 2), first_only=False), "
        "SuppressedIds(ids=(3,), first_only=True), Greedy())",
    ),
    (
        {"min_new_tokens": 3, "eos_token_id": 5},
        "Chain(MinNewTokens(count=3, end_ids=(5,)), Greedy())",
    ),
    (
        {"min_length": 5, "min_new_tokens": 3, "eos_token_id": 5, "bad_words_ids": [[5]]},
        "Chain(MinNewTokens(count=3, end_ids=(5,)), Greedy())",
    ),
    (
        {
            "no_repeat_ngram_size": 3,
            "min_length": 5,
            "eos_token_id": [5, 6],
            "bad_words_ids": [[6], [7]],
        },
        "Chain(NoRepeatedNgrams(size=3), SuppressedSequences(sequences=((7,),)), "
        "MinLength(count=5, end_ids=(5, 6)), Greedy())",
    ),
    (
        {"forced_bos_token_id": 0, "forced_eos_token_id": [2], "max_length": 9},
        "Chain(ForcedIds(position=1, ids=(0,), with_prompt=True), "
        "ForcedIds(position=8, ids=(2,), with_prompt=True), Greedy())",
    ),
    (
        {"forced_eos_token_id": 2, "max_length": 9, "max_new_tokens": 4},
        "Chain(ForcedIds(position=3, ids=(2,), with_prompt=False), Greedy())",
    ),
    ({"min_new_tokens": 3, "suppress_tokens": [], "top_h": None}, "Chain(Greedy())"),
    (
        {"num_beams": 2, "renormalize_logits": True},
        "Chain(Normalized(), Beam(width=2, length_penalty=1.0, early_stopping=False))",
    ),
    ({"renormalize_logits": True}, "Chain(Greedy())"),
    ({"do_sample": True, "top_k": 0, "typical_p": 0.9}, "Chain(Typical(mass=0.9))"),
]


@pytest.mark.parametrize(("settings", "expected"), CONFIGURED, ids=lambda v: str(v)[:30])
def test_settings_of_files_are_samplers(settings, expected):
    assert repr(samplers.configured(settings)) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (3, "a mapping of settings, received 3"),
        ({"penalty_alpha": 2}, "received penalty_alpha=2. Leave the setting out"),
        ({"no_repeat_ngram_size": 2.5}, "an integer for `size`, received 2.5"),
        ({"bad_words_ids": [[-1]]}, "at least 0 for `sequences`"),
        ({"bad_words_ids": 3}, "expected sequences of ids, received 3"),
        ({"forced_eos_token_id": 2, "max_length": "9"}, "received '9'"),
        ({"forced_eos_token_id": 2}, "beside forced_eos_token_id, received None"),
        ({"forced_bos_token_id": 2, "begin_suppress_tokens": [1]}, "received both"),
        ({"forced_bos_token_id": 2, "suppress_tokens": [2]}, "permits as forced_bos_token_id"),
        ({"do_sample": 1}, "do_sample=1"),
        ({"do_sample": True, "num_beams": 2}, "num_beams=2"),
        ({"early_stopping": "never", "num_beams": 2}, "early_stopping='never'"),
        ({"do_sample": True, "temperature": 0}, "a number above 0"),
        ({"do_sample": True, "top_k": "5"}, "an integer for `k`, received '5'"),
    ],
)
def test_settings_without_a_sampler_are_errors(settings, message):
    with pytest.raises((TypeError, ValueError), match=message):
        samplers.configured(settings)
