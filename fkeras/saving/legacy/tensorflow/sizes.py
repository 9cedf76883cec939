"""Infers shapes of tensors while a graph is read, for functions of sizes such as `tf.shape`.

An unknown size is a symbolic dimension of `jax.export`: "b" for the batch and a distinct name for
each other axis. Equal sizes thus compare equal, and sums of sizes have a symbolic form.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax.export

from fkeras.authoring.engine import evaluate_expression, graph_from_config
from fkeras.host.containers.strict_json import ParsedJson
from fkeras.saving.legacy.tensorflow.folding import is_size, is_tensor

History = tuple[str, int, int]
Dims = tuple[Any, ...]


@dataclasses.dataclass
class Sizes:
    """Inferred shapes of the tensors in a graph.

    Attributes:
        calls: layer and call that produce tensors, by the layer's name and the call's index.
        objects: returns the functions and classes that the layers may refer to.
    """

    calls: dict[tuple[str, int], tuple[Mapping, Mapping]]
    objects: Callable[[], Mapping[str, Any]]

    def __post_init__(self) -> None:
        # JAX compares symbolic dimensions only within one scope.
        self._scope = jax.export.SymbolicScope()
        self._cached: dict[History, tuple[Dims, str]] = {}
        self._size_names = (f"n{number}" for number in itertools.count())

    def of(self, tensor: Mapping) -> tuple[Dims, str]:
        """Returns `(dims, dtype)` of a tensor; unknown sizes are symbolic dimensions.

        The result of each call is inferred once and cached.
        """
        # An explicit stack: graphs can be deeper than Python's recursion limit.
        stack = [_history(tensor)]
        while stack:
            history = stack[-1]
            missing = [] if history in self._cached else self._missing(history)
            if missing:
                stack.extend(missing)
                continue
            stack.pop()
            if history not in self._cached:
                self._cached[history] = self._infer(history)
        return self._cached[_history(tensor)]

    def rename(self, old: str, new: str) -> None:
        """Moves the cached shapes of a layer to its new name."""
        for history in [h for h in self._cached if h[0] == old]:
            self._cached[new, history[1], history[2]] = self._cached.pop(history)

    def inputs(self) -> Iterator[tuple[Mapping, Dims]]:
        """Yields the tensor and dims of each input of the network."""
        for (name, index), (item, _) in list(self.calls.items()):
            if item["class_name"] == "InputLayer":
                config = {"shape": None, "dtype": "float32", "keras_history": [name, index, 0]}
                tensor = {"class_name": "__keras_tensor__", "config": config}
                yield tensor, self.of(tensor)[0]

    def _missing(self, history: History) -> list[History]:
        _, node = self.calls[history[:2]]
        return [h for h in map(_history, tensors_in(node)) if h not in self._cached]

    def _dim(self, word: str) -> Any:
        return jax.export.symbolic_shape(word, scope=self._scope)[0]

    def _infer(self, history: History) -> tuple[Dims, str]:
        item, node = self.calls[history[:2]]
        if item["class_name"] == "InputLayer":
            config = item["config"]
            dims = tuple(
                # All inputs share the batch size; nothing relates their other unknown sizes.
                self._dim("b" if axis == 0 else next(self._size_names)) if size is None else size
                for axis, size in enumerate(config["batch_shape"])
            )
            return dims, config.get("dtype") or "float32"
        # Infer the call alone, in a network with one input for each of its tensors: layers infer
        # their shapes only when called. Equal sizes get equal names, so the result keeps relations.
        size_names: dict[Any, str] = {}
        layers, input_names = [], {}
        for tensor in tensors_in(node):
            source = _history(tensor)
            if source in input_names:
                continue
            dims, dtype = self._cached[source]
            name = input_names[source] = f"input{len(input_names)}"
            shape = [
                size_names.setdefault(d, f"s{len(size_names)}") if is_size(d) else d for d in dims
            ]
            config = {"batch_shape": shape, "dtype": dtype, "name": name}
            layers.append(
                {
                    "module": "keras.layers",
                    "class_name": "InputLayer",
                    "config": config,
                    "name": name,
                    "inbound_nodes": [],
                }
            )
        call = {**item, "name": "call", "inbound_nodes": [_redirected(node, input_names)]}
        config = {
            "name": "sizes",
            "layers": [*layers, call],
            "input_layers": [[name, 0, 0] for name in input_names.values()],
            "output_layers": ["call", 0, history[2]],
        }
        _, output = graph_from_config(config, self.objects())
        spec = output.spec
        values = {word: dim for dim, word in size_names.items()}
        for word in spec.words:  # sizes that depend on no input size
            if word not in values:
                values[word] = self._dim(next(self._size_names))
        return tuple(_expression(d, values) for d in spec.dims), spec.dtype


def _expression(dim: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(dim, int):
        return dim
    if dim in values:
        return values[dim]
    return evaluate_expression(dim, values)


def _history(tensor: Mapping) -> History:
    return tuple(tensor["config"]["keras_history"])


def tensors_in(value: ParsedJson) -> Iterator[Mapping]:
    """Yields the descriptions of symbolic tensors in a call, from left to right."""
    if is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from tensors_in(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from tensors_in(part)


def _redirected(value: ParsedJson, input_names: Mapping[History, str]) -> Any:
    if is_tensor(value):
        config = {**value["config"], "keras_history": [input_names[_history(value)], 0, 0]}
        return {**value, "config": config}
    if isinstance(value, Mapping):
        return {k: _redirected(v, input_names) for k, v in value.items()}
    return (
        [_redirected(v, input_names) for v in value] if isinstance(value, list | tuple) else value
    )
