"""Samplers that compare the tokens so far: repeated n-grams, forbidden sequences, lengths, forced tokens."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import describe_value
from fkeras.generation.samplers.rules import (
    History,
    MinNewTokens,
    Number,
    Sampler,
    check_count,
    check_ids,
    check_number,
    without,
)


@dataclasses.dataclass(frozen=True)
class NoRepeatedNgrams(Sampler):
    """Forbids the tokens that complete an n-gram which the row already has.

    The n-grams of the prompt count as well. A size of 1 forbids all earlier tokens.

    Args:
        size: the number of tokens of an n-gram.

    Raises:
        TypeError: for a size that is no integer.
        ValueError: for a size below 1.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([2, 0, 1, 2, 0, -1]), jnp.array(0))
        >>> fk.samplers.NoRepeatedNgrams(3).process(jnp.zeros(3), history)
        Array([  0., -inf,   0.], dtype=float32)
    """

    size: int
    rank: ClassVar[int] = 12

    def __post_init__(self) -> None:
        check_count(self, "size")

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        ids, length = _in_order(history.ids)
        if self.size > ids.size:
            return logits
        last = _last(ids, length, self.size - 1)
        # where an n-gram begins; the last ones are incomplete
        found = jnp.arange(ids.size) <= length - self.size
        for n in range(self.size - 1):
            found &= jnp.roll(ids, -n) == last[n]
        following = jnp.roll(ids, 1 - self.size)
        return logits.at[jnp.where(found, following, logits.size)].set(-jnp.inf, mode="drop")


@dataclasses.dataclass(frozen=True)
class SuppressedSequences(Sampler):
    """Forbids sequences of tokens: the last token of a sequence, directly after its other tokens.

    Args:
        sequences: the forbidden sequences of ids; a sequence of a single id forbids this token.

    Raises:
        TypeError: for ids that are no integers.
        ValueError: for no sequences, an empty sequence, or a negative id.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([2, 0, -1]), jnp.array(0))
        >>> fk.samplers.SuppressedSequences([[0, 1], [1, 2]]).process(jnp.zeros(3), history)
        Array([  0., -inf,   0.], dtype=float32)
    """

    sequences: Sequence[Sequence[int]]
    rank: ClassVar[int] = 15
    id_fields: ClassVar[tuple[str, ...]] = ("ids",)

    def __post_init__(self) -> None:
        where, value = "samplers.SuppressedSequences", self.sequences
        if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
            raise TypeError(
                f"{where}: expected sequences of ids, received {describe_value(value)}."
            )
        if not len(value):
            raise ValueError(f"{where}: expected at least one sequence, received {value!r}.")
        sequences = tuple(check_ids(self, "sequences", sequence) for sequence in value)
        object.__setattr__(self, "sequences", sequences)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids of all sequences."""
        return tuple(i for sequence in self.sequences for i in sequence)

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        ids, length = _in_order(history.ids)
        for *before, banned in self.sequences:
            count = len(before)
            if count <= ids.size:
                is_last = jnp.all(_last(ids, length, count) == jnp.array(before, ids.dtype))
                token = jnp.where(is_last & (count <= length), banned, logits.size)
                logits = logits.at[token].set(-jnp.inf, mode="drop")
        return logits


@dataclasses.dataclass(frozen=True)
class MinLength(MinNewTokens):
    """Forbids the end tokens until prompt and new tokens have `count` tokens.

    Args:
        count: the minimum number of tokens before an end token, including those of the prompt.
        end_ids: the end tokens.

    Raises:
        TypeError: for ids that are no integers.
        ValueError: without end tokens, for a negative id, and for a negative count.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0, 2, -1]), jnp.array(1))
        >>> fk.samplers.MinLength(3, (1,)).process(jnp.zeros(3), history)
        Array([  0., -inf,   0.], dtype=float32)
    """

    rank: ClassVar[int] = 18
    reads_ids: ClassVar[bool] = True

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        is_short = jnp.sum(history.ids >= 0) < self.count
        return jnp.where(is_short, without(logits, self.end_ids), logits)


@dataclasses.dataclass(frozen=True)
class ForcedIds(Sampler):
    """Permits only some tokens at one position: their logits become 0, all others minus infinity.

    Models that translate between several languages expect the id of the language at position 1, after the start
    token. As in transformers, the scores of beams leave out the probability of a forced token.

    Args:
        position: the number of tokens before the forced token.
        ids: the ids of the permitted tokens.
        with_prompt: whether the position counts the tokens of the prompt; False counts new tokens alone.

    Raises:
        TypeError: for ids that are no integers.
        ValueError: for no ids, a negative id, and a negative position.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([2, -1]), jnp.array(0))
        >>> fk.samplers.ForcedIds(1, (1,)).process(jnp.ones(3), history)
        Array([-inf,   0., -inf], dtype=float32)
    """

    position: Number
    ids: Sequence[int]
    with_prompt: bool = True
    rank: ClassVar[int] = 30
    several: ClassVar[bool] = True
    leaves: ClassVar[tuple[str, ...]] = ("position",)
    id_fields: ClassVar[tuple[str, ...]] = ("ids",)

    def __post_init__(self) -> None:
        check_number(self, "position", lambda n: n >= 0, "a number of at least 0")
        object.__setattr__(self, "ids", check_ids(self, "ids", self.ids))

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        forced = jnp.full_like(logits, -jnp.inf).at[jnp.asarray(self.ids)].set(0.0, mode="drop")
        count = jnp.sum(history.ids >= 0) if self.with_prompt else history.count
        return jnp.where(count == self.position, forced, logits)


def _in_order(ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the ids before their padding, and their number."""
    is_token = ids >= 0
    places = jnp.where(is_token, jnp.cumsum(is_token) - 1, ids.size)
    return jnp.full_like(ids, -1).at[places].set(ids, mode="drop"), jnp.sum(is_token)


def _last(ids: jax.Array, length: jax.Array, count: int) -> jax.Array:
    """Returns the last `count` of the first `length` ids; other ids if there are fewer."""
    return jax.lax.dynamic_slice_in_dim(ids, jnp.maximum(length - count, 0), count)
