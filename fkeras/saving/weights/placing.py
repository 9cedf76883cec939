"""Where the arrays of a file go: the default device, or shards on the devices of a mesh.

A layout gives the shapes of a model, which a loader builds first, the shardings of a trainer. Each array
is then moved to its shards as soon as it is read, so that no device holds more than its share, and the
host holds one array at a time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from fkeras.engine import replace_weights
from fkeras.training.processes.arrays import put
from fkeras.training.step.sharding_rules import as_mesh, as_rules, check_rules, weight_specs


@dataclasses.dataclass(frozen=True)
class Layout:
    """Places models on a mesh by the rules of a trainer.

    Args:
        mesh: the mesh.
        sharding: the rules, as a trainer holds them.
    """

    mesh: Any
    sharding: Any

    def apply(self, model: Any, state: Mapping[str, Any]) -> tuple[Any, Any]:
        """Returns `(model, state)` with every array, or shape, laid out on the mesh.

        Args:
            model: a model of arrays or shapes.
            state: its state; all devices have the whole state.

        Raises:
            ValueError: for rules that the weights cannot follow.
        """
        check_rules(self.mesh, self.sharding, model)
        specs = weight_specs(self.mesh, self.sharding, model)
        layouts = {path: NamedSharding(self.mesh, spec) for path, spec in specs.items()}
        whole = NamedSharding(self.mesh, PartitionSpec())
        return (
            jax.tree.map(_laid_out, model, replace_weights(model, layouts)),
            jax.tree.map(lambda leaf: _laid_out(leaf, whole), state),
        )


def as_layout(where: str, mesh: Any, sharding: Any) -> Layout | None:
    """Returns the layout of the arguments `mesh` and `sharding` of a loader; None for one device.

    Raises:
        TypeError, ValueError: as `fk.Trainer`; `where` names the loader.

    Example:
        >>> as_layout("load_model", None, "fsdp")
        Traceback (most recent call last):
        ValueError: load_model: sharding: missing mesh. Pass mesh=jax.make_mesh(...).
    """
    try:
        mesh, sharding = as_mesh(mesh), as_rules(sharding)
        if mesh is None:
            check_rules(mesh, sharding, None)
            return None
    except (TypeError, ValueError) as error:
        error.args = (f"{where}: {str(error).removeprefix('Trainer: ')}",)
        raise
    return Layout(mesh, sharding)


def _laid_out(leaf: Any, layout: NamedSharding) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=layout)
    return put(leaf, layout)


class Transfer:
    """Moves the arrays of a file to devices: to shards at once, to the default device together.

    Example:
        >>> import jax, numpy as np
        >>> transfer = Transfer()
        >>> transfer.add("w", np.ones(2, "float32"), jax.ShapeDtypeStruct((2,), "float32"))
        >>> transfer.arrays()
        {'w': Array([1., 1.], dtype=float32)}
    """

    def __init__(self) -> None:
        self._moved: dict[Hashable, jax.Array] = {}
        self._waiting: dict[Hashable, np.ndarray] = {}

    def add(self, key: Hashable, array: np.ndarray, like: Any) -> None:
        """Adds an array of the file.

        Args:
            like: the array or shape that the array replaces, whose sharding it takes.
        """
        layout = getattr(like, "sharding", None)
        if layout is None or (isinstance(like, jax.Array) and len(layout.device_set) == 1):
            self._waiting[key] = array
        else:
            self._moved[key] = put(array, layout)

    def arrays(self) -> dict[Any, jax.Array]:
        """Returns all arrays on their devices, by key."""
        # one transfer: a call of device_put per array costs far more for small arrays
        arrays = jax.device_put(list(self._waiting.values()))
        return self._moved | dict(zip(self._waiting, arrays, strict=True))
