"""Rows of dense layers and activations."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fkeras import activations, layers

_NONE: Mapping[str, Any] = types.MappingProxyType({})
# the activations with an operator of ONNX; JAX traces all others
_OPERATORS: tuple[tuple[Any, str, Mapping[str, Any]], ...] = (
    (activations.relu, "Relu", _NONE),
    (activations.sigmoid, "Sigmoid", _NONE),
    (activations.tanh, "Tanh", _NONE),
    (activations.softmax, "Softmax", {"axis": -1}),
    (activations.log_softmax, "LogSoftmax", {"axis": -1}),
    (activations.elu, "Elu", {"alpha": 1.0}),
    (activations.softplus, "Softplus", _NONE),
    (activations.softsign, "Softsign", _NONE),
    (activations.hard_sigmoid, "HardSigmoid", {"alpha": 1 / 6, "beta": 0.5}),
)


def activate(call: Any, function: Any, y: Any) -> Any:
    """Emits an activation function."""
    if function is None or function == activations.linear:
        return y
    for known, op, attributes in _OPERATORS:
        if function == known and y.dtype in ("float32", "float16", "float64"):
            return call.writer.emit(op, y, dims=y.dims, **attributes)
    return call.traced(function, y)


def dense(call: Any) -> Any:
    """Dense."""
    (x,), layer = call.inputs, call.layer
    kernel = np.asarray(layer.kernel)
    x = call.writer.cast(x, str(kernel.dtype))
    return finish_dense(call, layer.activation, x, kernel, layer.bias)


def finish_dense(call: Any, function: Any, x: Any, kernel: Any, bias: Any) -> Any:
    """Emits `function(x @ kernel + bias)`."""
    w = call.writer
    y = w.emit("MatMul", x, kernel, dims=[*x.dims[:-1], kernel.shape[-1]])
    if bias is not None:
        y = w.emit("Add", y, np.asarray(bias, y.dtype), dims=y.dims)
    return activate(call, function, y)


def activation(call: Any) -> Any:
    """Activation, without a mask that it reads."""
    (x,) = call.inputs
    return activate(call, call.layer.activation, x)


def softmax(call: Any) -> Any:
    """Softmax over one axis, without a mask."""
    (x,), axis = call.inputs, call.layer.axis
    if call.mask is not None or isinstance(axis, tuple):
        return NotImplemented
    return call.writer.emit("Softmax", x, dims=x.dims, axis=axis)


ROWS: types.MappingProxyType[type, Callable[[Any], Any]] = types.MappingProxyType(
    {layers.Dense: dense, layers.Activation: activation, layers.Softmax: softmax}
)
