"""Places runs on a device mesh by the rules of a trainer, and splits the rows of batches.

Arrays carry their layout, and XLA inserts the communication: the results equal those of one
device. A statistic over a batch, as in BatchNormalization, covers the batch of all devices.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fkeras.engine import FrozenDict, Layer, Network, replace_weights
from fkeras.engine.call.building import build_shapes
from fkeras.engine.network.network import build_layer
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.values.argument_types import Batch
from fkeras.host.processes.arrays import put
from fkeras.host.processes.calls import members_of
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import M, TrainState
from fkeras.training.step.sharding_rules import (
    batch_entry,
    check_rules,
    mesh_of,
    parts_of,
    weight_specs,
)


def layouts(trainer: Trainer, run: TrainState) -> TrainState:
    """Returns a tree like the run, with a layout for each leaf."""
    skeleton = skeleton_of(run.model)
    pairs = zip(skeleton.names, leaves_of(run.model), strict=True)
    shapes = {path: leaf.shape for path, leaf in pairs if leaf is not None}
    weights, whole = _weight_layouts(trainer, run.model), whole_layout(trainer)

    def slot(path: tuple, leaf: jax.Array | np.ndarray) -> NamedSharding:
        # Optimizers store slots under the path of their weight. A slot of the weight's shape
        # is split like the weight; a slot of another shape (a factored moment) is replicated.
        for key in reversed(path):
            name = getattr(key, "key", None)
            if name is not None and shapes.get(name) == leaf.shape:
                return weights[name]
        return whole

    replicated = jax.tree.map(lambda _: whole, run)
    return replicated.replace(
        model=replace_weights(run.model, weights),
        opt_state=jax.tree_util.tree_map_with_path(slot, run.opt_state),
    )


def _weight_layouts(trainer: Trainer, model: Layer) -> dict[str, NamedSharding]:
    """Returns the layout of each weight of a model, by path."""
    mesh = mesh_of(trainer)
    specs = weight_specs(mesh, trainer.sharding, model)
    # a step on features has no weights of the front of the model
    pairs = zip(skeleton_of(model).names, leaves_of(model), strict=True)
    present = {path for path, leaf in pairs if leaf is not None}
    return {path: NamedSharding(mesh, spec) for path, spec in specs.items() if path in present}


def check(trainer: Trainer, model: Layer) -> None:
    """Checks the rules of a trainer on the shapes of a model, before the weights take memory.

    Raises:
        ValueError: as `check_rules`; inside of `jax.set_mesh` of a mesh with Explicit axes.
    """
    _check_context()
    if trainer.sharding is not None:
        shapes = model if model.built else build_shapes(model)[0]
        check_rules(trainer.mesh, trainer.sharding, shapes)


def _check_context() -> None:
    if AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types:
        raise ValueError(
            "Trainer: received a call inside of jax.set_mesh of a mesh with Explicit axes, in which "
            "layers cannot compute. Call the trainer outside: Trainer(mesh=mesh) places the arrays."
        )


def build(trainer: Trainer, model: M, key: jax.Array) -> M:
    """Returns the built model, with every weight laid out by the trainer's mesh and rules.

    The layers of a network are placed one after the other: the default device holds its share of the
    weights and one whole layer at a time.
    """
    if model.built or trainer.mesh is None:
        return place_model(trainer, model if model.built else model.build(key))
    if not isinstance(model, Network) or model.graph is None:
        return place_model(trainer, model.build(key))
    weights = _weight_layouts(trainer, build_shapes(model)[0])
    layers = {}
    for name, layer in model.layers.items():
        built = layer if layer.built else build_layer(model, name, key)
        layouts = {
            path: weights[f"{name}/{path}"]
            for path, leaf in zip(skeleton_of(built).names, leaves_of(built), strict=True)
            if leaf is not None
        }
        layers[name] = jax.tree.map(put, built, replace_weights(built, layouts))
    return model.replace(layers=FrozenDict(layers))


def place_model(trainer: Trainer, model: M) -> M:
    """Returns the model with every weight laid out by the trainer's mesh and rules."""
    if trainer.mesh is None:
        return model
    return jax.tree.map(put, model, replace_weights(model, _weight_layouts(trainer, model)))


def place(trainer: Trainer, run: TrainState) -> TrainState:
    """Returns the run with every array laid out by the trainer's mesh and rules."""
    _check_context()
    check_rules(trainer.mesh, trainer.sharding, run.model)
    if trainer.mesh is None:
        return run
    return jax.tree.map(put, run, layouts(trainer, run))


def keep(trainer: Trainer, run: TrainState) -> TrainState:
    """Constrains the results of a compiled step to the layouts of `place`."""
    # Without the constraint XLA may choose other layouts for the results, and the next call,
    # whose arguments then have other layouts, compiles a second program.
    if trainer.mesh is None:
        return run
    return jax.tree.map(jax.lax.with_sharding_constraint, run, layouts(trainer, run))


def split_rows(trainer: Trainer, batch: Batch) -> Any:
    """Splits the rows of a batch over the devices, inside or outside a compiled step.

    Every device gets all rows of an array whose rows the devices cannot share evenly: those of a short
    last batch.
    """
    if trainer.mesh is None:
        return batch
    entry = batch_entry(trainer.mesh, trainer.sharding)
    layout = NamedSharding(trainer.mesh, PartitionSpec(entry))
    parts = parts_of(trainer.mesh, entry)

    def split_array(array: jax.Array | np.ndarray) -> Any:
        if array.ndim == 0 or array.shape[0] % parts:
            return array
        if isinstance(array, Tracer):
            return jax.lax.with_sharding_constraint(array, layout)
        return put(array, layout)

    return jax.tree.map(split_array, batch)


def whole(trainer: Trainer, tree: object) -> Any:
    """Constrains results of a compiled function to be whole on every device, where processes share them."""
    if len(members_of(trainer.mesh)) < 2:
        return tree
    layout = whole_layout(trainer)
    return jax.tree.map(lambda a: jax.lax.with_sharding_constraint(a, layout), tree)


def whole_layout(trainer: Trainer) -> NamedSharding:
    """Returns the layout of an array that every device of the mesh has whole."""
    return NamedSharding(mesh_of(trainer), PartitionSpec())


def check_rows(trainer: Trainer, rows: int) -> None:
    """Raises a `ValueError` if the devices cannot share the rows of a batch evenly."""
    if trainer.mesh is None:
        return
    entry = batch_entry(trainer.mesh, trainer.sharding)
    parts = parts_of(trainer.mesh, entry)
    if rows % parts:
        raise ValueError(
            f"Trainer: expected a batch size divisible by the {parts} devices of the mesh axis "
            f"{entry!r}, received {rows} rows. Use a batch size of {-(-rows // parts) * parts} (fit "
            "fills up the last batch), or a smaller mesh."
        )


def rows_for(trainer: Trainer, rows: int) -> int:
    """Returns the smallest number of rows, at least `rows`, that the devices share evenly."""
    mesh = trainer.mesh
    parts = 1 if mesh is None else parts_of(mesh, batch_entry(mesh, trainer.sharding))
    return -(-rows // parts) * parts
