"""Decoding: the prefill of the prompt, and the loop that samples and reads one token of each row."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from fkeras import ops
from fkeras.generation.blocks import call_by_blocks
from fkeras.generation.caches import State, enlarged, lengths_of, new_state, take_back
from fkeras.generation.logprobs import Logprobs, no_logprobs, written
from fkeras.generation.reading import Constant, Inputs, Reader
from fkeras.generation.samplers.rules import History, Sampler, process
from fkeras.generation.stacks import call_in_loop, plain_state

_Carry = TypeVar("_Carry", bound=Any)

# tokens of a row that a model with caches reads at once
_PIECE = 512


class Sampling(NamedTuple):
    """The samplers, keys and ids of a call.

    Attributes:
        samplers: the samplers.
        which: the index of the sampler of each row; None for one sampler.
        keys: a key for each row; None if no sampler draws.
        prompt: the ids of the prompt (b, t), and the mask of the ids that are no padding.
        end_ids: ids (n,) of the end tokens.
        limit: int32 scalar: the maximum number of new tokens.
        starts: the number of tokens (b,) before the first new token, with those of the caller's state.
    """

    samplers: tuple[Sampler, ...]
    which: jax.Array | None
    keys: jax.Array | None
    prompt: tuple[jax.Array, jax.Array]
    end_ids: jax.Array
    limit: jax.Array | np.int32
    starts: jax.Array


class Carry(NamedTuple):
    """The state of the decoding loop.

    Attributes:
        state: the state of the model after all tokens.
        logits: the logits (b, v) of the next token.
        tokens: the new tokens (b, n); n is at least the number of tokens after the steps of a call.
        lengths: the number of new tokens (b,).
        active: whether each row (b,) has not ended.
        logprobs: the log-probabilities of the new tokens; None if they are not requested.
    """

    state: State
    logits: jax.Array
    tokens: jax.Array
    lengths: jax.Array
    active: jax.Array
    logprobs: Logprobs | None = None


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


@dataclasses.dataclass(frozen=True)
class Method(abc.ABC):
    """The loop that chooses new tokens; its carries have `state`, `logits`, `tokens`, `lengths` and `active`.

    Attributes:
        logprobs: the number of most likely tokens whose log-probabilities are returned beside those of the
            new tokens; None for no log-probabilities.
    """

    logprobs: int | None = dataclasses.field(default=None, kw_only=True)

    @property
    def stride(self) -> int:
        """The maximum number of tokens that a step reads."""
        return 1

    @abc.abstractmethod
    def first(
        self, reader: Reader, sampling: Sampling, state: State, logits: jax.Array, size: int
    ) -> Any:
        """Returns the carry before the first new token, with room for `size` new tokens.

        Args:
            state: the state of the model after the prompt.
            logits: the logits (b, v) of the next token.
        """

    @abc.abstractmethod
    def advance(
        self, reader: Reader, sampling: Sampling, carry: Any, steps: Any, donate: bool
    ) -> Any:
        """Returns the carry after at most a number of steps.

        Args:
            donate: whether the carry is overwritten; not in `jax.vmap`, whose batched results do not
                fit into buffers without batch axis.
        """

    def read_again(self, reader: Reader, sampling: Sampling, carry: Any) -> Any:
        """Returns the carry with the outgrown texts read again, as a part of longer texts."""
        return _read_outgrown(reader, sampling, carry._replace(state=plain_state(carry.state)))

    def last(
        self, reader: Reader, sampling: Sampling, state: Callable[[], State], carry: Any
    ) -> Carry:
        """Returns the carry with the tokens of the result.

        Args:
            state: returns the state after the prompt, with room for the new tokens.
        """
        return carry


class OneToken(Method):
    """Samples and reads one token of each row in a step."""

    def first(
        self, reader: Reader, sampling: Sampling, state: State, logits: jax.Array, size: int
    ) -> Carry:
        batch = logits.shape[0]
        # NumPy: outside of jit a single JAX operation costs as much time as a token of a small model
        tokens: Any = np.zeros((batch, size), np.int32)
        lengths: Any = np.zeros(batch, np.int32)
        active = cast(Any, np.ones(batch, bool))
        logprobs = no_logprobs(batch, size, self.logprobs)
        return Carry(state, logits, tokens, lengths, active, logprobs)

    def advance(
        self, reader: Reader, sampling: Sampling, carry: Carry, steps: Any, donate: bool
    ) -> Carry:
        if not donate:
            return _advance(reader, sampling, carry, steps)
        packed = reader.has_packed_codes
        # no products with packed codes are computed in a loop over blocks
        after = None if packed else call_in_loop(_advance, reader, sampling, carry, steps)
        if after is not None:
            return after
        carry = carry._replace(state=plain_state(carry.state))
        widens = packed and jax.default_backend() == "cpu"
        advance = _advance_in_wide_vectors if widens else _advance_in_place
        return advance(reader, sampling, carry, steps)

    def last(
        self, reader: Reader, sampling: Sampling, state: Callable[[], State], carry: Carry
    ) -> Carry:
        return carry._replace(state=plain_state(carry.state))


def read_prompt(
    reader: Reader,
    state: State,
    prompt: Prompt,
    capacity: int,
    slack: int,
    is_cache: bool,
    limit: jax.Array | np.int32,
) -> tuple[Reader, State, jax.Array, jax.Array]:
    """Prefills the caches with the prompt; returns `(reader, state, logits, causal)`.

    Args:
        state: the state of the model, with KV caches if `is_cache`.
        capacity: the number of tokens for which new caches have space.
        slack: the maximum number of tokens by which a later rollback shortens the state.
        limit: the maximum number of new tokens.

    Returns:
        The reader with the constants of the encoder; the state after the prompt; the logits of the next
        token; and whether the logits are independent of later tokens, which a model without caches needs.
    """
    constants, state, logits, causal = call_by_blocks(
        _prompt_read,
        reader,
        state,
        prompt,
        limit,
        capacity=capacity,
        slack=slack,
        is_cache=is_cache,
    )
    return dataclasses.replace(reader, constants=constants), state, logits, causal


# returns no weights: a compiled program would copy them
@functools.partial(jax.jit, static_argnames=("capacity", "slack", "is_cache"))
def _prompt_read(
    reader: Reader,
    state: State,
    prompt: Prompt,
    limit: jax.Array,
    *,
    capacity: int,
    slack: int,
    is_cache: bool,
) -> tuple[tuple[Constant, ...], State, jax.Array, jax.Array]:
    reader = reader.with_constants(prompt.inputs)
    cached, (batch, width) = reader.form.cached, prompt.ids.shape
    larger = None
    if not is_cache:
        larger = new_state(reader.any_model(), cached, state, batch, capacity, slack)
        # attention reads all places: many places for new tokens are added behind the prompt
        few = cached and 2 * width <= capacity and not _is_long(reader, width)
        size = width if few else capacity
        state = new_state(reader.any_model(), cached, state, batch, size, slack)
    held = lengths_of(state) if cached else None
    logits, after = read_pieces(reader, state, prompt)
    after = after if larger is None else enlarged(after, larger)
    causal = jnp.asarray(True)
    if not cached:
        # the same prompt followed by other tokens
        other = {**state, "ids": jnp.ones_like(state["ids"])}
        difference = jnp.abs(reader.read(other, prompt.ids, prompt.valid)[0] - logits)
        scale = jnp.maximum(jnp.max(jnp.abs(logits)), 1e-30)
        causal = ~(jnp.max(difference) > 1e-3 * scale)
        logits = jnp.where(causal, logits, jnp.nan)
    elif held is not None:
        # the ids of earlier calls, which would have to be read again, are unknown
        for boundary in reader.form.boundaries:
            end = held + jnp.sum(prompt.valid, axis=1) + limit
            mixed = (held > 0) & (held <= boundary) & (end > boundary)
            logits = jnp.where(mixed[:, None], jnp.nan, logits)
    return reader.constants, after, logits, causal


def _is_long(reader: Reader, width: int) -> bool:
    """Returns whether a prompt of this width is read in pieces."""
    form = reader.form
    return width > _PIECE and form.cached and not form.scaled and not form.boundaries


def read_pieces(reader: Reader, state: State, prompt: Prompt) -> tuple[jax.Array, State]:
    """Returns `(logits, state)` after the prompt; long prompts are read piece by piece into the caches.

    The memory for the prompt then does not grow with its length, and padding is not read. A model
    without caches, and positions that depend on the length of a text, need the whole text at once.
    """
    batch, width = prompt.ids.shape
    if not _is_long(reader, width):
        return reader.read(state, prompt.ids, prompt.valid)
    ids, valid = (jnp.pad(x, ((0, 0), (0, -width % _PIECE))) for x in (prompt.ids, prompt.valid))

    def read(index: jax.Array, carry: tuple[jax.Array, State]) -> tuple[jax.Array, State]:
        logits, state = carry
        piece = [jax.lax.dynamic_slice_in_dim(x, index * _PIECE, _PIECE, 1) for x in (ids, valid)]
        new, state = reader.read(state, *piece)
        # a row without a token in this piece ended in an earlier piece
        return jnp.where(piece[1][:, :1], new, logits), state

    count = jnp.max(jnp.sum(valid, axis=1, dtype=jnp.int32))
    start = jnp.zeros((batch, reader.form.vocabulary), jnp.float32)
    return jax.lax.fori_loop(0, -(-count // _PIECE), read, (start, state))


def _sampled(reader: Reader, sampling: Sampling, carry: Carry, steps: jax.Array) -> Carry:
    """Samples and reads at most `steps` tokens of each row."""

    def step(reader: Reader, carry: Carry) -> Carry:
        state, logits, tokens, lengths, active, logprobs = carry
        history = known_ids(sampling, tokens, lengths)
        token = sample(sampling, logits, history, lengths)
        ends = (token < 0) | jnp.isin(token, sampling.end_ids)
        places = jnp.where(active, lengths, tokens.shape[1])[:, None]
        logprobs = written(logprobs, logits[:, None], token[:, None], places)
        tokens = write(tokens, token, lengths, active)
        lengths = lengths + active.astype(jnp.int32)
        # the last token is read too: the state then holds all tokens
        logits, state = reader.read(state, jnp.maximum(token, 0)[:, None], active[:, None])
        active = active & ~ends & (lengths < sampling.limit)
        return Carry(state, logits, tokens, lengths, active, logprobs)

    return repeated(step, reader, sampling, carry, steps)


_advance = jax.jit(_sampled)
_advance_in_place = jax.jit(_sampled, donate_argnums=2)
# vectors of 256 bits are XLA's default for CPUs, also for those with AVX-512
_advance_in_wide_vectors = jax.jit(
    _sampled, donate_argnums=2, compiler_options={"xla_cpu_prefer_vector_width": "512"}
)


def repeated(
    step: Callable[[Reader, _Carry], _Carry],
    reader: Reader,
    sampling: Sampling,
    carry: _Carry,
    steps: jax.Array,
) -> _Carry:
    """Runs at most `steps` steps, while a row is active.

    Ends before a step in which a text becomes so long that `read_again` must read the text. On TPUs, 4-bit
    codes are unpacked before the first step.
    """

    def goes_on(loop: tuple[jax.Array, _Carry]) -> jax.Array:
        count, carry = loop
        rows = outgrown(reader.form.boundaries, sampling.starts + carry.lengths, carry.active)
        return (count < steps) & jnp.any(carry.active) & ((count == 0) | ~jnp.any(rows))

    def run(reader: Reader, carry: _Carry) -> _Carry:
        def once(loop: tuple[jax.Array, _Carry]) -> tuple[jax.Array, _Carry]:
            return loop[0] + 1, step(reader, loop[1])

        return jax.lax.while_loop(goes_on, once, (jnp.zeros((), jnp.int32), carry))[1]

    def run_unpacked(reader: Reader, carry: _Carry) -> _Carry:
        return run(reader.unpacked(), carry)

    reader = reader.with_wide_scales()
    if not reader.has_packed_codes:
        return run(reader, carry)
    return jax.lax.platform_dependent(reader, carry, tpu=run_unpacked, default=run)


def all_steps(method: Method, reader: Reader, sampling: Sampling, carry: _Carry) -> _Carry:
    """Returns the carry after the end of all rows, in one compiled program."""
    boundaries = reader.form.boundaries

    def advance(carry: _Carry) -> _Carry:
        return method.advance(reader, sampling, carry, sampling.limit, donate=False)

    def run(carry: _Carry) -> _Carry:
        rows = outgrown(boundaries, sampling.starts + carry.lengths, carry.active)
        again = functools.partial(method.read_again, reader, sampling)
        return advance(jax.lax.cond(jnp.any(rows), again, lambda carry: carry, carry))

    if not boundaries:
        return advance(carry)
    return jax.lax.while_loop(lambda carry: jnp.any(carry.active), run, carry)


def outgrown(boundaries: tuple[int, ...], lengths: jax.Array, active: jax.Array) -> jax.Array:
    """Returns the active rows (b,) whose next token exceeds the length for which their keys were turned.

    Args:
        boundaries: see `Form`.
        lengths: the number of tokens of each row.
    """
    equal = (lengths == boundary for boundary in boundaries)
    return functools.reduce(jnp.logical_or, equal, jnp.zeros_like(active)) & active


@jax.jit
def _read_outgrown(reader: Reader, sampling: Sampling, carry: _Carry) -> _Carry:
    """Returns the carry in which the outgrown texts are read again, as a part of longer texts."""
    tokens, lengths = carry.tokens, carry.lengths
    rows = outgrown(reader.form.boundaries, sampling.starts + lengths, carry.active)
    state = read_again(reader, sampling, carry.state, tokens, lengths, rows, 1)
    return carry._replace(state=state)


def read_again(
    reader: Reader,
    sampling: Sampling,
    state: State,
    tokens: jax.Array,
    lengths: jax.Array,
    rows: jax.Array,
    ahead: int,
) -> State:
    """Returns the state in which the text of `rows` (b,) is read at once.

    Args:
        tokens: the new tokens (b, n).
        lengths: the number of new tokens (b,).
        ahead: 1 to read the text as a part of a text that is longer by a token.
    """
    new = jnp.arange(tokens.shape[1])[None] < lengths[:, None]
    ids = jnp.concatenate([sampling.prompt[0], tokens, tokens[:, :ahead]], axis=1)
    last = jnp.zeros_like(new[:, :ahead])
    ids, valid = packed(ids, jnp.concatenate([sampling.prompt[1], new, last], axis=1))
    count = jnp.sum(valid, axis=1) + ahead
    valid = (jnp.arange(ids.shape[1])[None] < count[:, None]) & rows[:, None]
    held = lengths_of(state)
    assert held is not None
    _, after = reader.read(take_back(state, held), ids, valid)
    after = take_back(after, jnp.where(rows, ahead, 0))
    axes = reader.row_axes(state)

    def of_rows(old: jax.Array, new: jax.Array, axis: int) -> jax.Array:
        if axis < 0:
            return old
        shape = [1] * old.ndim
        shape[axis] = -1
        return jnp.where(rows.reshape(shape), new, old)

    return jax.tree.map(of_rows, state, after, axes)


def packed(ids: Any, valid: Any) -> tuple[Any, Any]:
    """Returns ids and mask (b, t) with the ids that are no padding first, in their order."""
    if not isinstance(valid, jax.Array):
        order = np.argsort(~valid, axis=1, kind="stable")
        return np.take_along_axis(ids, order, axis=1), np.take_along_axis(valid, order, axis=1)
    order = jnp.argsort(~valid, axis=1, stable=True)
    return jnp.take_along_axis(ids, order, axis=1), jnp.take_along_axis(valid, order, axis=1)


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
            tokens = ops.argmax(changed, axis=-1)
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
