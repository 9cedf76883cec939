"""`QuantizedDense`: `Dense` and `EinsumDense` with a quantized kernel."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.core.dense import Dense
from fkeras.layers.core.einsum_dense import EinsumDense
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.packed_products import (
    BlockMatrix,
    PackedProduct,
    checked,
    packed_product,
)
from fkeras.layers.quantized.products import (
    arrange,
    dequantize,
    equation_of,
    finished,
    integer_product,
    rounded_product,
)
from fkeras.nn.cpu.forms import compute
from fkeras.quantizers import abs_max_quantize_grouped_with_zero_point, pack_int4, unpack_int4
from fkeras.quantizers.codes import dequantize_groups, int4_codes
from fkeras.quantizers.float8 import round_gradients, round_values

_METERS = ("inputs", "kernel", "outputs_grad")


def _meter() -> Any:
    return fk.weight(overwritten=True, dtype="float32")


class Float8Dense(Quantized):
    """Computes `Dense` and `EinsumDense` with float8 inputs, kernel and gradients.

    Kernel and bias are trainable floats. Inputs, kernel and gradients have a scale each, which
    follows the largest magnitudes of the last steps. The gradients of scales and histories are
    defined as their next values, which a `Trainer` assigns to them. Only reverse-mode
    differentiation (`jax.grad`) is supported, not `jax.jvp`.

    Args:
        layer: the `Dense` or `EinsumDense` to quantize.
        quantization: "float8", or a `fk.quantizers.Float8QuantizationConfig`.

    Shapes:
        Those of the layer; scales (), histories (length,).

    Raises:
        ValueError: for another class of layer.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(1, kernel_initializer="ones").build(jax.random.key(0), (None, 2))
        >>> fk.quantize(layer, "float8")(jnp.array([[0.3, 1.0]]))
        Array([[1.3125]], dtype=float32)

    References:
        Micikevicius et al., FP8 formats for deep learning (2022), https://arxiv.org/abs/2209.05433
    """

    twins: ClassVar[tuple[type, ...]] = (Dense, EinsumDense)
    modes: ClassVar[tuple[str, ...]] = ("float8",)

    kernel: jax.Array = fk.weight()
    bias: jax.Array | None = fk.weight()
    inputs_scale: jax.Array = _meter()
    inputs_amax_history: jax.Array = _meter()
    kernel_scale: jax.Array = _meter()
    kernel_amax_history: jax.Array = _meter()
    outputs_grad_scale: jax.Array = _meter()
    outputs_grad_amax_history: jax.Array = _meter()

    @property
    def input_spec(self) -> Any:
        return self._shaped.input_spec

    @property
    def _shaped(self) -> Any:
        return self.layer.replace(kernel=self.kernel)

    def encode(self, layer: Any) -> Self:
        """Returns a copy with the weights of a built layer, and initial scales and histories."""
        length = self.quantization.amax_history_length
        meters = {f"{name}_scale": np.ones((), "float32") for name in _METERS}
        meters |= {f"{name}_amax_history": np.zeros(length, "float32") for name in _METERS}
        return self._coded(kernel=layer.kernel, bias=layer.bias, **meters)

    def dequantize(self) -> fk.Layer:
        return self.floating(kernel=self.kernel, bias=self.bias)

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            x = x.astype(self.kernel.dtype)
        # scales follow the data in training only; inference is a pure function of the weights
        updates_scales = context.training
        y = jnp.einsum(
            equation_of(self.layer).spelled(x.ndim).text,
            round_values(x, self.inputs_scale, self.inputs_amax_history, updates_scales),
            round_values(self.kernel, self.kernel_scale, self.kernel_amax_history, updates_scales),
        )
        # the identity, whose backward pass rounds the gradient to float8
        y = round_gradients(y, self.outputs_grad_scale, self.outputs_grad_amax_history)
        bias = self.bias
        if bias is not None and self.policy.compute_dtype == "float32":
            bias = bias.astype("bfloat16").astype(bias.dtype)  # the fused addition is in bfloat16
        return fk.Output(finished(self.layer, y, bias), mask=context.mask)


_CALIBRATED = ("gptq", "awq")


class QuantizedDense(Quantized):
    """Computes `Dense` and `EinsumDense` with a kernel quantized to 2, 3, 4 or 8 bits.

    With "int8" the inputs are quantized too, and the product is computed in integers; CPUs sum the
    integers of up to 4 rows in floats. Gradients ignore the rounding. The other modes dequantize the
    kernel in each call; with "int4" and up to 32 rows, as in decoding, the kernel's floats are never
    in memory as a whole. Biases are floats and trainable; codes and scales are not trainable.

    Args:
        layer: the `Dense` or `EinsumDense` to quantize.
        quantization: "int8", "int4", or a configuration of `fk.quantizers`.

    Shapes:
        Those of the layer. Codes: int8 of the kernel's shape; 4 bits: (i, ceil(o / 2)) for i
        summed entries and o others; GPTQ and AWQ: (o, i), with 4 bits (ceil(o / 2), i).

    Raises:
        ValueError: for another class of layer, and for an unsupported mode.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Dense(2, kernel_initializer="ones").build(jax.random.key(0), (None, 3))
        >>> quantized = fk.quantize(layer, "int8")
        >>> quantized.kernel.dtype, quantized(jnp.ones((1, 3))).round(5)
        (dtype('int8'), Array([[3., 3.]], dtype=float32))
    """

    twins: ClassVar[tuple[type, ...]] = (Dense, EinsumDense)
    modes: ClassVar[tuple[str, ...]] = ("int8", "int4", "gptq", "awq")
    siblings: ClassVar[tuple[type, ...]] = (Float8Dense,)

    #: shape of the float kernel, which packed codes no longer show
    kernel_shape: tuple[int, ...] | None = dataclasses.field(default=None, init=False)

    kernel: jax.Array | None = fk.weight(trainable=False, dtype="int8")
    bias: jax.Array | None = fk.weight()
    quantized_kernel: jax.Array | None = fk.weight(trainable=False, dtype="uint8")
    kernel_scale: jax.Array = fk.weight(trainable=False)
    kernel_zero: jax.Array | None = fk.weight(trainable=False, dtype="int8")
    awq_scales: jax.Array | None = fk.weight(trainable=False)
    g_idx: jax.Array | None = fk.weight(trainable=False, dtype="float32")

    @property
    def input_spec(self) -> Any:
        return self._shaped.input_spec

    @property
    def _shaped(self) -> Any:
        """Returns the float layer with the shape of its kernel, if it is built."""
        if self.kernel_shape is None:
            return self.layer
        return self.layer.replace(kernel=jax.ShapeDtypeStruct(self.kernel_shape, "float32"))

    def _unbuilt(self) -> Self:
        return super()._unbuilt().replace(kernel_shape=None)

    def _axes(self) -> tuple[Mapping[str, str], Mapping[str, tuple[int, ...]]]:
        letters = fk.weight_letters(self.layer)
        shape, mode = self.kernel_shape, self.quantization.mode
        if shape is None or mode == "int8":
            return letters, {}
        axes, bias = letters["kernel"], {n: a for n, a in letters.items() if n == "bias"}
        cut = self._cut(shape)
        if cut is None:
            return bias, {}
        # devices share the first of the axes that rows or columns join, such as heads, not channels
        row, column = f"{axes[:cut]}_"[0], f"{axes[cut:]}_"[0]
        sizes = dict(zip(axes, shape, strict=True))
        columns = self._matrix(shape)[1]
        shared = sizes.get(column, 1)
        if mode == "int4" or self.quantization.weight_bits == 4:  # two columns in one byte
            shared = 1 if columns % 2 else math.gcd(shared, columns // 2)
        # groups are whole: a device looks up the groups of its own rows
        grouped = "" if self.g_idx is None else "_"
        by_columns = {"kernel_scale": column + "_", "kernel_zero": column + "_", "awq_scales": row}
        by_rows = {"kernel_scale": grouped + column, "kernel_zero": "_" + column}
        codes = {"kernel": row + column, "quantized_kernel": column + row}
        others = {**(by_columns if mode in _CALIBRATED else by_rows), "g_idx": row}
        units = {
            name: tuple(known.get(n) or int(m) for n, m in zip(own, array.shape, strict=True))
            for part, known in ((others, sizes), (codes, {**sizes, column: shared}))
            for name, own in part.items()
            if (array := getattr(self, name)) is not None
        }
        return {**bias, **codes, **others}, units

    def _cut(self, shape: tuple[int, ...]) -> int | None:
        """Returns the number of first axes that are the rows of the codes; None for another order."""
        if self.quantization.mode in _CALIBRATED:
            # Keras takes the largest of three axes for the model's width, and flattens the other two
            return 1 if len(shape) == 3 and shape.index(max(shape)) == 0 else len(shape) - 1
        equation = equation_of(self.layer)
        summed = [letter not in equation.output for letter in equation.kernel]
        return sum(summed) if all(summed[: sum(summed)]) else None

    def encode(self, layer: Any) -> Self:
        """Returns a copy with the quantized kernel of a built layer; zeros for calibrated modes."""
        shape = layer.kernel.shape
        encode = {"int8": self._int8, "int4": self._int4}.get(self.quantization.mode, self._empty)
        coded = encode(layer.kernel)
        return self._coded(bias=layer.bias, **coded).replace(kernel_shape=tuple(shape))

    def _int8(self, kernel: jax.Array) -> dict[str, jax.Array]:
        equation = equation_of(self.layer)
        summed_axes = tuple(i for i, n in enumerate(equation.kernel) if n not in equation.output)
        # one scale per output: the scale must be constant along the summed axes
        codes, scale = self.quantization.coder(kernel, axis=summed_axes)
        return {"kernel": codes, "kernel_scale": arrange(scale, equation.kernel, equation.output)}

    def _int4(self, kernel: jax.Array) -> dict[str, jax.Array]:
        matrix = kernel.reshape(self._matrix(kernel.shape))
        block = self.quantization.block_size
        # without blocks: one scale per column, and no zero points
        if block is None:
            codes, scale = self.quantization.coder(matrix, axis=0)
            return {"kernel": pack_int4(codes, axis=1), "kernel_scale": scale[0]}
        codes, scale, zero = abs_max_quantize_grouped_with_zero_point(matrix, block)
        groups = np.arange(matrix.shape[0]) // block
        return {
            "kernel": pack_int4(codes, axis=1),
            "kernel_scale": scale,
            "kernel_zero": zero,
            "g_idx": groups.astype("float32"),
        }

    def _empty(self, kernel: jax.Array) -> dict[str, jax.Array]:
        # calibrated modes need samples: `build` allocates the weights, a file or calibration fills
        rows, columns = self._matrix(kernel.shape)
        size = self.quantization.group_size
        groups = 1 if size == -1 else -(-rows // size)
        packed = self._packed(columns)
        weights = {
            "quantized_kernel": np.zeros((packed, rows), "uint8"),
            "kernel_scale": np.ones((columns, groups), kernel.dtype),
            "kernel_zero": np.zeros((columns, groups), "uint8"),
            "g_idx": np.zeros(rows, "float32"),
        }
        if self.quantization.mode == "awq":
            weights["awq_scales"] = np.ones(rows, kernel.dtype)
        return weights

    def _packed(self, columns: int) -> int:
        return (columns + 1) // 2 if self.quantization.weight_bits == 4 else columns

    def _matrix(self, shape: tuple[int, ...]) -> tuple[int, int]:
        """Returns the rows and columns of the kernel as Keras flattens it, in unchanged order."""
        if self.quantization.mode in _CALIBRATED:
            cut = self._cut(shape)
            return math.prod(shape[:cut]), math.prod(shape[cut:])
        equation = equation_of(self.layer)
        pairs = zip(equation.kernel, shape, strict=True)
        rows = math.prod(size for letter, size in pairs if letter not in equation.output)
        return rows, math.prod(shape) // rows

    def floats(self, multiplied: bool = False) -> jax.Array:
        """Returns the dequantized kernel.

        Args:
            multiplied: whether the kernel is for a product; see `BlockMatrix`.
        """
        # the mode determines which weights a built layer has
        shape, scale, zero = self.kernel_shape, self.kernel_scale, self.kernel_zero
        assert shape is not None
        columns = self._matrix(shape)[1]
        if self.quantization.mode == "int8":
            assert self.kernel is not None
            return dequantize(self.kernel, scale, equation_of(self.layer))
        if self.quantization.mode == "int4":
            assert self.kernel is not None
            if self.g_idx is not None and zero is not None:
                form = BlockMatrix(self.quantization.block_size)
                operands = (self.kernel, scale, zero, self.g_idx)
                kernel = compute(form, *operands) if multiplied else form.default(*operands)
                return jnp.reshape(kernel, shape)
            codes = int4_codes(self.kernel, columns, axis=1)
            return jnp.reshape(codes.astype(scale.dtype) / scale[None], shape)
        codes = self.quantized_kernel
        assert codes is not None
        assert zero is not None
        assert self.g_idx is not None
        if self.quantization.weight_bits == 4:
            codes = unpack_int4(codes, columns, axis=0)
        kernel = dequantize_groups(codes, scale, zero, self.g_idx, axis=1).T
        # AWQ multiplied the rows by scales before rounding
        if self.awq_scales is not None:
            kernel = kernel / self.awq_scales[:, None]
        return jnp.reshape(kernel, shape)

    def _packed_product(self, x: jax.Array) -> jax.Array | None:
        """Returns the product of few rows with 4-bit codes; None if codes or equation do not suit."""
        shape, scale, zero = self.kernel_shape, self.kernel_scale, self.kernel_zero
        if self.quantization.mode != "int4" or shape is None or self.kernel is None:
            return None
        equation, cut = equation_of(self.layer).spelled(x.ndim), self._cut(shape)
        letters, summed = equation.input[:-cut] if cut else "", equation.kernel[:cut]
        plain = (letters + summed, letters + equation.kernel[len(summed) :])
        if not cut or (equation.input, equation.output) != plain:
            return None
        block = self.quantization.block_size
        leading, form = x.shape[:-cut], PackedProduct(block, "outputs", 1)
        rows = x.reshape(*leading, math.prod(shape[:cut]))  # -1 would have no value without rows
        if self.g_idx is not None and self.has_packed_codes and rows.dtype == scale.dtype:
            rows = checked(rows, self.g_idx, block)
        y = packed_product(form, rows, self.kernel, scale, zero)
        return None if y is None else y.reshape(*leading, *shape[cut:])

    def dequantize(self) -> fk.Layer:
        return self.floating(kernel=self.floats(), bias=self.bias)

    @property
    def has_packed_codes(self) -> bool:
        return self.quantization.mode == "int4" and getattr(self.kernel, "dtype", None) == "int8"

    def unpacked(self) -> Self:
        shape, kernel, zero = self.kernel_shape, self.kernel, self.kernel_zero
        if not self.has_packed_codes or shape is None or kernel is None:
            return self
        codes = int4_codes(kernel, self._matrix(shape)[1], axis=1).astype("int4")
        zero = None if zero is None else zero.astype("float32")
        scale = self.kernel_scale.astype("float32")
        if self.g_idx is not None:
            scale = checked(scale, self.g_idx, self.quantization.block_size)
        return self._with_codes(kernel=codes, kernel_scale=scale, kernel_zero=zero)

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        quantizer = getattr(self.quantization, "activation_quantizer", None)
        if quantizer is None:
            y = self._packed_product(x)
            if y is not None:
                return fk.Output(finished(self.layer, y, self.bias), mask=context.mask)
            # weight-only quantization: the float layer computes with the dequantized kernel
            layer = self.layer.replace(kernel=self.floats(multiplied=True), bias=self.bias)
            return fk.Output(layer.call(x), mask=context.mask)
        if not jnp.issubdtype(x.dtype, jnp.inexact):
            x = x.astype(self.kernel_scale.dtype)
        layer_equation = equation_of(self.layer)
        equation = layer_equation.spelled(x.ndim)
        if self.quantization.mode == "int8":
            scale = arrange(self.kernel_scale, layer_equation.output, equation.output)
            y = integer_product(equation, quantizer, x, self.kernel, scale)
        else:
            y = rounded_product(equation, quantizer, x, self.floats(multiplied=True))
        return fk.Output(finished(self.layer, y, self.bias), mask=context.mask)
