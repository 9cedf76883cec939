"""Converts TensorFlow functions of arithmetic, reductions and products to operations of Keras 3."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

from fkeras.saving.legacy.tensorflow.builder import Builder
from fkeras.saving.legacy.tensorflow.folding import has_tensor, to_array


def mean(b: Builder, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Returns the mean, in the dtype of x."""
    y = b("Mean", x, axis=b.axes(axis), keepdims=keepdims)
    # TensorFlow's mean of integers is an integer, Keras 3's a float.
    return y if _is_float(b.dtype(x)) else b("Cast", y, dtype=b.dtype(x))


def floordiv(b: Builder, x: Any, y: Any) -> Any:
    """Returns the quotient rounded down."""
    if not has_tensor([x, y]) or not _is_float(b.dtype(x if has_tensor(x) else y)):
        return b("FloorDivide", x, y)
    # TensorFlow rounds the floating-point quotient; JAX's floor_divide corrects the rounding
    # error of the division, so that results can differ by 1.
    return b("Floor", b("TrueDivide", x, y))


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def silu(b: Builder, x: Any, beta: Any = 1.0) -> Any:
    """Returns x * sigmoid(beta * x)."""
    if beta == 1:
        return b("Silu", x)
    return b("Multiply", x, b("Sigmoid", b("Multiply", x, beta)))


def gelu(b: Builder, x: Any, approximate: bool = False) -> Any:
    """Returns x times the normal distribution function of x."""
    return b("Gelu", x, approximate=approximate)


def leaky_relu(b: Builder, x: Any, alpha: Any = 0.2) -> Any:
    """Returns x, or alpha * x for negative x."""
    return b("LeakyRelu", x, negative_slope=alpha)


def crelu(b: Builder, x: Any, axis: Any = -1) -> Any:
    """Returns relu(x) and relu(-x), concatenated."""
    parts = [b("Relu", x), b("Relu", b("Negative", x))]
    return b("Concatenate", parts, axis=b.whole(axis, "an axis"))


def softmax(b: Builder, x: Any, axis: Any = -1) -> Any:
    """Returns exp(x) divided by the sum of exp(x) along an axis."""
    return b("Softmax", x, axis=b.axes(axis))


def log_softmax(b: Builder, x: Any, axis: Any = -1) -> Any:
    """Returns the logarithm of `softmax`."""
    return b("LogSoftmax", x, axis=b.axes(axis))


def squared_difference(b: Builder, x: Any, y: Any) -> Any:
    """Returns (x - y) ** 2."""
    return b("Square", b("Subtract", x, y))


def multiply_no_nan(b: Builder, x: Any, y: Any) -> Any:
    """Returns x * y, or 0 where y is 0, also if x is NaN or infinite."""
    return b("Where", b("Equal", y, 0), 0, b("Multiply", x, y))


def xlogy(b: Builder, x: Any, y: Any) -> Any:
    """Returns x * log(y), or 0 where x is 0."""
    return b("Where", b("Equal", x, 0), 0, b("Multiply", x, b("Log", y)))


def xlog1py(b: Builder, x: Any, y: Any) -> Any:
    """Returns x * log(1 + y), or 0 where x is 0."""
    return b("Where", b("Equal", x, 0), 0, b("Multiply", x, b("Log1p", y)))


def xdivy(b: Builder, x: Any, y: Any) -> Any:
    """Returns x / y, or 0 where x is 0."""
    return b("Where", b("Equal", x, 0), 0, b("TrueDivide", x, y))


def add_n(b: Builder, inputs: Any) -> Any:
    """Returns the sum of a list of tensors."""
    values = inputs if isinstance(inputs, list) else [inputs]
    total = values[0]
    for value in values[1:]:
        total = b("Add", total, value)
    return total


def clip_by_value(b: Builder, t: Any, clip_value_min: Any, clip_value_max: Any) -> Any:
    """Clips t to two bounds."""
    bounds = (clip_value_min, clip_value_max)
    if all(not has_tensor(v) and to_array(v).ndim == 0 for v in bounds):
        return b("Clip", t, x_min=clip_value_min, x_max=clip_value_max)
    # TensorFlow's order: the lower bound wins if the bounds are swapped.
    return b("Maximum", b("Minimum", t, clip_value_max), clip_value_min)


def clip_by_norm(b: Builder, t: Any, clip_norm: Any, axes: Any = None) -> Any:
    """Scales t down to the norm `clip_norm` if its norm is greater."""
    length = euclidean_norm(b, t, axes, True)
    return b("TrueDivide", b("Multiply", t, clip_norm), b("Maximum", length, clip_norm))


def l2_normalize(b: Builder, x: Any, axis: Any = None, epsilon: Any = 1e-12) -> Any:
    """Divides x by its Euclidean norm; `epsilon` is the minimum of the squared norm."""
    # Epsilon bounds the square as in TensorFlow: 1e-12 bounds the norm by 1e-6.
    squares = b("Sum", b("Square", x), axis=b.axes(axis), keepdims=True)
    return b("Multiply", x, b("Rsqrt", b("Maximum", squares, epsilon)))


def euclidean_norm(b: Builder, x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """Returns the root of the sum of squares."""
    return b("Sqrt", b("Sum", b("Square", x), axis=b.axes(axis), keepdims=keepdims))


def norm(
    b: Builder, x: Any, ord: Any = "euclidean", axis: Any = None, keepdims: bool = False
) -> Any:
    """Returns the norm of vectors along one axis, or of all elements."""
    axis = b.axes(axis)
    matrices = isinstance(axis, list) and len(axis) == 2
    if ord in ("euclidean", "fro") or (ord == 2 and not matrices):
        return euclidean_norm(b, x, axis, keepdims)
    if not matrices and ord == 1:
        return b("Sum", b("Absolute", x), axis=axis, keepdims=keepdims)
    if not matrices and ord == float("inf"):
        return b("Max", b("Absolute", x), axis=axis, keepdims=keepdims)
    raise b.error(
        f"expected 'euclidean', 1, 2 or infinity as ord, received {ord!r:.40}. Write the norm as "
        "sums and powers, " + b.instead
    )


def normalized(b: Builder, x: Any, ord: Any = "euclidean", axis: Any = None) -> list:
    """Returns the vectors divided by their norms, and the norms."""
    length = norm(b, x, ord, axis, True)
    return [b("TrueDivide", x, length), length]


def l2_loss(b: Builder, t: Any) -> Any:
    """Returns half of the sum of squares."""
    return b("TrueDivide", b("Sum", b("Square", t)), 2)


def count_nonzero(
    b: Builder, x: Any, axis: Any = None, keepdims: bool = False, dtype: Any = "int64"
) -> Any:
    """Counts the elements that are not 0."""
    ones = b("Cast", b("NotEqual", x, 0), dtype=b.kind(dtype))
    return b("Sum", ones, axis=b.axes(axis), keepdims=keepdims)


def argmax(b: Builder, x: Any, axis: Any = 0, output_type: Any = "int64") -> Any:
    """Returns the index of the maximum along an axis, by default the first axis."""
    return _as_kind(b, b("Argmax", x, axis=b.whole(axis, "an axis")), output_type)


def argmin(b: Builder, x: Any, axis: Any = 0, output_type: Any = "int64") -> Any:
    """Returns the index of the minimum along an axis, by default the first axis."""
    return _as_kind(b, b("Argmin", x, axis=b.whole(axis, "an axis")), output_type)


def _as_kind(b: Builder, x: Any, dtype: Any) -> Any:
    # Keras's operations return int32 indices, TensorFlow's int64 by default.
    return x if b.kind(dtype) == "int32" else b("Cast", x, dtype=b.kind(dtype))


def cumsum(
    b: Builder, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """Returns cumulative sums along an axis; `exclusive` excludes each element itself."""
    return _cumulative(b, "Cumsum", x, axis, reverse, 0 if exclusive else None)


def cumprod(
    b: Builder, x: Any, axis: Any = 0, exclusive: bool = False, reverse: bool = False
) -> Any:
    """Returns cumulative products along an axis; `exclusive` excludes each element itself."""
    return _cumulative(b, "Cumprod", x, axis, reverse, 1 if exclusive else None)


def _cumulative(b: Builder, kind: str, x: Any, axis: Any, reverse: bool, first: int | None) -> Any:
    axis = b.whole(axis, "an axis")
    y = b("Flip", x, axis=axis) if reverse else x
    if first is not None:
        # Exclusive: drop the last element and start with the neutral element.
        checked_axis = range(len(b.dims(x)))[axis]
        y = b("GetItem", y, [slice(None)] * checked_axis + [slice(None, -1)])
        pairs = [[int(i == checked_axis), 0] for i in range(len(b.dims(x)))]
        y = b("Pad", y, pad_width=pairs, mode="constant", constant_values=first)
    y = b(kind, y, axis=axis)
    return b("Flip", y, axis=axis) if reverse else y


def top_k(b: Builder, x: Any, k: Any = 1, sorted: bool = True) -> Any:
    """Returns the k greatest elements along the last axis, and their indices."""
    return b("TopK", x, k=b.whole(k, "k"), sorted=sorted, outputs=2)


def sort(b: Builder, x: Any, axis: Any = -1, direction: Any = "ASCENDING") -> Any:
    """Sorts along an axis."""
    axis = b.whole(axis, "an axis")
    y = b("Sort", x, axis=axis)
    return b("Flip", y, axis=axis) if direction == "DESCENDING" else y


def argsort(
    b: Builder, x: Any, axis: Any = -1, direction: Any = "ASCENDING", stable: Any = False
) -> Any:
    """Returns the indices that sort along an axis."""
    # Negating keeps the lower index first among equal elements; flipping would not.
    x = b("Negative", x) if direction == "DESCENDING" else x
    return b("Argsort", x, axis=b.whole(axis, "an axis"))


def matmul(
    b: Builder,
    x: Any,
    y: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> Any:
    """Returns the matrix product; `adjoint` equals `transpose` for real numbers."""
    return b(
        "Matmul",
        _transposed(b, x, transpose_a or adjoint_a),
        _transposed(b, y, transpose_b or adjoint_b),
    )


def matvec(b: Builder, x: Any, y: Any, transpose_a: bool = False, adjoint_a: bool = False) -> Any:
    """Returns products of matrices and vectors."""
    column = b("ExpandDims", y, axis=-1)
    return b("Squeeze", b("Matmul", _transposed(b, x, transpose_a or adjoint_a), column), axis=-1)


def _transposed(b: Builder, x: Any, transpose: bool) -> Any:
    if not transpose:
        return x
    return b("Swapaxes", x, axis1=-1, axis2=-2) if has_tensor(x) else to_array(x).swapaxes(-1, -2)


def matrix_transpose(b: Builder, x: Any) -> Any:
    """Transposes matrices."""
    return _transposed(b, x, True)


def inv(b: Builder, x: Any, adjoint: bool = False) -> Any:
    """Inverts matrices."""
    return b("Inv", _transposed(b, x, adjoint))


def tensordot(b: Builder, x: Any, y: Any, axes: Any) -> Any:
    """Returns sums of products over several axes."""
    axes = b.plain(axes)
    return b("Tensordot", x, y, axes=axes)


def einsum(b: Builder, equation: Any, *operands: Any) -> Any:
    """Returns sums of products by an equation; only `TensorFlowOpLayer` stores the operands."""
    # TFOpLambda does not store variadic arguments.
    if not operands:
        raise b.error(
            "the operands are missing in the file: TensorFlow omitted them when it saved the model, "
            "and cannot open the file either. Save the model with matmul and transpose, or with "
            "keras.layers.EinsumDense or Dot."
        )
    return b("Einsum", equation, *operands)


def lost(b: Builder, x: Any) -> Any:
    """Rejects `x == y` and `x != y`."""
    raise b.error(
        "the second operand is missing in the file: TensorFlow omitted it when it saved the model, "
        "and cannot open the file either. Save the model with tf.equal or tf.not_equal, "
        + b.instead
    )


def band_part(b: Builder, x: Any, num_lower: Any, num_upper: Any) -> Any:
    """Sets elements outside a band around the diagonal to 0; -1 keeps a whole triangle."""
    lower, upper = b.whole(num_lower, "num_lower"), b.whole(num_upper, "num_upper")
    # `Triu` with a negative k keeps that many subdiagonals; `Tril` likewise.
    x = x if lower < 0 else b("Triu", x, k=-lower)
    return x if upper < 0 else b("Tril", x, k=upper)


def trace(b: Builder, x: Any) -> Any:
    """Returns the traces of matrices."""
    return b("Trace", x, offset=0, axis1=-2, axis2=-1)


def diag_part(b: Builder, x: Any, k: Any = 0) -> Any:
    """Returns the diagonals of matrices."""
    return b("Diagonal", x, offset=b.whole(k, "k"), axis1=-2, axis2=-1)


def bias_add(b: Builder, x: Any, bias: Any, data_format: Any = None) -> Any:
    """Adds a bias for each channel."""
    if isinstance(data_format, str) and data_format.startswith("NC"):
        # Channels first: the channel axis is the first after the batch.
        spread = [-1] + [1] * (len(b.dims(x)) - 2)
        bias = b("Reshape", bias, newshape=spread)
    return b("Add", x, bias)


def cross_entropy(b: Builder, labels: Any, logits: Any) -> Any:
    """Returns max(z, 0) - z * labels + log(1 + exp(-|z|)) for logits z."""
    # The exponent is never positive: no overflow for large logits.
    bounded = b("Subtract", b("Relu", logits), b("Multiply", logits, labels))
    return b("Add", bounded, b("Log1p", b("Exp", b("Negative", b("Absolute", logits)))))


ROWS: Mapping[str, tuple[str, Any]] = types.MappingProxyType(
    {
        "reduce_mean": ("input_tensor axis? keepdims?", mean),
        "floordiv": ("x y", floordiv),
        "floor_div": ("x y", floordiv),
        "silu": ("features beta?", silu),
        "gelu": ("features approximate?", gelu),
        "leaky_relu": ("features alpha?", leaky_relu),
        "crelu": ("features axis?", crelu),
        "softmax": ("logits axis?", softmax),
        "log_softmax": ("logits axis?", log_softmax),
        "squared_difference": ("x y", squared_difference),
        "multiply_no_nan": ("x y", multiply_no_nan),
        "xlogy": ("x y", xlogy),
        "xlog1py": ("x y", xlog1py),
        "xdivy": ("x y", xdivy),
        "add_n": ("inputs", add_n),
        "accumulate_n": ("inputs", add_n),
        "clip_by_value": ("t clip_value_min clip_value_max", clip_by_value),
        "clip_by_norm": ("t clip_norm axes?", clip_by_norm),
        "l2_normalize": ("x axis? epsilon?", l2_normalize),
        "reduce_euclidean_norm": ("input_tensor axis? keepdims?", euclidean_norm),
        "norm": ("tensor ord? axis? keepdims?", norm),
        "normalize": ("tensor ord? axis?", normalized),
        "l2_loss": ("t", l2_loss),
        "count_nonzero": ("input axis? keepdims? dtype?", count_nonzero),
        "argmax": ("input axis? output_type?", argmax),
        "argmin": ("input axis? output_type?", argmin),
        "cumsum": ("x axis? exclusive? reverse?", cumsum),
        "cumprod": ("x axis? exclusive? reverse?", cumprod),
        "top_k": ("input k? sorted?", top_k),
        "sort": ("values axis? direction?", sort),
        "argsort": ("values axis? direction? stable?", argsort),
        "matmul": (
            "a b transpose_a? transpose_b? adjoint_a? adjoint_b? a_is_sparse~ b_is_sparse~",
            matmul,
        ),
        "matvec": ("a b transpose_a? adjoint_a? a_is_sparse~ b_is_sparse~", matvec),
        "matrix_transpose": ("a conjugate~", matrix_transpose),
        "inv": ("input adjoint?", inv),
        "adjoint": ("matrix", matrix_transpose),
        "tensordot": ("a b axes", tensordot),
        "einsum": ("equation optimize~", einsum),
        "eq": ("self", lost),
        "ne": ("self", lost),
        "band_part": ("input num_lower num_upper", band_part),
        "trace": ("x", trace),
        "diag_part": ("input k?", diag_part),
        "bias_add": ("value bias data_format?", bias_add),
        "sigmoid_cross_entropy_with_logits": ("labels logits", cross_entropy),
    }
)
