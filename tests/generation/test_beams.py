"""Beam search: equal to an exhaustive search where the beam is wide enough, and to a written-out search."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fkeras as fk
from fkeras import samplers
from tests.support import language_models

END = 0


def probabilities(model):
    """Log-probabilities of the next token behind each token."""
    table = model(jnp.arange(model.layers["table"].input_dim)[None])[0]
    return np.asarray(jax.nn.log_softmax(table))


def best(table, first, count, penalty):
    """The sequence of the highest score among all sequences of at most `count` tokens."""
    found = []
    for size in range(1, count + 1):
        for tokens in itertools.product(range(len(table)), repeat=size):
            ended = [token == END for token in tokens]
            if any(ended[:-1]) or (size < count and not ended[-1]):
                continue
            path = (first, *tokens)
            total = sum(table[a, b] for a, b in itertools.pairwise(path))
            found.append((total / size**penalty, tokens))
    return max(found)[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("penalty", [0.0, 1.0, 3.0])
def test_wide_beam_finds_the_best_sequence(penalty):
    model = language_models.bigram(2, vocabulary=4, scale=20.0)
    table = probabilities(model)
    beam = samplers.Beam(70, penalty)
    prompts = [[1], [2], [3]]
    generated = fk.generate(model, None, prompts, None, 3, beam, end_ids=END)
    for row, (first,) in enumerate(prompts):
        expected = best(table, first, 3, penalty)
        length = int(generated.lengths[row])
        assert tuple(generated.tokens[row, :length].tolist()) == expected


def written_out(table, first, count, width, penalty, early):
    """The best sequence of a beam search over a bigram table, in plain Python."""
    running, finished = [(0.0, (first,))], []
    for step in range(1, count + 1):
        options = [
            (total + table[path[-1], token], (*path, token))
            for total, path in running
            for token in range(len(table))
        ]
        options = sorted(options, key=lambda option: -option[0])[: 2 * width]
        for total, path in options[:width]:
            if path[-1] == END or step == count:
                finished.append((total / step**penalty, path))
        finished = sorted(finished, key=lambda option: -option[0])[:width]
        running = [option for option in options if option[1][-1] != END][:width]
        full = len(finished) == width
        if full and (early or finished[-1][0] >= running[0][0] / step**penalty):
            break
    return finished[0][1][1:]


@pytest.mark.one_in(4)
@pytest.mark.parametrize(("width", "early"), [(1, False), (2, False), (2, True), (3, False)])
def test_narrow_beam_equals_a_written_out_search(width, early):
    model = language_models.bigram(5, scale=30.0)
    table = probabilities(model)
    prompts = [[token] for token in range(1, 11)]
    beam = samplers.Beam(width, 1.0, early)
    generated = fk.generate(model, None, prompts, None, 5, beam, end_ids=END)
    found = zip(np.asarray(generated.tokens), np.asarray(generated.lengths), strict=True)
    for (first,), (tokens, length) in zip(prompts, found, strict=True):
        expected = written_out(table, first, 5, width, 1.0, early)
        assert tuple(tokens[:length].tolist()) == expected, first


@pytest.mark.exhaustive
def test_state_holds_the_best_sequence():
    model = language_models.cached(depth=1)
    prompts = [[1, 2, 3], [4]]
    generated = fk.generate(model, None, prompts, None, 4, samplers.Beam(3), end_ids=END)
    whole = [
        [*ids, *new[:n].tolist()]
        for ids, new, n in zip(prompts, generated.tokens, generated.lengths.tolist(), strict=True)
    ]
    lengths = generated.state["positions"]["length"].tolist()
    assert lengths == [len(ids) for ids in whole]
    # one beam is greedy decoding
    single = fk.generate(model, None, prompts, None, 4, samplers.Beam(1))
    assert single.tokens.tolist() == fk.generate(model, None, prompts, None, 4).tokens.tolist()


@pytest.mark.exhaustive
def test_other_samplers_change_the_beams():
    model = language_models.bigram(2, scale=20.0)
    chain = samplers.Chain(samplers.Beam(3), samplers.SuppressedIds(range(4, 11)))
    generated = fk.generate(model, None, [[1]], None, 5, chain)
    assert int(generated.tokens.max()) < 4
    repeated = samplers.Chain(samplers.Beam(2), samplers.RepetitionPenalty(1e6))
    tokens = fk.generate(model, None, [[1]], None, 5, repeated).tokens[0].tolist()
    assert len({1, *tokens}) == 6
