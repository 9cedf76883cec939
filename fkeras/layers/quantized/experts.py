"""`QuantizedMixtureOfExperts`: `MixtureOfExperts` with quantized kernels of the experts."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.layers.common import authoring as fk
from fkeras.layers.core.mixture_of_experts import MixtureOfExperts, mixture
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.packed_products import PackedProduct, packed_product
from fkeras.nn.cpu.experts import CodedGroupedProduct, CodedProduct
from fkeras.nn.cpu.forms import compute
from fkeras.nn.experts import ExpertKernels
from fkeras.quantizers import abs_max_quantize_grouped_with_zero_point, pack_int4
from fkeras.quantizers.codes import dequantize_groups, int4_codes

_KERNELS = ("gate_kernel", "up_kernel", "down_kernel")
_FLOATS = ("router_kernel", "router_bias", "logit_bias", "gate_bias", "up_bias", "down_bias")


@dataclasses.dataclass(frozen=True)
class Decoder:
    """Computes the kernel (i, o) of an expert from codes, scales and zero points.

    Args:
        columns: the number `o` of outputs of a kernel with packed codes of 4 bits; None for 8 bits.
        block: the number of inputs with the same scale and zero point; None for all inputs.
    """

    columns: int | None
    block: int | None

    def __call__(
        self, codes: jax.Array, scale: jax.Array, zero: jax.Array | None = None
    ) -> jax.Array:
        if self.columns is not None:
            codes = int4_codes(codes, self.columns, axis=1)
        if zero is None or self.block is None:
            return codes.astype(scale.dtype) / scale[None]
        groups = jnp.arange(codes.shape[0], dtype="int32") // self.block
        return dequantize_groups(codes, scale, zero, groups, axis=0)

    def parts(
        self, codes: jax.Array, scale: jax.Array, zero: jax.Array | None = None
    ) -> Sequence[jax.Array]:
        """Computes the columns of the low and of the high halves of packed codes."""
        if self.columns is None:
            return (self(codes, scale),)
        (size, width), four = codes.shape, codes.dtype.type(4)
        odd, block = 2 * width - self.columns, self.block or size

        def spread(factor: jax.Array, half: int) -> jax.Array:
            factor = factor.reshape(-1, 1, scale.shape[-1])
            factor = jnp.pad(factor, ((0, 0), (0, 0), (0, odd)), constant_values=1)[..., half::2]
            factor = jnp.broadcast_to(factor, (len(factor), block, width)).reshape(-1, width)
            return factor[:size].astype(scale.dtype)

        def part(half: int) -> jax.Array:
            own = ((codes if half else codes << four) >> four).astype(scale.dtype)
            factor = spread(scale, half)
            return own / factor if zero is None else (own - spread(zero, half)) * factor

        return part(0), part(1)


class CodedKernels(ExpertKernels):
    """Kernels of experts as codes, of which a product computes the floats of one expert at a time.

    Args:
        decoder: computes the kernel of an expert.
        arrays: codes (e, ...), scales (e, ...), and zero points if the decoder has a block.
    """

    def __init__(self, decoder: Decoder, arrays: Sequence[jax.Array]):
        self.decoder, self.arrays = decoder, tuple(arrays)

    @property
    def experts(self) -> int:
        return self.arrays[0].shape[0]

    def floats(self) -> jax.Array:
        return jax.vmap(self.decoder)(*self.arrays)

    def of_rows(self, x: jax.Array, experts: jax.Array) -> jax.Array:
        taken = (jnp.take(array, experts, axis=0) for array in self.arrays)
        return jax.vmap(self._row_product)(x, *taken)

    def of_groups(self, x: jax.Array, sizes: jax.Array) -> jax.Array:
        return compute(CodedGroupedProduct(self.decoder), x, sizes, *self.arrays)

    def _row_product(self, x: jax.Array, *arrays: jax.Array) -> jax.Array:
        codes, scale, *zero = arrays
        y = None
        if self.decoder.columns is not None:
            form = PackedProduct(self.decoder.block, "outputs", 1)
            y = packed_product(form, x[None], codes, scale, *(zero or [None]))
        return (compute(CodedProduct(self.decoder), x[None], *arrays) if y is None else y)[0]


class QuantizedMixtureOfExperts(Quantized):
    """Computes `MixtureOfExperts` with kernels of the experts quantized to 4 or 8 bits.

    Each expert has scales of its own, and with blocks zero points. The inputs of the products are not
    quantized. On CPUs a product computes the floats of one expert at a time; other platforms compute
    those of the chosen experts where a call has fewer rows than there are experts, and otherwise those of
    one of the three kernels of all experts. Router and biases are floats and trainable; codes and scales
    are not trainable.

    Args:
        layer: the `MixtureOfExperts` to quantize.
        quantization: "int8", "int4", or a configuration of `fk.quantizers`.

    Shapes:
        Those of the layer. Codes: int8 of the kernel's shape; with 4 bits the last axis is half as long;
        scales (e, o) for `o` outputs of a kernel, with blocks (e, groups, o).

    Raises:
        ValueError: for another class of layer, and for an unsupported mode.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.MixtureOfExperts(8, 16).build(jax.random.key(0), (None, 4))
        >>> quantized = fk.quantize(layer, "int4")
        >>> quantized.gate_kernel.shape, quantized(jnp.ones((3, 4))).shape
        ((8, 4, 8), (3, 4))
    """

    twins: ClassVar[tuple[type, ...]] = (MixtureOfExperts,)
    modes: ClassVar[tuple[str, ...]] = ("int8", "int4")
    separate: ClassVar[tuple[str, ...]] = _KERNELS
    separate_positions: ClassVar[bool] = True

    router_kernel: jax.Array = fk.weight(dtype="float32")
    router_bias: jax.Array | None = fk.weight(dtype="float32")
    logit_bias: jax.Array | None = fk.weight(dtype="float32")
    gate_kernel: jax.Array = fk.weight(trainable=False, dtype="int8")
    gate_kernel_scale: jax.Array = fk.weight(trainable=False)
    gate_kernel_zero: jax.Array | None = fk.weight(trainable=False, dtype="int8")
    gate_bias: jax.Array | None = fk.weight()
    up_kernel: jax.Array = fk.weight(trainable=False, dtype="int8")
    up_kernel_scale: jax.Array = fk.weight(trainable=False)
    up_kernel_zero: jax.Array | None = fk.weight(trainable=False, dtype="int8")
    up_bias: jax.Array | None = fk.weight()
    down_kernel: jax.Array = fk.weight(trainable=False, dtype="int8")
    down_kernel_scale: jax.Array = fk.weight(trainable=False)
    down_kernel_zero: jax.Array | None = fk.weight(trainable=False, dtype="int8")
    down_bias: jax.Array | None = fk.weight()

    @property
    def input_spec(self) -> Any:
        return self._shaped.input_spec

    @property
    def _shaped(self) -> Any:
        return self.layer.replace(router_kernel=self.router_kernel)

    def _axes(self) -> tuple[Mapping[str, str], Mapping[str, tuple[int, ...]]]:
        letters, units = fk.weight_letters(self.layer), {}
        for name in _KERNELS:
            expert, _, column = letters[name]
            scale, decoder = getattr(self, f"{name}_scale"), self._decoder(name)
            grouped = "" if decoder.block is None else "_"
            letters |= {f"{name}_{kind}": expert + grouped + column for kind in ("scale", "zero")}
            if scale is not None and decoder.columns is not None:
                # two columns in one byte: devices share whole bytes
                shape, columns = getattr(self, name).shape, scale.shape[-1]
                units[name] = (*shape[:-1], 1 if columns % 2 else columns // 2)
        return letters, units

    def _decoder(self, name: str) -> Decoder:
        if self.quantization.mode == "int8":
            return Decoder(None, None)
        scale = getattr(self, f"{name}_scale")
        return Decoder(0 if scale is None else scale.shape[-1], self.quantization.block_size)

    def _kernels(self) -> tuple[CodedKernels, ...]:
        """Returns the kernels of the gates, of `up` and of `down`."""
        kernels = []
        for name in _KERNELS:
            arrays = (getattr(self, name + end) for end in ("", "_scale", "_zero"))
            kernels.append(CodedKernels(self._decoder(name), [a for a in arrays if a is not None]))
        return tuple(kernels)

    def encode(self, layer: Any) -> Self:
        """Returns a copy with the weights of a built layer, the kernels of its experts quantized."""
        weights = {name: getattr(layer, name) for name in _FLOATS}
        for name in _KERNELS:
            weights |= self.codes(name, getattr(layer, name))
        return self._coded(**weights)

    def codes(self, name: str, weight: jax.Array) -> dict[str, Any]:
        if isinstance(weight, Tracer):
            arrays = jax.lax.map(self._expert_codes, weight)
        else:
            # one by one: the steps to the codes take several times the memory of the floats
            each = [self._expert_codes(kernel) for kernel in np.asarray(weight)]
            arrays = map(np.stack, zip(*each, strict=True))
        return dict(zip((name, f"{name}_scale", f"{name}_zero"), arrays, strict=False))

    def _expert_codes(self, kernel: Any) -> tuple[Any, ...]:
        """Returns codes, scales and, with blocks, zero points of a matrix (i, o)."""
        block = getattr(self.quantization, "block_size", None)
        if block is not None:
            codes, *factors = abs_max_quantize_grouped_with_zero_point(kernel, block)
            return pack_int4(codes, axis=1), *factors
        codes, scale = self.quantization.coder(kernel, axis=0)
        return codes if self.quantization.mode == "int8" else pack_int4(codes, axis=1), scale[0]

    def dequantize(self) -> fk.Layer:
        floats = zip(_KERNELS, (kernels.floats() for kernels in self._kernels()), strict=True)
        return self.floating(**{name: getattr(self, name) for name in _FLOATS}, **dict(floats))

    def forward(self, context: fk.Context, x: jax.Array) -> fk.Output:
        layer = self.floating(**{name: getattr(self, name) for name in _FLOATS})
        return mixture(layer, context, x, self._kernels())
