"""Rows of recurrent layers without a mask: ONNX's LSTM, GRU and RNN.

A sequence with a mask is a loop over its steps, exact for every mask: JAX's program of the layer.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fkeras import activations, layers
from fkeras.saving.onnx.graph.writer import Operand, Value

# ONNX's names of activations, with alpha and beta
_ACTIVATIONS: tuple[tuple[Any, str, float, float], ...] = (
    (activations.tanh, "Tanh", 0.0, 0.0),
    (activations.sigmoid, "Sigmoid", 0.0, 0.0),
    (activations.relu, "Relu", 0.0, 0.0),
    (activations.linear, "Affine", 1.0, 0.0),
    (activations.hard_sigmoid, "HardSigmoid", 1 / 6, 0.5),
    (activations.softsign, "Softsign", 0.0, 0.0),
)
# for each class: ONNX's operator, the blocks of the kernel in ONNX's order, the gate functions
_CLASSES: tuple[tuple[type, str, tuple[int, ...]], ...] = (
    (layers.LSTM, "LSTM", (0, 3, 1, 2)),
    (layers.GRU, "GRU", (0, 1, 2)),
    (layers.SimpleRNN, "RNN", (0,)),
)


def recurrent(call: Any) -> Any:
    """LSTM, GRU, SimpleRNN."""
    layer = call.layer
    if call.mask is not None or not _covers(call, [layer]):
        return NotImplemented
    given = call.options.get("initial_state")
    if given is not None:
        states = list(given) if isinstance(given, list | tuple) else [given]
    elif layer.stateful:
        states = [np.asarray(call.state[key]) for key in sorted(call.state)]
    else:
        states = []
    y, finals = _emit(call, [layer], [states] if states else [])
    if layer.go_backwards and layer.return_sequences:
        y = reverse_time(call.writer, y)
    output = y if layer.return_sequences else finals[0][0]
    return (output, *finals[0]) if layer.return_state else output


def bidirectional(call: Any) -> Any:
    """Bidirectional with two layers of one class: one node for both directions."""
    layer, w = call.layer, call.writer
    pair = [layer.forward_layer, layer.backward_layer]
    plain = not layer.stateful and not call.options and call.mask is None
    if not plain or type(pair[0]) is not type(pair[1]) or pair[0].go_backwards:
        return NotImplemented
    if not _covers(call, pair) or pair[0].activation != pair[1].activation:
        return NotImplemented
    y, finals = _emit(call, pair, [])
    if layer.return_sequences:
        size = pair[0].units
        parts = [w.slice(y, 2, n * size, (n + 1) * size, (*y.dims[:2], size)) for n in range(2)]
        joined = y
    else:
        parts, joined = [finals[0][0], finals[1][0]], None
    merged = _merged(w, layer.merge_mode, parts, joined, pair[0].units)
    if layer.return_state:
        return (*merged, *finals[0], *finals[1])
    return merged if layer.merge_mode is None else merged[0]


def _merged(
    w: Any, mode: str | None, parts: Sequence[Value], joined: Value | None, units: int
) -> tuple:
    first, second = parts
    if mode is None:
        return tuple(parts)
    if mode == "concat":
        dims = (*first.dims[:-1], 2 * units)
        return (w.emit("Concat", first, second, dims=dims, axis=-1) if joined is None else joined,)
    if mode == "mul":
        return (w.emit("Mul", first, second, dims=first.dims),)
    total = w.emit("Add", first, second, dims=first.dims)
    if mode == "ave":
        total = w.emit("Mul", total, np.float32(0.5), dims=first.dims)
    return (total,)


def reverse_time(w: Any, y: Value) -> Value:
    """Reverses the second axis."""
    least = np.iinfo(np.int64).min
    bounds = [np.array([n], np.int64) for n in (-1, least, 1, -1)]
    return w.emit("Slice", y, *bounds, dims=y.dims)


def _covers(call: Any, pair: Sequence[Any]) -> bool:
    """Whether ONNX has the layers' activations, and ONNX Runtime their dtype."""
    (x,) = call.inputs
    return x.dtype == "float32" and all(
        layer.policy.compute_dtype == "float32"
        and type(layer) in [row[0] for row in _CLASSES]
        and _functions(layer) is not None
        for layer in pair
    )


def _functions(layer: Any) -> list[tuple[Any, str, float, float]] | None:
    """Returns the rows of a layer's activations; None if ONNX lacks one."""
    state = layer.activation or activations.linear
    gates = getattr(layer, "recurrent_activation", None) or activations.linear
    # LSTM: gates, candidate, output
    wanted = {"LSTM": [gates, state, state], "GRU": [gates, state]}
    functions = wanted.get(type(layer).__name__, [state])
    rows = [next((row for row in _ACTIVATIONS if row[0] == f), None) for f in functions]
    return [row for row in rows if row is not None] if None not in rows else None


def _weights(layer: Any, blocks: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns ONNX's three arrays of one direction: kernel, recurrent kernel, biases."""
    units, count = layer.units, len(blocks)

    def ordered(array: Any) -> np.ndarray:
        parts = np.split(np.asarray(array), count, axis=-1)
        return np.concatenate([parts[block] for block in blocks], axis=-1)

    zeros = np.zeros(count * units, "float32")
    bias = zeros if layer.bias is None else layer.bias
    # two rows: biases of the input's product and of the state's product
    rows = [ordered(b) for b in bias] if np.ndim(bias) == 2 else [ordered(bias), zeros]
    return ordered(layer.kernel).T, ordered(layer.recurrent_kernel).T, np.concatenate(rows)


def _emit(
    call: Any, pair: Sequence[Any], states: Sequence[Sequence[Operand]]
) -> tuple[Value, list[list[Value]]]:
    """Returns the outputs of all steps (b, t, directions * u), and the states of each direction."""
    w, (x,), first = call.writer, call.inputs, pair[0]
    op, blocks = next((row[1], row[2]) for row in _CLASSES if row[0] is type(first))
    arrays = zip(*(_weights(layer, blocks) for layer in pair), strict=True)
    kernel, recurrent_kernel, bias = (np.ascontiguousarray(np.stack(a), "float32") for a in arrays)
    batch, steps = x.dims[:2]
    units, count = first.units, len(pair)
    functions = [row for layer in pair for row in _functions(layer) or []]
    if count == 2:
        direction = "bidirectional"
    else:
        direction = "reverse" if first.go_backwards else "forward"
    initial = [_stacked(w, list(group), units) for group in zip(*states, strict=True)]
    attributes: dict[str, Any] = {
        "hidden_size": units,
        "direction": direction,
        "activations": [row[1] for row in functions],
        "linear_before_reset": int(first.reset_after) if op == "GRU" else None,
    }
    # alpha and beta stand only for the activations that have them
    scaled = [row for row in functions if row[1] in ("Affine", "HardSigmoid")]
    if scaled:
        attributes["activation_alpha"] = [row[2] for row in scaled]
        attributes["activation_beta"] = [row[3] for row in scaled]
    final = ((count, batch, units), x.dtype)
    outputs = w.emit_several(
        op,
        w.transpose(x, (1, 0, 2)),
        kernel,
        recurrent_kernel,
        bias,
        None,
        *initial,
        outputs=[
            ((steps, count, batch, units), x.dtype),
            final,
            *([final] if op == "LSTM" else []),
        ],
        **attributes,
    )
    y, *last = outputs
    y = w.transpose(y, (2, 0, 1, 3))
    y = w.reshape(y, (batch, steps, count * units))
    finals = [[_direction(w, value, n) for value in last] for n in range(count)]
    return y, finals


def _stacked(w: Any, states: list[Operand], units: int) -> Operand:
    """Returns one state of all directions, (directions, b, u)."""
    rows = [w.reshape(state, (1, *state.shape)) for state in states]
    if len(rows) == 1:
        return rows[0]
    return w.emit("Concat", *rows, dims=(len(rows), *rows[0].shape[1:]), axis=0)


def _direction(w: Any, value: Value, number: int) -> Value:
    part = w.slice(value, 0, number, number + 1, (1, *value.dims[1:]))
    return w.squeeze(part if value.dims[0] != 1 else value, 0)


ROWS: types.MappingProxyType[type, Callable[[Any], Any]] = types.MappingProxyType(
    {
        **dict.fromkeys((layers.LSTM, layers.GRU, layers.SimpleRNN), recurrent),
        layers.Bidirectional: bidirectional,
    }
)
