"""Splits batches over an axis of a device mesh, and weights according to rules on their paths.

Arrays carry their layout, and XLA inserts the communication: the results equal those of one
device. A statistic over a batch, as in BatchNormalization, covers the batch of all devices.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jax.sharding import NamedSharding, PartitionSpec

from fkeras.engine import FrozenDict, replace_weights, suggest
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.training.records.state import TrainState


def as_mesh(value: Any) -> Any:
    """Returns the mesh of a `Trainer`, checked, or None."""
    # Only Auto axes leave the communication to XLA. Explicit axes make shardings a part of types,
    # and contractions in layers can then be ambiguous; with Manual axes a layer would see a part
    # of the batch.
    if value is not None and not isinstance(value, jax.sharding.Mesh):
        raise TypeError(
            f"Trainer: expected mesh as a jax.sharding.Mesh, received {type(value).__name__}. For "
            'example jax.make_mesh((8,), ("data",), axis_types=(jax.sharding.AxisType.Auto,)).'
        )
    if value is not None and any(kind != jax.sharding.AxisType.Auto for kind in value.axis_types):
        raise ValueError(
            "Trainer: expected a mesh with axes of type Auto, received "
            f"{', '.join(map(str, value.axis_types))}. Create the mesh with "
            "axis_types=(jax.sharding.AxisType.Auto,) * number_of_axes."
        )
    return value


def as_rules(value: Any) -> Any:
    """Returns the sharding rules of a `Trainer` as `PartitionSpec`s by pattern of weight paths."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise TypeError(
            f"Trainer: expected sharding as a dictionary, received {type(value).__name__}. Write "
            '{"*/kernel": PartitionSpec(None, "model")}: patterns of weight paths; the first match '
            "applies."
        )
    return FrozenDict({pattern: PartitionSpec(*spec) for pattern, spec in value.items()})


def batch_axis(mesh: Any) -> str:
    """Returns the mesh axis that splits the rows of a batch: "data", "batch", or the first axis."""
    return next((name for name in ("data", "batch") if name in mesh.axis_names), mesh.axis_names[0])


def check_rules(trainer: Any, model: Any) -> None:
    """Rejects rules that match no weight, name an unknown axis, or split a size unevenly."""
    rules, mesh = trainer.sharding, trainer.mesh
    if rules is None:
        return
    if mesh is None:
        raise ValueError("Trainer: missing mesh for sharding. Pass mesh=jax.make_mesh(...).")
    skeleton = skeleton_of(model)
    for pattern, spec in rules.items():
        if not any(fnmatch.fnmatchcase(path, pattern) for path in skeleton.names):
            raise ValueError(
                f"Trainer: the sharding rule {pattern!r} matches no weight."
                f"{suggest(pattern.strip('*/'), skeleton.names)} The weights are: "
                f"{', '.join(skeleton.names[:12])}."
            )
        for axis in _axes(spec):
            if axis not in mesh.axis_names:
                raise ValueError(
                    f"Trainer: the sharding rule {pattern!r} has an unknown mesh axis {axis!r}."
                    f"{suggest(axis, mesh.axis_names)} The axes of the mesh are: "
                    f"{', '.join(mesh.axis_names)}."
                )
    for path, leaf in zip(skeleton.names, leaves_of(model), strict=True):
        spec = spec_of(trainer, path)
        if leaf is None:
            continue
        if len(spec) > leaf.ndim:
            raise ValueError(
                f"Trainer: the sharding rule for {path!r} has {len(spec)} entries, but the weight "
                f"has the shape {leaf.shape}. Pass at most one entry per axis."
            )
        for size, names in zip(leaf.shape, spec, strict=False):
            parts = int(np.prod([mesh.shape[axis] for axis in _axes((names,))]))
            if size % parts:
                raise ValueError(
                    f"Trainer: {path!r} of shape {leaf.shape} cannot be split into {parts} parts "
                    f"along its axis of {size}. Choose another size, or another rule."
                )


def _axes(spec: Any) -> list[str]:
    axis_names = [names for names in spec if names is not None]
    return [
        axis for names in axis_names for axis in ((names,) if isinstance(names, str) else names)
    ]


def spec_of(trainer: Any, path: str) -> PartitionSpec:
    """Returns the split of a weight: by the first rule that matches its path, else no split."""
    for pattern, spec in (trainer.sharding or {}).items():
        if fnmatch.fnmatchcase(path, pattern):
            return spec
    return PartitionSpec()


def _layouts(trainer: Any, run: TrainState) -> TrainState:
    """Returns a tree like the run, with a layout for each leaf."""
    skeleton = skeleton_of(run.model)
    pairs = zip(skeleton.names, leaves_of(run.model), strict=True)
    shapes = {path: leaf.shape for path, leaf in pairs if leaf is not None}

    def layout(spec: PartitionSpec) -> NamedSharding:
        return NamedSharding(trainer.mesh, spec)

    def slot(path: tuple, leaf: Any) -> NamedSharding:
        # Optimizers store slots under the path of their weight. A slot of the weight's shape
        # is split like the weight; a slot of another shape (a factored moment) is replicated.
        for key in reversed(path):
            name = getattr(key, "key", None)
            if name is not None and shapes.get(name) == leaf.shape:
                return layout(spec_of(trainer, name))
        return layout(PartitionSpec())

    replicated = jax.tree.map(lambda _: layout(PartitionSpec()), run)
    weights = {path: layout(spec_of(trainer, path)) for path in shapes}
    return replicated.replace(
        model=replace_weights(run.model, weights),
        opt_state=jax.tree_util.tree_map_with_path(slot, run.opt_state),
    )


def place(trainer: Any, run: TrainState) -> TrainState:
    """Returns the run with every array laid out by the trainer's mesh and rules."""
    check_rules(trainer, run.model)
    if trainer.mesh is None:
        return run
    return jax.tree.map(jax.device_put, run, _layouts(trainer, run))


def keep(trainer: Any, run: TrainState) -> TrainState:
    """Constrains the results of a compiled step to the layouts of `place`."""
    # Without the constraint XLA may choose other layouts for the results, and the next call,
    # whose arguments then have other layouts, compiles a second program.
    if trainer.mesh is None:
        return run
    return jax.tree.map(jax.lax.with_sharding_constraint, run, _layouts(trainer, run))


def split_rows(trainer: Any, batch: Any, even: bool = True) -> Any:
    """Splits the rows of a batch over the devices, inside or outside a compiled step.

    Args:
        trainer: the trainer with the mesh.
        batch: a tree of arrays.
        even: whether an uneven number of rows is an error; otherwise every device gets all rows.

    Raises:
        ValueError: if the devices cannot share the rows evenly.
    """
    if trainer.mesh is None:
        return batch
    axis = batch_axis(trainer.mesh)
    layout, parts = NamedSharding(trainer.mesh, PartitionSpec(axis)), trainer.mesh.shape[axis]

    def split_array(array: Any) -> Any:
        if not even and (array.ndim == 0 or array.shape[0] % parts):
            return array
        check_rows(trainer, array.shape[0], parts)
        if isinstance(array, Tracer):
            return jax.lax.with_sharding_constraint(array, layout)
        return jax.device_put(array, layout)

    return jax.tree.map(split_array, batch)


def check_rows(trainer: Any, rows: int, parts: int | None = None) -> None:
    """Raises a `ValueError` if the devices cannot share the rows of a batch evenly."""
    if trainer.mesh is None:
        return
    axis = batch_axis(trainer.mesh)
    parts = int(trainer.mesh.shape[axis]) if parts is None else parts
    if rows % parts:
        raise ValueError(
            f"Trainer: expected a batch size divisible by the {parts} devices of the mesh axis "
            f"{axis!r}, received {rows} rows. Use a batch size of {-(-rows // parts) * parts} (fit "
            "fills up the last batch), or a smaller mesh."
        )


def rows_for(trainer: Any, rows: int) -> int:
    """Returns the smallest number of rows, at least `rows`, that the devices share evenly."""
    parts = 1 if trainer.mesh is None else trainer.mesh.shape[batch_axis(trainer.mesh)]
    return -(-rows // parts) * parts
