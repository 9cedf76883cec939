"""Stop strings, and streaming of new tokens to a callback, on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.authoring.engine import describe_value
from fkeras.generation.caches import take_back
from fkeras.generation.stacks import plain_state
from fkeras.utils import TextStream

_Carry = TypeVar("_Carry", bound=Any)
#: takes the index of a row and its new text, or without `decode` its new ids
Stream = Callable[[int, Any], object]


class Watcher:
    """The texts of all rows of one call.

    Args:
        rows: the number of rows.
        decode: returns the text of a list of ids; None to stream ids.
        stop: the stop strings.
        stream: the callback, or None.
    """

    def __init__(
        self,
        rows: int,
        decode: Callable[[list[int]], str] | None,
        stop: Sequence[str],
        stream: Stream | None,
    ):
        self.stop, self.stream = stop, stream
        self.texts = None if decode is None else [TextStream(_checked(decode))] * rows
        self.tails = [""] * rows
        self.seen = np.zeros(rows, int)
        self.longest = max(map(len, stop), default=0)

    def add(self, tokens: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Returns for each row the number of tokens after the end of a stop string."""
        surplus = np.zeros(len(lengths), int)
        for row in range(len(lengths)):
            for count in range(self.seen[row], lengths[row]):
                if self._ends(row, int(tokens[row, count])):
                    surplus[row] = lengths[row] - count - 1
                    break
            self.seen[row] = lengths[row] - surplus[row]
        return surplus

    def stopped(self) -> np.ndarray:
        """Returns the rows whose text ends with a stop string."""
        return np.array([any(text in tail for text in self.stop) for tail in self.tails])

    def end(self) -> None:
        """Streams the incomplete characters at the ends of the texts."""
        if self.stream is not None and self.texts is not None:
            for row, text in enumerate(self.texts):
                if rest := text.end():
                    self.stream(row, rest)

    def _ends(self, row: int, token: int) -> bool:
        if self.texts is None:
            if self.stream is not None:
                self.stream(row, [token])
            return False
        self.texts[row], piece = self.texts[row].add([token])
        if piece and self.stream is not None:
            self.stream(row, piece)
        # a stop string may start in an earlier piece
        kept = max(self.longest - 1, 0)
        tail = self.tails[row][-kept:] if kept else ""
        self.tails[row] = tail + piece
        return any(text in self.tails[row] for text in self.stop)


def _checked(decode: Callable[[list[int]], str]) -> Callable[[list[int]], str]:
    """Returns `decode` with an error for ids whose text `decode` does not return."""

    def text_of(ids: list[int]) -> str:
        expected = f"fk.generate: expected decode to return the text of the ids {ids}"
        remedy = "Pass a function of a list of ids, such as decode=tokenizer.decode."
        try:
            text = decode(ids)
        except Exception as error:
            raise ValueError(
                f"{expected}, but decode raised {type(error).__name__}: {error}. {remedy}"
            ) from error
        if not isinstance(text, str):
            raise TypeError(f"{expected}, received {describe_value(text)}. {remedy}")
        return text

    return text_of


def watch(advance: Callable[[_Carry], _Carry], carry: _Carry, watcher: Watcher) -> _Carry:
    """Runs `advance` until all rows end, and passes the new tokens to a watcher after each run."""
    while True:
        carry = advance(carry)
        tokens, lengths, active = jax.device_get((carry.tokens, carry.lengths, carry.active))
        surplus, stopped = watcher.add(tokens, lengths), watcher.stopped()
        if (stopped & active).any() or surplus.any():
            surplus = jnp.asarray(surplus, jnp.int32)
            carry = carry._replace(state=plain_state(carry.state))
            carry = _end_rows(carry, surplus, jnp.asarray(stopped))
        if not (active & ~stopped).any():
            watcher.end()
            return carry


@functools.partial(jax.jit, donate_argnums=0)
def _end_rows(carry: _Carry, surplus: jax.Array, stopped: jax.Array) -> _Carry:
    states = {
        name: take_back(getattr(carry, name), surplus)
        for name in ("state", "draft_state")
        if hasattr(carry, name)
    }
    return carry._replace(lengths=carry.lengths - surplus, active=carry.active & ~stopped, **states)
