"""Converts networks of tf.keras that call TensorFlow functions to operations of Keras 3."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from fkeras.authoring.engine import reason
from fkeras.authoring.saving import Origin
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.strict_json import ParsedJson, check, field
from fkeras.saving.legacy.calls.graphs import (
    CONSTANT,
    Graph,
    call_entries,
    is_entry,
    safe_name,
)
from fkeras.saving.legacy.tensorflow import nodes, table
from fkeras.saving.legacy.tensorflow.builder import Builder
from fkeras.saving.legacy.tensorflow.custom import UserFunctionCall
from fkeras.saving.legacy.tensorflow.folding import Arg
from fkeras.saving.legacy.tensorflow.sizes import Sizes, tensors_in

#: layers of tf.keras 2.4 and later (the first two) and 2.0 to 2.3 that call a function
_CLASSES = ("TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer")
#: dtypes of layers whose constants must not widen the result
_NARROW = ("float16", "bfloat16")
Call = tuple[str, int]


def is_function(item: ParsedJson, custom_objects: Mapping[str, Any]) -> bool:
    """Whether a layer of a file is a call of a TensorFlow function.

    Example:
        >>> is_function({"class_name": "TFOpLambda"}, {}), is_function({"class_name": "Dense"}, {})
        (True, False)
    """
    kind = item.get("class_name") if isinstance(item, Mapping) else None
    return kind in _CLASSES and kind not in custom_objects


@dataclasses.dataclass
class _Reader:
    """Converts the calls of one network; each call must come after the calls it depends on."""

    graph: Graph
    origin: Origin
    items: Mapping[str, Mapping]
    custom_objects: Mapping[str, Any]
    extra: dict[str, Any]
    ordinary: Callable[[str, Any], dict[str, Any]]
    sizes: Sizes
    names: set[str]
    loose: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    converted: dict[str, dict[int, list[dict[str, Any]]]] = dataclasses.field(default_factory=dict)

    def read(self, layer: str, index: int, raw: ParsedJson) -> None:
        """Converts one call whose inputs have been converted."""
        item = self.items[layer]
        safe = safe_name(layer)
        if not is_function(item, self.custom_objects):
            node = self.ordinary(layer, raw)
            self.sizes.calls[safe, index] = (item, node)
            self.converted.setdefault(layer, {})[index] = [node]
            return
        config = field(item, "config", dict, **self.origin.place(layer))
        function, function_name, arguments, options = self._call(item, config, layer, raw)
        dtype = config.get("dtype")
        policy = dtype.get("config") if isinstance(dtype, Mapping) else {"name": dtype}
        name = policy.get("name") if isinstance(policy, Mapping) else None
        narrow = isinstance(name, str) and name.removeprefix("mixed_") in _NARROW
        builder = Builder(safe, function_name, self.origin, self.sizes, narrow)
        try:
            value = self._result(builder, function, arguments, options)
        except FileError:
            raise
        # A damaged file can fail anywhere in JAX's shape inference: report the layer and function.
        except Exception as error:
            raise builder.error(
                f"cannot be built from its arguments: {reason(error)} Correct the arguments, "
                + builder.instead
            ) from error
        self._name(builder, safe, value)
        self.graph.values[safe, index] = value
        self.converted.setdefault(layer, {})[index] = builder.items

    def constant(self, value: Arg, layer: str | None) -> dict[str, Any]:
        """Converts a constant to a tensor, for a layer that needs a tensor: adds a zero."""
        name = safe_name(f"{layer or 'output'}_constant")
        builder = Builder(name, "constant", self.origin, self.sizes)
        # An operation without tensors would be folded, so the constant must depend on an input.
        source, dims = next(self.sizes.inputs(), (None, ()))
        if source is None:
            raise builder.error("expected an input in the network, received none.")
        zero = builder("ZerosLike", builder("GetItem", source, [0] * len(dims)))
        tensor = builder("Add", builder("Cast", zero, dtype=builder.dtype(value)), value)
        self._name(builder, name, tensor)
        self.loose.extend(builder.items)
        return tensor

    def _result(
        self, builder: Builder, function: str | None, arguments: list, options: Mapping[str, Any]
    ) -> Any:
        function_name = builder.function
        if function_name in self.custom_objects:
            custom_function = self.custom_objects[function_name]
            return UserFunctionCall(builder, custom_function, self.extra).result(arguments, options)
        if function is None:
            raise builder.error(
                "unknown function. Pass a function that computes the same result: "
                f"custom_objects={{{function_name[:80]!r}: lambda x: ...}}, with TensorFlow's argument names."
            )
        return table.call(builder, function, arguments, options)

    def _call(
        self, item: Mapping, config: Mapping, layer: str, raw: ParsedJson
    ) -> tuple[str | None, str, list, dict]:
        where = self.origin.place(layer)
        if item["class_name"] == "TensorFlowOpLayer":
            value = self._value(raw, layer)
            tensors = list(value) if isinstance(value, list) else [value]
            node = config.get("node_def")
            op = node.get("op") if isinstance(node, Mapping) else None
            # The user's function has priority, even for operations in the table.
            if isinstance(op, str) and op in self.custom_objects:
                return None, op, tensors, {}
            function, arguments, options = nodes.read(config, tensors, self.origin, layer)
            return function, op if isinstance(op, str) else function, arguments, options
        function_name = field(config, "function", str, **where)
        # Keras repeats the same options beside each tensor of a call: the first copy is enough.
        all_options = (e[3] for e in call_entries(raw) if len(e) == 4 and isinstance(e[3], Mapping))
        options = {k: self._option(v, layer) for k, v in next(all_options, {}).items()}
        # x[None] adds an axis, but None in other options means a missing argument.
        if function_name == "__operators__.getitem" and options.get("slice_spec", 0) is None:
            options["slice_spec"] = [None]
        return table.key_of(function_name), function_name, [self._value(raw, layer)], options

    def _value(self, node: ParsedJson, layer: str) -> Any:
        """Returns the first argument of a call: a tensor, a constant, or a list of these."""
        parts = check(node, list, "a tensor of a call", **self.origin.place(layer))
        if not is_entry(node):
            return [self._value(part, layer) for part in parts]
        if node[0] == CONSTANT:
            return node[2]
        return self.graph.value(node, layer)

    def _option(self, value: ParsedJson, layer: str) -> Any:
        if isinstance(value, list):
            if is_entry(value) and len(value) == 3 and value[0] in self.graph.counts:
                return self.graph.value(value, layer)
            return [self._option(v, layer) for v in value]
        if isinstance(value, Mapping):
            # A shape is a plain list to every function of the table; slices stay mappings.
            if value.get("class_name") == "TensorShape":
                return value.get("items")
            return {k: self._option(v, layer) for k, v in value.items()}
        return value

    def _name(self, builder: Builder, safe: str, value: Arg) -> None:
        """Names the last operation after the layer, and other operations after layer and class."""
        # The last operation returns the layer's result: outputs of the model keep their names.
        names = {}
        for number, item in enumerate(builder.items):
            old_name = item["name"]
            last = number == len(builder.items) - 1
            new_name = (
                safe
                if last and safe not in self.names
                else self._free_name(safe, item["class_name"])
            )
            self.names.add(new_name)
            names[old_name] = new_name
            self.sizes.rename(old_name, new_name)
            self.sizes.calls[new_name, 0] = self.sizes.calls.pop((old_name, 0))
            item["name"] = new_name
            item["config"]["name"] = new_name
        for tensor in tensors_in([value, *(item["inbound_nodes"] for item in builder.items)]):
            history = tensor["config"]["keras_history"]
            history[0] = names.get(history[0], history[0])

    def _free_name(self, safe: str, class_name: str) -> str:
        stem = f"{safe}_{class_name.lower()}"
        number, name = 0, stem
        while name in self.names:
            number += 1
            name = f"{stem}_{number}"
        return name


def operations(
    graph: Graph,
    items: Mapping[str, Mapping],
    calls: Mapping[str, Sequence[Any]],
    custom_objects: Mapping[str, Any],
    extra: dict[str, Any],
    ordinary: Callable[[str, Any], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Returns the layers of a network in Keras 3's form, with operations instead of functions."""
    origin = graph.origin
    if not any(is_function(item, custom_objects) for item in items.values()):
        return [
            {
                **item,
                "name": safe_name(name),
                "inbound_nodes": []
                if item["class_name"] == "InputLayer"
                else [ordinary(name, node) for node in calls[name]],
            }
            for name, item in items.items()
        ]
    ordinary_names = {safe_name(n) for n, i in items.items() if not is_function(i, custom_objects)}
    sizes = Sizes({}, lambda: {**extra, **custom_objects})
    reader = _Reader(graph, origin, items, custom_objects, extra, ordinary, sizes, ordinary_names)
    for name, item in items.items():
        if item["class_name"] == "InputLayer":
            sizes.calls[safe_name(name), 0] = (item, {"args": [], "kwargs": {}})
    graph.constant = reader.constant
    for layer, index in _in_order(graph, items, calls):
        reader.read(layer, index, calls[layer][index])
    # The list grows after the return: `Graph.ends` may convert outputs that are constants.
    layer_items = reader.loose
    for name, item in items.items():
        converted_calls = [
            part for _, parts in sorted(reader.converted.get(name, {}).items()) for part in parts
        ]
        if is_function(item, custom_objects):
            layer_items.extend(converted_calls)
        else:
            layer_items.append({**item, "name": safe_name(name), "inbound_nodes": converted_calls})
    return layer_items


def _in_order(
    graph: Graph, items: Mapping[str, Mapping], calls: Mapping[str, Sequence[Any]]
) -> Iterator[Call]:
    """Yields the calls in topological order."""
    true_names = {safe_name(name): name for name in items}
    inputs = {n for n, item in items.items() if item["class_name"] == "InputLayer"}
    done: set[Call] = set()
    open_calls: set[Call] = set()
    for start in [(n, i) for n in items if n not in inputs for i in range(len(calls[n]))]:
        # Depth first with an explicit stack: graphs can be deeper than Python's recursion limit.
        stack = [start]
        while stack:
            call = stack[-1]
            if call in done:
                stack.pop()
                continue
            pending_inputs = []
            for entry in _entries(calls[call[0]][call[1]], graph.counts):
                name, index, _ = graph.coordinates(entry, call[0])
                source = (true_names[name], index)
                if source[0] not in inputs and source not in done:
                    pending_inputs.append(source)
            if not pending_inputs:
                stack.pop()
                done.add(call)
                open_calls.discard(call)
                yield call
                continue
            # An open call that waits for another open call is part of a cycle.
            if call in open_calls and any(n in open_calls for n in pending_inputs):
                raise graph.origin.error(
                    "the calls of this layer are part of a cycle. The file is damaged.", call[0]
                )
            open_calls.add(call)
            stack.extend(pending_inputs)


def _entries(node: ParsedJson, names: Mapping[str, Any]) -> Iterator[Sequence[Any]]:
    """Yields every `[name, call, output, ...]` of a tensor in a call."""
    stack = [node]
    while stack:
        value = stack.pop()
        if is_entry(value) and value[0] in names:
            yield value
            stack.extend(value[3:])
        elif isinstance(value, Mapping):
            stack.extend(value.values())
        elif isinstance(value, list):
            stack.extend(v for v in value if isinstance(v, list | Mapping))
