"""`layer.at[path]`: one weight of a layer by its path, in the form of JAX's `array.at[index]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.tree.array_list import replace_leaves
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.values.annotations import SomeLayer
from fkeras.engine.values.argument_types import Numbers


class WeightPlaces(Generic[SomeLayer]):
    """The weights of a layer by path: `model.at["dense/kernel"]`."""

    __slots__ = ("_layer",)

    def __init__(self, layer: SomeLayer):
        self._layer = layer

    def __getitem__(self, path: str) -> WeightPlace[SomeLayer]:
        layer = self._layer
        if path in skeleton_of(layer).places:
            return WeightPlace(layer, path)
        names = _names(layer)
        if any(name == path for name, _ in sublayers(layer) if name):
            raise ValueError(
                f"{layer._where}: at: {path!r} is a layer, and at[...] takes the path of a weight, such as "
                f"{names[0]!r}. To exchange a layer write fk.transforms.replace(model, {{{path!r}: layer}})."
            )
        raise ValueError(
            f"{layer._where}: at: there is no weight {path!r}.{suggest(str(path), names)} Its weights are: "
            f"{', '.join(names[:12])}{', ...' * (len(names) > 12) or 'none' * (not names)}."
        )

    def __repr__(self) -> str:
        return f"<weights of {self._layer._where}: {', '.join(_names(self._layer))}>"


def _names(layer: Any) -> list[str]:
    """Returns the paths of the weights of a layer, of a built layer those with arrays."""
    pairs = zip(skeleton_of(layer).names, leaves_of(layer), strict=True)
    return [name for name, leaf in pairs if leaf is not None or not layer.built]


class WeightPlace(Generic[SomeLayer]):
    """One weight of a layer, for reading and for copies of the layer with another array."""

    __slots__ = ("_layer", "_path")

    def __init__(self, layer: SomeLayer, path: str):
        self._layer, self._path = layer, path

    def get(self) -> jax.Array:
        """Returns the array."""
        layer, path = self._layer, self._path
        leaf: Any = leaves_of(layer)[skeleton_of(layer).places[path]]
        if leaf is None:
            remedy = (
                "It was built without this weight."
                if layer.built
                else "Build it first: model = model.build(jax.random.key(0))."
            )
            raise ValueError(f"{layer._where}: at[{path!r}]: the layer has no array here. {remedy}")
        return leaf

    def set(self, value: Numbers) -> SomeLayer:
        """Returns a copy of the layer with another array: `model = model.at["dense/kernel"].set(w)`.

        Args:
            value: an array of the weight's shape, or a number for all entries; takes the weight's dtype
                and devices.
        """
        return returned(
            self._with(value), "at[...].set", f'model = model.at["{self._path}"].set(w)', depth=1
        )

    def apply(self, function: Callable[[jax.Array], Numbers]) -> SomeLayer:
        """Returns a copy of the layer with `function(array)` in the place of the array."""
        line = f'model = model.at["{self._path}"].apply(function)'
        return returned(self._with(function(self.get())), "at[...].apply", line, depth=1)

    def _with(self, value: Numbers) -> SomeLayer:
        old, where = self.get(), f"{self._layer._where}: at[{self._path!r}]"
        try:
            array: Any = value if hasattr(value, "shape") else np.asarray(value)
        except ValueError:  # lists of different lengths
            array = np.asarray("")
        if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, jnp.floating):
            raise TypeError(
                f"{where}: expected an array of numbers, received {describe_value(value)}."
            )
        if array.shape not in (old.shape, ()):
            raise ValueError(
                f"{where}: expected an array of shape {old.shape}, received {array.shape}. Transpose or "
                "reshape the array; a layer of another size is another layer."
            )
        if isinstance(array, jax.ShapeDtypeStruct) or isinstance(old, jax.ShapeDtypeStruct):
            new: Any = jax.ShapeDtypeStruct(old.shape, old.dtype)
        else:
            new = jnp.broadcast_to(jnp.asarray(array).astype(old.dtype), old.shape)
            sharding = getattr(old, "sharding", None)
            if sharding is not None and not isinstance(old, Tracer) and not isinstance(new, Tracer):
                new = jax.device_put(new, sharding)
        return replace_leaves(self._layer, {self._path: new})

    def __repr__(self) -> str:
        return f"<weight {self._path!r} of {self._layer._where}>"
