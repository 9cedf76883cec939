"""Converts the arrays of layers of Keras 1 and 2 to the layout of Keras 3.

Keras 1 stored one matrix per gate of a recurrent layer, and kernels with Theano's order of axes;
Theano's convolutions flip kernels; cuDNN layers store transposed kernels and two biases.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fkeras.authoring.saving import Origin
from fkeras.engine import Layer

#: order of the gates in Keras 3 as indices into Keras 1's order, which is i, c, f, o for LSTM
_GATES = (("LSTM", (0, 2, 1, 3)), ("ConvLSTM2D", (0, 2, 1, 3)), ("GRU", (0, 1, 2)))
#: layers whose kernels Theano flips
_FLIPPED = ("Conv1D", "Conv2D", "Conv3D", "Conv2DTranspose", "ConvLSTM2D")

Shape = tuple[int, ...]


def stored_count(layer: Layer, count: int, origin: Origin, apart: bool) -> int:
    """Returns the number of arrays in a file for a layer with `count` arrays in fkeras.

    Args:
        apart: whether Keras 1 stored one array for each gate of a recurrent layer.
    """
    gates = dict(_GATES).get(type(layer).__name__)
    if origin.major == 1 and apart and gates and count:
        return len(gates) * count
    return count


def converted(
    layer: Layer, arrays: Sequence[np.ndarray], shapes: Sequence[Shape], origin: Origin
) -> list[np.ndarray]:
    """Converts a layer's arrays to the layout of fkeras.

    Returns:
        One array for each shape; the caller checks the shapes.
    """
    class_name, converted_arrays = type(layer).__name__, list(arrays)
    if not converted_arrays:
        return converted_arrays
    # Gates are joined first: the steps after it expect one kernel at index 0.
    if origin.major == 1:
        converted_arrays = _join_gates(class_name, converted_arrays, len(shapes))
        converted_arrays[0] = _first_kernel(layer, class_name, converted_arrays[0], shapes[0])
        if class_name == "ConvLSTM2D" and len(converted_arrays) > 1 and _is_channels_first(layer):
            converted_arrays[1] = (
                np.transpose(converted_arrays[1], (2, 3, 1, 0))
                if converted_arrays[1].ndim == 4
                else converted_arrays[1]
            )
    if origin.backend == "theano" and class_name in _FLIPPED:
        # The recurrent kernel of a ConvLSTM2D is a convolution kernel too.
        for index in (0, 1) if class_name == "ConvLSTM2D" else (0,):
            converted_arrays[index] = turned(converted_arrays[index])
    if class_name in ("LSTM", "GRU") and len(converted_arrays) == 3:
        return from_cudnn(class_name, converted_arrays)
    return converted_arrays


def turned(kernel: np.ndarray) -> np.ndarray:
    """Reverses the spatial axes of a kernel: Theano convolves, other backends cross-correlate."""
    spatial = max(kernel.ndim - 2, 0)
    return np.ascontiguousarray(kernel[(slice(None, None, -1),) * spatial])


def _is_channels_first(layer: Layer) -> bool:
    return getattr(layer, "data_format", None) == "channels_first"


def _join_gates(kind: str, arrays: list[np.ndarray], count: int) -> list[np.ndarray]:
    """Concatenates the gates: one kernel, recurrent kernel and bias from one of each per gate."""
    order = dict(_GATES).get(kind)
    if order is None or count == 0 or len(arrays) != count * len(order):
        return arrays
    return [np.concatenate([arrays[g * count + r] for g in order], -1) for r in range(count)]


def _first_kernel(layer: Layer, kind: str, kernel: np.ndarray, shape: Shape) -> np.ndarray:
    """Returns a kernel of Keras 1 with the axes (spatial..., c, f)."""
    channels_first = _is_channels_first(layer)
    if kind == "Conv1D" and kernel.ndim == 4:
        # Keras 1 ran Conv1D as a 2D convolution: its kernel has an extra spatial axis of size 1.
        if kernel.shape[:2] != (shape[0], 1) or kernel.shape[3] != shape[-1]:
            kernel = np.transpose(kernel, (2, 3, 1, 0))  # Keras before 1.2: (f, c, length, 1)
        return kernel[:, 0]
    # With channels_first, Keras 1 stored kernels in Theano's order (f, c, spatial...).
    if kind in ("Conv2D", "ConvLSTM2D") and channels_first and kernel.ndim == 4:
        return np.transpose(kernel, (2, 3, 1, 0))
    if kind == "Conv2DTranspose" and kernel.ndim == 4:
        return np.transpose(kernel, (2, 3, 0, 1) if channels_first else (0, 1, 3, 2))
    if kind == "Conv3D" and channels_first and kernel.ndim == 5:
        return np.transpose(kernel, (2, 3, 4, 1, 0))
    return kernel


def from_cudnn(kind: str, arrays: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Converts `[kernel, recurrent_kernel, bias]` of a cuDNN LSTM or GRU; returns others unchanged.

    The bias identifies cuDNN's arrays: cuDNN has two biases, for the input and for the state.

    Example:
        >>> arrays = [np.ones((2, 12)), np.ones((3, 12)), np.ones(24)]
        >>> from_cudnn("LSTM", arrays)[2].shape
        (12,)
    """
    kernel, recurrent, bias = arrays
    gates = {"LSTM": 4, "GRU": 3}[kind]
    units = recurrent.shape[0] if recurrent.ndim == 2 else 0
    width = gates * units
    fits = kernel.ndim == 2 and kernel.shape[1] == width and recurrent.shape == (units, width)
    if not (units and fits and bias.shape == (2 * width,)):
        return list(arrays)

    def input_gate(matrix: np.ndarray) -> np.ndarray:
        # The file holds the buffer of the transposed kernel under the original shape.
        return matrix.T.reshape(matrix.shape, order="F")

    kernel = np.hstack([input_gate(k) for k in np.hsplit(kernel, gates)])
    recurrent = np.hstack([k.T for k in np.hsplit(recurrent, gates)])
    # An LSTM only adds the biases; a GRU resets between them, so both are needed.
    biases = bias.reshape(2, width)
    return [kernel, recurrent, biases.sum(0) if kind == "LSTM" else biases]
