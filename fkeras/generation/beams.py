"""Beam search, as in Hugging Face's `generate`."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp

from fkeras.generation.caches import State, take_rows
from fkeras.generation.decoding import Carry, Sampling, known_ids, processed_logits
from fkeras.generation.reading import Reader
from fkeras.generation.samplers import Beam, Sampler


class Beams(NamedTuple):
    """The state of the search loop: `w` beams and `w` finished sequences of each row.

    Attributes:
        count: the number of new tokens of each beam.
        state: the state of the model, with one row for each beam.
        logits: the logits (b w, v) of the next tokens.
        sums: the sums of log-probabilities (b, w), in descending order.
        tokens: the new tokens (b, w, n) of the beams.
        ended_scores: the scores of finished sequences (b, w); minus infinity for empty places.
        ended_tokens: the tokens of finished sequences (b, w, n).
        ended_lengths: the lengths of finished sequences (b, w).
        active: whether the search of each row (b,) continues.
    """

    count: jax.Array
    state: State
    logits: jax.Array
    sums: jax.Array
    tokens: jax.Array
    ended_scores: jax.Array
    ended_tokens: jax.Array
    ended_lengths: jax.Array
    active: jax.Array


@functools.partial(jax.jit, static_argnums=4)
def search(
    reader: Reader, sampling: Sampling, state: State, logits: jax.Array, limit: int
) -> Carry:
    """Returns the carry after the best sequences of at most `limit` new tokens."""
    sampler = sampling.samplers[0]
    beam: Beam = sampler.find(Beam)
    batch, width = logits.shape[0], beam.width
    axes = reader.row_axes(state)
    repeated = jnp.repeat(jnp.arange(batch), width)
    prompt = sampling.prompt[0][repeated], sampling.prompt[1][repeated]
    wide = sampling._replace(prompt=prompt)
    # all beams start equal: the others are disabled until the first tokens differ
    sums = jnp.full((batch, width), -jnp.inf).at[:, 0].set(0.0)
    nothing = jnp.zeros((batch, width, limit), jnp.int32)
    beams = Beams(
        jnp.zeros((), jnp.int32),
        take_rows(state, axes, repeated),
        logits[repeated],
        sums,
        nothing,
        jnp.full((batch, width), -jnp.inf),
        nothing,
        jnp.zeros((batch, width), jnp.int32),
        jnp.ones(batch, bool),
    )
    wide_reader = reader.repeat(width)

    def step(beams: Beams) -> Beams:
        return _step(wide_reader, wide, sampler, axes, beams)

    beams = jax.lax.while_loop(lambda beams: jnp.any(beams.active), step, beams)
    best = jnp.argmax(beams.ended_scores, axis=1)
    rows = jnp.arange(batch)
    tokens, lengths = beams.ended_tokens[rows, best], beams.ended_lengths[rows, best]
    failed = ~jnp.isfinite(beams.ended_scores[rows, best])
    tokens = tokens.at[:, 0].set(jnp.where(failed, -1, tokens[:, 0]))
    lengths = jnp.where(failed, 1, lengths)
    # reads the best sequence again: the search may have dropped its state
    valid = jnp.arange(limit)[None] < lengths[:, None]
    logits, state = reader.read(state, jnp.maximum(tokens, 0), valid)
    return Carry(state, logits, tokens, lengths, jnp.zeros(batch, bool))


def _step(reader: Reader, sampling: Sampling, sampler: Sampler, axes: State, beams: Beams) -> Beams:
    beam: Beam = sampler.find(Beam)
    batch, width, limit = beams.tokens.shape
    count, last = beams.count, beams.count + 1 == limit
    # log-probabilities of all continuations
    counts = jnp.full(batch * width, count)
    history = known_ids(sampling, beams.tokens.reshape(batch * width, limit), counts)
    changed = processed_logits(sampler, jax.nn.log_softmax(beams.logits), history, counts)
    vocabulary = changed.shape[-1]
    sums = (changed.reshape(batch, width, vocabulary) + beams.sums[:, :, None]).reshape(batch, -1)
    sums = jnp.where(jnp.isnan(sums), -jnp.inf, sums)
    # twice as many candidates as beams, so that enough unfinished candidates remain
    sums, places = jax.lax.top_k(sums, min(2 * width, sums.shape[1]))
    parents, new = places // vocabulary, (places % vocabulary).astype(jnp.int32)
    tokens = jnp.take_along_axis(beams.tokens, parents[:, :, None], axis=1)
    tokens = tokens.at[:, :, count].set(new)
    ends = jnp.isin(new, sampling.end_ids) | last

    # finished sequences among the best `width` candidates
    penalty = jnp.asarray(beam.length_penalty, jnp.float32)
    size = (count + 1).astype(jnp.float32) ** penalty
    finishes = ends & (jnp.arange(ends.shape[1])[None] < width) & beams.active[:, None]
    scores = jnp.where(finishes, sums / size, -jnp.inf)
    lengths = jnp.full_like(new, count + 1)
    groups = (
        (beams.ended_scores, scores),
        (beams.ended_tokens, tokens),
        (beams.ended_lengths, lengths),
    )
    ended = [jnp.concatenate(pair, axis=1) for pair in groups]
    _, kept = jax.lax.top_k(ended[0], width)
    ended_scores, ended_lengths = (jnp.take_along_axis(a, kept, axis=1) for a in ended[::2])
    ended_tokens = jnp.take_along_axis(ended[1], kept[:, :, None], axis=1)

    # the best unfinished sequences
    running, kept = jax.lax.top_k(jnp.where(ends, -jnp.inf, sums), width)
    parents = jnp.take_along_axis(parents, kept, axis=1)
    tokens = jnp.take_along_axis(tokens, kept[:, :, None], axis=1)
    rows = (parents + jnp.arange(batch)[:, None] * width).reshape(-1)
    state = take_rows(beams.state, axes, rows)
    newest = jnp.take_along_axis(new, kept, axis=1).reshape(-1, 1)
    valid = jnp.repeat(beams.active, width)[:, None]
    logits, state = reader.read(state, newest, valid)

    full = jnp.isfinite(ended_scores[:, -1])
    if beam.early_stopping:
        done = full
    else:
        done = full & (ended_scores[:, -1] >= running[:, 0] / size)
    active = beams.active & ~done & ~last & jnp.isfinite(running[:, 0])
    return Beams(
        *(count + 1, state, logits, running, tokens),
        *(ended_scores, ended_tokens, ended_lengths, active),
    )
