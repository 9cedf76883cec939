"""Error rates of sequences: edits from the prediction to the target, divided by the target's length."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import integer, text
from fkeras.engine.config.field_types import Integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.argument_types import HasShape
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses.reducing import divide_no_nan
from fkeras.metrics import exact
from fkeras.metrics.metric import Batch, BatchMetric, State, weighted
from fkeras.nn.numerics.axes import format_shape

_SUMS = ("edits", "length")


def _packed(ids: jax.Array, padding: int) -> tuple[jax.Array, jax.Array]:
    """Returns rows with their tokens first, without padding, and the number of tokens of each row."""
    ids = ids.astype("int32")
    is_token = (ids != padding) & (ids >= 0)
    order = jnp.argsort(~is_token, axis=1, stable=True)
    return jnp.take_along_axis(ids, order, axis=1), jnp.sum(is_token, axis=1, dtype="int32")


def edit_distances(
    targets: jax.Array, lengths: jax.Array, found: jax.Array, found_lengths: jax.Array
) -> jax.Array:
    """Returns the fewest insertions, deletions and replacements between the rows of two arrays, (b,).

    Args:
        targets: tokens, (b, t), of which the first `lengths` of each row count.
        found: tokens, (b, s), likewise.
    """
    places = jnp.arange(targets.shape[1] + 1, dtype="int32")[None]

    def step(row: jax.Array, column: tuple) -> tuple[jax.Array, None]:
        number, token = column
        differs = (targets != token[:, None]).astype("int32")
        start = jnp.broadcast_to(number + 1, (row.shape[0], 1))
        changed = jnp.minimum(row[:, 1:] + 1, row[:, :-1] + differs)
        # insertions go along the row: the smallest of all costs to the left plus the distance
        costs = jnp.concatenate([start, changed], axis=1) - places
        new = jax.lax.cummin(costs, axis=1) + places
        return jnp.where(jnp.expand_dims(number < found_lengths, 1), new, row), None

    row = jnp.broadcast_to(places, (targets.shape[0], places.shape[1]))
    columns = jnp.arange(found.shape[1], dtype="int32"), found.T
    row, _ = jax.lax.scan(step, row, columns)
    return jnp.take_along_axis(row, lengths[:, None], axis=1)[:, 0]


class TokenErrorRate(BatchMetric):
    """Edits between predicted and true sequences of tokens, divided by the number of true tokens.

    Edits are insertions, deletions and replacements of one token. With tokens that are words, the result
    is the word error rate; with characters, the character error rate. `word_error_rate` and
    `character_error_rate` compare texts.

    Args:
        padding: a token that does not count, wherever it stands; nor do negative numbers.

    Shapes:
        targets (b, t) of tokens; predictions (b, s) of tokens, or scores (b, s, tokens), whose largest
        counts.

    Raises:
        ValueError: in `update`, for other shapes.

    Example:
        >>> import fkeras as fk
        >>> metric = fk.metrics.TokenErrorRate()
        >>> metric.result(metric.update(metric.init(), [[3, 5, 4, 0]], [[3, 4, 4, 4]]))
        Array(0.6666667, dtype=float32)
    """

    padding: Integer = option(default=0, convert=integer())
    name: str | None = option(default="token_error_rate", convert=text(optional=True), kw_only=True)

    def init(self, y_pred: HasShape | None = None) -> State:
        return exact.zeros(_SUMS, (), self.dtype)

    def _add(self, state: State, batch: Batch) -> State:
        y_true, y_pred = as_operand(batch.y_true, "y_true"), as_operand(batch.y_pred, "y_pred")
        if y_true.ndim != 2 or y_pred.ndim not in (2, 3) or y_true.shape[0] != y_pred.shape[0]:
            raise ValueError(
                f"{self._label}: expected targets (b, t) and predictions (b, s) of tokens, or scores (b, s, "
                f"tokens), received shapes {format_shape(y_true.shape)} and {format_shape(y_pred.shape)}."
            )
        if y_pred.ndim == 3:
            y_pred = jnp.argmax(y_pred, axis=-1)
        targets, lengths = _packed(y_true, self.padding)
        found, found_lengths = _packed(y_pred, self.padding)
        edits = edit_distances(targets, lengths, found, found_lengths)
        products, weights = weighted(edits.astype(self.dtype), batch.sample_weight, batch.mask)
        parts = products, lengths.astype(self.dtype) * weights
        return exact.add(state, {n: exact.total(a) for n, a in zip(_SUMS, parts, strict=True)})

    def result(self, state: State) -> jax.Array:
        return divide_no_nan(state["edits"], state["length"])


def _edits(target: Sequence[Hashable], found: Sequence[Hashable]) -> int:
    numbers: dict[Hashable, int] = {}
    a, b = (
        np.asarray([numbers.setdefault(token, len(numbers)) for token in tokens], "int64")
        for tokens in (target, found)
    )
    places = np.arange(len(a) + 1)
    row = places
    for number, token in enumerate(b):
        changed = np.minimum(row[1:] + 1, row[:-1] + (a != token))
        costs = np.concatenate([[number + 1], changed]) - places
        row = np.minimum.accumulate(costs) + places
    return int(row[-1])


def _rate(where: str, y_true: Any, y_pred: Any, tokens: Callable[[str], Sequence[str]]) -> float:
    pairs = [[texts] if isinstance(texts, str) else list(texts) for texts in (y_true, y_pred)]
    for name, texts in zip(("y_true", "y_pred"), pairs, strict=True):
        other = next((one for one in texts if not isinstance(one, str)), None)
        if other is not None:
            raise TypeError(
                f"{where}: {name}: expected a text, or a list of texts, received {describe_value(other)}. For "
                "numbers of tokens use fk.metrics.TokenErrorRate."
            )
    if len(pairs[0]) != len(pairs[1]):
        raise ValueError(
            f"{where}: expected as many predictions as targets, received {len(pairs[1])} predictions and "
            f"{len(pairs[0])} targets."
        )
    split = [(tokens(target), tokens(found)) for target, found in zip(*pairs, strict=True)]
    length = sum(len(target) for target, _ in split)
    edits = sum(_edits(target, found) for target, found in split)
    return edits / length if length else 0.0 if not edits else float("inf")


def word_error_rate(y_true: str | Sequence[str], y_pred: str | Sequence[str]) -> float:
    """Returns the edits between the words of texts, divided by the number of true words (WER).

    Words are separated by spaces. Case and punctuation count: normalize the texts first.

    Args:
        y_true: the true text, or a list of texts.
        y_pred: the predicted texts, as many.

    Returns:
        The rate over all texts, 0 for equal texts; it may exceed 1. Infinity for predicted words if there
        are no true words.

    Raises:
        TypeError: for values that are no texts.
        ValueError: for different numbers of texts.

    Example:
        >>> import fkeras as fk
        >>> fk.metrics.word_error_rate(["the cat sat", "yes"], ["the hat sat down", "yes"])
        0.5
    """
    return _rate("word_error_rate", y_true, y_pred, str.split)


def character_error_rate(y_true: str | Sequence[str], y_pred: str | Sequence[str]) -> float:
    """Returns the edits between the characters of texts, divided by the number of true ones (CER).

    Args:
        Arguments: those of `word_error_rate`.

    Returns:
        The rate over all texts, as of `word_error_rate`.

    Raises:
        TypeError: for values that are no texts.
        ValueError: for different numbers of texts.

    Example:
        >>> import fkeras as fk
        >>> fk.metrics.character_error_rate("word", "ward")
        0.25
    """
    return _rate("character_error_rate", y_true, y_pred, list)


METRICS = (named(TokenErrorRate, "token_error_rate"),)
