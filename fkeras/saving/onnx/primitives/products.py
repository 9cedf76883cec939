"""Products: matrices, tensors, convolutions and windows."""

from __future__ import annotations

import string
import types
from typing import Any

import jax
import numpy as np

from fkeras.saving.onnx.primitives.elementwise import is_float
from fkeras.saving.onnx.primitives.rule import Emit, Equation, Rule, dims_of


def _dot(eq: Equation) -> Any:
    x, y = eq.inputs
    (left, right), (left_batch, right_batch) = (
        tuple(tuple(int(a) for a in axes) for axes in pair)
        for pair in eq.params["dimension_numbers"]
    )
    w, dtype = eq.writer, eq.out.dtype
    _check_precision(eq)
    codes = str(x.dtype) == str(y.dtype) == "int8" and dtype == "int32" and not left_batch
    if codes and left == (len(x.shape) - 1,) and right == (0,) and len(y.shape) == 2:
        return eq.emit("MatMulInteger", x, y)
    if not is_float(dtype):
        # integer products of ONNX Runtime are those of int32
        x, y = (w.cast(v, "int32") for v in (x, y))
    else:
        x, y = (w.cast(v, dtype) for v in (x, y))
    batch = len(left_batch)
    plain = len(left) == 1 and left_batch == right_batch == tuple(range(batch))
    matrices = plain and left[0] == len(x.shape) - 1 and right[0] == batch
    rows = len(x.shape) - batch - 1
    columns = len(y.shape) - batch - 1
    if matrices and columns == 1 and (rows == 1 or (batch == 0 and rows >= 1)):
        return w.cast(w.emit("MatMul", x, y, dims=eq.out.dims), dtype)
    letters = iter(string.ascii_lowercase)
    x_letters: list[str] = [""] * len(x.shape)
    y_letters: list[str] = [""] * len(y.shape)
    for a, b in (*zip(left_batch, right_batch, strict=True), *zip(left, right, strict=True)):
        x_letters[a] = y_letters[b] = next(letters)
    for names in (x_letters, y_letters):
        for axis, letter in enumerate(names):
            if not letter:
                names[axis] = next(letters)
    out = [x_letters[a] for a in left_batch]
    out += [n for a, n in enumerate(x_letters) if a not in (*left_batch, *left)]
    out += [n for a, n in enumerate(y_letters) if a not in (*right_batch, *right)]
    text = f"{''.join(x_letters)},{''.join(y_letters)}->{''.join(out)}"
    return w.cast(w.emit("Einsum", x, y, dims=eq.out.dims, equation=text), dtype)


def _check_precision(eq: Equation) -> None:
    """Rejects an algorithm, whose rounding ONNX cannot promise; other precisions are lower bounds."""
    precision = eq.params["precision"]
    if isinstance(precision, jax.lax.DotAlgorithm | jax.lax.DotAlgorithmPreset):
        raise eq.error(f"has precision={precision}.", "Leave out the algorithm.")


def _convolution(eq: Equation) -> Any:
    params, w, dtype = eq.params, eq.writer, eq.out.dtype
    _check_precision(eq)
    if not is_float(dtype):
        raise eq.error("of integers has no ONNX form.", "Convert the operands to floats.")
    x, kernel = (w.cast(v, dtype) for v in eq.inputs)
    numbers = params["dimension_numbers"]
    if any(int(d) != 1 for d in params["lhs_dilation"]) or params["batch_group_count"] != 1:
        raise eq.error(
            "is a transposed or grouped gradient.", "Use a transposed convolution layer."
        )
    x = w.transpose(x, numbers.lhs_spec)
    kernel = w.transpose(kernel, numbers.rhs_spec)
    pads = params["padding"]
    low, high = dims_of([p[0] for p in pads]), dims_of([p[1] for p in pads])
    if any(isinstance(n, str) or n < 0 for n in (*low, *high)):
        raise eq.error(
            "has a padding that depends on an unknown size.", "Fix the sizes: shapes=..."
        )
    dims = [eq.out.dims[a] for a in numbers.out_spec]
    y = w.emit(
        "Conv",
        x,
        kernel,
        dims=dims,
        pads=[*low, *high],
        strides=[int(s) for s in params["window_strides"]],
        dilations=[int(d) for d in params["rhs_dilation"]],
        group=int(params["feature_group_count"]),
    )
    return w.transpose(y, np.argsort(numbers.out_spec).tolist())


def _window(kind: str) -> Emit:
    """Sums and maxima of windows over the inner axes, with the other axes as batch and channels."""

    def rule(eq: Equation) -> Any:
        x, w, params = eq.inputs[0], eq.writer, eq.params
        sizes, strides = params["window_dimensions"], params["window_strides"]
        pads = params["padding"]
        plain = all(int(d) == 1 for d in (*params["base_dilation"], *params["window_dilation"]))
        moved = [
            a for a, n in enumerate(sizes) if n != 1 or strides[a] != 1 or tuple(pads[a]) != (0, 0)
        ]
        rest = [a for a in range(len(sizes)) if a not in moved]
        if not plain or not 1 <= len(moved) <= 3 or len(rest) > 2 or not is_float(eq.out.dtype):
            raise eq.error("has windows over these axes.", "Use a pooling layer.")
        order = [*rest, *moved]
        y = w.transpose(x, order)
        extra = 2 - len(rest)
        y = w.reshape(y, (*(1,) * extra, *y.shape))
        dims = (*(1,) * extra, *(eq.out.dims[a] for a in order))
        low, high = ([int(pads[a][side]) for a in moved] for side in (0, 1))
        attributes: dict[str, Any] = {
            "kernel_shape": [int(sizes[a]) for a in moved],
            "strides": [int(strides[a]) for a in moved],
            "pads": [*low, *high],
        }
        if kind == "Max":
            y = w.emit("MaxPool", y, dims=dims, **attributes)
        else:
            y = w.emit("AveragePool", y, dims=dims, count_include_pad=1, **attributes)
            cells = np.array(np.prod([sizes[a] for a in moved]), np.dtype(eq.out.dtype))
            y = w.emit("Mul", y, cells, dims=dims)
        y = w.reshape(y, dims[extra:])
        return w.transpose(y, np.argsort(order).tolist())

    return rule


def _fourier(eq: Equation) -> Any:
    """The spectrum of real signals, as products with cosines and sines."""
    x, w = eq.inputs[0], eq.writer
    (length,) = eq.params["fft_lengths"] if len(eq.params["fft_lengths"]) == 1 else (None,)
    if eq.params["fft_type"] != jax.lax.FftType.RFFT or not length:
        raise eq.error("is a transform of complex signals.", "Keep it outside of the model.")
    length = int(length)
    angles = 2 * np.pi * np.outer(np.arange(length), np.arange(length // 2 + 1)) / length
    real, imaginary = np.cos(angles).astype("float32"), -np.sin(angles).astype("float32")
    parts = [w.emit("MatMul", x, matrix, dims=eq.out.dims) for matrix in (real, imaginary)]
    return [Complex(*parts)]


class Complex:
    """A complex tensor as two tensors of floats; only `real`, `imag` and `abs` take it."""

    def __init__(self, real: Any, imaginary: Any):
        self.real, self.imaginary = real, imaginary
        self.shape, self.dims, self.dtype = real.dims, real.dims, "complex64"


def _absolute(eq: Equation) -> Any:
    x: Any = eq.inputs[0]
    if not isinstance(x, Complex):
        return eq.emit("Abs", x)
    squares = [eq.emit("Mul", part, part) for part in (x.real, x.imaginary)]
    return eq.emit("Sqrt", eq.emit("Add", *squares))


def _real(eq: Equation) -> Any:
    x: Any = eq.inputs[0]
    return x.real


def _imaginary(eq: Equation) -> Any:
    x: Any = eq.inputs[0]
    return x.imaginary


_WINDOW = "window_dimensions window_strides padding base_dilation window_dilation"

RULES: types.MappingProxyType[str, Rule] = types.MappingProxyType(
    {
        "dot_general": Rule(_dot, "dimension_numbers precision preferred_element_type"),
        "conv_general_dilated": Rule(
            _convolution,
            "window_strides padding lhs_dilation rhs_dilation dimension_numbers feature_group_count "
            "batch_group_count precision preferred_element_type",
        ),
        "reduce_window_max": Rule(_window("Max"), _WINDOW),
        "reduce_window_sum": Rule(_window("Sum"), _WINDOW),
        "fft": Rule(_fourier, "fft_type fft_lengths"),
        "abs": Rule(_absolute),
        "real": Rule(_real, "input_dtype"),
        "imag": Rule(_imaginary, "input_dtype"),
    }
)
