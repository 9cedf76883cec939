"""Beam search, as in Hugging Face's `generate`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fkeras.generation.caches import State, take_rows
from fkeras.generation.decoding import (
    Carry,
    Method,
    Sampling,
    known_ids,
    outgrown,
    processed_logits,
    read_again,
    repeated,
)
from fkeras.generation.logprobs import sequence_logprobs
from fkeras.generation.reading import Reader
from fkeras.generation.samplers.rules import Beam


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
        first_logits: the logits (b, v) of the first new token; None if log-probabilities are not requested.
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
    first_logits: jax.Array | None

    @property
    def lengths(self) -> jax.Array:
        """The number of new tokens of each row (b,), with those that do not belong to the best beam."""
        return jnp.broadcast_to(self.count, self.active.shape)


class BeamSearch(Method):
    """Continues the most likely beams of each row by one token in a step."""

    def first(
        self, reader: Reader, sampling: Sampling, state: State, logits: jax.Array, size: int
    ) -> Beams:
        batch, width = logits.shape[0], beam_of(sampling).width
        rows = jnp.repeat(jnp.arange(batch), width)
        # all beams start equal: the others are disabled until the first tokens differ
        sums = jnp.full((batch, width), -jnp.inf).at[:, 0].set(0.0)
        # different arrays: the loop overwrites both
        tokens, ended_tokens = (jnp.zeros((batch, width, size), jnp.int32) for _ in range(2))
        return Beams(
            jnp.zeros((), jnp.int32),
            take_rows(state, reader.row_axes(state), rows),
            logits[rows],
            sums,
            tokens,
            jnp.full((batch, width), -jnp.inf),
            ended_tokens,
            jnp.zeros((batch, width), jnp.int32),
            jnp.ones(batch, bool),
            None if self.logprobs is None else logits,
        )

    def advance(
        self, reader: Reader, sampling: Sampling, carry: Beams, steps: Any, donate: bool
    ) -> Beams:
        return (_advance_in_place if donate else _advance)(reader, sampling, carry, steps)

    def read_again(self, reader: Reader, sampling: Sampling, carry: Beams) -> Beams:
        return _read_outgrown(reader, sampling, carry)

    def last(
        self, reader: Reader, sampling: Sampling, state: Callable[[], State], carry: Beams
    ) -> Carry:
        before = state()
        best = best_beams(reader, sampling, before, carry)
        if self.logprobs is None or carry.first_logits is None:
            return best
        new = (carry.first_logits, jnp.maximum(best.tokens, 0), best.lengths)
        return best._replace(logprobs=sequence_logprobs(reader, before, *new, self.logprobs))


def beam_of(sampling: Sampling) -> Beam:
    """Returns the beam search among the samplers."""
    return sampling.samplers[0].find(Beam)


def widened(reader: Reader, sampling: Sampling) -> tuple[Reader, Sampling]:
    """Returns reader and sampling of a batch with a row for each beam."""
    width = beam_of(sampling).width
    prompt = tuple(jnp.repeat(part, width, axis=0) for part in sampling.prompt)
    starts = jnp.repeat(sampling.starts, width)
    return reader.repeat(width), sampling._replace(prompt=prompt, starts=starts)


def _continued(reader: Reader, sampling: Sampling, beams: Beams, steps: jax.Array) -> Beams:
    """Continues all beams by at most `steps` tokens."""
    axes = reader.row_axes(beams.state)

    def step(reader: Reader, beams: Beams) -> Beams:
        return _step(*widened(reader, sampling), axes, beams)

    return repeated(step, reader, sampling, beams, steps)


@jax.jit
def _read_outgrown(reader: Reader, sampling: Sampling, beams: Beams) -> Beams:
    """Returns the beams in which the outgrown texts are read again, as a part of longer texts."""
    reader, sampling = widened(reader, sampling)
    batch, width, size = beams.tokens.shape
    lengths, active = (jnp.repeat(a, width) for a in (beams.lengths, beams.active))
    rows = outgrown(reader.form.boundaries, sampling.starts + lengths, active)
    tokens = beams.tokens.reshape(batch * width, size)
    state = read_again(reader, sampling, beams.state, tokens, lengths, rows, 1)
    return beams._replace(state=state)


_advance = jax.jit(_continued)
_advance_in_place = jax.jit(_continued, donate_argnums=2)


@jax.jit
def best_beams(reader: Reader, sampling: Sampling, state: State, beams: Beams) -> Carry:
    """Returns the carry after the best sequences.

    Args:
        state: the state after the prompt, with room for the sequences.
    """
    best = jnp.argmax(beams.ended_scores, axis=1)
    rows = jnp.arange(len(best))
    tokens, lengths = beams.ended_tokens[rows, best], beams.ended_lengths[rows, best]
    failed = ~jnp.isfinite(beams.ended_scores[rows, best])
    tokens = tokens.at[:, 0].set(jnp.where(failed, -1, tokens[:, 0]))
    lengths = jnp.where(failed, 1, lengths)
    # reads the best sequence again: the search may have dropped its state
    ids, valid = jnp.maximum(tokens, 0), jnp.arange(tokens.shape[1])[None] < lengths[:, None]
    logits, after = reader.read(state, ids, valid)
    for boundary in reader.form.boundaries:
        grows = (sampling.starts <= boundary) & (sampling.starts + lengths > boundary)
        after = read_again(reader, sampling, after, ids, lengths, grows, 0)
    return Carry(after, logits, tokens, lengths, jnp.zeros(len(best), bool))


def _step(reader: Reader, sampling: Sampling, axes: State, beams: Beams) -> Beams:
    sampler, beam = sampling.samplers[0], beam_of(sampling)
    batch, width, size = beams.tokens.shape
    count, last = beams.count, beams.count + 1 == sampling.limit
    # log-probabilities of all continuations
    counts = jnp.full(batch * width, count)
    history = known_ids(sampling, beams.tokens.reshape(batch * width, size), counts)
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
    length = (count + 1).astype(jnp.float32) ** penalty
    finishes = ends & (jnp.arange(ends.shape[1])[None] < width) & beams.active[:, None]
    scores = jnp.where(finishes, sums / length, -jnp.inf)
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
        done = full & (ended_scores[:, -1] >= running[:, 0] / length)
    active = beams.active & ~done & ~last & jnp.isfinite(running[:, 0])
    return Beams(
        count + 1,
        state,
        logits,
        running,
        tokens,
        ended_scores,
        ended_tokens,
        ended_lengths,
        active,
        beams.first_logits,
    )
