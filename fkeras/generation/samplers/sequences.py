"""Samplers of the settings of translators: n-grams, forbidden sequences, lengths, forced tokens, normalization."""

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
    Number,
    Sampler,
    check_count,
    check_ids,
    check_number,
    without,
)


@dataclasses.dataclass(frozen=True)
class NoRepeatedNgrams(Sampler):
    """Forbids tokens that would repeat `size` tokens in a row.

    The prompt counts. A size of 1 forbids all earlier tokens.

    Args:
        size: the number of tokens.

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
        # the first place of each n-gram of which all tokens exist
        found = jnp.arange(ids.size) <= length - self.size
        for place in range(self.size - 1):
            found &= jnp.roll(ids, -place) == last[place]
        following = jnp.roll(ids, 1 - self.size)
        return logits.at[jnp.where(found, following, logits.size)].set(-jnp.inf, mode="drop")


@dataclasses.dataclass(frozen=True)
class SuppressedSequences(Sampler):
    """Forbids sequences of tokens: the last token of a sequence behind its other tokens.

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
                place = jnp.where(is_last & (count <= length), banned, logits.size)
                logits = logits.at[place].set(-jnp.inf, mode="drop")
        return logits


@dataclasses.dataclass(frozen=True)
class MinLength(Sampler):
    """Forbids the end tokens until a row has `count` tokens with its prompt; see also `MinNewTokens`.

    Args:
        count: the minimum number of tokens before an end token, with those of the prompt.
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

    count: Number
    end_ids: Sequence[int]
    rank: ClassVar[int] = 18
    leaves: ClassVar[tuple[str, ...]] = ("count",)
    id_fields: ClassVar[tuple[str, ...]] = ("end_ids",)

    def __post_init__(self) -> None:
        check_number(self, "count", lambda n: n >= 0, "a number of at least 0")
        object.__setattr__(self, "end_ids", check_ids(self, "end_ids", self.end_ids))

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        is_short = jnp.sum(history.ids >= 0) < self.count
        return jnp.where(is_short, without(logits, self.end_ids), logits)


@dataclasses.dataclass(frozen=True)
class ForcedIds(Sampler):
    """Forbids all other tokens at one place of the sequence; the logits of the tokens themselves are 0.

    Translators of several languages have the id of the language behind their start token, at the place 1. Beam
    searches ignore the probability of a forced token, as in transformers.

    Args:
        place: the number of tokens before the forced token.
        ids: the tokens that are possible there.
        with_prompt: whether the tokens of the prompt count as tokens before; False counts new tokens alone.

    Raises:
        TypeError: for ids that are no integers.
        ValueError: for no ids, a negative id, and for a negative place.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([2, -1]), jnp.array(0))
        >>> fk.samplers.ForcedIds(1, (1,)).process(jnp.ones(3), history)
        Array([-inf,   0., -inf], dtype=float32)
    """

    place: Number
    ids: Sequence[int]
    with_prompt: bool = True
    rank: ClassVar[int] = 30
    several: ClassVar[bool] = True
    leaves: ClassVar[tuple[str, ...]] = ("place",)
    id_fields: ClassVar[tuple[str, ...]] = ("ids",)

    def __post_init__(self) -> None:
        check_number(self, "place", lambda n: n >= 0, "a number of at least 0")
        object.__setattr__(self, "ids", check_ids(self, "ids", self.ids))

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        forced = jnp.full_like(logits, -jnp.inf).at[jnp.asarray(self.ids)].set(0.0, mode="drop")
        count = jnp.sum(history.ids >= 0) if self.with_prompt else history.count
        return jnp.where(count == self.place, forced, logits)


@dataclasses.dataclass(frozen=True)
class Normalized(Sampler):
    """Computes log-probabilities of the logits behind all other samplers (`renormalize_logits`).

    The sampler changes the scores of a beam search in which samplers forbid or change tokens.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> history = fk.samplers.History(jnp.array([0]), jnp.array(0))
        >>> fk.samplers.Normalized().process(jnp.log(jnp.array([0.2, 0.2, 0.0])), history)
        Array([-0.6931472, -0.6931472,       -inf], dtype=float32)
    """

    rank: ClassVar[int] = 95
    reads_ids: ClassVar[bool] = False

    def process(self, logits: jax.Array, history: History) -> jax.Array:
        return jax.nn.log_softmax(logits)


def _in_order(ids: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Returns the ids before their padding, and their number."""
    is_token = ids >= 0
    places = jnp.where(is_token, jnp.cumsum(is_token) - 1, ids.size)
    return jnp.full_like(ids, -1).at[places].set(ids, mode="drop"), jnp.sum(is_token)


def _last(ids: jax.Array, length: jax.Array, count: int) -> jax.Array:
    """Returns the last `count` of the first `length` ids; other ids if there are fewer."""
    return jax.lax.dynamic_slice_in_dim(ids, jnp.maximum(length - count, 0), count)
