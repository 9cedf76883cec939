"""`QuantizedEmbedding`: `Embedding` and `ReversibleEmbedding` with quantized vectors."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.layers.common import authoring as fk
from fkeras.layers.common.id_checks import reject_fractions
from fkeras.layers.core.einsum_dense import Equation
from fkeras.layers.core.embedding import Embedding, embed
from fkeras.layers.core.masking import both_masks
from fkeras.layers.core.reversible_embedding import ReversibleEmbedding, soft_cap
from fkeras.layers.quantized.base import Quantized
from fkeras.layers.quantized.packed_products import PackedProduct, checked, packed_product
from fkeras.layers.quantized.products import arrange, integer_product, rounded_product
from fkeras.quantizers import abs_max_quantize_grouped_with_zero_point, pack_int4
from fkeras.quantizers.codes import dequantize_groups, int4_codes

# elements of a table that are quantized at once
_SLICE = 1 << 22


class QuantizedEmbedding(Quantized):
    """Computes `Embedding` and `ReversibleEmbedding` with vectors quantized to 4 or 8 bits.

    A lookup dequantizes only the vectors of its ids. With "int8" the scores of a reverse call are
    computed in integers. The layer has no trainable weights.

    Args:
        layer: the `Embedding` or `ReversibleEmbedding` to quantize.
        quantization: "int8", "int4", or a configuration of `fk.quantizers`.

    Call:
        reverse: as in `ReversibleEmbedding`.

    Shapes:
        Those of the layer. Codes: int8 (v, d), with 4 bits (v, ceil(d / 2)); scales (v,), with
        blocks (v, groups).

    Raises:
        ValueError: for another class of layer, and for an unsupported mode.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> layer = fk.layers.Embedding(10, 4)
        >>> layer = layer.build(jax.random.key(0), jax.ShapeDtypeStruct((None, 3), "int32"))
        >>> quantized = fk.quantize(layer, "int4")
        >>> quantized.embeddings.shape, quantized(jnp.array([[5, 2, 0]])).shape
        ((10, 2), (1, 3, 4))
    """

    twins: ClassVar[tuple[type, ...]] = (Embedding, ReversibleEmbedding)
    modes: ClassVar[tuple[str, ...]] = ("int8", "int4")
    # half precision would round ids to other ids
    _autocast: ClassVar[bool] = False

    embeddings: jax.Array = fk.weight(trainable=False, dtype="int8")
    embeddings_scale: jax.Array = fk.weight(trainable=False)
    embeddings_zero: jax.Array | None = fk.weight(trainable=False, dtype="int8")
    g_idx: jax.Array | None = fk.weight(trainable=False, dtype="float32")
    reverse_embeddings: jax.Array | None = fk.weight(trainable=False, dtype="int8")
    reverse_embeddings_scale: jax.Array | None = fk.weight(trainable=False)
    reverse_embeddings_zero: jax.Array | None = fk.weight(trainable=False)

    def _axes(self) -> tuple[Mapping[str, str], Mapping[str, tuple[int, ...]]]:
        # groups and packed vectors are whole on every device
        grouped = self.g_idx is not None
        letters = {
            "embeddings": "v_",
            "embeddings_scale": "v_" if grouped else "v",
            "embeddings_zero": "v_",
            "reverse_embeddings": "_v",
            "reverse_embeddings_scale": "_v" if grouped else "v",
            "reverse_embeddings_zero": "_v",
        }
        return letters, {}

    @property
    def id_count(self) -> int:
        """Number of ids; `fit` and `predict` check their inputs against this number."""
        return self.layer.input_dim

    def apply(self, *inputs: fk.Tree, **options: fk.Option) -> fk.Output:
        """Returns the `Output` of the layer; rejects concrete ids with fractions."""
        for ids in () if options.get("reverse") else inputs:
            reject_fractions(ids, self._where)
        return super().apply(*inputs, **options)

    def encode(self, layer: Any) -> Self:
        """Returns a copy with the quantized vectors of a built layer."""
        codes, scale, zero = self._codes(layer.embeddings, 0)
        weights = {"embeddings": codes.T, "embeddings_scale": scale.T}
        if zero is not None:
            groups = np.arange(layer.output_dim) // self.quantization.block_size
            weights |= {"embeddings_zero": zero.T, "g_idx": groups.astype("float32")}
        reverse = getattr(layer, "reverse_embeddings", None)
        if reverse is not None:
            codes, scale, zero = self._codes(reverse, 1)
            weights |= {"reverse_embeddings": codes, "reverse_embeddings_scale": scale}
            if zero is not None:  # floats, as in Keras
                weights["reverse_embeddings_zero"] = zero.astype(scale.dtype)
        return self._coded(**weights)

    def _codes(self, vectors: Any, axis: int) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Returns codes, scales and zero points, the vectors along their last axes.

        Args:
            vectors: the vectors along an axis, (v, d) or (d, v).
            axis: the axis of v.
        """
        # slice by slice: the steps to the codes take several times the memory of the floats
        count = vectors.shape[axis]
        size = max(1, _SLICE // max(1, vectors.shape[1 - axis]))
        slices = []
        for start in range(0, count, size) or (0,):
            part = jax.lax.dynamic_slice_in_dim(vectors, start, min(size, count - start), axis)
            slices.append(self._codes_of(part.T if axis == 0 else part))
        if len(slices) == 1:
            return slices[0]
        codes, scale, zero = zip(*slices, strict=True)
        join = functools.partial(jnp.concatenate, axis=-1)
        return join(codes), join(scale), None if zero[0] is None else join(zero)

    def _codes_of(self, matrix: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array | None]:
        """Returns codes, scales and zero points of a matrix (d, v)."""
        block = getattr(self.quantization, "block_size", None)
        if block is not None:
            codes, scale, zero = abs_max_quantize_grouped_with_zero_point(matrix, block)
            return pack_int4(codes), scale, zero
        codes, scale = self.quantization.coder(matrix, axis=0)
        return codes if self.quantization.mode == "int8" else pack_int4(codes), scale[0], None

    def _floats(self, codes: jax.Array, scale: jax.Array, zero: fk.Leaf) -> jax.Array:
        """Dequantizes vectors, given codes (..., d)."""
        dtype = self.policy.compute_dtype
        if self.quantization.mode == "int4":
            codes = int4_codes(codes, self.layer.output_dim, axis=-1)
        if zero is not None:
            assert self.g_idx is not None  # zeros and groups come together
            return dequantize_groups(codes, scale.astype(dtype), zero, self.g_idx, axis=-1)
        return codes.astype(dtype) / scale.astype(dtype)[..., None]

    def dequantize(self) -> fk.Layer:
        codes, scale, zero = self.embeddings, self.embeddings_scale, self.embeddings_zero
        weights = {"embeddings": self._floats(codes, scale, zero)}
        if self.reverse_embeddings is not None:
            scale, zero = self.reverse_embeddings_scale, self.reverse_embeddings_zero
            assert scale is not None
            scale, zero = scale.T, None if zero is None else zero.T
            weights["reverse_embeddings"] = self._floats(self.reverse_embeddings.T, scale, zero).T
        dtype = self.policy.variable_dtype
        weights = {name: value.astype(dtype) for name, value in weights.items()}
        return self.floating(**weights)

    @property
    def has_packed_codes(self) -> bool:
        return (
            self.quantization.mode == "int4" and getattr(self.embeddings, "dtype", None) == "int8"
        )

    def unpacked(self) -> Self:
        if not self.has_packed_codes:
            return self
        weights = {}
        for name, axis in (("embeddings", 1), ("reverse_embeddings", 0)):
            codes = getattr(self, name)
            if codes is not None:
                weights[name] = int4_codes(codes, self.layer.output_dim, axis).astype("int4")
            for factor in (f"{name}_scale", f"{name}_zero"):
                array = getattr(self, factor)
                weights[factor] = None if array is None else array.astype("float32")
            scale = weights[f"{name}_scale"]
            if self.g_idx is not None and scale is not None:
                block = self.quantization.block_size
                weights[f"{name}_scale"] = checked(scale, self.g_idx, block)
        return self._with_codes(**weights)

    def forward(self, context: fk.Context, x: jax.Array, *, reverse: bool = False) -> fk.Output:
        if reverse and isinstance(self.layer, ReversibleEmbedding):
            return fk.Output(self._scores(x), mask=context.mask)
        # gather codes and scales first: dequantizing the whole table would cost its full size
        zero = None if self.embeddings_zero is None else embed(x, self.embeddings_zero)
        codes, scale = embed(x, self.embeddings), embed(x, self.embeddings_scale)
        mask = x != 0 if self.layer.mask_zero else None
        return fk.Output(self._floats(codes, scale, zero), mask=both_masks(context.mask, mask))

    def _packed_scores(self, x: jax.Array) -> jax.Array | None:
        """Returns the scores of few rows, computed with 4-bit codes; None for other scores."""
        if self.quantization.mode != "int4" or self.quantization.activation_quantizer is not None:
            return None
        tied, block = self.reverse_embeddings is None, self.quantization.block_size
        arrays = (
            (self.embeddings, self.embeddings_scale, self.embeddings_zero)
            if tied
            else (
                self.reverse_embeddings,
                self.reverse_embeddings_scale,
                self.reverse_embeddings_zero,
            )
        )
        codes, scale, zero = arrays
        assert codes is not None
        assert scale is not None
        if self.has_packed_codes:
            scale = scale.astype(x.dtype)
            if self.g_idx is not None:
                x = checked(x, self.g_idx, block)
        form = PackedProduct(block, "inputs", 0 if tied else 1)
        return packed_product(form, x, codes, scale, zero)

    def _scores(self, x: jax.Array) -> jax.Array:
        self.layer.check_vectors(x)
        x = x.astype(self.policy.compute_dtype)
        reverse_codes, back_scale = self.reverse_embeddings, self.reverse_embeddings_scale
        # tied: the transposed table serves as the kernel of the reverse product
        tied = reverse_codes is None
        scale = self.embeddings_scale if back_scale is None else back_scale
        quantizer = self.quantization.activation_quantizer
        equation = Equation.parse("...x,xy->...y").spelled(x.ndim)
        if self.quantization.mode == "int8" and quantizer is not None:
            # the transpose of a table would be a copy
            equation = Equation.parse("...x,yx->...y").spelled(x.ndim) if tied else equation
            codes = self.embeddings if tied else reverse_codes
            scale = arrange(scale.astype(x.dtype), "y", equation.output)
            y = integer_product(equation, quantizer, x, codes, scale)
        elif (packed := self._packed_scores(x)) is not None:
            y = packed
        else:
            floats: Any = self.dequantize()
            kernel = floats.embeddings.T if tied else floats.reverse_embeddings
            kernel = kernel.astype(x.dtype)
            if quantizer is None:
                y = jnp.einsum(equation.text, x, kernel)
            else:
                y = rounded_product(equation, quantizer, x, kernel)
        cap = self.layer.logit_soft_cap
        return y if cap is None else soft_cap(y, cap)
