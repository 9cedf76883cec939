"""Names of the axes of weights: a letter for each axis, and the roles of letters.

A weight declares its letters, such as "io" for the inputs and outputs of a kernel. A layer states the
roles of letters in `axis_names`, such as {"o": "hidden"}. A trainer splits weights over devices by role: see
`Trainer(sharding=...)`. Letters and roles never change a number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from fkeras.engine.tree.skeleton import WEIGHT, leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values.annotations import Layer, Leaf
from fkeras.engine.values.frozen import FrozenDict

#: stands for an axis without a name
UNNAMED = "_"

#: role of an axis that no rule splits; XLA computes wrong numbers from parts of such weights
WHOLE = "whole"

#: other roles of the axes of the catalogue's weights; layers of users may have others
ROLES = ("heads", "kv_heads", "hidden", "vocab", "experts")


@dataclasses.dataclass(frozen=True)
class AxisNames:
    """Letters of the axes of a layer's weights and output, and the roles of letters.

    Attributes:
        weights: the letters of weights for which `weight(axes=...)` cannot declare them, by name.
            Paths such as "query_dense/kernel" name weights inside of children, and apply there.
        roles: the role of letters: "heads", "kv_heads", "hidden", "vocab", "experts", or another.
            "whole" keeps an axis whole: grouped convolutions have this role.
        output: the letters of the output, with "..." for any axes and "_" for one without a name,
            such as "...o"; the first axis is the batch. None for an output without names.
        units: for weights by name, the size of each axis in units that devices do not split, where the
            array has another size, such as the heads of an axis that holds heads and their channels.

    Example:
        >>> import jax, fkeras as fk
        >>> class Mixture(fk.Layer):
        ...     kernel: jax.Array = fk.weight(axes="eio", initializer=jax.nn.initializers.ones)
        ...     @property
        ...     def axis_names(self):
        ...         return fk.engine.AxisNames(roles={"e": "experts"}, output="_e...")
        ...     def build(self, key, x):
        ...         return self.with_weights(key, kernel=(4, x.shape[-1], 2))
        >>> weight_axis_roles(Mixture().build(jax.random.key(0), (None, 3)))
        {'kernel': ('experts', None, None)}
    """

    weights: Mapping[str, str] = FrozenDict()
    roles: Mapping[str, str] = FrozenDict()
    output: str | None = None
    units: Mapping[str, tuple[int, ...]] = FrozenDict()


def check_letters(axes: str | None) -> None:
    """Raises an error for axes other than different letters, with "_" for an axis without a name."""
    if axes is None:
        return
    letters = [] if not isinstance(axes, str) else [n for n in axes if n != UNNAMED]
    valid = isinstance(axes, str) and all(n.isalpha() for n in letters)
    if not valid or len(set(letters)) < len(letters):
        raise ValueError(
            'weight: axes: expected a different letter for each axis, such as "io", or "_" for an '
            f"axis without a name, received {axes!r}."
        )


def unnamed(array: Leaf) -> str:
    """Returns the letters of a weight whose axes have no names; an array that is None has no axes.

    Example:
        >>> import jax.numpy as jnp
        >>> unnamed(jnp.ones((2, 3)))
        '__'
    """
    return "" if array is None else UNNAMED * array.ndim


def weight_letters(layer: Layer) -> dict[str, str]:
    """Returns the letters of each weight that a layer names, by name or path.

    Example:
        >>> import fkeras as fk
        >>> weight_letters(fk.layers.Dense(2)), weight_letters(fk.layers.Conv1D(2, 3))
        ({'kernel': 'io', 'bias': 'o'}, {'kernel': 'wio', 'bias': 'o'})
    """
    declared = {
        f.name: f.metadata[WEIGHT]["axes"]
        for f in dataclasses.fields(layer)
        if WEIGHT in f.metadata
    }
    declared_letters = {name: axes for name, axes in declared.items() if axes is not None}
    return declared_letters | dict(layer.axis_names.weights)


def weight_units(layer: Layer) -> dict[str, tuple[int, ...]]:
    """Returns the sizes of the axes of each weight inside a built layer in units, by the weight's path.

    Args:
        layer: a built layer, or a layer of shapes.
    """
    pairs = zip(skeleton_of(layer).names, leaves_of(layer), strict=True)
    units = {path: tuple(leaf.shape) for path, leaf in pairs if leaf is not None}
    for path, owner in sublayers(layer):
        if skeleton_of(owner).names:
            units |= {join_path(path, name): own for name, own in owner.axis_names.units.items()}
    return units


def weight_axis_roles(layer: Layer) -> dict[str, tuple[str | None, ...]]:
    """Returns the role of each axis of each weight inside a built layer, by the weight's path.

    A layer may also name the axes of weights inside its children, by their paths. The names by the
    outer layer apply.

    Args:
        layer: a built layer, or a layer of shapes.

    Raises:
        ValueError: for a weight with more or fewer axes than letters.
    """
    roles_by_path: dict[str, tuple[str | None, ...]] = {}
    for path, owner in sublayers(layer):
        # most layers have no weights, and so no names
        if not skeleton_of(owner).names:
            continue
        roles = owner.axis_names.roles
        for name, letters in weight_letters(owner).items():
            # outer layers come first
            roles_by_path.setdefault(join_path(path, name), tuple(map(roles.get, letters)))
    skeleton, arrays = skeleton_of(layer), leaves_of(layer)
    for path, array in zip(skeleton.names, arrays, strict=True):
        if array is None:
            roles_by_path.pop(path, None)
            continue
        axis_roles = roles_by_path.setdefault(path, (None,) * array.ndim)
        if len(axis_roles) != array.ndim:
            raise ValueError(
                f"{layer._where}: expected one letter for each axis of {path!r}, received "
                f"{len(axis_roles)} letters for an array of shape {tuple(array.shape)}. Correct "
                "fk.weight(axes=...), or the property axis_names of the layer."
            )
    return {path: roles_by_path[path] for path in skeleton.names if path in roles_by_path}
