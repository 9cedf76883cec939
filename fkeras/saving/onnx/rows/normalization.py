"""Rows of normalizations."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fkeras import layers
from fkeras.saving.onnx.rows.windows import channels_back, channels_second


def batch_normalization(call: Any) -> Any:
    """BatchNormalization with its moving statistics."""
    (x,), layer, w = call.inputs, call.layer, call.writer
    if layer.policy.compute_dtype != "float32" or x.dtype != "float32":
        return NotImplemented
    axis = layer.axis % x.ndim
    mean, variance = (
        np.asarray(call.state[f"moving_{n}"], "float32") for n in ("mean", "variance")
    )
    scale = np.ones_like(mean) if layer.gamma is None else np.asarray(layer.gamma)
    shift = np.zeros_like(mean) if layer.beta is None else np.asarray(layer.beta)
    if axis != 1 and not w.is_transposed(x):
        # one product and one sum, where no transpose to ONNX's axes would cancel
        factor = scale / np.sqrt(variance.astype("float64") + layer.epsilon)
        rest = (shift - mean * factor).astype("float32")
        sizes = [-1 if a == axis else 1 for a in range(x.ndim)]
        y = w.emit("Mul", x, factor.astype("float32").reshape(sizes), dims=x.dims)
        return w.emit("Add", y, rest.reshape(sizes), dims=x.dims)
    data_format = "channels_first" if axis == 1 else None
    if axis not in (1, x.ndim - 1):
        return NotImplemented
    y = channels_second(w, x, data_format)
    y = w.emit(
        "BatchNormalization",
        y,
        scale,
        shift,
        mean,
        variance,
        dims=y.dims,
        epsilon=float(layer.epsilon),
    )
    return channels_back(w, y, data_format)


def layer_normalization(call: Any) -> Any:
    """LayerNormalization over the last axis."""
    (x,), layer, w = call.inputs, call.layer, call.writer
    last = layer.axis in (-1, (-1,), x.ndim - 1, (x.ndim - 1,))
    if not last or layer.rms_scaling or not x.dtype == layer.policy.compute_dtype == "float32":
        return NotImplemented
    size = x.dims[-1]
    scale = np.ones(size, "float32") if layer.gamma is None else np.asarray(layer.gamma)
    shift = None if layer.beta is None else np.asarray(layer.beta)
    return w.emit(
        "LayerNormalization", x, scale, shift, dims=x.dims, axis=-1, epsilon=float(layer.epsilon)
    )


ROWS: types.MappingProxyType[type, Callable[[Any], Any]] = types.MappingProxyType(
    {
        layers.BatchNormalization: batch_normalization,
        layers.LayerNormalization: layer_normalization,
    }
)
