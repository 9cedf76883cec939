"""`fk.Model`: a network of symbolic tensors, and the base class of layers composed of layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import jax
from jax.typing import DTypeLike

from fkeras.engine.call.composition import compose
from fkeras.engine.call.node import SymbolicTree
from fkeras.engine.config.configurable import convert_fields
from fkeras.engine.config.keras_form import KerasForm
from fkeras.engine.config.policy import DTypePolicy
from fkeras.engine.config.serialization import inner_config
from fkeras.engine.graph.close import close, origins_of
from fkeras.engine.graph_json.read import graph_from_config
from fkeras.engine.graph_json.rule_keys import read_rule
from fkeras.engine.graph_json.write import graph_config
from fkeras.engine.layer.layer import Layer
from fkeras.engine.layer.trainable import pass_on_trainable
from fkeras.engine.migration_hints.arguments import explains_arguments
from fkeras.engine.migration_hints.classes import model_without_graph
from fkeras.engine.strings.network import StringNetwork
from fkeras.engine.symbolic.input import InputLayer, symbolic
from fkeras.engine.tree.walk import layers_in, map_layers
from fkeras.engine.values.annotations import Option, Tree
from fkeras.engine.values.spec import Spec


class Model(StringNetwork):
    """Computes `outputs` from `inputs`, which are symbolic tensors.

    A subclass is a layer composed of layers: it declares fields and writes `call` for symbolic
    tensors. `call` is recorded into a graph when the shapes of the inputs are known, so the layer
    builds, nests and serializes like any other layer.

    Args:
        inputs: tensors from `fk.Input`, alone or in lists, tuples and dictionaries. A tensor from the
            middle of a graph cuts the graph there.
        outputs: tensors computed from the inputs, likewise.
        name: the model's name.
        trainable: False to freeze all layers of the model.

    Raises:
        DisconnectedGraphError: if an output needs a tensor that is not among the inputs.
        ValueError: for a `dtype` other than float32: each layer has a dtype policy of its own, and
            `fk.cast` changes the policies of all layers.

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

    _keras_module: ClassVar[str] = "keras.src.models.functional"
    _keras_form: ClassVar[KerasForm] = dataclasses.replace(
        StringNetwork._keras_form, class_name="Functional"
    )

    @explains_arguments
    def __init__(
        self,
        inputs: SymbolicTree | None = None,
        outputs: SymbolicTree | None = None,
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: DTypeLike | DTypePolicy = "float32",
    ):
        if inputs is None or outputs is None:
            raise TypeError(model_without_graph(self))
        set_field = object.__setattr__  # layers are frozen
        # before the graph is closed, whose error messages name the model
        set_field(self, "name", name)
        set_field(self, "trainable", trainable)
        set_field(self, "dtype", dtype)
        convert_fields(self)
        refuse_policy(self)
        graph, layers = close(inputs, outputs, self._where)
        set_field(self, "graph", graph)
        set_field(self, "layers", layers)
        # kept by this object alone: the layers of a copy may differ from those that were recorded
        self.__dict__["_origins"] = origins_of(graph, inputs)
        if not self.trainable:
            pass_on_trainable(self)
            set_field(self, "graph", graph.bind(self.layers))

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if "_keras_form" not in cls.__dict__:  # a subclass goes to files under its own name
            cls._keras_form = dataclasses.replace(cls._keras_form, class_name=None)
        super().__init_subclass__(**kwargs)

    @property
    def _default_name(self) -> str | None:
        return "functional" if type(self) is Model else None

    def call(self, *inputs: Tree, **options: Option) -> Any:
        """Composes layers on symbolic tensors; for subclasses to override."""
        raise NotImplementedError(
            f"{self._where}: has no `call`. A subclass of fk.Model writes `def call(self, x)`, "
            "which calls layers on the symbolic tensor x and returns the outputs."
        )

    def _resolve(self, *specs: Tree) -> Self:
        if self.graph is not None:
            return self
        # named after their fields, so that states and files do not depend on the order of calls
        children = _named_children(self)
        named_model = self.replace(**children)
        inputs = symbolic_inputs(specs)
        graph, layers = close(
            inputs[0] if len(inputs) == 1 else list(inputs),
            compose(named_model.call, inputs),
            self._where,
        )
        # the graph's layers hold the weights; the fields keep only the configuration
        unbuilt_children = {
            name: map_layers(child, lambda _, layer: layer._unbuilt())
            for name, child in children.items()
        }
        return named_model.replace(**unbuilt_children, graph=graph, layers=layers)

    def functional(self) -> Model:
        """A plain `fk.Model` with the same graph and weights, which loads without the subclass."""
        plain = object.__new__(Model)
        graph = self._require_graph("functional")
        values = {"name": self.name, "trainable": self.trainable, "dtype": self.dtype}
        plain.__dict__.update(values, graph=graph, layers=self.layers)
        return plain

    def get_config(self) -> dict[str, Any]:
        """The graph and its layers as JSON data; for a subclass, its constructor's arguments."""
        if type(self) is not Model:
            return super().get_config()
        return {"name": self.name, "trainable": self.trainable, **graph_config(self)}

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """The model of a configuration from `get_config`, or of Keras's JSON, without weights."""
        if cls is not Model:
            return super().from_config(config, custom_objects)
        config = inner_config(config, ("Functional", "Model"), "Model")
        rule, config = read_rule(config, custom_objects, cls.__name__)
        inputs, outputs = graph_from_config(config, custom_objects, rule)
        trainable = config.get("trainable", True)
        return cls(inputs, outputs, name=config.get("name"), trainable=trainable)


def refuse_policy(model: Layer) -> None:
    """Raises a ValueError for a model with a dtype policy, which none of its layers would follow."""
    name = model.dtype.name
    if name != "float32":
        raise ValueError(
            f"{model._where}: dtype: expected no dtype policy, received {name!r}: the layers of a model have "
            f"policies of their own. Write layers.Dense(2, dtype={name!r}), or model = fk.cast(model, {name!r})."
        )


def field_layers(model: Model) -> dict[str, Any]:
    """The fields of a `Model` subclass that hold layers, alone or in tuples and dictionaries."""
    names = (f.name for f in dataclasses.fields(model) if f.name not in ("layers", "graph"))
    values = {name: getattr(model, name, None) for name in names}
    return {name: value for name, value in values.items() if any(layers_in(value))}


def _named_children(model: Model) -> dict[str, Any]:
    """The fields that hold layers, with names for unnamed layers: "dense", "blocks_0".

    A layer in several fields stays one layer, named after the first field.
    """
    # by identity: two equal layers in two fields are two layers
    named_layers: dict[int, Layer] = {}
    used_names: set[str] = set()

    def named(path: str, layer: Layer) -> Layer:
        if id(layer) not in named_layers:
            name = layer.name or path.replace("/", "_")
            while layer.name is None and name in used_names:
                name += "_"
            used_names.add(name)
            named_layers[id(layer)] = layer if layer.name else layer.replace(name=name)
        return named_layers[id(layer)]

    return {field: map_layers(value, named, field) for field, value in field_layers(model).items()}


def symbolic_inputs(specs: Tree) -> Tree:
    """A symbolic tensor for each spec in a tree."""

    def make(spec: Any) -> Any:
        return (
            symbolic(InputLayer(batch_shape=spec.dims, dtype=spec.dtype))
            if isinstance(spec, Spec)
            else spec
        )

    return jax.tree.map(make, specs, is_leaf=lambda v: isinstance(v, Spec))
