"""`fk.Model`: a network over symbolic tensors, and the base of layers that are made of layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax

from fkeras.engine.close import close
from fkeras.engine.config import convert_fields
from fkeras.engine.effects import refreshed
from fkeras.engine.frozen import FrozenDict
from fkeras.engine.graph_config import graph_config
from fkeras.engine.graph_reading import graph_from_config
from fkeras.engine.input import InputLayer, symbolic
from fkeras.engine.layer import Layer
from fkeras.engine.network import Network
from fkeras.engine.skeleton import map_children
from fkeras.engine.spec import Spec


class Model(Network):
    """Computes `outputs` from `inputs`, symbolic tensors that layers were called on.

    A subclass is a layer that is made of layers: it declares fields and writes `call` over
    symbolic tensors. The call is recorded into a graph of its own when the layer meets its
    inputs, so the layer builds, nests and goes to JSON like any other.

    Args:
        inputs: tensors from `fk.Input` (or from the middle of a graph, which cuts it there), alone
            or in lists, tuples and dictionaries.
        outputs: tensors computed from them, likewise.
        name: the model's name.
        trainable: False to freeze every layer of it.

    Raises:
        DisconnectedGraphError: where an output needs an input that was not given.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> x = fk.Input((4,))
        >>> model = fk.Model(x, fk.layers.Dense(2)(x)).build(jax.random.key(0))
        >>> model(jnp.ones((3, 4))).shape
        (3, 2)
        >>> class Block(fk.Model):
        ...     units: int
        ...     def call(self, x):
        ...         return x + fk.layers.Dense(self.units, activation="relu")(x)
        >>> Block(4)(x).shape
        (None, 4)
    """

    keras_module: ClassVar[str] = "keras.src.models.functional"
    keras_class_name: ClassVar[str | None] = "Functional"

    def __init__(
        self,
        inputs: Any,
        outputs: Any,
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = "float32",
    ):
        put = object.__setattr__
        put(self, "name", name)
        put(self, "trainable", trainable)
        put(self, "dtype", dtype)
        convert_fields(self)
        graph, layers = close(inputs, outputs, self.where)
        put(self, "graph", graph)
        put(self, "layers", layers if trainable else freeze_all(layers))
        if not trainable:
            put(self, "graph", refreshed(self))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "keras_class_name" not in cls.__dict__:
            cls.keras_class_name = None
        super().__init_subclass__(**kwargs)

    @property
    def default_name(self) -> str | None:
        return "functional" if type(self) is Model else None

    def call(self, *inputs: Any, **options: Any) -> Any:
        """Composes layers over symbolic tensors; a subclass writes it."""
        raise NotImplementedError(
            f"{self.where}: has no `call`. A subclass of fk.Model writes `def call(self, x)`, "
            "which calls layers on the symbolic tensor x and returns the outputs."
        )

    def resolve(self, *specs: Any) -> Self:
        if self.graph is not None:
            return self
        composed, children = self, {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name, None)
            if isinstance(value, Layer):
                # a child in a field goes by the field's name
                children[field.name] = value if value.name else value.replace(name=field.name)
        composed = self.replace(**children)
        inputs = symbolic_inputs(specs)
        graph, layers = close(
            inputs[0] if len(inputs) == 1 else list(inputs), composed.call(*inputs), self.where
        )
        # the graph's layers hold the weights; the fields keep only the configuration
        bare = {name: child.unbuilt() for name, child in children.items()}
        made = composed.replace(**bare, graph=graph, layers=layers)
        return made if self.trainable else set_trainable(made, False)

    def functional(self) -> Model:
        """The same graph and weights as a plain `fk.Model`, which needs no class to be read."""
        plain = object.__new__(Model)
        graph = self._require_graph("functional")
        values = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype}
        plain.__dict__.update(values, graph=graph, layers=self.layers)
        return plain

    def get_config(self) -> dict[str, Any]:
        """The graph and its layers as JSON data; for a subclass its constructor's arguments."""
        if type(self) is not Model:
            return super().get_config()
        return {"name": self.name, "trainable": self.trainable, **graph_config(self)}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The model that `get_config` described, without weights."""
        if cls is not Model:
            return super().from_config(config, custom_objects)
        inputs, outputs = graph_from_config(config, custom_objects)
        trainable = config.get("trainable", True)
        return cls(inputs, outputs, name=config.get("name"), trainable=trainable)


def symbolic_inputs(specs: Any) -> Any:
    """A symbolic tensor for each spec in a tree."""

    def make(spec: Any) -> Any:
        return symbolic(InputLayer(spec.dims, dtype=spec.dtype)) if isinstance(spec, Spec) else spec

    return jax.tree.map(make, specs, is_leaf=lambda v: isinstance(v, Spec))


def freeze_all(layers: Mapping[str, Layer]) -> FrozenDict:
    """The layers, and all layers inside them, with trainable=False."""
    return FrozenDict({name: set_trainable(layer, False) for name, layer in layers.items()})


def set_trainable(layer: Layer, trainable: bool) -> Layer:
    """The layer, and all layers inside it, with `trainable` set."""
    if isinstance(layer, Network):
        inner = {n: set_trainable(one, trainable) for n, one in layer.layers.items()}
        made = layer.replace(layers=FrozenDict(inner), trainable=trainable)
        return made.replace(graph=refreshed(made))
    changed = map_children(layer, lambda _, child: set_trainable(child, trainable))
    return layer.replace(**{**changed, "trainable": trainable})
