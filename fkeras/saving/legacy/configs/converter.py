"""Converts the `model_config` of Keras 1, 2 and 3 to Keras 3's form.

A file cannot name code to run: class names are looked up in tables, module names in the file are
ignored, and functions stored as bytecode are rejected.
"""

from __future__ import annotations

import contextlib
import dataclasses
import types
from collections.abc import Iterator, Mapping
from typing import Any

from fkeras import layers as catalogue
from fkeras.authoring.engine import (
    CustomObjects,
    custom_code,
    operation_form,
    public_names,
    quantization,
    within,
)
from fkeras.authoring.saving import Origin, has_argument_nodes, keras2_hard_sigmoid, with_quirks
from fkeras.engine import Layer, suggest
from fkeras.host.containers.strict_json import ParsedJson, check, field
from fkeras.saving.legacy.calls.graphs import Graph, is_network, safe_name
from fkeras.saving.legacy.configs import arguments, merging, objects
from fkeras.saving.legacy.configs.lambdas import lambda_layer
from fkeras.saving.legacy.tensorflow import is_function, operations

_OLD_CLASSES = types.MappingProxyType(
    {
        "Model": "Functional",
        "GroupedQueryAttention": "GroupQueryAttention",
        "Convolution1D": "Conv1D",
        "Convolution2D": "Conv2D",
        "Convolution3D": "Conv3D",
        "AtrousConvolution1D": "Conv1D",
        "AtrousConvolution2D": "Conv2D",
        "AtrousConv1D": "Conv1D",
        "AtrousConv2D": "Conv2D",
        "Deconvolution2D": "Conv2DTranspose",
        "Deconvolution3D": "Conv3DTranspose",
        "SeparableConvolution2D": "SeparableConv2D",
        "CuDNNLSTM": "LSTM",
        "CuDNNGRU": "GRU",
        "UnifiedLSTM": "LSTM",
        "UnifiedGRU": "GRU",
        "BatchNormalizationV1": "BatchNormalization",
        "BatchNormalizationV2": "BatchNormalization",
        "SyncBatchNormalization": "BatchNormalization",
        "ThresholdedReLU": "ReLU",
    }
)
#: activations of cuDNN layers, which their configurations do not contain
_CUDNN = types.MappingProxyType({"activation": "tanh", "recurrent_activation": "sigmoid"})
#: operations of Keras 3 whose classes are in `keras.src.activations`
_ACTIVATIONS = ("ReLU", "Mish")
_ENDS = types.MappingProxyType({"input_layers": "inputs", "output_layers": "outputs"})
#: layers in the catalogue that legacy files cannot describe, or that are only base classes
_FOREIGN = ("JaxLayer", "FlaxLayer", "Wrapper", "Layer")
_LAYER_KEYS = ("layer", "backward_layer", "forward_layer", "cell")
_HERE = "keras.layers"
_GRAPH = types.MappingProxyType(
    {"Functional": "keras.src.models.functional", "Sequential": "keras"}
)


@dataclasses.dataclass
class Converter:
    """Converts one file's configuration to Keras 3's form.

    Attributes:
        extra: functions that the converted configuration refers to, by generated names.
        ordering: Keras 1's data format for layers without one.
        lambdas: names of the Lambda layers for which the user passed a function or layer.
    """

    origin: Origin
    custom_objects: Mapping[str, Any]
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)
    orders: dict[tuple[str, ...], tuple[str, ...]] = dataclasses.field(default_factory=dict)
    ordering: str = "tf"
    lambdas: set[str] = dataclasses.field(default_factory=set)

    def __post_init__(self) -> None:
        self.extra.setdefault(objects.HARD_SIGMOID, keras2_hard_sigmoid)

    @property
    def all_objects(self) -> dict[str, Any]:
        """The user's objects and the generated names in `extra`."""
        # A key that names a Lambda layer must not replace a class or function of the same name.
        user_objects = {k: v for k, v in self.custom_objects.items() if k not in self.lambdas}
        return CustomObjects({**self.extra, **user_objects})

    def model(self, config: ParsedJson) -> dict[str, Any]:
        """Converts the configuration of a whole model."""
        where = self.origin.place()
        kind = field(config, "class_name", str, **where)
        if kind in self.custom_objects:
            return self.layer(config, ())
        if _OLD_CLASSES.get(kind, kind) not in _GRAPH:
            with within("class_name"):
                raise self.origin.error(
                    f"expected a functional model or a Sequential, received the class {kind!r:.80}. "
                    "Files hold no code of subclasses: pass the class as "
                    f"{custom_code(kind, 'YourModel')}, or save a functional model of its layers."
                )
        if self.origin.major == 1:
            self.ordering = arguments.ordering(config)
        config = with_quirks(config, self.origin, self.custom_objects, "stored")
        return with_quirks(self.layer(config, ()), self.origin, self.custom_objects)

    # -- layers -------------------------------------------------------------------------------

    def layer(self, item: ParsedJson, path: tuple[str, ...]) -> dict[str, Any]:
        """Converts one layer, network or cell.

        Args:
            item: `{"class_name": ..., "config": ...}`.
        """
        origin = self.origin
        kind = field(item, "class_name", str, **origin.place(_name_of(item)))
        config = field(item, "config", (dict, list), **origin.place(_name_of(item)))
        name = _name_of(item)
        if kind in self.custom_objects and kind != "Lambda":
            return {"class_name": kind, "config": _renamed(config, name)}
        class_name = _OLD_CLASSES.get(kind, kind)
        if class_name == "Sequential":
            return self._sequential(config, name, path)
        if class_name == "Functional":
            return self._functional(
                check(config, dict, "the 'config' of a model", **origin.place(name)), name, path
            )
        check(config, dict, "the configuration of a layer", **origin.place(name))
        if kind == "Merge":
            class_name, config = merging.merge(config, origin)
        if class_name == "InputLayer":
            return self._input(config, name)
        if class_name == "Lambda":
            converted = lambda_layer(config, name, origin, self.custom_objects, self.extra)
            if name is not None:
                self.lambdas.add(name)
            return _item("Lambda", converted) if "function" in converted else converted
        # ReLU is a layer and an operation of Keras 3; only layers write `trainable`.
        if origin.major == 3 and "trainable" not in config:
            operation = _operation(kind)
            if operation is not None:
                return {"module": operation, "class_name": kind, "config": dict(config)}
        cls = (
            getattr(catalogue, class_name, None) if class_name in public_names(catalogue) else None
        )
        if not (isinstance(cls, type) and issubclass(cls, Layer)) or class_name in _FOREIGN:
            raise origin.error(
                f"unknown layer {kind!r:.80}.{suggest(kind, public_names(catalogue))} Pass your own class: "
                f"{custom_code(kind, 'YourLayer')}.",
                name,
            )
        return _item(class_name, self._config(kind, class_name, cls, config, name, path))

    def _config(
        self, kind: str, class_name: str, cls: type, config: Mapping, name: str | None, path: tuple
    ) -> dict[str, Any]:
        origin = self.origin
        options = arguments.renamed(class_name, config, origin)
        if kind.startswith("CuDNN"):
            options = {**_CUDNN, **options}
            # cuDNN's GRU always applies the reset gate after the matrix product.
            if class_name == "GRU":
                options["reset_after"] = True
        if kind == "ThresholdedReLU":
            options["threshold"] = options.pop("theta", 1.0)
        if class_name in arguments.UNORDERED and origin.major == 1:
            options.setdefault("data_format", arguments.FORMATS[self.ordering])
        options = arguments.adjusted(class_name, options, origin, name)
        fields = frozenset(f.name for f in dataclasses.fields(cls) if f.init) | {"layer", "cell"}
        if class_name == "Bidirectional":
            fields |= {"backward_layer", "merge_mode"}
        # From here on, unknown arguments with an effect are errors instead of being dropped.
        options = arguments.supported_arguments(class_name, options, fields, origin, name)
        for key, value in options.items():
            with within("config"), within(key):
                options[key] = self._value(key, value, name, path)
        if quantization(config.get("dtype")) is not None:
            options["quantization_config"] = config.get("quantization_config")
        if name is not None:
            options["name"] = safe_name(name)
        return options

    def _value(self, key: str, value: ParsedJson, name: str | None, path: tuple) -> Any:
        """Converts one value of a layer's configuration."""
        origin, custom = self.origin, self.custom_objects
        suffix = key.rsplit("_", 1)[-1]
        if suffix in ("initializer", "regularizer", "constraint"):
            return objects.part(suffix, value, origin, name, custom)
        if suffix == "activation":
            return objects.activation(value, origin, name, custom)
        if key in _LAYER_KEYS and value is not None:
            return self.layer(value, (*path, key))
        if key == "cells":
            cells = check(value, list, "'cells'", **origin.place(name))
            return [self.layer(v, (*path, key, str(i))) for i, v in enumerate(cells)]
        if key != "dtype":
            return self._plain(value, key, name)
        if quantization(value) is not None:
            return value  # a quantized policy of Keras 3, which the layer's class reads
        return objects.dtype(value, origin, name) or "float32"

    def _plain(self, value: ParsedJson, key: str, name: str | None) -> Any:
        """Converts numbers, strings and lists; arrays become lists, and objects are rejected."""
        if isinstance(value, list):
            return [self._plain(v, key, name) for v in value]
        if isinstance(value, Mapping):
            if value.get("class_name") in ("__tuple__", "TensorShape", "__numpy__", "__ndarray__"):
                items = value.get("items", (value.get("config") or {}))
                items = items.get("value") if isinstance(items, Mapping) else items
                return self._plain(items, key, name)
            if value.get("type") == "ndarray":  # NumPy numbers of Keras 2.2
                return self._plain(value.get("value"), key, name)
            if "class_name" in value:
                raise self.origin.error(
                    f"expected numbers or strings as {key!r:.80}, received an object "
                    f"{value.get('class_name')!r:.80}. Save the model without it.",
                    name,
                )
            return {k: self._plain(v, key, name) for k, v in value.items()}
        return value

    def _input(self, config: Mapping, name: str | None) -> dict[str, Any]:
        origin, where = self.origin, self.origin.place(name)
        for key in ("sparse", "ragged"):
            if config.get(key):
                raise origin.error(
                    f"expected a dense input, received a {key} input; fkeras has dense arrays only. "
                    "Save the model with a dense input.",
                    name,
                )
        key = "batch_shape" if "batch_shape" in config else "batch_input_shape"
        with within("config"), within(key):
            shape = _shape(field(config, key, (list, dict), **where), origin, name)
        stored = config.get("dtype")
        with within("config"), within("dtype"):
            dtype = objects.dtype(stored, origin, name)
        dtype = dtype or (stored if isinstance(stored, str) else None)
        # A mixed policy is no dtype of an input: Keras feeds such models float32.
        if dtype and dtype.startswith("mixed"):
            dtype = None
        input_config = {"batch_shape": shape, "dtype": dtype or "float32"}
        return _item(
            "InputLayer",
            input_config if name is None else {**input_config, "name": safe_name(name)},
        )

    # -- networks -----------------------------------------------------------------------------

    def _sequential(self, config: ParsedJson, name: str | None, path: tuple) -> dict[str, Any]:
        where = self.origin.place(name)
        options: Mapping = config if isinstance(config, dict) else {}
        with within("config"):
            items: Any = field(config, "layers", list, **where) if options else config
        layer_items = []
        for index, item in enumerate(items):
            with within("config"), within("layers"), within(index):
                layer_items.append(self.layer(item, (*path, _name_of(item) or "")))
        self._record_order(path, layer_items)
        # Many versions of Keras list no InputLayer: the first layer holds the input shape.
        if layer_items and layer_items[0]["class_name"] != "InputLayer":
            shape = _first_shape(items[0]) or options.get("build_input_shape")
            if shape is not None:
                input_config = {"batch_input_shape": shape, "dtype": _first_dtype(items[0])}
                key = "build_input_shape" if _first_shape(items[0]) is None else "batch_input_shape"
                with within("config"), within(key):
                    layer_items.insert(0, self._input(input_config, None))
        result: dict[str, Any] = {"layers": layer_items, "trainable": _trainable(options)}
        model_name = name or options.get("name")
        if model_name is not None:
            result["name"] = safe_name(check(model_name, str, "the name of a model", **where))
        return _item("Sequential", result)

    def _functional(self, config: Mapping, name: str | None, path: tuple) -> dict[str, Any]:
        origin, where = self.origin, self.origin.place(name)
        with within("config"):
            items = field(config, "layers", list, **where)
        names = []
        for index, item in enumerate(items):
            with _within_layer(index):
                names.append(_own_name(item, origin))
        duplicate = next((n for i, n in enumerate(names) if n in names[:i]), None)
        # `safe_name` can map two different names to one: references would be ambiguous.
        if duplicate is not None or len({safe_name(n) for n in names}) < len(names):
            raise origin.error(
                f"expected unique names of layers, received {duplicate or names!r:.80}. The file is "
                "damaged."
            )
        layer_items, all_nodes = [], []
        for index, (item, layer_name) in enumerate(zip(items, names, strict=True)):
            with _within_layer(index):
                if origin.major == 2 and is_function(item, self.custom_objects):
                    layer_items.append(
                        {**item, "config": field(item, "config", dict, **origin.place(layer_name))}
                    )
                else:
                    layer_items.append(self.layer(item, (*path, safe_name(layer_name))))
                all_nodes.append(field(item, "inbound_nodes", list, [], **origin.place(layer_name)))
        self._record_order(path, layer_items)
        result = {
            "name": safe_name(name) if name else config.get("name"),
            "trainable": _trainable(config),
        }
        with within("config"):
            ends = {key: field(config, key, (list, dict), **where) for key in _ENDS}
        # The form of the calls decides: another program may have rewritten the file's version.
        if has_argument_nodes(all_nodes, origin.major == 3):
            called_items = [
                {**m, "name": safe_name(n), "inbound_nodes": nodes}
                for m, n, nodes in zip(layer_items, names, all_nodes, strict=True)
            ]
            return _item("Functional", {**result, "layers": called_items, **ends})
        class_names = {n: m["class_name"] for n, m in zip(names, layer_items, strict=True)}
        counts = {
            n: 1 if class_names[n] == "InputLayer" else len(nodes)
            for n, nodes in zip(names, all_nodes, strict=True)
        }
        graph = Graph(counts, frozenset(n for n in names if is_network(class_names[n])), origin)
        # All references must be recorded before the first conversion, see `Graph.meet`.
        graph.meet([all_nodes, list(ends.values())])
        constants = {n: _constants(i) for n, i in zip(names, items, strict=True)}

        def call(layer: str, node: ParsedJson) -> dict[str, Any]:
            with _within_layer(names.index(layer)), within("inbound_nodes"):
                return graph.node(node, class_names[layer], layer, constants[layer])

        by_name = dict(zip(names, layer_items, strict=True))
        calls = dict(zip(names, all_nodes, strict=True))
        result["layers"] = operations(graph, by_name, calls, self.custom_objects, self.extra, call)
        for key, what in _ENDS.items():
            with within("config"), within(key):
                result[key] = graph.ends(ends[key], what)
        return _item("Functional", result)

    def _record_order(self, path: tuple, layer_items: list[dict[str, Any]]) -> None:
        names = (m["config"].get("name") for m in layer_items if m["class_name"] != "InputLayer")
        self.orders[path] = tuple(n for n in names if isinstance(n, str))


@contextlib.contextmanager
def _within_layer(index: int) -> Iterator[None]:
    """Adds the keys of a layer in a model's configuration to exceptions from the block."""
    with within("config"), within("layers"), within(index):
        yield


def _item(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    module = _GRAPH.get(kind, _HERE)
    return {"module": module, "class_name": kind, "config": dict(config), "registered_name": None}


def _operation(kind: str) -> str | None:
    """Returns the module of Keras 3's operation with this class, or None for other classes."""
    if kind in _ACTIVATIONS:
        return "keras.src.activations"
    return "keras.src.ops.numpy" if kind == "GetItem" or operation_form(class_name=kind) else None


def _renamed(config: ParsedJson, name: str | None) -> Any:
    if isinstance(config, dict) and isinstance(name, str):
        return {**config, "name": safe_name(name)}
    return config


def _name_of(item: ParsedJson) -> str | None:
    """Returns the name of a layer for messages, or None if the layer has no name."""
    if not isinstance(item, Mapping):
        return None
    config = item.get("config")
    name = item.get("name") or (config.get("name") if isinstance(config, Mapping) else None)
    return name if isinstance(name, str) else None


def _constants(item: Mapping) -> int:
    config = item["config"]
    return (config.get("num_constants") or 0) if isinstance(config, dict) else 0


def _own_name(item: ParsedJson, origin: Origin) -> str:
    name = _name_of(item)
    if name is None or not name:
        raise origin.error("a layer without a name in a functional model. The file is damaged.")
    return name


def _trainable(config: Mapping) -> bool:
    return config.get("trainable") is not False


def _shape(value: ParsedJson, origin: Origin, name: str | None) -> list[int | None]:
    if isinstance(value, Mapping):  # a serialized TensorShape, or a tuple of Keras 3
        value = value.get("items", value.get("config"))
    shape = check(value, list, "a shape", **origin.place(name))
    for size in shape:
        check(size, (int, type(None)), "a size", **origin.place(name))
        if size is not None and not 0 <= size < 1 << 40:
            raise origin.error(
                f"expected sizes of 0 or more in a shape, received {size}. The file is damaged.",
                name,
            )
    return shape


def _first_shape(item: ParsedJson) -> Any:
    """Returns the input shape in the first layer of a Sequential, also if that is a network."""
    # The bound limits the nesting of networks in hostile files.
    for _ in range(100):
        config = item.get("config") if isinstance(item, Mapping) else None
        if isinstance(config, list):
            items = config
        elif isinstance(config, Mapping):
            for key in ("batch_input_shape", "batch_shape"):
                if isinstance(config.get(key), list | Mapping):
                    return config[key]
            items = config.get("layers")
        else:
            return None
        if not isinstance(items, list) or not items:
            return None
        item = items[0]
    return None


def _first_dtype(item: ParsedJson) -> Any:
    config = item.get("config") if isinstance(item, Mapping) else None
    if not isinstance(config, Mapping):
        return None
    dtype = config.get("input_dtype") or config.get("dtype")
    return dtype if isinstance(dtype, str) else None
