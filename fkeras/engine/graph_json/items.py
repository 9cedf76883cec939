"""The layers of a graph in JSON data, each made from its configuration."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any

from fkeras.engine.config.serialization import deserialize
from fkeras.engine.graph_json.arguments import checked_value, shown
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.key_paths import within
from fkeras.engine.symbolic.input import InputLayer
from fkeras.engine.symbolic.operation import Operation
from fkeras.engine.symbolic.operation_forms import OperationForm, operation_form
from fkeras.engine.values.annotations import Json

_OPERATIONS = ("keras.src.ops.", "keras.ops.")
# classes that Keras saves as operations and that are layers here
_ACTIVATIONS = types.MappingProxyType(
    {"ReLU": ("ReLU", {}), "Mish": ("Activation", {"activation": "mish"})}
)


@dataclasses.dataclass(frozen=True)
class Item:
    """One entry of "layers".

    Attributes:
        name: the name of the layer.
        layer: the layer, made from its configuration.
        nodes: the data of the layer's calls.
        form: for an operation, the form of its calls in Keras's files.
        fixed: for an operation, the arguments of the constructor of Keras's class.
        place: the index of the entry.
    """

    name: str
    layer: Any
    nodes: tuple[Any, ...]
    form: OperationForm | None = None
    fixed: Mapping[str, Any] | None = None
    place: int = 0

    @property
    def calls(self) -> int:
        """The number of calls; an input counts as one call."""
        return 1 if isinstance(self.layer, InputLayer) else len(self.nodes)


def read_items(config: Mapping, custom_objects: Mapping[str, Any] | None) -> dict[str, Item]:
    """Returns the layers of a model's configuration by name.

    Raises:
        FKerasError: for a layer that cannot be made, and for a name that occurs twice.
    """
    items: dict[str, Item] = {}
    for position, data in enumerate(
        checked_value(config.get("layers"), list, "The model", "layers")
    ):
        with within("layers"), within(position):
            name = _name(data, f"The model, layer {position}", items)
            item = _read_item(name, data, custom_objects)
            items[name] = dataclasses.replace(item, place=position)
    return items


def _name(data: Json, where: str, items: Mapping[str, Item]) -> str:
    """Returns the name of the layer in an entry of "layers"."""
    if not isinstance(data, Mapping):
        raise FKerasError(
            f"{where}: expected a dictionary with 'class_name' and 'config' in 'layers', received "
            f"{shown(data)}. Correct the configuration."
        )
    inner = data.get("config")
    name = data.get("name")
    if name is None and isinstance(inner, Mapping):
        name = inner.get("name")
    name = checked_value(name, str, where, "name")
    if name in items:
        with within("name"):
            raise FKerasError(
                f"{name!r}: two layers have this name, and calls refer to layers by name. Rename one "
                "of the two.",
                layer=name,
            )
    return name


def _read_item(name: str, data: Mapping, custom_objects: Mapping[str, Any] | None) -> Item:
    where = repr(name)
    nodes = tuple(checked_value(data.get("inbound_nodes", []), list, where, "inbound_nodes"))
    module = data.get("module")
    if isinstance(module, str) and f"{module}.".startswith(_OPERATIONS):
        return _read_operation(name, data, nodes)
    if isinstance(module, str) and module.startswith("keras.src.activations"):
        kind, fixed_options = _ACTIVATIONS.get(str(data.get("class_name")), ("", {}))
        layer_config = {
            **checked_value(data.get("config") or {}, Mapping, where, "config"),
            **fixed_options,
        }
        data = {"module": "keras.layers", "class_name": kind, "config": layer_config}
    if data.get("class_name") == "InputLayer":
        with within("config"):
            data = {**data, "config": _read_input(data.get("config"), where)}
    try:
        layer = deserialize(data, custom_objects)
    except FKerasError as error:
        raise FKerasError(f"{where}: {error}", layer=name) from error
    except RecursionError:
        raise FKerasError(
            f"{where}: models are nested deeper than Python's recursion limit. Flatten them.",
            layer=name,
        ) from None
    except Exception as error:
        raise FKerasError(
            f"{where}: the layer cannot be made from its configuration: {reason(error)}", layer=name
        ) from error
    if not isinstance(layer, Layer):
        raise FKerasError(
            f"{where}: expected a layer, received {type(layer).__name__}. Correct its class_name.",
            layer=name,
        )
    try:
        layer = layer if layer.name == name else layer.replace(name=name)
    except ValueError as error:
        raise FKerasError(f"{where}: {error}", layer=name) from None
    if isinstance(layer, InputLayer) and nodes:
        raise FKerasError(
            f"{where}: expected no calls of an input, received {len(nodes)}. Correct its "
            "inbound_nodes.",
            layer=name,
        )
    return Item(name, layer, nodes)


def _read_input(config: Json, where: str) -> dict[str, Any]:
    """Returns the configuration of an input; older versions have the shape under another key."""
    config = dict(checked_value(config, Mapping, where, "config"))
    if config.get("batch_shape") is None and "batch_input_shape" in config:
        config["batch_shape"] = config.pop("batch_input_shape")
    sizes = checked_value(config.get("batch_shape"), (list, tuple), where, "batch_shape")
    for size in sizes:
        # type(), not isinstance(): true and false are integers in Python
        if not (size is None or isinstance(size, str) or (type(size) is int and 0 <= size < 2**31)):
            raise FKerasError(
                f"{where}: expected sizes of 0 or more, names and null in 'batch_shape', received "
                f"{shown(sizes)}. Correct its shape.",
                layer=where,
            )
    return config


def _read_operation(name: str, data: Mapping, nodes: tuple) -> Item:
    where = repr(name)
    class_name = checked_value(data.get("class_name"), str, where, "class_name")
    inner = data.get("config")
    fixed = dict(checked_value({} if inner is None else inner, Mapping, where, "config"))
    fixed.pop("name", None)
    if class_name == "GetItem":
        form = OperationForm("", "GetItem", "getitem", (), ())
    else:
        named_form = operation_form(class_name=class_name)
        if named_form is None:
            raise FKerasError(
                f"{where}: unsupported operation {class_name!r}. Replace the operation by an "
                "operation of fk.ops or by a layer.",
                layer=name,
            )
        form = named_form
    layer = Operation(form.op, name=name, trainable=data.get("trainable") is not False)
    return Item(name, layer, nodes, form, fixed)


def reason(error: Exception) -> str:
    """Returns the message of an error, for the message of another error.

    Example:
        >>> reason(KeyError("units")), reason(ValueError("expected 3"))
        ("no 'units'", 'expected 3')
    """
    text = f"no {error}" if isinstance(error, KeyError) else str(error)
    return f"{text[:1500]}" if text else type(error).__name__
