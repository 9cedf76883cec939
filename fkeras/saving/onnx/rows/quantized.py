"""Rows of layers with quantized weights.

Layers that also quantize their inputs have a scale for each row, computed in each call: JAX's program
of the layer, with ONNX's product of integers. The row here covers quantized kernels alone.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import numpy as np

from fkeras import layers
from fkeras.saving.onnx.rows.core import finish_dense


def quantized_dense(call: Any) -> Any:
    """QuantizedDense of a Dense with an int8 kernel and float inputs."""
    (x,), layer, w = call.inputs, call.layer, call.writer
    inner, scheme = layer.layer, layer.quantization
    if type(inner) is not layers.Dense or scheme.mode != "int8" or x.dtype != "float32":
        return NotImplemented
    if scheme.activation_quantizer is not None:
        return NotImplemented
    codes = np.asarray(layer.kernel)
    # the codes of fkeras are divided by their scale, those of ONNX multiplied
    scale = (1 / np.asarray(layer.kernel_scale, "float64")).astype("float32").reshape(-1)
    zero = np.zeros(scale.shape, "int8")
    kernel = w.emit(
        "DequantizeLinear", codes, scale, zero, dims=codes.shape, dtype="float32", axis=1
    )
    return finish_dense(call, inner.activation, x, kernel, layer.bias)


ROWS: types.MappingProxyType[type, Callable[[Any], Any]] = types.MappingProxyType(
    {layers.QuantizedDense: quantized_dense}
)
