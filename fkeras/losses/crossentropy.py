"""Cross-entropies as plain functions: -log of the probability that was given to what is true.

Probabilities are kept between 1e-7 and 1 - 1e-7. Scores without an activation
(`from_logits=True`) need no such limits: their losses and gradients are exact at any size.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.losses.regression import EPSILON, floats


def binary_values(y_true: jax.Array, y_pred: jax.Array, from_logits: bool) -> jax.Array:
    """-(y * log(p) + (1 - y) * log(1 - p)), element by element."""
    if from_logits:
        right, wrong = jax.nn.log_sigmoid(y_pred), jax.nn.log_sigmoid(-y_pred)
    else:
        p = jnp.clip(y_pred, EPSILON, 1.0 - EPSILON)
        right, wrong = jnp.log(p), jnp.log(1.0 - p)
    return -(y_true * right + (1.0 - y_true) * wrong)


def log_probabilities(y_pred: jax.Array, from_logits: bool, axis: int) -> jax.Array:
    """The log of the predictions, scaled to sum to 1 along `axis`."""
    if from_logits:
        return jax.nn.log_softmax(y_pred, axis=axis)
    p = y_pred / jnp.sum(y_pred, axis=axis, keepdims=True)
    return jnp.log(jnp.clip(p, EPSILON, 1.0 - EPSILON))


def _smooth_classes(y_true: jax.Array, label_smoothing: float, axis: int) -> jax.Array:
    if not label_smoothing:
        return y_true
    return y_true * (1.0 - label_smoothing) + label_smoothing / y_true.shape[axis]


def binary_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """mean(-(y * log(p) + (1 - y) * log(1 - p))) over `axis`.

    Args:
        y_true: targets from 0 to 1, (b, ..., d).
        y_pred: probabilities of 1, or scores, (b, ..., d).
        from_logits: whether `y_pred` are scores, before a sigmoid.
        label_smoothing: how far targets move towards 0.5: 0 not at all, 1 all the way.
        axis: the axis of the mean.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import jax.numpy as jnp
        >>> binary_crossentropy(jnp.ones((1, 1)), jnp.array([[0.5]]))
        Array([0.6931472], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    return jnp.mean(binary_values(y_true, y_pred, from_logits), axis=axis)


def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """mean((1 - p_t)**gamma * binary crossentropy) over `axis`, p_t the probability of the truth.

    Args:
        y_true: targets from 0 to 1, (b, ..., d).
        y_pred: probabilities of 1, or scores, (b, ..., d).
        apply_class_balancing: whether targets 1 weigh `alpha` and targets 0 weigh 1 - `alpha`.
        alpha: the weight of class 1.
        gamma: how much easy samples count less; 0 for the plain crossentropy.
        from_logits: whether `y_pred` are scores, before a sigmoid.
        label_smoothing: how far targets move towards 0.5.
        axis: the axis of the mean.

    Returns:
        The losses of samples, (b, ...).

    References:
        Lin et al. 2017, Focal Loss for Dense Object Detection, https://arxiv.org/abs/1708.02002
    """
    y_true, y_pred = floats(y_true, y_pred)
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    p = jax.nn.sigmoid(y_pred) if from_logits else y_pred
    values = binary_values(y_true, p, False)
    right = y_true * p + (1.0 - y_true) * (1.0 - p)
    values = jnp.power(1.0 - right, gamma) * values
    if apply_class_balancing:
        values = (y_true * alpha + (1.0 - y_true) * (1.0 - alpha)) * values
    return jnp.mean(values, axis=axis)


def categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """-sum(y * log(p)) over the classes.

    Args:
        y_true: one-hot targets, or probabilities of classes, (b, ..., classes).
        y_pred: probabilities, scaled here to sum to 1, or scores, (b, ..., classes).
        from_logits: whether `y_pred` are scores, before a softmax.
        label_smoothing: the share of each target that is spread evenly over the classes.
        axis: the class axis.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import jax.numpy as jnp
        >>> categorical_crossentropy(jnp.array([[0.0, 1.0]]), jnp.array([[0.5, 0.5]]))
        Array([0.6931472], dtype=float32)
    """
    y_true, y_pred = floats(y_true, y_pred)
    y_true = _smooth_classes(y_true, label_smoothing, axis)
    return -jnp.sum(y_true * log_probabilities(y_pred, from_logits, axis), axis=axis)


def categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: float | tuple[float, ...] = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> jax.Array:
    """-sum(alpha * (1 - p)**gamma * y * log(p)) over the classes.

    Args:
        y_true: one-hot targets, (b, ..., classes).
        y_pred: probabilities, scaled here to sum to 1, or scores, (b, ..., classes).
        alpha: the weight of all classes, or one number a class for classes on the last axis.
        gamma: how much easy samples count less.
        from_logits: whether `y_pred` are scores, before a softmax.
        label_smoothing: the share of each target that is spread evenly over the classes.
        axis: the class axis.

    Returns:
        The losses of samples, (b, ...).

    References:
        Lin et al. 2017, Focal Loss for Dense Object Detection, https://arxiv.org/abs/1708.02002
    """
    y_true, y_pred = floats(y_true, y_pred)
    y_true = _smooth_classes(y_true, label_smoothing, axis)
    p = jax.nn.softmax(y_pred, axis=axis) if from_logits else y_pred
    p = p / jnp.sum(p, axis=axis, keepdims=True)
    p = jnp.clip(p, EPSILON, 1.0 - EPSILON)
    weight = jnp.asarray(alpha, p.dtype)
    weight = weight.reshape((1,) * (p.ndim - weight.ndim) + weight.shape)
    return jnp.sum(weight * jnp.power(1.0 - p, gamma) * -y_true * jnp.log(p), axis=axis)


def class_numbers(y_true: Any, y_pred: jax.Array, axis: int) -> jax.Array:
    """The targets without the class axis, whether it is left out or has size 1."""
    y_true = jnp.asarray(y_true)
    if y_true.ndim == y_pred.ndim and y_true.shape[axis] == 1:
        y_true = jnp.squeeze(y_true, axis=axis)
    return y_true


def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> jax.Array:
    """-log(p) of the class that `y_true` numbers.

    Args:
        y_true: class numbers, (b, ...) or (b, ..., 1). One out of range has a loss of 0, as in
            Keras: check targets on the host with `SparseCategoricalCrossentropy.check_targets`.
        y_pred: probabilities, scaled here to sum to 1, or scores, (b, ..., classes).
        from_logits: whether `y_pred` are scores, before a softmax.
        ignore_class: a class number whose losses are 0.
        axis: the class axis.

    Returns:
        The losses of samples, (b, ...).

    Example:
        >>> import jax.numpy as jnp
        >>> sparse_categorical_crossentropy(jnp.array([1]), jnp.array([[0.5, 0.5]]))
        Array([0.6931472], dtype=float32)
    """
    y_pred = jnp.asarray(y_pred)
    if not jnp.issubdtype(y_pred.dtype, jnp.floating):
        y_pred = y_pred.astype("float32")
    labels = class_numbers(y_true, y_pred, axis).astype("int32")
    shape = tuple(n for i, n in enumerate(y_pred.shape) if i != axis % y_pred.ndim)
    if labels.shape != shape:
        raise ValueError(
            f"sparse_categorical_crossentropy: expected class numbers of shape {shape}, received "
            f"{labels.shape}. For targets with one number a class use categorical_crossentropy."
        )
    if ignore_class is not None:
        # scores of what is ignored may be anything: keep them out of the gradient
        ignored = jnp.expand_dims(labels == ignore_class, axis)
        y_pred = jnp.where(ignored, jnp.ones((), y_pred.dtype), y_pred)
    logs = log_probabilities(y_pred, from_logits, axis)
    classes = jax.lax.broadcasted_iota("int32", y_pred.shape, axis % y_pred.ndim)
    chosen = classes == jnp.expand_dims(labels, axis)
    if ignore_class is not None:
        chosen &= ~ignored
    return -jnp.sum(jnp.where(chosen, logs, 0.0), axis=axis)


def kl_divergence(y_true: Any, y_pred: Any) -> jax.Array:
    """sum(y * log(y / p)) over the last axis, both kept between 1e-7 and 1.

    Args:
        y_true: probabilities, (b, ..., d).
        y_pred: probabilities, (b, ..., d).

    Returns:
        The losses of samples, (b, ...).
    """
    y_true, y_pred = (jnp.clip(y, EPSILON, 1.0) for y in floats(y_true, y_pred))
    return jnp.sum(y_true * jnp.log(y_true / y_pred), axis=-1)


def poisson(y_true: Any, y_pred: Any) -> jax.Array:
    """mean(p - y * log(p + 1e-7)) over the last axis: -log of a Poisson probability.

    Args:
        y_true: counts, (b, ..., d).
        y_pred: expected counts, (b, ..., d).

    Returns:
        The losses of samples, (b, ...).
    """
    y_true, y_pred = floats(y_true, y_pred)
    return jnp.mean(y_pred - y_true * jnp.log(y_pred + EPSILON), axis=-1)
