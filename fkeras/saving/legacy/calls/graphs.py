"""Converts calls of Keras 1 and 2, `[["name", node, tensor, kwargs], ...]`, to Keras 3's form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

from fkeras.authoring.saving import Origin
from fkeras.host.containers.strict_json import ParsedJson, check

#: layers whose call lists initial states and constants after the input tensor
_RECURRENT = frozenset(
    ["RNN", "SimpleRNN", "LSTM", "GRU", "Bidirectional", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"]
)
#: layers that take several tensors as separate arguments; other layers take one list
_BY_POSITION = frozenset(("MultiHeadAttention", "GroupQueryAttention"))
_NETWORKS = ("Functional", "Sequential")
#: marker that tf.keras 2.4 and later write instead of a layer's name, before a constant
CONSTANT = "_CONSTANT_VALUE"


class Graph:
    """Call graph of one functional configuration of Keras 1 or 2.

    Args:
        counts: number of calls of each layer, by name.
    """

    def __init__(self, counts: Mapping[str, int], networks: frozenset[str], origin: Origin):
        self.counts = counts
        self.networks = networks
        self.origin = origin
        self.first: dict[str, int] = {}
        #: results of TensorFlow functions, by layer and call: tensors, lists of tensors, constants
        self.values: dict[tuple[str, int], Any] = {}
        #: converts a constant to a tensor, for a layer that needs a tensor
        self.constant: Callable[[Any, str | None], dict[str, Any]] | None = None

    def meet(self, nodes: ParsedJson) -> None:
        """Records the lowest call index of each network in `nodes`, for `reference`.

        Many versions of Keras count a network's calls from 1, because index 0 is the call that
        created the network. Other versions count from 0.
        """
        for entry in call_entries(nodes):
            name, index = entry[0], entry[1]
            if name in self.networks and isinstance(index, int):
                self.first[name] = min(index, self.first.get(name, index))

    def reference(self, entry: Sequence[Any], layer: str | None) -> dict[str, Any]:
        """Returns the tensor of `["name", node, tensor]` in Keras 3's form."""
        value = self.value(entry, layer)
        return (
            value if isinstance(value, dict) or not self.constant else self.constant(value, layer)
        )

    def value(self, entry: Sequence[Any], layer: str | None) -> Any:
        """Returns `reference`, or the constant that a TensorFlow function returns."""
        name, index, tensor = self.coordinates(entry, layer)
        result = self.values.get((name, index))
        if isinstance(result, list):
            if tensor >= len(result):
                raise self.origin.error(
                    f"refers to tensor {tensor} of {name!r:.80}, which returns {len(result)} tensors. "
                    "The file is damaged.",
                    layer,
                )
            return result[tensor]
        if result is not None:
            return result
        # Shape and dtype are placeholders: the loader infers both by calling the layers.
        config = {"shape": None, "dtype": "float32", "keras_history": [name, index, tensor]}
        return {"class_name": "__keras_tensor__", "config": config}

    def coordinates(self, entry: Sequence[Any], layer: str | None) -> list[Any]:
        """Returns `[name, call, tensor]` with calls counted from 0."""
        origin = self.origin
        where = origin.place(layer)
        name = check(entry[0], str, "the name of a layer", **where)
        index = check(entry[1], int, "the number of a call", **where)
        tensor = check(entry[2], int, "the number of a tensor", **where)
        if name not in self.counts:
            raise origin.error(
                f"refers to the unknown layer {name!r:.80}. The layers of the file have the names "
                f"{', '.join(map(repr, list(self.counts)[:12]))}. The file is damaged.",
                layer,
            )
        if name in self.networks and self.first.get(name, 0) == 1:
            index -= 1
        # Python would accept negative indices and count calls from the end.
        if not 0 <= index < self.counts[name] or not 0 <= tensor < 10_000:
            raise origin.error(
                f"refers to tensor {tensor} of call {index} of the layer {name!r}, which has "
                f"{self.counts[name]} calls in its 'inbound_nodes'. The file is damaged.",
                layer,
            )
        return [safe_name(name), index, tensor]

    def node(self, node: ParsedJson, kind: str, layer: str, constants: int = 0) -> dict[str, Any]:
        """Converts one call to Keras 3's form: `{"args": [...], "kwargs": {...}}`."""
        check(node, (list, dict), "a call", **self.origin.place(layer))
        inputs = self._inputs(node, layer)
        kwargs = self._options(node, layer)
        call = self._arguments(inputs, kwargs, kind, layer, constants)
        # Only Keras 3 writes `training` for calls that did not set it: here the user set it.
        if "training" in kwargs:
            call["training"] = check(
                kwargs.pop("training"), bool, "'training'", **self.origin.place(layer)
            )
        return call

    def _arguments(
        self, value: ParsedJson, kwargs: dict[str, Any], kind: str, layer: str, constants: int
    ) -> dict[str, Any]:
        if isinstance(value, dict) and "class_name" not in value:
            return {"args": [value], "kwargs": kwargs}
        tensors = value if isinstance(value, list) else [value]
        if not tensors:
            raise self.origin.error("a call without a tensor. The file is damaged.", layer)
        if kind in _RECURRENT and len(tensors) > 1:
            # Keras 2 appends states, then constants, to the inputs; only the count separates them.
            states = tensors[1 : len(tensors) - constants] if constants else tensors[1:]
            if constants:
                kwargs["constants"] = tensors[len(tensors) - constants :]
            kwargs["initial_state"] = states
            return {"args": tensors[:1], "kwargs": kwargs}
        if kind in _BY_POSITION:
            # The file may hold these tensors by name; Keras 3's form has them by position.
            named = [kwargs.pop(n) for n in ("query", "value", "key") if n in kwargs]
            return {"args": [*tensors, *named], "kwargs": kwargs}
        return {"args": tensors if len(tensors) == 1 else [tensors], "kwargs": kwargs}

    def _inputs(self, node: ParsedJson, layer: str) -> Any:
        if isinstance(node, Mapping):
            return {str(k): self._inputs(v, layer) for k, v in node.items()}
        if is_entry(node):
            if node[0] == CONSTANT:
                return _constant(node[2])
            return self.reference(node, layer)
        parts = check(node, list, "a tensor of a call", **self.origin.place(layer))
        return [self._inputs(part, layer) for part in parts]

    def _options(self, node: ParsedJson, layer: str) -> dict[str, Any]:
        entry = next(call_entries(node), None)
        if entry is None or len(entry) < 4:
            return {}
        options = check(entry[3], dict, "the options of a call", **self.origin.place(layer))
        # None means the default: Keras fills in arguments that the user's call did not set.
        explicit_options = {k: v for k, v in options.items() if v is not None}
        return {k: self._option(v, layer) for k, v in explicit_options.items()}

    def _option(self, value: ParsedJson, layer: str) -> Any:
        if _is_tensor(value) and value[0] in self.counts:
            return self.reference(value, layer)
        if isinstance(value, list):
            return [self._option(v, layer) for v in value]
        if isinstance(value, Mapping):
            # Objects could name code to import; a call needs only data.
            if "class_name" in value:
                raise self.origin.error(
                    "expected numbers, strings and tensors as options of a call, received an object. "
                    "Save the model again with Keras 3.",
                    layer,
                )
            return {k: self._option(v, layer) for k, v in value.items()}
        return value

    def ends(self, value: ParsedJson, what: str) -> Any:
        """Converts the inputs or outputs of a model; unpacks a list of a single tensor."""
        where = self.origin.place()
        if isinstance(value, Mapping):
            return {str(k): self.ends(v, what) for k, v in value.items()}
        parts = check(value, list, what, **where)
        if _is_tensor(value):
            return self.reference(value, None)["config"]["keras_history"]
        if not parts:
            raise self.origin.error(f"a model without {what}. The file is damaged.")
        converted = [self.ends(v, what) for v in parts]
        return converted[0] if len(converted) == 1 else converted


def _constant(value: ParsedJson) -> Any:
    """Returns a number unchanged, and a list of numbers as an array in Keras 3's form."""
    if not isinstance(value, list):
        return value
    return {"class_name": "__numpy__", "config": {"value": value, "dtype": "float32"}}


def _is_tensor(value: ParsedJson) -> TypeGuard[list[Any]]:
    return (
        isinstance(value, list)
        and len(value) == 3
        and isinstance(value[0], str)
        and all(isinstance(n, int) and not isinstance(n, bool) for n in value[1:])
    )


def is_entry(value: ParsedJson) -> TypeGuard[list[Any]]:
    """Whether a value is `[name, node, tensor]` or `[name, node, tensor, kwargs]`."""
    return isinstance(value, list) and len(value) in (3, 4) and isinstance(value[0], str)


def call_entries(nodes: ParsedJson) -> Iterator[Sequence[Any]]:
    """Yields every `[name, node, tensor, ...]` in a structure."""
    stack = [nodes]
    while stack:
        item = stack.pop()
        if is_entry(item):
            yield item
            # The keyword arguments of a call may contain further tensors.
            stack.extend(v for v in item[3:] if isinstance(v, list | Mapping))
        elif isinstance(item, Mapping):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(reversed(item))


def is_network(kind: str) -> bool:
    """Whether a class with this Keras 3 name is a network."""
    return kind in _NETWORKS


def safe_name(name: str) -> str:
    """Returns a layer's name with "_" for "/", which Keras 2 allowed and fkeras uses in paths."""
    return name.replace("/", "_")
