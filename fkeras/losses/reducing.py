"""Reduction of the losses of samples to a scalar: sample weights, masks and divisors.

A reduction is a numerator and a denominator. Both are additive, so the loss of a data set does not
depend on the batch size or on the number of padded rows in the last batch.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.config.converters import choice
from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.losses.removing import finite_where_removed

REDUCTIONS = ("sum_over_batch_size", "mean", "mean_with_sample_weight", "sum", "none", None)


check_reduction = choice(*(word for word in REDUCTIONS if word), optional=True)


def divide_no_nan(a: jax.Array, b: jax.Array) -> jax.Array:
    """Returns a / b, and 0 with finite gradients where b is 0.

    Example:
        >>> import jax.numpy as jnp
        >>> divide_no_nan(jnp.array([1.0, 1.0]), jnp.array([2.0, 0.0]))
        Array([0.5, 0. ], dtype=float32)
    """
    # replace the divisor before the division: `where` after it would still have NaN gradients
    is_zero = b == 0
    return jnp.where(is_zero, 0.0, _quotient(a, jnp.where(is_zero, jnp.ones_like(b), b)))


@jax.custom_jvp
def _quotient(a: jax.Array, b: jax.Array) -> jax.Array:
    return a / b


@_quotient.defjvp
def _quotient_jvp(primals: tuple, tangents: tuple) -> tuple[jax.Array, jax.Array]:
    # JAX's rule divides by b**2, which underflows to 0 for a small divisor
    quotient = _quotient(*primals)
    return quotient, (tangents[0] - quotient * tangents[1]) / primals[1]


def align_pair(y_true: Numbers, y_pred: Numbers) -> tuple[jax.Array, jax.Array]:
    """Returns both arrays with the same number of axes: drops or adds a last axis of size 1.

    A vector gains an axis instead: shapes (b,) and (b, 1) become (b, 1) and (b, 1).
    """
    y_true, y_pred = as_operand(y_true, "y_true"), as_operand(y_pred, "y_pred")
    if y_true.ndim == y_pred.ndim + 1 and y_true.shape[-1] == 1:
        # losses reduce the last axis, which must not be the batch axis
        if y_pred.ndim == 1:
            return y_true, y_pred[:, None]
        return y_true[..., 0], y_pred
    if y_pred.ndim == y_true.ndim + 1 and y_pred.shape[-1] == 1:
        if y_true.ndim == 1:
            return y_true[:, None], y_pred
        return y_true, y_pred[..., 0]
    return y_true, y_pred


def require_axis(y_pred: jax.Array) -> jax.Array:
    """Returns the predictions unchanged after a check that they are not a scalar."""
    if y_pred.ndim == 0:
        raise ValueError(
            "y_pred: expected predictions of shape (b, ...), received a scalar. Pass a number for "
            "each sample: y_pred[None]."
        )
    return y_pred


def check_axis(where: str, axis: Any, y_pred: jax.Array) -> None:
    """Rejects an axis, or axes, that predictions do not have; None stands for all axes."""
    rank = y_pred.ndim
    for one in axis if isinstance(axis, tuple | list) else () if axis is None else (axis,):
        if not -rank <= one < rank:
            raise ValueError(
                f"{where}: expected axis from {-rank} to {rank - 1} for predictions of shape "
                f"{y_pred.shape}, received {one}."
            )


def align_weight(weight: jax.Array, values: jax.Array, what: str) -> jax.Array:
    """Returns `weight` with as many axes as `values`: new axes come last, so (b,) weighs samples.

    Keras broadcasts (b,) against the last axis of (b, t), which fails, or for b = t weighs time
    steps. Here the weight of a sample applies to all values of the sample.

    Args:
        weight: shape (b,), (b, t), ... or a scalar.
        values: the losses to weigh, (b, ...); a scalar loss accepts any weight.
    """
    if values.ndim == 0 or weight.ndim == 0:
        return weight
    if weight.ndim == values.ndim + 1 and weight.shape[-1] == 1:
        weight = weight[..., 0]
    shape = weight.shape + (1,) * (values.ndim - weight.ndim)
    fits = len(shape) == values.ndim
    fits = fits and all(w in (1, v) for w, v in zip(shape, values.shape, strict=True))
    if not fits:
        raise ValueError(
            f"{what}: expected a shape that broadcasts to the losses' {values.shape}, received "
            f"{weight.shape}. Pass one number per sample, {values.shape[:1]}, or one per loss."
        )
    return weight.reshape(shape)


def merge_weights(
    values: jax.Array, sample_weight: Numbers | None = None, mask: Numbers | None = None
) -> tuple[jax.Array | None, jax.Array | None]:
    """Returns `sample_weight` and `mask` as arrays that broadcast to `values`."""
    if sample_weight is not None:
        sample_weight = as_operand(sample_weight, "sample_weight").astype(values.dtype)
        sample_weight = align_weight(sample_weight, values, "sample_weight")
    if mask is not None:
        mask = align_weight(as_operand(mask, "mask").astype(bool), values, "mask")
    return sample_weight, mask


def weigh(values: jax.Array, weight: jax.Array | None, mask: jax.Array | None) -> jax.Array:
    """Returns values * weight, and 0 where the weight is 0 or the mask False, even for NaN."""
    if weight is not None:
        # NaN * 0 is NaN, so replace values that are not finite before the product
        values = finite_where_removed(values, weight == 0) * weight
    return values if mask is None else jnp.where(mask, values, 0.0)


def total(
    values: jax.Array,
    reduction: str | None,
    sample_weight: Numbers | None = None,
    mask: Numbers | None = None,
) -> tuple[jax.Array, jax.Array]:
    """Returns the numerator and the denominator of the reduced loss.

    Args:
        values: losses, (b, ...).
        mask: booleans that broadcast to `values`; False removes a loss from the mean.

    Returns:
        Two scalars, both additive over batches.
    """
    weight, mask = merge_weights(values, sample_weight, mask)
    weighted_values = weigh(values, weight, mask)
    if reduction == "sum":
        count = jnp.ones((), values.dtype)
    # as in Keras, a loss that is a scalar for the whole batch is not divided
    elif reduction == "mean_with_sample_weight" and weight is not None and weighted_values.ndim:
        # Keras divides by the sum of the weights before they broadcast to the losses
        count = jnp.sum(weigh(weight, None, mask))
    elif mask is not None:
        # an integer: the sum that `Trainer` and metrics compute, too; half precision stays exact
        count = jnp.sum(jnp.broadcast_to(mask, weighted_values.shape), dtype="int32")
        count = count.astype(values.dtype)
    else:
        count = jnp.asarray(weighted_values.size, values.dtype)
    return jnp.sum(weighted_values), count


def reduce(
    values: jax.Array,
    reduction: str | None,
    sample_weight: Numbers | None = None,
    mask: Numbers | None = None,
) -> jax.Array:
    """Returns the reduced loss, or the weighted losses for reduction None or "none"."""
    if reduction in (None, "none"):
        return weigh(values, *merge_weights(values, sample_weight, mask))
    # a batch in which every sample is masked has a loss of 0, not NaN
    return divide_no_nan(*total(values, reduction, sample_weight, mask))
