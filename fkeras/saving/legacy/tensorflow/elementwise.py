"""Converts TensorFlow functions of arithmetic, reductions and products to operations of Keras 3."""

from __future__ import annotations

from typing import Any

from fkeras.saving.legacy.tensorflow.builder import Builder, Row
from fkeras.saving.legacy.tensorflow.folding import Arg, has_tensor, to_array


def mean(b: Builder, x: Arg, axis: Arg = None, keepdims: bool = False) -> Any:
    """Returns the mean, in the dtype of x."""
    y = b("Mean", x, axis=b.axes(axis), keepdims=keepdims)
    # TensorFlow's mean of integers is an integer, Keras 3's a float.
    return y if _is_float(b.dtype(x)) else b("Cast", y, dtype=b.dtype(x))


def floordiv(b: Builder, x: Arg, y: Arg) -> Any:
    """Returns the quotient rounded down."""
    if not has_tensor([x, y]) or not _is_float(b.dtype(x if has_tensor(x) else y)):
        return b("FloorDivide", x, y)
    # TensorFlow rounds the floating-point quotient; JAX's floor_divide corrects the rounding
    # error of the division, so that results can differ by 1.
    return b("Floor", b("TrueDivide", x, y))


def _is_float(dtype: str) -> bool:
    return dtype.startswith(("float", "bfloat", "complex"))


def silu(b: Builder, x: Arg, beta: Arg = 1.0) -> Any:
    """Returns x * sigmoid(beta * x)."""
    if beta == 1:
        return b("Silu", x)
    return b("Multiply", x, b("Sigmoid", b("Multiply", x, beta)))


def add_n(b: Builder, inputs: Arg) -> Any:
    """Returns the sum of a list of tensors."""
    values = inputs if isinstance(inputs, list) else [inputs]
    total = values[0]
    for value in values[1:]:
        total = b("Add", total, value)
    return total


def clip_by_value(b: Builder, t: Arg, clip_value_min: Arg, clip_value_max: Arg) -> Any:
    """Clips t to two bounds."""
    bounds = (clip_value_min, clip_value_max)
    if all(not has_tensor(v) and to_array(v).ndim == 0 for v in bounds):
        return b("Clip", t, x_min=clip_value_min, x_max=clip_value_max)
    # TensorFlow's order: the lower bound wins if the bounds are swapped.
    return b("Maximum", b("Minimum", t, clip_value_max), clip_value_min)


def clip_by_norm(b: Builder, t: Arg, clip_norm: Arg, axes: Arg = None) -> Any:
    """Scales t down to the norm `clip_norm` if its norm is greater."""
    length = euclidean_norm(b, t, axes, True)
    return b("TrueDivide", b("Multiply", t, clip_norm), b("Maximum", length, clip_norm))


def euclidean_norm(b: Builder, x: Arg, axis: Arg = None, keepdims: bool = False) -> Any:
    """Returns the root of the sum of squares."""
    return b("Sqrt", b("Sum", b("Square", x), axis=b.axes(axis), keepdims=keepdims))


def norm(
    b: Builder, x: Arg, ord: Arg = "euclidean", axis: Arg = None, keepdims: bool = False
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


def normalized(b: Builder, x: Arg, ord: Arg = "euclidean", axis: Arg = None) -> list:
    """Returns the vectors divided by their norms, and the norms."""
    length = norm(b, x, ord, axis, True)
    return [b("TrueDivide", x, length), length]


def sort(b: Builder, x: Arg, axis: Arg = -1, direction: Arg = "ASCENDING") -> Any:
    """Sorts along an axis."""
    axis = b.whole(axis, "an axis")
    y = b("Sort", x, axis=axis)
    return b("Flip", y, axis=axis) if direction == "DESCENDING" else y


def argsort(
    b: Builder, x: Arg, axis: Arg = -1, direction: Arg = "ASCENDING", stable: Arg = False
) -> Any:
    """Returns the indices that sort along an axis."""
    # Negating keeps the lower index first among equal elements; flipping would not.
    x = b("Negative", x) if direction == "DESCENDING" else x
    return b("Argsort", x, axis=b.whole(axis, "an axis"))


def matmul(
    b: Builder,
    x: Arg,
    y: Arg,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
) -> Any:
    """Returns the matrix product; `adjoint` equals `transpose` for real numbers."""
    return b(
        "Matmul",
        transposed(b, x, transpose_a or adjoint_a),
        transposed(b, y, transpose_b or adjoint_b),
    )


def matvec(b: Builder, x: Arg, y: Arg, transpose_a: bool = False, adjoint_a: bool = False) -> Any:
    """Returns products of matrices and vectors."""
    column = b("ExpandDims", y, axis=-1)
    return b("Squeeze", b("Matmul", transposed(b, x, transpose_a or adjoint_a), column), axis=-1)


def transposed(b: Builder, x: Arg, transpose: bool = True) -> Any:
    """Transposes matrices."""
    if not transpose:
        return x
    return b("Swapaxes", x, axis1=-1, axis2=-2) if has_tensor(x) else to_array(x).swapaxes(-1, -2)


def einsum(b: Builder, equation: Arg, *operands: Arg) -> Any:
    """Returns sums of products by an equation; only `TensorFlowOpLayer` stores the operands."""
    # TFOpLambda does not store variadic arguments.
    if not operands:
        raise b.error(
            "the operands are missing in the file: TensorFlow omitted them when it saved the model, "
            "and cannot open the file either. Save the model with matmul and transpose, or with "
            "keras.layers.EinsumDense or Dot."
        )
    return b("Einsum", equation, *operands)


def lost(b: Builder, x: Arg) -> Any:
    """Rejects `x == y` and `x != y`."""
    raise b.error(
        "the second operand is missing in the file: TensorFlow omitted it when it saved the model, "
        "and cannot open the file either. Save the model with tf.equal or tf.not_equal, "
        + b.instead
    )


def inv(b: Builder, x: Arg, adjoint: bool = False) -> Any:
    """Inverts matrices."""
    return b("Inv", transposed(b, x, adjoint))


def band_part(b: Builder, x: Arg, num_lower: Arg, num_upper: Arg) -> Any:
    """Sets elements outside a band around the diagonal to 0; -1 keeps a whole triangle."""
    lower, upper = b.whole(num_lower, "num_lower"), b.whole(num_upper, "num_upper")
    # `Triu` with a negative k keeps that many subdiagonals; `Tril` likewise.
    x = x if lower < 0 else b("Triu", x, k=-lower)
    return x if upper < 0 else b("Tril", x, k=upper)


def bias_add(b: Builder, x: Arg, bias: Arg, data_format: Arg = None) -> Any:
    """Adds a bias for each channel."""
    if isinstance(data_format, str) and data_format.startswith("NC"):
        # Channels first: the channel axis is the first after the batch.
        spread = [-1] + [1] * (len(b.dims(x)) - 2)
        bias = b("Reshape", bias, newshape=spread)
    return b("Add", x, bias)


def arg_extreme(kind: str) -> Any:
    """Returns the function for the index of an extreme along an axis, by default the first axis."""

    def make(b: Builder, x: Arg, axis: Arg = 0, output_type: Arg = "int64") -> Any:
        y, dtype = b(kind, x, axis=b.whole(axis, "an axis")), b.kind(output_type)
        # Keras's operations return int32 indices, TensorFlow's int64 by default.
        return y if dtype == "int32" else b("Cast", y, dtype=dtype)

    return make


def cumulative(kind: str, neutral: int) -> Any:
    """Returns the function for cumulative sums or products; `exclusive` excludes each element itself."""

    def make(
        b: Builder, x: Arg, axis: Arg = 0, exclusive: bool = False, reverse: bool = False
    ) -> Any:
        axis = b.whole(axis, "an axis")
        y = b("Flip", x, axis=axis) if reverse else x
        if exclusive:
            # Drop the last element and start with the neutral element.
            checked_axis = range(len(b.dims(x)))[axis]
            y = b("GetItem", y, [slice(None)] * checked_axis + [slice(None, -1)])
            pairs = [[int(i == checked_axis), 0] for i in range(len(b.dims(x)))]
            y = b("Pad", y, pad_width=pairs, mode="constant", constant_values=neutral)
        y = b(kind, y, axis=axis)
        return b("Flip", y, axis=axis) if reverse else y

    return make


_SPARSE = "a_is_sparse~ b_is_sparse~"
ROWS: tuple[Row, ...] = (
    ("reduce_mean", "input_tensor axis? keepdims?", mean),
    ("floordiv floor_div", "x y", floordiv, "FloorDiv"),
    ("silu", "features beta?", silu),
    ("add_n accumulate_n", "inputs", add_n),
    ("clip_by_value", "t clip_value_min clip_value_max", clip_by_value, "ClipByValue"),
    ("clip_by_norm", "t clip_norm axes?", clip_by_norm),
    ("reduce_euclidean_norm", "input_tensor axis? keepdims?", euclidean_norm),
    ("norm", "tensor ord? axis? keepdims?", norm),
    ("normalize", "tensor ord? axis?", normalized),
    ("argmax", "input axis? output_type?", arg_extreme("Argmax")),
    ("argmin", "input axis? output_type?", arg_extreme("Argmin")),
    ("cumsum", "x axis? exclusive? reverse?", cumulative("Cumsum", 0)),
    ("cumprod", "x axis? exclusive? reverse?", cumulative("Cumprod", 1)),
    ("sort", "values axis? direction?", sort),
    ("argsort", "values axis? direction? stable?", argsort),
    ("matmul", f"a b transpose_a? transpose_b? adjoint_a? adjoint_b? {_SPARSE}", matmul),
    ("matvec", f"a b transpose_a? adjoint_a? {_SPARSE}", matvec),
    ("matrix_transpose", "a conjugate~", transposed),
    ("adjoint", "matrix", transposed),
    ("inv", "input adjoint?", inv, "MatrixInverse"),
    ("einsum", "equation optimize~", einsum),
    ("eq ne", "self", lost),
    ("band_part", "input num_lower num_upper", band_part, "MatrixBandPart"),
    ("bias_add", "value bias data_format?", bias_add),
)
