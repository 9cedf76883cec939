"""Modules of `flax.nnx`, split into a static graph and arrays, for `FlaxLayer`."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from fkeras.layers.common import authoring as fk


def is_nnx(module: object) -> bool:
    """Returns whether an object is a module of `flax.nnx`, without importing Flax."""
    bases = type(module).__mro__
    return any(f"{b.__module__}.".startswith("flax.nnx.") and b.__name__ == "Module" for b in bases)


@dataclasses.dataclass(frozen=True)
class NnxModule:
    """A module without its arrays, with the methods of a `flax.linen` module.

    Args:
        name: name of the module's class.
        graph: the module's `GraphDef`.
        streams: structure of the states of random streams.
        are_keys: for each array of `streams`, whether it is a key, and not a counter.
    """

    name: str
    graph: Any
    streams: Any
    are_keys: tuple[bool, ...]

    def init(self, *args: fk.Option, **kwargs: fk.Option) -> Any:
        """Raises an error: only the module's constructor draws weights."""
        raise ValueError(
            f"{self.name}: a module of flax.nnx gets its weights from its constructor, and this layer is "
            "unbuilt. Make the layer again: layers.FlaxLayer(module)."
        )

    def apply(
        self,
        variables: Mapping[str, Any],
        inputs: fk.Tree,
        rngs: Mapping[str, jax.Array],
        method: Any,
        mutable: fk.Option,
        is_training: bool,
        **options: fk.Option,
    ) -> tuple[Any, dict[str, Any]]:
        """Returns `(outputs, collections)`, as `apply` of a module of `flax.linen`."""
        nnx = _nnx()
        key = next(iter(rngs.values()), jax.random.key(0))
        leaves = [
            jax.random.fold_in(key, n) if is_key else jnp.zeros((), "uint32")
            for n, is_key in enumerate(self.are_keys)
        ]
        # a new module in each call: the call changes no module of the user
        module = nnx.merge(
            self.graph,
            variables.get("params", {}),
            jax.tree.unflatten(self.streams, leaves),
            variables.get("state", {}),
        )
        (module.train if is_training else module.eval)()
        function = module if method is None else method
        if isinstance(method, str):
            function = getattr(module, method)
        value = function(inputs, **options)
        return value, _collections(_split(module)[-1])

    def __repr__(self) -> str:
        return self.name


def split_nnx(module: Any) -> tuple[NnxModule, dict[str, Any]]:
    """Returns the module without arrays, and its variables: weights, and other state."""
    graph, params, streams, state = _split(module)
    leaves, structure = jax.tree.flatten(streams)
    are_keys = tuple(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) for leaf in leaves)
    split = NnxModule(type(module).__name__, graph, structure, are_keys)
    return split, {"params": params, **_collections(state)}


def _split(module: Any) -> tuple[Any, Any, Any, Any]:
    nnx = _nnx()
    # values that the module sows have no place in a state of fixed structure
    graph, params, streams, _, state = nnx.split(
        module, nnx.Param, nnx.RngState, nnx.Intermediate, ...
    )
    return graph, *map(nnx.to_pure_dict, (params, streams, state))


def _collections(state: dict[str, Any]) -> dict[str, Any]:
    return {"state": state} if state else {}


def _nnx() -> Any:
    return importlib.import_module("flax.nnx")
