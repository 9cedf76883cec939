"""Connectionist temporal classification: a loss for label sequences without an alignment."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.configurable import option
from fkeras.engine.config.converters import text
from fkeras.engine.values.argument_types import HasShape, Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.engine.values.registry import named
from fkeras.losses import checks
from fkeras.losses.loss import FunctionLoss
from fkeras.losses.regression import widened
from fkeras.nn.numerics.indices import valid_indices

# log probability of an impossible alignment: finite, so that gradients are finite
_IMPOSSIBLE = -1e5
BLANK, PADDING = 0, -1


def _fill_blank(blank: jax.Array, other: jax.Array) -> jax.Array:
    """Returns log probabilities (b, n + 1) of ending in a blank; adds `other` from entry 1 on."""
    return jnp.concatenate([blank[:, :1], jnp.logaddexp(blank[:, 1:], other)], axis=1)


def ctc(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns the negative log probability of the labels, summed over all alignments.

    An alignment assigns a label or the blank, class 0, to each frame; repeated labels without a
    blank between them count as one label. `jax.lax.scan` runs over the frames in log space.

    Args:
        y_true: class numbers from 1, (b, n), padded with 0 or -1 after the last label of a row.
        y_pred: logits, (b, t, classes).

    Returns:
        The losses of samples, (b,). Labels that need more than t frames have no alignment: their
        loss is about 1e5 instead of infinity, with finite gradients; `fit` rejects these labels. The
        loss of an invalid class number, or of a label after padding, is NaN. Logits of -inf count as
        the lowest float; log probabilities are at least -1e5.

    Raises:
        ValueError: if the targets do not have two axes, or the predictions three.

    Example:
        >>> import fkeras as fk
        >>> import jax.numpy as jnp
        >>> fk.losses.ctc(jnp.array([[1, 0]]), jnp.zeros((1, 1, 2)))
        Array([0.6931472], dtype=float32)

    References:
        Graves et al. 2006, Connectionist temporal classification,
        https://www.cs.toronto.edu/~graves/icml_2006.pdf
    """
    labels, scores = (
        as_operand(y_true, "y_true"),
        widened(as_operand(y_pred, "y_pred")),
    )
    if labels.ndim != 2 or scores.ndim != 3 or labels.shape[0] != scores.shape[0]:
        raise ValueError(
            f"ctc: expected class numbers (b, n) and scores (b, t, classes), received shapes "
            f"{labels.shape} and {scores.shape}. Pad the rows of labels with 0 to equal length."
        )
    labels, valid = valid_indices(jnp.where(labels == PADDING, BLANK, labels), scores.shape[2])
    # the scan needs at least one label position
    if labels.shape[1] == 0:
        labels = jnp.zeros((labels.shape[0], 1), "int32")
    # the number of labels of each row selects the final state after the scan
    count = jnp.sum((labels != BLANK).astype("int32"), axis=1)
    is_split = jnp.any((labels[:, :-1] == BLANK) & (labels[:, 1:] != BLANK), axis=1)
    lowest = jnp.finfo(scores.dtype).min
    logs = jax.nn.log_softmax(jnp.maximum(scores, lowest), axis=-1)
    # sums of a few lowest floats overflow to -inf
    logs = jnp.maximum(logs, _IMPOSSIBLE)
    label_scores = jnp.take_along_axis(logs, jnp.expand_dims(labels, 1), axis=2)
    blank_scores = logs[:, :, BLANK : BLANK + 1]

    # a repeated label is reachable only through a blank; _IMPOSSIBLE blocks the direct step
    repeats = (labels[:, :-1] == labels[:, 1:]).astype(scores.dtype)
    repeats = jnp.pad(repeats, ((0, 0), (0, 1)))
    start_scores = jnp.zeros_like(scores[:, 0, :1])
    unreachable = jnp.full_like(start_scores, _IMPOSSIBLE, shape=labels.shape)

    def step(carry: tuple, frame: tuple) -> tuple[tuple, None]:
        blank, label = carry
        log_label, log_blank = frame
        after_blank = _fill_blank(blank, label + _IMPOSSIBLE * repeats)
        new_label = jnp.logaddexp(after_blank[:, :-1], label) + log_label
        new_blank = _fill_blank(
            after_blank + log_blank, label + log_blank + _IMPOSSIBLE * (1.0 - repeats)
        )
        return (new_blank, new_label), None

    start = (jnp.concatenate([start_scores, unreachable], axis=1), unreachable)
    # `scan` iterates over the first axis
    frames = (jnp.moveaxis(label_scores, 1, 0), jnp.moveaxis(blank_scores, 1, 0))
    (blank, label), _ = jax.lax.scan(step, start, frames)
    final_scores = _fill_blank(blank, label)
    losses = -jnp.take_along_axis(final_scores, jnp.expand_dims(count, 1), axis=1)[:, 0]
    return jnp.where(jnp.all(valid, axis=1) & ~is_split, losses, jnp.nan)


class CTC(FunctionLoss):
    """Mean negative log probability of the labels, summed over all alignments.

    Targets are class numbers from 1, padded with 0 or -1; predictions are logits. `fit` rejects labels
    that need more frames than the predictions have. Calls give a loss of about 1e5 for such labels.

    Raises:
        ValueError: if the targets do not have two axes, or the predictions three.

    Example:
        >>> import fkeras as fk
        >>> import jax.numpy as jnp
        >>> fk.losses.CTC()(jnp.array([[1, 0]]), jnp.zeros((1, 1, 2)))
        Array(0.6931472, dtype=float32)

    References:
        Graves et al. 2006, Connectionist temporal classification,
        https://www.cs.toronto.edu/~graves/icml_2006.pdf
    """

    _function = staticmethod(ctc)
    name: str | None = option(default="ctc", convert=text(optional=True), kw_only=True)

    def check_targets(self, y_true: Numbers, y_pred: HasShape) -> None:
        # the base class would compare shapes, but label rows are shorter than predictions
        labels = np.asarray(y_true)
        checks.check_finite(self._label, labels)
        if labels.ndim != 2 or len(y_pred.shape) != 3:
            raise ValueError(
                f"{self._label}: expected class numbers (b, n) for scores (b, t, classes), "
                f"received targets of shape {labels.shape} and predictions with "
                f"{len(y_pred.shape)} axes. Pad the rows of labels with 0 to equal length."
            )
        frames, classes = y_pred.shape[1:]
        if np.any(labels < PADDING):
            raise ValueError(
                f"{self._label}: expected class numbers from 1, received {labels[labels < PADDING][0]}. "
                "Pad the rows of labels with 0 or -1."
            )
        if isinstance(classes, int):
            checks.check_range(self._label, labels, classes, PADDING)
        is_label = labels > BLANK
        split = np.flatnonzero(np.any(~is_label[:, :-1] & is_label[:, 1:], axis=1))
        if split.size:
            raise ValueError(
                f"{self._label}, row {split[0]}: a label follows the padding, 0 or -1, in "
                f"{labels[split[0]].tolist()[:20]}. Class 0 is the blank; number the classes from 1."
            )
        # an alignment has a blank between two equal labels in succession
        repeats = is_label[:, 1:] & (labels[:, 1:] == labels[:, :-1])
        needed = np.sum(is_label, axis=1) + np.sum(repeats, axis=1)
        if isinstance(frames, int) and np.any(needed > frames):
            row = int(np.argmax(needed > frames))
            raise ValueError(
                f"{self._label}, row {row}: the labels need {needed[row]} frames, one for each label and one "
                f"between equal labels, and the predictions have {frames}. Their probability is 0 and the loss "
                "infinite: shorten the labels, or let the model return more frames."
            )


LOSSES = (named(CTC, function=ctc),)
