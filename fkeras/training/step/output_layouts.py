"""The layout of activations on a device mesh: constraints on the outputs of calls.

Without constraints XLA chooses the layout of an activation, and may move activations where moving
weights is cheaper. The output of a layer whose weights are split by role is split like them: its rows
by the role "batch", its named axes by their roles.

Grouped convolutions compute on whole weights, and on rows split over all devices. XLA's partitioner (in
JAX 0.7 to 0.10) multiplies the gradients of their kernels by the number of devices with the same rows,
and computes wrong outputs from parts of their kernels.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.core import Tracer
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from fkeras.engine import Context, Layer, Output
from fkeras.engine.tree.axes import WHOLE, weight_letters
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.training.records.annotations import Trainer
from fkeras.training.step.sharding_rules import (
    FSDP,
    Entry,
    Rules,
    batch_entry,
    match,
    names_of,
    parts_of,
    role_specs,
)
from fkeras.transforms.intercepting import Intercepted

_FREE = PartitionSpec.UNCONSTRAINED
_GROUPED = ("depthwise_conv", "separable_conv")


def with_output_layouts(trainer: Trainer, model: Layer, original: Layer) -> Any:
    """Returns a model that constrains the outputs of its calls to the layouts by role."""
    mesh = trainer.mesh
    if mesh is None:
        return model
    batch, entries = batch_entry(mesh, trainer.sharding), output_entries(trainer.sharding, original)
    # some devices have the same rows, or a part of the weights
    spreads = trainer.sharding is not None or mesh.size > parts_of(mesh, batch)
    if not entries and not spreads:
        return model

    def around(
        _: str, layer: Layer, context: Context, inputs: tuple, options: Mapping[str, Any]
    ) -> Output:
        # calls inside have this prefix in the places that their contexts name
        prefix = f"{context.where}/"

        def lay_out(
            where: str, layer: Layer, inputs: tuple, compute: Callable[..., Output]
        ) -> Output:
            names = entries.get(where.removeprefix(prefix))
            if spreads and _is_grouped(layer, inputs):
                out = compute(*_spread_call(mesh, layer, inputs))
                return dataclasses.replace(out, value=_spread(mesh, out.value))
            out = compute(layer, inputs)
            if names is None or not isinstance(out.value, Tracer):
                return out
            return dataclasses.replace(out, value=_constrained(mesh, batch, names, out.value))

        context.around = lay_out
        return context.run(layer, *inputs, **options)

    return Intercepted(model, around, name=model.name, trainable=model.trainable, dtype=model.dtype)


def output_entries(sharding: Rules, model: Layer) -> dict[str, tuple[tuple, tuple, bool]]:
    """Returns the mesh axes of the named axes of each layer's output, by path of the layer.

    An entry is `(first, last, any_between)`: the mesh axes of the first and last axes of the output,
    and whether there may be others between them. Only layers that a role, or "fsdp", splits have an
    entry; layers with a weight that a path pattern lays out have none.

    Args:
        model: a model of arrays or shapes.
    """
    if sharding is None:
        return {}
    fsdp = sharding == FSDP or (not isinstance(sharding, str) and sharding.get(FSDP) is not None)
    specs = role_specs(sharding, model)
    entries_by_path = {}
    for path, layer in sublayers(model):
        if not skeleton_of(layer).names or layer.axis_names.output is None:
            continue
        letters = {join_path(path, name): text for name, text in weight_letters(layer).items()}
        if any(match(sharding, name) is not None for name in letters):
            continue
        if WHOLE in layer.axis_names.roles.values():
            continue
        entries: dict[str, Any] = {}
        for name, text in letters.items():
            spec = specs.get(name, PartitionSpec())
            padded = [*spec, *(None,) * (len(text) - len(spec))]
            entries.update(zip(text, padded, strict=True))
        if not fsdp and not any(entries.values()):
            continue
        before, dots, after = layer.axis_names.output.partition("...")
        entries_by_path[path] = (
            tuple(entries.get(n, _FREE) for n in before),
            tuple(entries.get(n, _FREE) for n in after),
            bool(dots),
        )
    return entries_by_path


def _constrained(mesh: Mesh, batch: Entry, names: tuple, array: jax.Array) -> jax.Array:
    first, last, any_between = names
    rest = array.ndim - len(first) - len(last)
    if rest < 0 or (rest and not any_between):  # a call with an output of another form
        return array
    entries = [*first, *(_FREE,) * rest, *last]
    if entries:
        entries[0] = batch
    used_names = set(names_of(batch))
    for axis, entry in enumerate(entries):
        # sizes of activations, unlike those of weights, depend on the data of the call
        repeated = axis and used_names & set(names_of(entry))
        if repeated or array.shape[axis] % parts_of(mesh, entry):
            entries[axis] = _FREE
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec(*entries)))


def _is_grouped(layer: Layer, inputs: tuple) -> bool:
    """Returns whether a call is a convolution with groups of channels."""
    operation = getattr(getattr(layer, "op", None), "name", None)
    if operation == "conv" and len(inputs) > 1:
        x, kernel = inputs[:2]
        return kernel.shape[-2] not in (x.shape[1], x.shape[-1])
    return WHOLE in layer.axis_names.roles.values() or operation in _GROUPED


def _spread_call(mesh: Mesh, layer: Layer, inputs: tuple) -> tuple[Any, tuple]:
    """Returns the layer with whole weights, and its inputs with rows split over all devices."""
    whole = NamedSharding(mesh, PartitionSpec())

    def gather(leaf: object) -> Any:
        return jax.lax.with_sharding_constraint(leaf, whole) if isinstance(leaf, Tracer) else leaf

    leaves = tuple(None if leaf is None else gather(leaf) for leaf in leaves_of(layer))
    # the kernels of operations are inputs
    rows, kernels = inputs[:1], jax.tree.map(gather, inputs[1:])
    return skeleton_of(layer).join(leaves), (*(_spread(mesh, array) for array in rows), *kernels)


def _spread(mesh: Mesh, array: Any) -> Any:
    """Returns an array with its rows split over all devices, or whole if they cannot share them."""
    if not isinstance(array, Tracer):
        return array
    entry = tuple(mesh.axis_names) if array.shape[0] % mesh.size == 0 else None
    return jax.lax.with_sharding_constraint(array, NamedSharding(mesh, PartitionSpec(entry)))
