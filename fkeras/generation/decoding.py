"""Decoding: the prefill of the prompt, and the loop that samples and reads one token of each row."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from fkeras.generation.caches import State, new_state
from fkeras.generation.reading import Inputs, Reader
from fkeras.generation.samplers import History, Sampler, process


class Sampling(NamedTuple):
    """The samplers, keys and ids of a call.

    Attributes:
        samplers: the samplers.
        which: the index of the sampler of each row; None for one sampler.
        keys: a key for each row; None if no sampler draws.
        prompt: the ids of the prompt (b, t), and the mask of the ids that are no padding.
        end_ids: ids (n,) of the end tokens.
    """

    samplers: tuple[Sampler, ...]
    which: jax.Array | None
    keys: jax.Array | None
    prompt: tuple[jax.Array, jax.Array]
    end_ids: jax.Array


class Carry(NamedTuple):
    """The state of the decoding loop.

    Attributes:
        state: the state of the model after all tokens.
        logits: the logits (b, v) of the next token.
        tokens: the new tokens (b, n).
        lengths: the number of new tokens (b,).
        active: whether each row (b,) has not ended.
    """

    state: State
    logits: jax.Array
    tokens: jax.Array
    lengths: jax.Array
    active: jax.Array


class Prompt(NamedTuple):
    """The tokens of a call.

    Attributes:
        ids: int32 (b, t), padded on the right.
        valid: bool (b, t), False for padding.
        inputs: the inputs of the model beside the ids, with their masks.
    """

    ids: jax.Array
    valid: jax.Array
    inputs: Inputs


@functools.partial(jax.jit, static_argnums=(3, 4, 5))
def read_prompt(
    reader: Reader, state: State, prompt: Prompt, capacity: int, slack: int, is_cache: bool
) -> tuple[Reader, State, jax.Array, jax.Array]:
    """Prefills the caches with the prompt; returns `(reader, state, logits, causal)`.

    Args:
        state: the state of the model, with KV caches if `is_cache`.
        capacity: the number of tokens for which new caches have space.
        slack: the maximum number of tokens by which a later rollback shortens the state.

    Returns:
        The reader with the constants of the encoder; the state after the prompt; the logits of the next
        token; and whether the logits are independent of later tokens, which a model without caches needs.
    """
    reader = reader.with_constants(prompt.inputs)
    cached, batch = reader.form.cached, prompt.ids.shape[0]
    if not is_cache:
        state = new_state(reader.any_model(), cached, state, batch, capacity, slack)
    logits, after = reader.read(state, prompt.ids, prompt.valid)
    causal = jnp.asarray(True)
    if not cached:
        # the same prompt followed by other tokens
        other = {**state, "ids": jnp.ones_like(state["ids"])}
        difference = jnp.abs(reader.read(other, prompt.ids, prompt.valid)[0] - logits)
        scale = jnp.maximum(jnp.max(jnp.abs(logits)), 1e-30)
        causal = ~(jnp.max(difference) > 1e-3 * scale)
        logits = jnp.where(causal, logits, jnp.nan)
    return reader, after, logits, causal


def first_carry(state: State, logits: jax.Array, limit: int) -> Carry:
    """Returns the carry before the first of at most `limit` new tokens."""
    batch = logits.shape[0]
    tokens, lengths = jnp.zeros((batch, limit), jnp.int32), jnp.zeros(batch, jnp.int32)
    return Carry(state, logits, tokens, lengths, jnp.ones(batch, bool))


def _advance(reader: Reader, sampling: Sampling, carry: Carry, steps: jax.Array) -> Carry:
    """Samples and reads at most `steps` tokens of each row."""

    def goes_on(loop: tuple[jax.Array, Carry]) -> jax.Array:
        return (loop[0] < steps) & jnp.any(loop[1].active)

    def step(loop: tuple[jax.Array, Carry]) -> tuple[jax.Array, Carry]:
        count, (state, logits, tokens, lengths, active) = loop
        history = known_ids(sampling, tokens, lengths)
        token = sample(sampling, logits, history, lengths)
        ends = (token < 0) | jnp.isin(token, sampling.end_ids)
        tokens = write(tokens, token, lengths, active)
        lengths = lengths + active.astype(jnp.int32)
        # the last token is read too: the state then holds all tokens
        logits, state = reader.read(state, jnp.maximum(token, 0)[:, None], active[:, None])
        active = active & ~ends & (lengths < tokens.shape[1])
        return count + 1, Carry(state, logits, tokens, lengths, active)

    return jax.lax.while_loop(goes_on, step, (jnp.zeros((), jnp.int32), carry))[1]


advance = jax.jit(_advance)
# donates the carry; not in `jax.vmap`, whose batched results do not fit into buffers without batch axis
advance_in_place = jax.jit(_advance, donate_argnums=2)


def known_ids(sampling: Sampling, tokens: jax.Array, lengths: jax.Array) -> jax.Array:
    """Returns prompt and new tokens (b, n), with -1 for padding; (b, 0) if no sampler reads ids."""
    if not any(part.reads_ids for sampler in sampling.samplers for part in sampler.parts):
        return sampling.prompt[0][:, :0]
    old = jnp.where(sampling.prompt[1], sampling.prompt[0], -1)
    new = jnp.where(jnp.arange(tokens.shape[1])[None] < lengths[:, None], tokens, -1)
    return jnp.concatenate([old, new], axis=1)


def write(tokens: jax.Array, new: jax.Array, lengths: jax.Array, active: jax.Array) -> jax.Array:
    """Returns the tokens with the next token of the active rows appended."""
    # `drop`: the indices of other rows are out of bounds
    places = jnp.where(active, lengths, tokens.shape[1])
    return tokens.at[jnp.arange(tokens.shape[0]), places].set(new, mode="drop")


def sample(
    sampling: Sampling, logits: jax.Array, history: jax.Array, counts: jax.Array
) -> jax.Array:
    """Returns the next token of each row; -1 for a row without a finite logit."""

    def tokens_of(sampler: Sampler) -> jax.Array:
        changed = processed_logits(sampler, logits, history, counts)
        if sampler.draws:
            assert sampling.keys is not None
            keys = jax.vmap(jax.random.fold_in)(sampling.keys, counts)
            tokens = jax.vmap(jax.random.categorical)(keys, changed)
        else:
            tokens = jnp.argmax(changed, axis=-1)
        # the maximum is NaN, or minus infinity where every token is forbidden
        return jnp.where(jnp.isfinite(jnp.max(changed, axis=-1)), tokens, -1).astype(jnp.int32)

    return by_row(sampling, tokens_of)


def by_row(sampling: Sampling, function: Any) -> jax.Array:
    """Returns `function(sampler)` row by row, with the sampler of each row."""
    first, *others = sampling.samplers
    values = function(first)
    for number, sampler in enumerate(others, start=1):
        is_own = (sampling.which == number).reshape(-1, *[1] * (values.ndim - 1))
        values = jnp.where(is_own, function(sampler), values)
    return values


def processed_logits(
    sampler: Sampler, logits: jax.Array, history: jax.Array, counts: jax.Array
) -> jax.Array:
    """Returns the logits (b, v) after a sampler, which processes row by row."""
    return jax.vmap(lambda row, ids, n: process(sampler, row, History(ids, n)))(
        logits, history, counts
    )
