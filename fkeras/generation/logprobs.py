"""Log-probabilities of tokens: of the chosen tokens, and of the most likely tokens."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.generation.caches import State
from fkeras.generation.reading import Reader

# logits that exist at once: 256 MB
_MOST_LOGITS = 1 << 26


class Logprobs(NamedTuple):
    """Log-probabilities of the model: log_softmax of its logits, before all samplers.

    With `vocabulary_size` the probabilities of the first `vocabulary_size` tokens sum to 1.

    Attributes:
        chosen: float32 (b, n): the log-probabilities of the tokens of each row, padded with 0.
        top: float32 (b, n, k): the log-probabilities of the k most likely tokens, in descending order.
        top_ids: int32 (b, n, k): the ids of the k most likely tokens.

    Example:
        >>> import jax, fkeras as fk
        >>> ids = fk.Input((None,), dtype="int32")
        >>> model = fk.Model(ids, fk.layers.Embedding(7, 7)(ids)).build(jax.random.key(0))
        >>> logprobs = fk.generate(model, None, [[1, 2]], max_new_tokens=3, logprobs=2).logprobs
        >>> logprobs.chosen.shape, logprobs.top.shape
        ((1, 3), (1, 3, 2))
    """

    chosen: jax.Array
    top: jax.Array
    top_ids: jax.Array


def no_logprobs(rows: int, size: int, count: int | None) -> Logprobs | None:
    """Returns the log-probabilities before the first of `size` tokens; None for None as `count`."""
    if count is None:
        return None
    # NumPy, as for the tokens of a carry
    shape = (rows, size, count)
    arrays: Any = (
        np.zeros((rows, size), np.float32),
        np.zeros(shape, np.float32),
        np.zeros(shape, np.int32),
    )
    return Logprobs(*arrays)


def logprobs_of(logits: jax.Array, tokens: jax.Array, count: int) -> Logprobs:
    """Returns the log-probabilities of tokens (b, m) and of the `count` most likely tokens.

    Args:
        logits: float32 (b, m, v).
    """
    # of the chosen and the most likely tokens only: no array of all log-probabilities
    norm = jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    chosen = jnp.take_along_axis(logits, jnp.maximum(tokens, 0)[..., None], axis=-1)
    top, top_ids = jax.lax.top_k(logits, count)
    return Logprobs((chosen - norm)[..., 0], top - norm, top_ids)


def written(
    logprobs: Logprobs | None, logits: jax.Array, tokens: jax.Array, places: jax.Array
) -> Logprobs | None:
    """Returns the log-probabilities with those of tokens (b, m) at their places (b, m).

    Args:
        logprobs: None, which stays None: nothing is computed.
        logits: the logits (b, m, v) from which the tokens were chosen.
        places: beyond the last place for tokens that are left out.
    """
    if logprobs is None:
        return None
    new = logprobs_of(logits, tokens, logprobs.top.shape[-1])
    rows = jnp.arange(tokens.shape[0])[:, None]
    return jax.tree.map(lambda a, b: a.at[rows, places].set(b, mode="drop"), logprobs, new)


def sequence_logprobs(
    reader: Reader,
    state: State,
    logits: jax.Array,
    tokens: jax.Array,
    lengths: jax.Array,
    count: int,
) -> Logprobs:
    """Returns the log-probabilities of tokens (b, n) that follow a text.

    Args:
        state: the state of the model after the text, with room for all tokens but the last.
        logits: the logits (b, v) after the text.
        lengths: the number of tokens (b,) of each row.
        count: the number of most likely tokens.
    """
    rows, columns = tokens.shape
    size = max(8, 1 << (columns - 2).bit_length()) if columns > 1 else 0
    chunk = size
    if reader.form.cached and rows:
        while chunk > 16 and rows * chunk * logits.shape[1] > _MOST_LOGITS:
            chunk //= 2
    return _sequence_logprobs(reader, state, logits, tokens, lengths, count, size, chunk)


@functools.partial(jax.jit, static_argnums=(5, 6, 7))
def _sequence_logprobs(
    reader: Reader,
    state: State,
    logits: jax.Array,
    tokens: jax.Array,
    lengths: jax.Array,
    count: int,
    size: int,
    chunk: int,
) -> Logprobs:
    """Reads `chunk` tokens at a time, of the `size` tokens before the last."""
    first = logprobs_of(logits[:, None], tokens[:, :1], count)
    if not size:
        return first
    rows, columns = tokens.shape
    padded = jnp.pad(tokens, [(0, 0), (0, size + 1 - columns)])
    # the last token is not read: no token follows
    valid = jnp.arange(size)[None] < lengths[:, None] - 1

    def parts(array: jax.Array) -> jax.Array:
        return jnp.swapaxes(array.reshape(rows, size // chunk, chunk), 0, 1)

    def read(state: State, part: tuple) -> tuple[State, Logprobs]:
        ids, targets, valid = part
        values, state = reader.read(state, ids, valid, last=False)
        return state, logprobs_of(values, targets, count)

    inputs = tuple(map(parts, (padded[:, :-1], padded[:, 1:], valid)))
    if chunk == size:
        rest = read(state, jax.tree.map(lambda a: a[0], inputs))[1]
    else:
        rest = jax.tree.map(
            lambda a: jnp.swapaxes(a, 0, 1).reshape(rows, size, *a.shape[3:]),
            jax.lax.scan(read, state, inputs)[1],
        )
    whole = jax.tree.map(lambda a, b: jnp.concatenate([a, b], axis=1)[:, :columns], first, rest)
    return whole


def finished_on_host(array: Any, lengths: np.ndarray, columns: int) -> np.ndarray:
    """Returns an array (b, n, ...) with `columns` columns, padded with 0."""
    kept = np.asarray(array)[:, :columns]
    valid = np.arange(kept.shape[1])[None] < lengths[:, None]
    kept = np.where(valid.reshape(*valid.shape, *[1] * (kept.ndim - 2)), kept, 0)
    more = columns - kept.shape[1]
    return np.pad(kept, [(0, 0), (0, more), *[(0, 0)] * (kept.ndim - 2)]).astype(array.dtype)


@jax.jit
def finished(arrays: Any, lengths: jax.Array) -> Any:
    """Returns the arrays (b, n, ...) padded with 0."""

    def one(array: jax.Array) -> jax.Array:
        kept = jnp.arange(array.shape[1])[None] < lengths[:, None]
        return jnp.where(kept.reshape(*kept.shape, *[1] * (array.ndim - 2)), array, 0)

    return jax.tree.map(one, arrays)
