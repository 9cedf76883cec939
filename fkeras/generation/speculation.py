"""Speculative decoding: a draft model proposes tokens, and the model verifies all of them in one call.

A proposed token t is accepted with the probability min(1, p(t) / q(t)), where p and q are the
probabilities of the model and of the draft model after all samplers. The first rejected token is
replaced by a sample of max(p - q, 0), normalized. The new tokens have the distribution of the model;
greedy tokens are equal.

References:
    Leviathan et al., Fast Inference from Transformers via Speculative Decoding (2023).
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fkeras import ops
from fkeras.generation.caches import State, take_back
from fkeras.generation.decoding import (
    Method,
    Sampling,
    by_row,
    known_ids,
    processed_logits,
    repeated,
    write,
)
from fkeras.generation.logprobs import Logprobs, no_logprobs, written
from fkeras.generation.reading import Reader
from fkeras.generation.samplers.rules import Sampler

# more tokens than those of any text, and far from the largest integer
_FAR = 1 << 30


class DraftCarry(NamedTuple):
    """The state of the loop; attributes as for `Carry`.

    Attributes:
        logits: log-probabilities of the next token after the samplers; NaN if no logit is finite.
        draft_state: the state of the draft model after all tokens.
        model_logits: the logits of the model; None if log-probabilities are not requested.
    """

    state: State
    logits: jax.Array
    tokens: jax.Array
    lengths: jax.Array
    active: jax.Array
    draft_state: State
    model_logits: jax.Array | None
    logprobs: Logprobs | None


@dataclasses.dataclass(frozen=True)
class Speculation(Method):
    """Proposes tokens by a draft model and verifies all of them in a step.

    Attributes:
        draft: the reader of the draft model.
        draft_state: the state of the draft model after the prompt.
        count: the number of proposed tokens of a step.
    """

    draft: Reader
    draft_state: State
    count: int

    @property
    def stride(self) -> int:
        return self.count + 1

    def first(
        self, reader: Reader, sampling: Sampling, state: State, logits: jax.Array, size: int
    ) -> DraftCarry:
        batch = logits.shape[0]
        tokens, lengths = jnp.zeros((batch, size), jnp.int32), jnp.zeros(batch, jnp.int32)
        model_logits = None if self.logprobs is None else logits
        logits = log_probabilities(sampling, logits, known_ids(sampling, tokens, lengths), lengths)
        logprobs = no_logprobs(batch, size, self.logprobs)
        rows = (tokens, lengths, jnp.ones(batch, bool))
        return DraftCarry(state, logits, *rows, self.draft_state, model_logits, logprobs)

    def advance(
        self, reader: Reader, sampling: Sampling, carry: DraftCarry, steps: Any, donate: bool
    ) -> DraftCarry:
        advance = _advance_in_place if donate else _advance
        return advance(self.draft, self.count, reader, sampling, carry, steps)


def log_probabilities(
    sampling: Sampling, logits: jax.Array, history: jax.Array, counts: jax.Array
) -> jax.Array:
    """Returns the log-probabilities (b, v) from which tokens are sampled."""

    def of(sampler: Sampler) -> jax.Array:
        changed = processed_logits(sampler, logits, history, counts)
        valid = jnp.isfinite(jnp.max(changed, axis=-1, keepdims=True))
        if sampler.draws:
            result = jax.nn.log_softmax(changed)
        else:
            best = ops.argmax(changed, axis=-1)[:, None]
            result = jnp.where(jnp.arange(changed.shape[1])[None] == best, 0.0, -jnp.inf)
        return jnp.where(valid, result, jnp.nan)

    return by_row(sampling, of)


def _verified(
    draft: Reader,
    count: int,
    reader: Reader,
    sampling: Sampling,
    carry: DraftCarry,
    rounds: jax.Array,
) -> DraftCarry:
    """Runs at most `rounds` rounds, each of which adds 1 to `count + 1` tokens to a row."""

    def step(reader: Reader, carry: DraftCarry) -> DraftCarry:
        return _round(reader, draft, sampling, count, carry)

    return repeated(step, reader, sampling, carry, rounds)


_advance = jax.jit(_verified, static_argnums=1)
_advance_in_place = jax.jit(_verified, static_argnums=1, donate_argnums=4)


def _draw(sampling: Sampling, logits: jax.Array, counts: jax.Array, purpose: int) -> jax.Array:
    """Draws a token of each row; returns the most likely token if there are no keys."""
    if sampling.keys is None:
        return ops.argmax(logits, axis=-1).astype(jnp.int32)
    keys = _keys(sampling, counts, purpose)
    return jax.vmap(jax.random.categorical)(keys, logits).astype(jnp.int32)


def _keys(sampling: Sampling, counts: jax.Array, purpose: int) -> jax.Array:
    assert sampling.keys is not None

    def fold(key: jax.Array, count: jax.Array) -> jax.Array:
        return jax.random.fold_in(jax.random.fold_in(key, count), purpose)

    return jax.vmap(fold)(sampling.keys, counts)


def _round(
    reader: Reader, draft: Reader, sampling: Sampling, count: int, carry: DraftCarry
) -> DraftCarry:
    state, logits, tokens, lengths, active, draft_state, model_logits, logprobs = carry
    # a text that outgrows its keys in this round is read again before the next round
    ends = [jnp.where(sampling.starts + lengths < b, b, _FAR) for b in reader.form.boundaries]
    most = functools.reduce(jnp.minimum, ends, jnp.full_like(lengths, _FAR)) - sampling.starts
    failed = jnp.isnan(logits).any(axis=-1)
    # the first token is certain; all others are proposals
    token = jnp.where(failed, -1, _draw(sampling, logits, lengths, 0))
    tokens = write(tokens, token, lengths, active)

    def propose(loop: tuple, number: jax.Array) -> tuple[tuple, tuple]:
        token, tokens, draft_state = loop
        newest = jnp.maximum(token, 0)[:, None]
        values, draft_state = draft.read(draft_state, newest, active[:, None])
        places = lengths + number + 1
        proposal = log_probabilities(sampling, values, known_ids(sampling, tokens, places), places)
        token = _draw(sampling, proposal, places, 1)
        return (token, write(tokens, token, places, active), draft_state), (token, proposal)

    (newest, tokens, draft_state), (others, proposals) = jax.lax.scan(
        propose, (token, tokens, draft_state), jnp.arange(count)
    )
    _, draft_state = draft.read(draft_state, jnp.maximum(newest, 0)[:, None], active[:, None])
    ids = jnp.concatenate([token[None], others]).T
    valid = jnp.broadcast_to(active[:, None], ids.shape)
    values, state = reader.read(state, jnp.maximum(ids, 0), valid, last=False)

    ends = (token < 0) | jnp.isin(token, sampling.end_ids)
    accepted, going, next_logits = jnp.zeros_like(lengths), active & ~ends, logits
    for number in range(count + 1):
        places = lengths + number + 1
        history = known_ids(sampling, tokens, places)
        target = log_probabilities(sampling, values[:, number], history, places)
        if number == count:
            next_logits = jnp.where(going[:, None], target, next_logits)
            break
        proposal, guess = proposals[number], ids[:, number + 1]
        ratio = _at(target, guess) - _at(proposal, guess)
        # without keys the ratio p / q is 0 or 1
        draws = jnp.full_like(ratio, 0.5)
        if sampling.keys is not None:
            draws = jax.vmap(jax.random.uniform)(_keys(sampling, places, 2))
        accepts = draws < jnp.exp(ratio)  # False for NaN
        is_last = places >= most
        rejects = going & ~(accepts & (places < sampling.limit) & ~is_last)
        rest = jnp.log(jnp.maximum(jnp.exp(target) - jnp.exp(proposal), 0.0))
        # p equals q up to rounding: the difference is 0
        no_rest = ~jnp.isfinite(jnp.max(rest, axis=-1, keepdims=True))
        rest = jnp.where(no_rest | is_last[:, None], target, rest)
        next_logits = jnp.where(rejects[:, None], rest, next_logits)
        going = going & ~rejects
        accepted = accepted + going.astype(jnp.int32)
        going = going & ~jnp.isin(guess, sampling.end_ids)
    added = jnp.where(active, 1 + accepted, 0)
    if model_logits is not None:
        number = jnp.arange(count + 1)[None]
        places = jnp.where(number < added[:, None], lengths[:, None] + number, tokens.shape[1])
        before = jnp.concatenate([model_logits[:, None], values[:, :-1]], axis=1)
        logprobs = written(logprobs, before, ids, places)
        last = jnp.maximum(added - 1, 0)[:, None, None]
        model_logits = jnp.take_along_axis(values, last, axis=1)[:, 0]
    surplus = jnp.where(active, count + 1 - added, 0)
    state, draft_state = take_back(state, surplus), take_back(draft_state, surplus)
    lengths = lengths + added
    last = jnp.take_along_axis(ids, jnp.maximum(added - 1, 0)[:, None], axis=1)[:, 0]
    active = active & ~((last < 0) | jnp.isin(last, sampling.end_ids)) & (lengths < sampling.limit)
    rows = (tokens, lengths, active)
    return DraftCarry(state, next_logits, *rows, draft_state, model_logits, logprobs)


def _at(logits: jax.Array, ids: jax.Array) -> jax.Array:
    return jnp.take_along_axis(logits, ids[:, None], axis=1)[:, 0]
