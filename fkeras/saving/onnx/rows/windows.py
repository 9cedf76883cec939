"""Rows of convolutions and pooling: channels move to the second axis, where ONNX has them."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fkeras import layers
from fkeras.authoring.engine import Dimension, as_dims, as_structs
from fkeras.nn.convolution import transposed_pads
from fkeras.nn.numerics.axes import spatial_axes
from fkeras.saving.onnx.graph.writer import Value, Writer
from fkeras.saving.onnx.primitives.elementwise import is_float
from fkeras.saving.onnx.rows.core import activate


def channels_second(w: Writer, x: Any, data_format: str | None) -> Any:
    """Moves the channels from the last axis to the second."""
    if data_format == "channels_first":
        return x
    return w.transpose(x, (0, x.ndim - 1, *range(1, x.ndim - 1)))


def channels_back(w: Writer, x: Any, data_format: str | None) -> Any:
    """Moves the channels from the second axis to where the layer has them."""
    if data_format == "channels_first":
        return x
    return w.transpose(x, (0, *range(2, x.ndim), 1))


def same_pads(
    sizes: Sequence[Dimension], extents: Sequence[int], strides: Sequence[int]
) -> dict[str, Any]:
    """Returns the attributes of padding "same": numbers where the sizes are known."""
    if any(isinstance(n, str) and s > 1 for n, s in zip(sizes, strides, strict=True)):
        return {"auto_pad": "SAME_UPPER"}
    totals = []
    for size, extent, stride in zip(sizes, extents, strides, strict=True):
        # with a stride of 1 the padding does not depend on the size
        last = 0 if isinstance(size, str) else -(-size // stride) * stride - stride - size + 1
        totals.append(max(extent - 1 + last if isinstance(size, int) else extent - 1, 0))
    return {"pads": [*(t // 2 for t in totals), *(t - t // 2 for t in totals)]}


def _pads(layer: Any, x: Value, kernel_size: Sequence[int], dilation: Sequence[int]) -> dict:
    extents = [(k - 1) * d + 1 for k, d in zip(kernel_size, dilation, strict=True)]
    if layer.padding == "causal":
        return {"pads": [extents[0] - 1, 0]}
    if layer.padding == "valid":
        return {"pads": [0] * (2 * len(extents))}
    return same_pads(x.dims[2:], extents, layer.strides)


def _sizes(x: Value, extents: Sequence[int], strides: Sequence[int], pads: dict) -> tuple:
    """Returns the spatial sizes of the output."""
    found = []
    rank = len(extents)
    for axis, size in enumerate(symbolic(x)[2:]):
        extent, stride = extents[axis], strides[axis]
        if "auto_pad" in pads:
            found.append((size + stride - 1) // stride)
        else:
            extra = pads["pads"][axis] + pads["pads"][axis + rank] - extent
            found.append((size + extra) // stride + 1)
    return as_dims(found)


def symbolic(x: Value) -> tuple:
    """Returns the sizes of a tensor as numbers and symbolic sizes of JAX, for arithmetic."""
    (struct,) = as_structs([x.spec], ())
    assert struct is not None
    return struct.shape


def _convolve(
    call: Any, x: Any, kernel: Any, bias: Any, group: int, filters: int, strides: Any, pads: dict
) -> Any:
    """Emits a convolution of an input with channels second; the kernel is that of the layer."""
    w, layer = call.writer, call.layer
    rank = kernel.ndim - 2
    weights = np.ascontiguousarray(np.moveaxis(kernel, (-1, -2), (0, 1)))
    dilation = layer.dilation_rate if strides is not None else (1,) * rank
    strides = (1,) * rank if strides is None else strides
    extents = [(k - 1) * d + 1 for k, d in zip(kernel.shape[:rank], dilation, strict=True)]
    return w.emit(
        "Conv",
        x,
        weights,
        bias,
        dims=[x.dims[0], filters, *_sizes(x, extents, strides, pads)],
        group=group,
        strides=list(strides),
        dilations=list(dilation),
        **pads,
    )


def _start(call: Any, kernel: Any) -> Any:
    """The input with channels second, in the dtype of the kernel."""
    w = call.writer
    (x,) = call.inputs
    return channels_second(w, w.cast(x, str(kernel.dtype)), call.layer.data_format)


def _end(call: Any, y: Any) -> Any:
    y = channels_back(call.writer, y, call.layer.data_format)
    return activate(call, call.layer.activation, y)


def convolution(call: Any) -> Any:
    """Conv1D, Conv2D, Conv3D."""
    layer = call.layer
    kernel = np.asarray(layer.kernel)
    x = _start(call, kernel)
    bias = None if layer.bias is None else np.asarray(layer.bias)
    pads = _pads(layer, x, layer.kernel_size, layer.dilation_rate)
    y = _convolve(call, x, kernel, bias, layer.groups, layer.filters, layer.strides, pads)
    return _end(call, y)


def depthwise(call: Any) -> Any:
    """DepthwiseConv1D, DepthwiseConv2D."""
    layer = call.layer
    kernel = np.asarray(layer.kernel)
    x = _start(call, kernel)
    bias = None if layer.bias is None else np.asarray(layer.bias)
    return _end(call, _depthwise(call, x, kernel, bias))


def _depthwise(call: Any, x: Any, kernel: Any, bias: Any) -> Any:
    channels, multiplier = kernel.shape[-2:]
    grouped = kernel.reshape(*kernel.shape[:-2], 1, channels * multiplier)
    pads = _pads(call.layer, x, call.layer.kernel_size, call.layer.dilation_rate)
    filters = channels * multiplier
    return _convolve(call, x, grouped, bias, channels, filters, call.layer.strides, pads)


def separable(call: Any) -> Any:
    """SeparableConv1D, SeparableConv2D."""
    layer = call.layer
    kernel = np.asarray(layer.depthwise_kernel)
    y = _depthwise(call, _start(call, kernel), kernel, None)
    bias = None if layer.bias is None else np.asarray(layer.bias)
    pads = {"pads": [0] * (2 * layer.rank)}
    y = _convolve(call, y, np.asarray(layer.pointwise_kernel), bias, 1, layer.filters, None, pads)
    return _end(call, y)


def transposed(call: Any) -> Any:
    """Conv1DTranspose, Conv2DTranspose, Conv3DTranspose.

    ONNX's operator crops what `pads` names from the full result, and `output_padding` adds cells at
    the end.
    """
    layer, w = call.layer, call.writer
    kernel = np.asarray(layer.kernel)
    x = _start(call, kernel)
    paddings = layer.output_padding or (None,) * layer.rank
    before, after, extra, sizes = [], [], [], []
    for axis, size in enumerate(symbolic(x)[2:]):
        stride = layer.strides[axis]
        extent = (kernel.shape[axis] - 1) * layer.dilation_rate[axis] + 1
        low, high = transposed_pads(extent, stride, layer.padding, paddings[axis])
        # the cells that the full result has beyond the borders
        begin, end = extent - 1 - low, extent - 1 - high
        before.append(begin)
        after.append(max(end, 0))
        extra.append(max(-end, 0))
        sizes.append((size - 1) * stride + extent - begin - end)
    # ONNX Runtime asks for added cells below the strides: further cells are those of a border
    if any(
        n >= max(s, d) for n, s, d in zip(extra, layer.strides, layer.dilation_rate, strict=True)
    ):
        return NotImplemented
    y = w.emit(
        "ConvTranspose",
        x,
        np.ascontiguousarray(np.moveaxis(kernel, (-1, -2), (0, 1))),
        None if layer.bias is None else np.asarray(layer.bias),
        dims=[x.dims[0], layer.filters, *as_dims(sizes)],
        strides=list(layer.strides),
        dilations=list(layer.dilation_rate),
        pads=[*before, *after],
        output_padding=extra,
    )
    return _end(call, y)


def pooling(op: str) -> Callable[[Any], Any]:
    """MaxPooling and AveragePooling."""

    def row(call: Any) -> Any:
        w, layer = call.writer, call.layer
        (x,) = call.inputs
        if op == "MaxPool" and not is_float(x.dtype):
            # ONNX pools floats: exact for integers up to 2**24
            return NotImplemented
        if op == "AveragePool":
            x = w.cast(x, layer.policy.compute_dtype)
        x = channels_second(w, x, layer.data_format)
        size, strides = layer.pool_size, layer.strides
        pads = {"pads": [0] * (2 * layer.rank)}
        if layer.padding == "same":
            pads = same_pads(x.dims[2:], size, strides)
        sizes = _sizes(x, size, strides, pads)
        y = w.emit(
            op,
            x,
            dims=[*x.dims[:2], *sizes],
            kernel_shape=list(size),
            strides=list(strides),
            **pads,
        )
        return channels_back(w, y, layer.data_format)

    return row


def global_pooling(kind: str) -> Callable[[Any], Any]:
    """GlobalMaxPooling and GlobalAveragePooling."""

    def row(call: Any) -> Any:
        (x,), layer = call.inputs, call.layer
        if call.mask is not None or not is_float(x.dtype):
            return NotImplemented
        axes = spatial_axes(x.ndim, layer.data_format)
        return call.writer.reduce(kind, x, axes, keep=layer.keepdims)

    return row


ROWS: types.MappingProxyType[type, Callable[[Any], Any]] = types.MappingProxyType(
    {
        **dict.fromkeys((layers.Conv1D, layers.Conv2D, layers.Conv3D), convolution),
        **dict.fromkeys((layers.DepthwiseConv1D, layers.DepthwiseConv2D), depthwise),
        **dict.fromkeys((layers.SeparableConv1D, layers.SeparableConv2D), separable),
        **dict.fromkeys(
            (layers.Conv1DTranspose, layers.Conv2DTranspose, layers.Conv3DTranspose), transposed
        ),
        **dict.fromkeys(
            (layers.MaxPooling1D, layers.MaxPooling2D, layers.MaxPooling3D), pooling("MaxPool")
        ),
        **dict.fromkeys(
            (layers.AveragePooling1D, layers.AveragePooling2D, layers.AveragePooling3D),
            pooling("AveragePool"),
        ),
        **dict.fromkeys(
            (layers.GlobalMaxPooling1D, layers.GlobalMaxPooling2D, layers.GlobalMaxPooling3D),
            global_pooling("Max"),
        ),
        **dict.fromkeys(
            (
                layers.GlobalAveragePooling1D,
                layers.GlobalAveragePooling2D,
                layers.GlobalAveragePooling3D,
            ),
            global_pooling("Mean"),
        ),
    }
)
