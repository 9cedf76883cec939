"""Cross-entropies as plain functions: -log of the predicted probability of the true class.

As in Keras, probabilities are clipped to [1e-7, 1 - 1e-7]. Logits (`from_logits=True`) are not
clipped: losses and gradients of large logits are exact.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from fkeras.engine.values.argument_types import Numbers
from fkeras.engine.values.arrays import as_operand
from fkeras.losses.checks import check_call
from fkeras.losses.reducing import check_axis, divide_no_nan, require_axis
from fkeras.losses.regression import floats, widened
from fkeras.nn.numerics.indices import equals, valid_indices
from fkeras.nn.numerics.stable import EPSILON, at_least


def binary_values(y_true: jax.Array, y_pred: jax.Array, from_logits: bool) -> jax.Array:
    """Returns -(y * log(p) + (1 - y) * log(1 - p)) for each element."""
    if from_logits:
        # 0 * infinity is NaN, so replace infinite logits by the largest finite ones
        limits = jnp.finfo(y_pred.dtype)
        y_pred = jnp.clip(y_pred, limits.min, limits.max)
        log_positive, log_negative = jax.nn.log_sigmoid(y_pred), jax.nn.log_sigmoid(-y_pred)
    else:
        p = jnp.clip(y_pred, EPSILON, 1.0 - EPSILON)
        log_positive, log_negative = jnp.log(p), jnp.log(1.0 - p)
    return -(y_true * log_positive + (1.0 - y_true) * log_negative)


def log_probabilities(y_pred: jax.Array, from_logits: bool, axis: int) -> jax.Array:
    """Returns the logarithm of the predictions, normalized to sum to 1 along `axis`.

    Logits of -inf count as the lowest float, so a row of only -inf gives equal probabilities.
    Probabilities that are all 0 stay 0 and are then clipped to 1e-7.
    """
    if from_logits:
        shifted, log_sum = _shifted(y_pred, axis)
        return shifted - jnp.expand_dims(log_sum, axis)
    return jnp.log(jnp.clip(_shares(y_pred, axis), EPSILON, 1.0 - EPSILON))


def _shifted(logits: jax.Array, axis: int) -> tuple[jax.Array, jax.Array]:
    """Returns logits minus their maximum along `axis`, and the logarithm of the sum of their exponentials."""
    lowest = jnp.finfo(logits.dtype).min
    logits = at_least(logits, float(lowest))
    largest = jnp.max(logits, axis=axis, keepdims=True, initial=lowest)
    # the derivative with respect to the maximum is 0
    shifted = logits - jax.lax.stop_gradient(largest)
    return shifted, jnp.log(jnp.sum(jnp.exp(shifted), axis=axis))


def _shares(p: jax.Array, axis: int) -> jax.Array:
    """Returns probabilities normalized to sum to 1 along `axis`; a row of zeros stays zeros."""
    return divide_no_nan(p, jnp.broadcast_to(jnp.sum(p, axis=axis, keepdims=True), p.shape))


def _of_classes(y_true: jax.Array, values: jax.Array, axis: int) -> jax.Array:
    """Returns sum(y * value) over the classes, where y = 0 contributes 0 even for infinity."""
    return jnp.sum(jnp.where(y_true == 0, 0.0, y_true * values), axis=axis)


def _is_zero(share: float) -> bool:
    # the configuration is static, so the branch costs nothing in the compiled program; the members of a
    # population have a traced share
    return not isinstance(share, jax.Array) and not share


def _smooth_classes(y_true: jax.Array, label_smoothing: float, axis: int) -> jax.Array:
    if _is_zero(label_smoothing):
        return y_true
    return y_true * (1.0 - label_smoothing) + label_smoothing / y_true.shape[axis]


def binary_crossentropy(
    y_true: Numbers,
    y_pred: Numbers,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """Returns mean(-(y * log(p) + (1 - y) * log(1 - p))) over `axis`.

    Args:
        y_true: targets from 0 to 1, (b, ..., d).
        y_pred: probabilities of class 1, or logits, (b, ..., d).
        from_logits: whether `y_pred` are logits (before the sigmoid).
        label_smoothing: share by which targets move towards 0.5, from 0 to 1.
        axis: the axis of the mean.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.binary_crossentropy([[1.0], [0.0]], [[0.5], [0.25]]).round(4)
        Array([0.6931, 0.2877], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    check_axis("binary_crossentropy", axis, y_pred)
    check_call("binary_crossentropy", y_true, y_pred)
    if not _is_zero(label_smoothing):
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    return jnp.mean(binary_values(y_true, y_pred, from_logits), axis=axis)


def binary_focal_crossentropy(
    y_true: Numbers,
    y_pred: Numbers,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """Returns mean((1 - p_t)**gamma * binary crossentropy) over `axis`.

    p_t is the predicted probability of the true class.

    Args:
        y_true: targets from 0 to 1, (b, ..., d).
        y_pred: probabilities of 1, or scores, (b, ..., d).
        apply_class_balancing: whether class 1 has weight `alpha` and class 0 weight 1 - `alpha`.
        alpha: the weight of class 1.
        gamma: exponent that reduces the loss of easy samples; 0 gives the plain cross-entropy.
        from_logits: whether `y_pred` are scores, before a sigmoid.
        label_smoothing: share by which targets move towards 0.5, from 0 to 1.
        axis: the axis of the mean.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.binary_focal_crossentropy([[1.0], [1.0]], [[0.5], [0.9]]).round(4)
        Array([0.1733, 0.0011], dtype=float32)

    References:
        Lin et al. 2017, Focal loss for dense object detection, https://arxiv.org/abs/1708.02002
    """
    y_true, y_pred = floats(y_true, y_pred)
    check_axis("binary_focal_crossentropy", axis, y_pred)
    check_call("binary_focal_crossentropy", y_true, y_pred)
    if not _is_zero(label_smoothing):
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    p = jax.nn.sigmoid(y_pred) if from_logits else y_pred
    # as in Keras, from clipped probabilities also for logits: p_t needs the probability anyway
    values = binary_values(y_true, p, False)
    p_true = y_true * p + (1.0 - y_true) * (1.0 - p)
    # the derivative of a power with an exponent below 1 is infinite at 0
    values = jnp.power(jnp.maximum(1.0 - p_true, EPSILON), gamma) * values
    if apply_class_balancing:
        values = (y_true * alpha + (1.0 - y_true) * (1.0 - alpha)) * values
    return jnp.mean(values, axis=axis)


def categorical_crossentropy(
    y_true: Numbers,
    y_pred: Numbers,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """Returns -sum(y * log(p)) over the classes.

    Args:
        y_true: one-hot targets, or probabilities of classes, (b, ..., classes).
        y_pred: probabilities, which the loss normalizes, or logits, (b, ..., classes).
        from_logits: whether `y_pred` are logits (before the softmax).
        label_smoothing: share of each target that is distributed equally over the classes.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.categorical_crossentropy([[0.0, 1.0]], [[0.5, 0.5]])
        Array([0.6931472], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    check_axis("categorical_crossentropy", axis, y_pred)
    check_call("categorical_crossentropy", y_true, y_pred, "sparse_categorical_crossentropy")
    y_true = _smooth_classes(y_true, label_smoothing, axis)
    return -_of_classes(y_true, log_probabilities(y_pred, from_logits, axis), axis)


def categorical_focal_crossentropy(
    y_true: Numbers,
    y_pred: Numbers,
    alpha: float | tuple[float, ...] = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """Returns -sum(alpha * (1 - p)**gamma * y * log(p)) over the classes.

    Args:
        y_pred: probabilities, which the loss normalizes, or logits, (b, ..., classes).
        alpha: one weight for all classes, or one per class for classes on the last axis.
        gamma: exponent that reduces the loss of easy samples.
        from_logits: whether `y_pred` are logits (before the softmax).
        label_smoothing: share of each target that is distributed equally over the classes.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> y_true, y_pred = [[0.0, 1.0]], [[0.1, 0.9]]
        >>> fk.losses.categorical_focal_crossentropy(y_true, y_pred, alpha=1.0).round(4)
        Array([0.0011], dtype=float32)

    References:
        Lin et al. 2017, Focal Loss for Dense Object Detection, https://arxiv.org/abs/1708.02002
    """
    y_true, y_pred = floats(y_true, y_pred)
    check_axis("categorical_focal_crossentropy", axis, y_pred)
    check_call("categorical_focal_crossentropy", y_true, y_pred, "sparse_categorical_crossentropy")
    y_true = _smooth_classes(y_true, label_smoothing, axis)
    if from_logits:
        lowest = jnp.finfo(y_pred.dtype).min
        y_pred = jax.nn.softmax(jnp.maximum(y_pred, lowest), axis=axis)
    p = jnp.clip(_shares(y_pred, axis), EPSILON, 1.0 - EPSILON)
    weight = jnp.asarray(alpha, p.dtype)
    weight = weight.reshape((1,) * (p.ndim - weight.ndim) + weight.shape)
    return jnp.sum(weight * jnp.power(1.0 - p, gamma) * -y_true * jnp.log(p), axis=axis)


def class_numbers(y_true: Numbers, y_pred: jax.Array, axis: int, where: str) -> jax.Array:
    """Returns class numbers without a class axis; drops a class axis of size 1.

    Raises:
        ValueError: if the shape is not the predictions' shape without the class axis.
    """
    y_true, y_pred = as_operand(y_true, "y_true"), require_axis(y_pred)
    if y_true.ndim == y_pred.ndim and y_true.shape[axis] == 1:
        y_true = jnp.squeeze(y_true, axis=axis)
    shape = tuple(n for i, n in enumerate(y_pred.shape) if i != axis % y_pred.ndim)
    if y_true.shape != shape:
        raise ValueError(
            f"{where}: expected class numbers of shape {shape}, received {y_true.shape}. For one-hot "
            "targets use the categorical form, such as 'categorical_crossentropy'."
        )
    return y_true


def sparse_categorical_crossentropy(
    y_true: Numbers,
    y_pred: Numbers,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> jax.Array:
    """Returns -log(p) for the probability p of the true class, with class numbers as targets.

    Args:
        y_true: class numbers, (b, ...) or (b, ..., 1). The loss of an invalid class number (out of
            range, negative, a fraction, NaN) is NaN, while Keras returns 0;
            `SparseCategoricalCrossentropy.check_targets` reports the row on the host.
        y_pred: probabilities, which the loss normalizes, or logits, (b, ..., classes).
        from_logits: whether `y_pred` are logits (before the softmax).
        ignore_class: a class number whose losses are 0; may be out of range.

    Returns:
        The losses of samples, (b, ...).

    Raises:
        ValueError: if the targets' shape is not the predictions' shape without the class axis.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.sparse_categorical_crossentropy([1, 0], [[0.5, 0.5], [0.25, 0.75]]).round(4)
        Array([0.6931, 1.3863], dtype=float32)
    """
    y_pred = widened(as_operand(y_pred, "y_pred"))
    check_axis("sparse_categorical_crossentropy", axis, require_axis(y_pred))
    class_ids = class_numbers(y_true, y_pred, axis, "sparse_categorical_crossentropy")
    labels, valid = valid_indices(class_ids, y_pred.shape[axis])
    if ignore_class is not None:
        # predictions of ignored samples may hold NaN: replace them, so that gradients are 0
        ignored = equals(class_ids, ignore_class)
        y_pred = jnp.where(jnp.expand_dims(ignored, axis), jnp.ones((), y_pred.dtype), y_pred)
    if from_logits:
        # the sum of exponentials is outside of the selection: the gradient needs no sum over the classes
        logs, log_sum = _shifted(y_pred, axis)
    else:
        logs, log_sum = log_probabilities(y_pred, False, axis), 0.0
    # a comparison instead of a gather: XLA fuses it, and its gradient is no scatter
    classes = jax.lax.broadcasted_iota("int32", y_pred.shape, axis % y_pred.ndim)
    is_label = classes == jnp.expand_dims(labels, axis)
    of_label = jnp.sum(jnp.where(is_label, logs, 0.0), axis=axis)
    losses = jnp.where(valid, log_sum - of_label, jnp.nan)
    return losses if ignore_class is None else jnp.where(ignored, 0.0, losses)


def categorical_generalized_cross_entropy(y_true: Numbers, y_pred: Numbers, q: float) -> jax.Array:
    """Returns (1 - p**q) / q for the predicted probability p of the true class.

    Interpolates between the cross-entropy (q towards 0) and the mean absolute error (q = 1), which
    makes training robust to wrong labels.

    Args:
        y_true: class numbers, (b, ...) or (b, ..., 1).
        y_pred: probabilities, (b, ..., classes).
        q: exponent, above 0 and below 1.

    Returns:
        The losses of samples, (b, ...). For p = 0 the loss is 1 / q and the gradient 0, since the
        derivative is infinite. The loss of an invalid class number is NaN.

    Example:
        >>> import fkeras as fk
        >>> fk.losses.categorical_generalized_cross_entropy([1], [[0.75, 0.25]], q=0.5)
        Array([1.], dtype=float32)

    References:
        Zhang and Sabuncu 2018, Generalized cross entropy loss, https://arxiv.org/abs/1805.07836
    """
    y_pred = widened(as_operand(y_pred, "y_pred"))
    class_ids = class_numbers(y_true, y_pred, -1, "categorical_generalized_cross_entropy")
    labels, valid = valid_indices(class_ids, y_pred.shape[-1])
    classes = jax.lax.broadcasted_iota("int32", y_pred.shape, y_pred.ndim - 1)
    p = jnp.sum(jnp.where(classes == jnp.expand_dims(labels, -1), y_pred, 0.0), axis=-1)
    # double `where`: the inner one keeps the infinite derivative at 0 out of the gradient
    power = jnp.where(p > 0, jnp.power(jnp.where(p > 0, p, 1.0), q), 0.0)
    return jnp.where(valid, (1.0 - power) / q, jnp.nan)


def kl_divergence(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns sum(y * log(y / p)) over the last axis, both clipped to [1e-7, 1].

    Args:
        y_true: probabilities, (b, ..., d).
        y_pred: probabilities, (b, ..., d).

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.kl_divergence([[0.0, 1.0]], [[0.5, 0.5]]).round(4)
        Array([0.6931], dtype=float32)

    References:
        Kullback and Leibler 1951, On information and sufficiency,
        https://doi.org/10.1214/aoms/1177729694
    """
    y_true, y_pred = (jnp.clip(y, EPSILON, 1.0) for y in floats(y_true, y_pred))
    return jnp.sum(y_true * jnp.log(y_true / y_pred), axis=-1)


def poisson(y_true: Numbers, y_pred: Numbers) -> jax.Array:
    """Returns mean(p - y * log(p + 1e-7)) over the last axis: the Poisson negative log-likelihood.

    The term log(y!), which does not depend on predictions, is omitted.

    Args:
        y_true: counts, (b, ..., d).
        y_pred: expected counts, (b, ..., d).

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import fkeras as fk
        >>> fk.losses.poisson([[0.0], [2.0]], [[1.0], [3.0]]).round(4)
        Array([1.    , 0.8028], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(y_pred - y_true * jnp.log(y_pred + EPSILON), axis=-1)
