"""One-hot encodings, cross-entropies, CTC and polar coordinates, as in `keras.ops.nn`."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from fkeras.engine.call.node import TensorLike
from fkeras.engine.symbolic.define import elementwise, op, to_array, to_floats
from fkeras.engine.values.argument_types import DTypeLike
from fkeras.losses import crossentropy, sequence
from fkeras.nn.ctc_decoding import ctc_decode as _ctc_decode
from fkeras.nn.image import quality

__all__ = (
    "binary_crossentropy",
    "categorical_crossentropy",
    "ctc_decode",
    "ctc_loss",
    "multi_hot",
    "one_hot",
    "polar",
    "psnr",
    "sparse_categorical_crossentropy",
)

# `op` keeps the docstring of the function in `fkeras.nn`
ctc_decode = op(_ctc_decode)
psnr = op(quality.psnr)


def _dense(name: str, sparse: bool) -> None:
    if sparse:
        raise ValueError(f"{name}: expected sparse=False, received True. Results are dense here.")


@op
def one_hot(
    x: TensorLike,
    num_classes: int,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
) -> jax.Array:
    """Returns one-hot vectors; an index out of range gives zeros.

    Args:
        x: class numbers.
        num_classes: number of classes.
        axis: position of the class axis in the result.
        dtype: dtype of the result; None for float32.
        sparse: must be False; results are dense.

    Raises:
        ValueError: if `sparse` is true.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.one_hot([1, 0], 2).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    _dense("one_hot", sparse)
    x = jnp.asarray(x)
    # `jax.nn.one_hot` deprecates class numbers of a float dtype
    x = x.astype("int32") if jnp.issubdtype(x.dtype, jnp.inexact) else x
    return jax.nn.one_hot(x, num_classes, axis=axis, dtype=dtype or "float32")


@op
def multi_hot(
    inputs: TensorLike,
    num_classes: int | None = None,
    axis: int = -1,
    dtype: DTypeLike | None = None,
    sparse: bool = False,
    **kwargs: Any,
) -> jax.Array:
    """Returns multi-hot vectors: 1 at all indices of a row, 0 elsewhere.

    Args:
        inputs: class numbers, (b, n) or (n,).
        num_classes: number of classes.
        axis: position of the class axis.
        dtype: dtype of the result; None for float32.
        sparse: must be False; results are dense.
        **kwargs: `num_tokens`, Keras's deprecated name of `num_classes`.

    Raises:
        ValueError: if `sparse` is true.
        TypeError: if `num_classes` is missing, or an argument is unknown.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.multi_hot([[0, 2], [1, 1]], 3).tolist()
        [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]
    """
    _dense("multi_hot", sparse)
    num_classes = kwargs.pop("num_tokens", None) if num_classes is None else num_classes
    if num_classes is None or kwargs:
        raise TypeError(
            "multi_hot: expected num_classes and no unknown arguments, received "
            f"{', '.join(kwargs) or 'none'}. Write fk.ops.multi_hot(x, num_classes=10)."
        )
    x = jnp.asarray(inputs).astype("int32")
    ones = jax.nn.one_hot(x, num_classes, axis=axis, dtype=dtype or "float32")
    # a maximum, not a sum: repeated class numbers count once
    return jnp.max(ones, axis=1 if x.ndim > 1 else 0)


def _pair(name: str, target: TensorLike, output: TensorLike) -> tuple[jax.Array, jax.Array]:
    # no alignment of ranks, unlike losses: a silent broadcast would change the result's shape
    target, output = to_floats(target), to_floats(output)
    if target.shape != output.shape:
        raise ValueError(
            f"{name}: expected a target and an output of one shape, received {target.shape} and "
            f"{output.shape}. For class indices use fk.ops.sparse_categorical_crossentropy."
        )
    return target, output


@elementwise
def binary_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False
) -> jax.Array:
    """Returns -(y * log(p) + (1 - y) * log(1 - p)) for each element.

    Args:
        target: targets y from 0 to 1.
        output: probabilities p, or logits.
        from_logits: whether `output` holds logits.

    Raises:
        ValueError: if the shapes differ.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.binary_crossentropy([1.0, 0.0], [0.5, 0.75]).round(3)
        Array([0.693, 1.386], dtype=float32)
    """
    target, output = _pair("binary_crossentropy", target, output)
    return crossentropy.binary_values(target, output, from_logits)


@op
def categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> jax.Array:
    """Returns -sum(y * log(p)) over the classes.

    Args:
        target: one-hot targets y, or probabilities.
        output: probabilities p, which the operation normalizes, or logits.
        from_logits: whether `output` holds logits.
        axis: the class axis.

    Raises:
        ValueError: if the shapes differ.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.categorical_crossentropy([[0.0, 1.0]], [[0.2, 0.8]]).round(3)
        Array([0.223], dtype=float32)
    """
    target, output = _pair("categorical_crossentropy", target, output)
    # as in Keras: unlike the loss, 0 * infinity is NaN here
    return -jnp.sum(target * crossentropy.log_probabilities(output, from_logits, axis), axis=axis)


@op
def sparse_categorical_crossentropy(
    target: TensorLike, output: TensorLike, from_logits: bool = False, axis: int = -1
) -> jax.Array:
    """Returns -log(p) for the probability p of the true class, with class numbers as targets.

    Args:
        target: class numbers; the class axis is dropped or has size 1.
        output: probabilities p, which the operation normalizes, or logits.
        from_logits: whether `output` holds logits.
        axis: the class axis.

    Example:
        >>> import fkeras as fk
        >>> fk.ops.sparse_categorical_crossentropy([1], [[0.2, 0.8]]).round(3)
        Array([0.223], dtype=float32)
    """
    return crossentropy.sparse_categorical_crossentropy(
        to_array(target), to_floats(output), from_logits, axis=axis
    )


@elementwise
def polar(abs_: TensorLike, angle: TensorLike) -> jax.Array:
    """Returns complex numbers from absolute values and angles.

    Args:
        abs_: the absolute values.
        angle: the angles in radians, which broadcast against the absolute values.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> z = fk.ops.polar(2.0, jnp.pi / 3)
        >>> round(float(z.real), 3), round(float(z.imag), 3)
        (1.0, 1.732)
    """
    abs_, angle = to_floats(abs_), to_floats(angle)
    return jax.lax.complex(abs_ * jnp.cos(angle), abs_ * jnp.sin(angle))


@op
def ctc_loss(
    target: TensorLike,
    output: TensorLike,
    target_length: TensorLike,
    output_length: TensorLike,
    mask_index: int = 0,
) -> jax.Array:
    """Returns the CTC loss: the negative log probability of the labels over all alignments.

    Args:
        target: class numbers, (b, n); -1 is padding.
        output: logits, (b, t, classes).
        target_length: number of valid labels of each row, (b,).
        output_length: number of valid frames of each row, (b,).
        mask_index: class number of the blank.

    Returns:
        The losses of samples, (b,); see `fk.losses.ctc`.

    Example:
        >>> import jax.numpy as jnp, fkeras as fk
        >>> scores = jnp.zeros((1, 2, 3))  # 3 of 9 paths spell the label 1: (1, 1), (1, 0), (0, 1)
        >>> round(float(fk.ops.ctc_loss([[1]], scores, [1], [2])[0]), 3)
        1.099

    References:
        Graves et al., Connectionist temporal classification (2006),
        https://www.cs.toronto.edu/~graves/icml_2006.pdf
    """
    target, output = jnp.asarray(target).astype("int32"), to_floats(output)
    target_length, output_length = (jnp.asarray(n) for n in (target_length, output_length))
    labels, frames = target.shape[1], output.shape[1]
    # `sequence.ctc` expects the blank as class 0, which also pads rows of labels
    blank = output[..., mask_index : mask_index + 1]
    before, after = output[..., :mask_index], output[..., mask_index + 1 :]
    output = jnp.concatenate([blank, before, after], axis=-1)
    target = jnp.where((target >= 0) & (target < mask_index), target + 1, target)
    counted = jnp.arange(labels)[None, :] < target_length[:, None]
    target = jnp.where(counted, target, 0)
    # replace padded frames by certain blanks, which do not change the probability of the labels
    certain = jnp.where(jnp.arange(output.shape[-1]) == 0, 0.0, -jnp.inf).astype(output.dtype)
    valid_frames = (jnp.arange(frames)[None, :] < output_length[:, None])[..., None]
    return sequence.ctc(target, jnp.where(valid_frames, output, certain[None, None, :]))
