"""Runs decoding outside of compiled programs: calls of limited time, with room that grows between them.

A call of a compiled program cannot be interrupted. Between two calls Python handles signals, such as that
of Ctrl-C, and caches grow to the next of a few sizes: a program is compiled for each size, not for each
`max_new_tokens`.
"""

from __future__ import annotations

import dataclasses
import functools
import time
from collections.abc import Mapping
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.generation.caches import State, enlarged, new_state
from fkeras.generation.capacities import capacity
from fkeras.generation.decoding import Method, Sampling, outgrown
from fkeras.generation.reading import Form, Reader
from fkeras.generation.stacks import plain_state

_Carry = TypeVar("_Carry", bound=Any)

# seconds of a call
_SECONDS = 0.5
# new tokens for which there is room at first
_FIRST = 64
# the smallest size: of a model that computes all tokens again, and of caches
_LEAST = (16, 64)
# sizes of caches up to this number are powers of two
_POWERS = 1024


def first_size(form: Form, width: int, new: int) -> int:
    """Returns the number of tokens of a row for which a call has room at first.

    With caches the number does not depend on `new`, so that all limits share their programs.

    Args:
        width: the number of tokens before the first new token.
        new: the maximum number of new tokens.
    """
    return size_for(form, width + (_FIRST if form.cached else min(new, _FIRST)))


def size_for(form: Form, tokens: int) -> int:
    """Returns a number of tokens, one of few, with room for `tokens`."""
    least, top = _LEAST[form.cached], 1 << (tokens - 1).bit_length()
    # attention reads all places of a cache: at most an eighth more than needed in a large cache
    step = top if form.cached and top <= _POWERS else max(least // 2, top // 16)
    return max(least, -(-tokens // step) * step)


@dataclasses.dataclass
class Runner:
    """Runs a loop call by call.

    Attributes:
        method: the loop that chooses new tokens.
        reader: the reader of the model.
        sampling: the samplers and the limit of the call.
        readers: the readers of the states that grow, by the name of the state in the carry.
        width: the number of tokens of the longest prompt.
        limit: the maximum number of new tokens.
        size: the number of tokens of a row for which there is room.
        slack: the maximum number of tokens of a rollback.
        most: the maximum number of steps of a call; None for no maximum.
        steps: the maximum number of steps of the next call.
        longest: the number of new tokens of the longest row.
        outgrows: whether a text must be read again before the next step.
        is_active: whether a row has not ended.
    """

    method: Method
    reader: Reader
    sampling: Sampling
    readers: Mapping[str, Reader]
    width: int
    limit: int
    size: int
    slack: int
    most: int | None
    steps: int = 0
    longest: int = 0
    outgrows: int = 1
    is_active: int = 1

    def __post_init__(self) -> None:
        rows = self.sampling.starts.shape[0]
        first = _first_steps(self.reader, rows, self._capacity(self.reader))
        self.steps = min(first, self.most or first)

    def __call__(self, carry: _Carry) -> _Carry:
        """Returns the carry after one call."""
        used = self.width + self.longest
        while self.size < self.width + self.limit and self._room(used) < 1:
            self.size = size_for(self.reader.form, min(2 * self.size, self.width + self.limit))
            carry = self._enlarged(carry)
        steps = min(self.steps, max(self._room(used), 1))
        start = time.perf_counter()
        boundaries = self.reader.form.boundaries
        if self.outgrows and boundaries:
            carry = self.method.read_again(self.reader, self.sampling, carry)
        bound = np.int32(steps)
        carry = self.method.advance(self.reader, self.sampling, carry, bound, donate=True)
        status = _status(boundaries, self.sampling.starts, carry.lengths, carry.active)
        self.longest, self.outgrows, self.is_active = map(int, jax.device_get(status))
        fitting = int(steps * _SECONDS / (time.perf_counter() - start))
        # one fast call is no reason for a very long call
        self.steps = min(max(fitting, 1), 8 * steps, self.most or self.limit)
        return carry

    def complete(self, carry: _Carry) -> _Carry:
        """Returns the carry after the end of all rows."""
        while True:
            carry = self(carry)
            if not self.is_active:
                return carry

    def state(self, name: str, state: State, rows: int) -> State:
        """Returns a state of a number of rows with room for `size` tokens."""
        if name not in self.readers:
            return state
        reader = self.readers[name]
        return enlarged_state(reader, state, rows, self._capacity(reader), self.slack)

    def _room(self, used: int) -> int:
        sizes = [self._capacity(reader) for reader in self.readers.values()]
        return (min([*sizes, self.size + self.slack]) - used) // self.method.stride

    def _capacity(self, reader: Reader) -> int:
        return capacity(reader, self.size, self.slack)

    def _enlarged(self, carry: _Carry) -> _Carry:
        """Returns the carry with room for `size` tokens in its states and arrays of tokens."""
        changes: dict[str, Any] = {}
        rows = carry.logits.shape[0]
        for name in self.readers:
            changes[name] = self.state(name, plain_state(getattr(carry, name)), rows)
        for name in ("tokens", "ended_tokens"):
            if hasattr(carry, name):
                tokens = getattr(carry, name)
                more = self.size + self.slack - tokens.shape[-1]
                changes[name] = jnp.pad(tokens, [*[(0, 0)] * (tokens.ndim - 1), (0, more)])
        if (logprobs := getattr(carry, "logprobs", None)) is not None:
            more = self.size + self.slack - logprobs.chosen.shape[1]
            changes["logprobs"] = jax.tree.map(
                lambda a: jnp.pad(a, [(0, 0), (0, more), *[(0, 0)] * (a.ndim - 2)]), logprobs
            )
        return carry._replace(**changes)


def _first_steps(reader: Reader, rows: int, capacity: int) -> int:
    """Returns a number of steps that ends soon on a slow device: in .4 s for 1 GB of weights in a second."""
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(reader.model))
    tokens = rows if reader.form.cached else rows * capacity
    return max(1, int(_SECONDS * 4e9 / (1e5 + size * (1 + tokens / 8))))


@functools.partial(jax.jit, static_argnums=0)
def _status(
    boundaries: tuple[int, ...], starts: jax.Array, lengths: jax.Array, active: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    rows = outgrown(boundaries, starts + lengths, active)
    return jnp.max(lengths), jnp.any(rows), jnp.any(active)


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def enlarged_state(reader: Reader, state: State, rows: int, capacity: int, slack: int) -> State:
    """Returns a state of a number of rows with another capacity.

    Args:
        slack: the maximum number of tokens of a rollback.
    """
    cached = reader.form.cached
    own = {} if cached else state["model"]
    return enlarged(state, new_state(reader.any_model(), cached, own, rows, capacity, slack))
