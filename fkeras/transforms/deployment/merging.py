"""Layers that compute in inference what two successive layers compute, where one layer can.

Each function returns the layer, or the reason why no layer of Keras computes both.
"""

from __future__ import annotations

import dataclasses
import math
import types
from collections.abc import Mapping
from typing import Any, cast

import jax
import numpy as np
from jax.core import Tracer

from fkeras import layers
from fkeras.activations import linear
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.values.spec import Spec
from fkeras.layers.quantized.base import Quantized
from fkeras.nn.numerics.axes import channel_axis, spatial_axes

#: for each class, the kernel whose outputs a factor for each channel scales, and the shape of the
#: factors on the last axes of the kernel
_SCALED: Mapping[type, tuple[str, Any]] = types.MappingProxyType(
    {
        layers.Dense: ("kernel", lambda kernel: (-1,)),
        layers.Conv1D: ("kernel", lambda kernel: (-1,)),
        layers.Conv2D: ("kernel", lambda kernel: (-1,)),
        layers.Conv3D: ("kernel", lambda kernel: (-1,)),
        # the outputs of a channel are adjacent
        layers.DepthwiseConv1D: ("kernel", lambda kernel: kernel.shape[-2:]),
        layers.DepthwiseConv2D: ("kernel", lambda kernel: kernel.shape[-2:]),
        layers.SeparableConv1D: ("pointwise_kernel", lambda kernel: (-1,)),
        layers.SeparableConv2D: ("pointwise_kernel", lambda kernel: (-1,)),
        # filters come before channels
        layers.Conv1DTranspose: ("kernel", lambda kernel: (-1, 1)),
        layers.Conv2DTranspose: ("kernel", lambda kernel: (-1, 1)),
        layers.Conv3DTranspose: ("kernel", lambda kernel: (-1, 1)),
    }
)
_PADDING = (layers.ZeroPadding1D, layers.ZeroPadding2D, layers.ZeroPadding3D)
_PADDED = (
    layers.Conv1D,
    layers.Conv2D,
    layers.Conv3D,
    layers.DepthwiseConv1D,
    layers.DepthwiseConv2D,
    layers.SeparableConv1D,
    layers.SeparableConv2D,
)


def with_normalization(
    layer: Any, norm: Any, statistics: Mapping[str, Any], output: Spec
) -> Layer | str:
    """Returns a layer that computes `norm(layer(x))` in inference, or the reason why none does.

    The weights are computed in float64 and rounded once. Penalties and constraints leave the layer:
    they belong to the weights before.

    Args:
        statistics: the state of `norm`.
        output: the spec of `layer(x)`.
    """
    name, kind = repr(layer.name), type(layer)
    if type(norm) is not layers.BatchNormalization:
        return f"its class {type(norm).__name__} is a subclass, which may compute something else"
    if isinstance(layer, Quantized):
        return f"{name} has quantized weights: fold first, then quantize"
    if kind not in _SCALED:
        custom = isinstance(layer, tuple(_SCALED))
        why = "is a subclass" if custom else "is neither a convolution nor a Dense"
        return f"it follows {name}, whose class {kind.__name__} {why}"
    if not (layer.built and norm.built):
        return f"{name if norm.built else repr(norm.name)} has no weights: build the model first"
    if layer.activation not in (None, linear):
        return f"{name} has an activation, which comes before the normalization"
    axis = channel_axis(getattr(layer, "data_format", "channels_last"))
    if norm.axis % output.ndim != axis % output.ndim:
        return f"it normalizes axis {norm.axis}, and axis {axis} has the channels of {name}"
    if (computes := norm.policy.compute_dtype) != layer.policy.compute_dtype:
        return f"it computes in {computes}, and {name} in {layer.policy.compute_dtype}"
    field, shape = _SCALED[kind]
    kernel = getattr(layer, field)
    mean, variance = (_wide(statistics[key]) for key in ("moving_mean", "moving_variance"))
    gamma = 1.0 if norm.gamma is None else _wide(norm.gamma)
    beta = 0.0 if norm.beta is None else _wide(norm.beta)
    bias = 0.0 if layer.bias is None else _wide(layer.bias)
    with np.errstate(all="ignore"):  # checked below
        factor = gamma / np.sqrt(variance + norm.epsilon)
        scaled = _rounded(_wide(kernel) * factor.reshape(shape(kernel)), kernel)
        shifted = _rounded((bias - mean) * factor + beta, kernel)
    if not all(np.isfinite(_wide(array)).all() for array in (scaled, shifted)):
        return f"its statistics make weights of {name} that are not finite in {kernel.dtype}"
    return cast(
        Layer, _unpenalized(layer).replace(use_bias=True, **{field: scaled, "bias": shifted})
    )


def is_padding(layer: object) -> bool:
    """Returns whether a layer is a zero padding."""
    return isinstance(layer, _PADDING)


def takes_padding(layer: object) -> bool:
    """Returns whether a layer has a padding of its own for its windows."""
    return isinstance(layer, _PADDED)


def with_padding(padding: Any, layer: Any, source: Spec) -> Layer | str:
    """Returns a layer that computes `layer(padding(x))`, or the reason why none does.

    Args:
        source: the spec of `x`.
    """
    name = repr(layer.name)
    if type(padding) not in _PADDING or type(layer) not in _PADDED:
        custom = layer if type(padding) in _PADDING else padding
        return f"{custom.name!r} is a subclass, which may compute something else"
    if layer.padding != "valid":
        return f"{name} pads too, by {layer.padding!r}"
    if padding.data_format != layer.data_format:
        return f"it pads {padding.data_format}, and {name} reads {layer.data_format}"
    if (computes := padding.policy.compute_dtype) != layer.policy.compute_dtype:
        return f"it computes in {computes}, and {name} in {layer.policy.compute_dtype}"
    pads = (padding.padding,) if padding.rank == 1 else padding.padding
    windows = zip(layer.kernel_size, layer.strides, layer.dilation_rate, strict=True)
    extents = [(1 + (size - 1) * rate, stride) for size, stride, rate in windows]
    if isinstance(layer, layers.Conv1D) and pads == ((extents[0][0] - 1, 0),):
        return cast(Layer, layer.replace(padding="causal"))
    sizes = [source.dims[axis] for axis in spatial_axes(source.ndim, layer.data_format)]
    same = [_same_pads(size, *one) for size, one in zip(sizes, extents, strict=True)]
    if None in same:
        return f"the padding 'same' of {name} depends on the size of the input, which is open"
    if pads != tuple(same):
        return f"it pads {pads}, which {name} cannot: 'same' pads {tuple(same)}"
    return cast(Layer, layer.replace(padding="same"))


def _same_pads(size: int | str, extent: int, stride: int) -> tuple[int, int] | None:
    """Returns the cells that "same" adds before and after an axis; None if the size decides."""
    if stride == 1:
        total = extent - 1
    elif isinstance(size, str):
        return None
    else:
        total = max((math.ceil(size / stride) - 1) * stride + extent - size, 0)
    return total // 2, total - total // 2


def with_shape(first: Any, second: Any, source: Spec) -> Layer | None:
    """Returns a layer that computes `second(first(x))` for two transpositions or two reshapes.

    Args:
        source: the spec of `x`.
    """
    if type(first) is type(second) is layers.Permute:
        return second.replace(dims=tuple(first.dims[dim - 1] for dim in second.dims))
    if _keeps_order(first, source) and _keeps_order(second, source):
        return second
    return None


def is_plain(layer: Any, source: Spec, output: Spec) -> bool:
    """Returns whether a transposition or reshape of `source` to `output` returns its input."""
    if isinstance(layer, layers.Permute):
        return layer.dims == tuple(range(1, source.ndim))
    return source == output


def _keeps_order(layer: Any, source: Spec) -> bool:
    moves_channels = getattr(layer, "data_format", None) == "channels_first" and source.ndim > 2
    return type(layer) in (layers.Reshape, layers.Flatten) and not moves_channels


def _unpenalized(layer: Layer) -> Layer:
    names = (field.name for field in dataclasses.fields(layer))
    return layer.replace(
        **{name: None for name in names if name.endswith(("_regularizer", "_constraint"))}
    )


def _wide(array: Any) -> np.ndarray:
    if isinstance(array, Tracer):
        raise FKerasError(
            "transforms.fold: expected a model of arrays, received a traced array. The weights are "
            "computed with NumPy: fold before jax.jit or jax.grad, and pass the new model to the function."
        )
    return np.asarray(array).astype(np.float64)


def _rounded(array: np.ndarray, like: Any) -> jax.Array:
    return jax.device_put(array.astype(like.dtype))
