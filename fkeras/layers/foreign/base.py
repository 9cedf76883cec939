"""Base class of layers that wrap other libraries: weights and state are arbitrary pytrees.

The weights of a foreign model are unknown before its initialization, so a class cannot declare
them. Each array becomes a child layer, a `Parameter`, named by its path in the pytree; the rest of
the pytree is static. Partitions, freezing, weight lists and checkpoints then treat them as ordinary
layers. For the same reason, state is a flat dictionary of arrays by path.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk


class Parameter(fk.Layer):
    """Holds one array of a foreign model as a layer; computes nothing.

    Example:
        >>> import jax.numpy as jnp
        >>> Parameter().replace(value=jnp.ones(2)).value
        Array([1., 1.], dtype=float32)
    """

    value: jax.Array = fk.weight()

    @property
    def axis_names(self) -> fk.AxisNames:
        # the names of the axes are unknown: path patterns split these weights
        return fk.AxisNames(fk.FrozenDict({"value": fk.unnamed(self.value)}))


def named_leaves(tree: fk.Tree, where: str) -> tuple[dict[str, Any], Any]:
    """Returns the arrays of a pytree by path, such as "dense.kernel", and the rest of the pytree.

    Raises:
        TypeError: for a leaf that is neither an array nor a number.
    """
    leaves_by_path, structure = jax.tree.flatten_with_path(tree)
    arrays_by_path: dict[str, Any] = {}
    for path, leaf in leaves_by_path:
        name = jax.tree_util.keystr(path, simple=True, separator=".").replace("/", ".") or "value"
        if not fk.is_array(leaf) and not isinstance(leaf, int | float):
            raise TypeError(
                f"{where}: expected a pytree of arrays, received {type(leaf).__name__} at "
                f"{name!r}. Keep other values out of the pytree, in a closure for example."
            )
        # paths must be unique, but {"a.b": x} and {"a": {"b": x}} have the same path
        while name in arrays_by_path:
            name += "_"
        arrays_by_path[name] = leaf
    return arrays_by_path, structure


class ForeignLayer(fk.Layer):
    """Wraps a model of another library; a subclass defines initialization and computation."""

    # set by `_start` and `build`, not by the constructor: a config holds no arrays
    params: Mapping[str, Parameter] = dataclasses.field(default=fk.FrozenDict(), init=False)
    params_structure: Any = dataclasses.field(default=None, init=False)
    state: tuple[fk.ArrayConstant, ...] | None = dataclasses.field(default=None, init=False)
    state_structure: Any = dataclasses.field(default=None, init=False)

    _child_fields: ClassVar[tuple[str, ...] | None] = ("params",)

    # default of a field of the concrete classes
    seed = None

    # Methods that subclasses implement

    def initialize(self, key: jax.Array, inputs: fk.Tree) -> tuple[Any, Any]:
        """Returns `(params, state)` of a new model for inputs like these arrays."""
        raise NotImplementedError

    def compute(
        self,
        params: fk.Tree,
        state: fk.Tree,
        key: jax.Array | None,
        inputs: fk.Tree,
        training: bool,
    ) -> tuple[Any, Any]:
        """Returns `(outputs, state)` of a call; the key is None in inference."""
        raise NotImplementedError

    @property
    def draws(self) -> bool:
        """Returns whether a training call receives a PRNG key."""
        raise NotImplementedError

    # Methods that the engine calls

    def _start(self, fields: Mapping[str, Any], params: fk.Tree, state: fk.Tree) -> None:
        """Sets the fields of a new layer; `params` and `state` are initial values, or None."""
        # the layer is a frozen dataclass
        set_field = object.__setattr__
        for name, value in fields.items():
            set_field(self, name, value)
        for name in ("params", "params_structure", "state", "state_structure"):
            set_field(self, name, type(self).__dataclass_fields__[name].default)
        self.__post_init__()
        if params is None and state is None:
            return
        started = self._fields_of(params, state)
        if state is not None:
            leaves = jax.tree.leaves(state)
            started["state"] = tuple(fk.ArrayConstant(self._as_variable(v)) for v in leaves)
        # `_built` last: a built layer caches its static fields and leaves at the first access
        for name, value in (started | {"_built": True}).items():
            set_field(self, name, value)

    def _fields_of(self, params: fk.Tree, state: fk.Tree) -> dict[str, Any]:
        arrays, structure = named_leaves(params, self._where)
        _, state_structure = named_leaves(state, self._where)
        variables = {name: self._as_variable(leaf) for name, leaf in arrays.items()}
        parameters = {
            # integer arrays, such as counters, have no gradient
            name: Parameter(
                trainable=self.trainable and jnp.issubdtype(array.dtype, jnp.inexact)
            ).replace(value=array)
            for name, array in variables.items()
        }
        return {
            "params": fk.FrozenDict(parameters),
            "params_structure": structure,
            "state_structure": state_structure,
        }

    def _as_variable(self, leaf: fk.Leaf) -> jax.Array:
        array = jnp.asarray(leaf)
        # integers and keys keep their dtype; the dtype policy is for floats only
        if jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(self.policy.variable_dtype)
        return array

    @property
    def stateful(self) -> bool:
        # before `build` the structure is unknown: the layer may have state
        return self.state_structure is None or self.state_structure.num_leaves > 0

    def build(self, key: jax.Array, x: fk.Tree) -> Self:
        if self.built:
            return self
        params, state = self.initialize(fk.subkey(key, "params"), _placeholders(x))
        return self.replace(**self._fields_of(params, state), _built=True)

    def _unbuilt(self) -> Self:
        """Returns a copy without weights and state."""
        return self.replace(
            params={}, params_structure=None, state=None, state_structure=None, _built=False
        )

    def init_state(self, x: fk.Tree) -> dict[str, Any]:
        """Returns the initial state; a random initial state is always the same."""
        if self.state is not None:
            state = jax.tree.unflatten(self.state_structure, [v.array for v in self.state])
        elif self.built and not self.stateful:
            return {}
        else:
            _, state = self.initialize(jax.random.key(0), _placeholders(x))
        arrays, _ = named_leaves(state, self._where)
        return {name: self._as_variable(leaf) for name, leaf in arrays.items()}

    def forward(self, context: fk.Context, x: fk.Tree) -> fk.Output:
        dtype = self.policy.compute_dtype
        leaves = [parameter.value for parameter in self.params.values()]
        params = jax.tree.unflatten(self.params_structure, fk.cast_floats(leaves, dtype))
        # names in the order of the pytree, which a scan or a file does not preserve
        empty = jax.tree.unflatten(self.state_structure, range(self.state_structure.num_leaves))
        names = tuple(named_leaves(empty, self._where)[0])
        old_arrays = [context.state[name] for name in names]
        key = context.seeded_key(self.seed) if context.training and self.draws else None
        value, new = self.compute(
            params, jax.tree.unflatten(self.state_structure, old_arrays), key, x, context.training
        )
        arrays, structure = named_leaves(new, self._where)
        if tuple(arrays) != names:
            raise ValueError(
                f"{self._where}: expected the state to keep its structure {names}, received "
                f"{tuple(arrays)} after the call. Return a state with the same entries as before; "
                f"{structure} has other entries."
            )
        # `compute` returns unchanged arrays themselves: identity detects a state without updates
        has_changed = any(a is not b for a, b in zip(arrays.values(), old_arrays, strict=True))
        updates = {}
        if has_changed:
            pairs = zip(arrays.items(), old_arrays, strict=True)
            # a carried state must keep its dtype, or each call would be compiled again
            updates = {name: jnp.asarray(a).astype(b.dtype) for (name, a), b in pairs}
        return fk.Output(fk.cast_floats(value, dtype), updates=updates)


def _placeholders(x: fk.Tree) -> fk.Tree:
    """Returns arrays of ones for specs, with size 1 for unknown axes."""

    def ones(spec: fk.Spec) -> jax.Array:
        return jnp.ones([1 if d is None else d for d in spec.shape], spec.dtype)

    return jax.tree.map(ones, x, is_leaf=lambda v: isinstance(v, fk.Spec))
