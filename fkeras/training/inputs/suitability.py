"""Warns of losses and optimizers that cannot train the model, and of layers without statistics."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fkeras import activations, layers, losses
from fkeras.engine import Layer, Network, sublayers, trainable_weights
from fkeras.engine.graph.call_table import Call
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.values.spec import Spec
from fkeras.optimizers import LossScaleOptimizer
from fkeras.training.step.outputs import Head, heads, require_network

if TYPE_CHECKING:
    from fkeras.training.trainer import Trainer

_BINARY = (losses.BinaryCrossentropy, losses.BinaryFocalCrossentropy)
_CATEGORICAL = (
    losses.CategoricalCrossentropy,
    losses.CategoricalFocalCrossentropy,
    losses.CategoricalGeneralizedCrossEntropy,
    losses.SparseCategoricalCrossentropy,
)

_PROBABILITIES = (
    activations.hard_sigmoid,
    activations.sigmoid,
    activations.softmax,
    activations.sparse_sigmoid,
    activations.sparsemax,
)
# categorical losses divide predictions by their sum: positive numbers are valid shares
_SHARES = (activations.exponential, activations.softplus, activations.squareplus)

_MOVES = (layers.Dropout, layers.Flatten, layers.Identity, layers.Permute, layers.Reshape)
_MOVING_OPERATIONS = ("cast", "expand_dims", "reshape", "squeeze", "transpose")
_ACTIVATION_LAYERS = (
    (layers.ELU, activations.elu),
    (layers.LeakyReLU, activations.leaky_relu),
    (layers.PReLU, activations.leaky_relu),
    (layers.ReLU, activations.relu),
    (layers.Softmax, activations.softmax),
)


def warn_if_unsuitable(trainer: Trainer, model: Layer, stacklevel: int) -> None:
    """Warns of each output whose loss cannot train; the warning shows the line to write."""
    if trainer.objective is not None:  # the loss is any function of the model
        return
    network = require_network(model)
    for head, slot in zip(heads(trainer, model), network.graph.output_slots, strict=True):
        advice = None if head.loss is None else _advice(head, *_last_layer(network, slot))
        if advice is not None:
            warnings.warn(
                f"Trainer.init, output {head.name!r}: {advice}", stacklevel=stacklevel + 1
            )


def warn_if_not_adapted(model: Any, stacklevel: int) -> None:
    """Warns of each `Normalization` that returns its input, as nothing gave it statistics."""
    for path, layer in sublayers(model):
        if isinstance(layer, layers.Normalization) and layer.mean is None:
            warnings.warn(
                f"Trainer.init, {path or layer._where!r}: this Normalization has no statistics and "
                "returns its input. Before the model is made, write `layer = "
                "layers.Normalization().adapt(x)`; adapt returns a new layer. For statistics from a "
                "file, write `run = trainer.init(model, key, state=state)`.",
                stacklevel=stacklevel + 1,
            )


def warn_if_unscaled(trainer: Trainer, model: Layer, stacklevel: int) -> None:
    """Warns of a model that trains in float16, where small gradients become 0, without a loss scale."""
    optimizer = trainer.optimizer
    scales = isinstance(optimizer, LossScaleOptimizer) or getattr(
        optimizer, "loss_scale_factor", None
    )
    if trainer.objective is not None or scales:  # an objective may scale the loss itself
        return
    halves = (p for p, x in sublayers(model) if x.policy.compute_dtype == "float16")
    path = next((p for p in halves if p), None)
    if path is not None and trainable_weights(model):
        warnings.warn(
            f"Trainer.init, {path!r}: computes in float16, where small gradients become 0. Write "
            "optimizer=fk.optimizers.LossScaleOptimizer(optimizer), or take the dtype "
            '"mixed_bfloat16", which needs no loss scale.',
            stacklevel=stacklevel + 1,
        )


def _advice(head: Head, call: Call, layer: Layer, spec: Spec) -> str | None:
    """Returns what is wrong with a loss over the outputs of a layer, and the line to write."""
    activation = _activation(layer)
    loss, label = head.loss, type(head.loss).__name__
    source = f"activation {getattr(activation, '__name__', '?')!r} in layer {call.layer!r}"
    binary, categorical = type(loss) in _BINARY, type(loss) in _CATEGORICAL
    if categorical and _size(head.spec, loss.axis) == 1:
        return (
            f"expected 2 or more classes for {label}, received 1 unit, whose loss is 0 for every "
            'prediction. For two classes write Dense(1, activation="sigmoid") and '
            'loss="binary_crossentropy"; otherwise write one unit for each class.'
        )
    if activation is activations.softmax and _size(spec, _softmax_axis(call, layer)) == 1:
        return (
            f"expected 2 or more units for {source}, received 1 unit, whose softmax is 1 for "
            'every input. Write activation="sigmoid".'
        )
    if not (binary or categorical) or activation is None:
        return None
    wanted = "sigmoid" if binary else "softmax"
    if getattr(loss, "from_logits", False):
        if activation in _PROBABILITIES:
            return (
                f"expected logits for {label}(from_logits=True), received the probabilities of "
                f"{source}. Write loss=fk.losses.{label}(), or remove the activation."
            )
        return None
    if activation in _PROBABILITIES or (categorical and activation in _SHARES):
        return None
    remedy = f'Write activation="{wanted}"'
    if activation is activations.linear and hasattr(loss, "from_logits"):
        remedy = f"Write loss=fk.losses.{label}(from_logits=True), or "
        remedy += f'activation="{wanted}"'
    return f"expected probabilities for {label}, received the outputs of {source}. {remedy}."


def _last_layer(model: Network, slot: int) -> tuple[Call, Layer, Spec]:
    """Returns the call that computes the values of an output, its layer, and the values' spec.

    Layers that only move values are passed.
    """
    number, index = model.graph.producer(slot)
    call = model.graph.calls[number]
    layer = model.layers[call.layer]
    if _moves(layer) and len(call.inputs) == 1:
        return _last_layer(model, call.inputs[0])
    while isinstance(layer, layers.TimeDistributed):
        layer = layer.layer
    if isinstance(layer, Network) and layer.graph is not None:
        return _last_layer(layer, layer.graph.output_slots[index])
    return call, layer, model.graph.specs[slot]


def _moves(layer: Layer) -> bool:
    if isinstance(layer, Operation):
        return layer.op.name in _MOVING_OPERATIONS
    is_linear = isinstance(layer, layers.Activation) and layer.activation is activations.linear
    return is_linear or isinstance(layer, _MOVES)


def _activation(layer: Layer) -> Callable | None:
    """Returns the function of this package that makes a layer's outputs; None if unknown."""
    if isinstance(layer, Operation):
        function = getattr(activations, layer.op.name, None)
    elif isinstance(layer, tuple(kind for kind, _ in _ACTIVATION_LAYERS)):
        function = next(f for kind, f in _ACTIVATION_LAYERS if isinstance(layer, kind))
    elif hasattr(layer, "recurrent_activation"):  # gates multiply the activation
        return None
    else:
        # a layer of the user may do anything after its activation
        own = type(layer).__module__.startswith("fkeras.layers.")
        function = getattr(layer, "activation", None) if own else None
    is_known = getattr(function, "__module__", "").startswith("fkeras.activations.")
    return function if is_known else None


def _softmax_axis(call: Call, layer: Layer) -> Any:
    if isinstance(layer, Operation):
        return next(iter((*call.args.children[1:], *call.options.children)), -1)
    return layer.axis if isinstance(layer, layers.Softmax) else -1


def _size(spec: Spec, axis: Any) -> Any:
    """Returns the number of entries along an axis or axes; None if unknown."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    if not all(isinstance(a, int) and -len(spec.dims) <= a < len(spec.dims) for a in axes):
        return None
    sizes = {spec.dims[a] for a in axes}
    return sizes.pop() if len(sizes) == 1 else None
