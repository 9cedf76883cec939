"""The arguments of a call as JSON data in Keras 3's form, written and read.

Keras's form has no tuples: tuples become lists. The additional key `containers` lists the path and
kind of every container that a reader of Keras's form would read as another kind: "tuple", "list", and
"calls" for values by call.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fkeras.engine.config.config_checks import expect
from fkeras.engine.config.serialization import decode, encode
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.key_paths import within
from fkeras.engine.values.annotations import Json, Kind, Template, Tree
from fkeras.engine.values.structure import Branch, Ref
from fkeras.engine.values.values_by_call import ValuesByCall

Path = tuple[str | int, ...]
Kinds = Mapping[Path, str]
#: resource limit: the depth of nested arguments
MAX_DEPTH = 64


def write_tree(
    template: Template, tensor: Callable[[int], Any], where: str, path: Path, containers: list
) -> Json:
    """Returns a template as JSON data.

    Args:
        tensor: returns the data of `Ref(i)`.
        containers: receives `[path, kind]` of each container whose kind the data loses.
    """
    if isinstance(template, Ref):
        return tensor(template.index)
    if not isinstance(template, Branch):
        if isinstance(template, type) and issubclass(template, np.generic):
            return np.dtype(template).name
        if hasattr(jnp, getattr(template, "__name__", "")) and isinstance(template, type):
            return jnp.dtype(template).name  # jnp.float32 is a class of JAX, not of NumPy
        return encode(template, where)
    if template.kind == "dict":
        if template.by_call:
            containers.append([list(path), "calls"])
        pairs = zip(template.keys, template.children, strict=True)
        return {
            str(k): write_tree(v, tensor, f"{where}, {k!r}", (*path, str(k)), containers)
            for k, v in pairs
        }
    # a constructor of Keras takes tuples, a call lists
    plain = "tuple" if path[:1] == ("config",) else "list"
    if template.kind != plain:
        containers.append([list(path), template.kind])
    return [
        write_tree(child, tensor, where, (*path, i), containers)
        for i, child in enumerate(template.children)
    ]


def read_kinds(containers: Json, where: str) -> Kinds:
    """Returns the kinds that `write_tree` listed, by path."""
    kinds: dict[Path, str] = {}
    for entry in checked_value(containers, list, where, "containers"):
        path, kind = entry if isinstance(entry, list) and len(entry) == 2 else (None, None)
        steps: list[Any] = path if isinstance(path, list) else [None]
        if kind not in ("list", "tuple", "calls") or not all(
            isinstance(s, str | int) for s in steps
        ):
            raise FKerasError(
                f"{where}: expected pairs of a path and 'list', 'tuple' or 'calls' in "
                f"'containers', received {shown(entry)}. Leave the key out where no tuples matter.",
                layer=where,
            )
        kinds[tuple(steps)] = kind
    return kinds


@dataclasses.dataclass(frozen=True)
class TreeReader:
    """Reads the trees of one call.

    Attributes:
        where: the call, for messages.
        tensor: returns the tensor for the data of a tensor.
        kinds: kinds of containers that Keras's form loses, by path.
        custom_objects: classes and functions of the user by name.
    """

    where: str
    tensor: Callable[[Any, str], Any]
    kinds: Kinds
    custom_objects: Mapping[str, Any] | None

    def read(self, tree: Tree, path: Path) -> Tree:
        """Returns the argument for a tree of JSON data."""
        if isinstance(tree, list | tuple):
            values = [self._part(v, (*path, i)) for i, v in enumerate(tree)]
            plain = "tuple" if path[:1] == ("config",) else "list"
            return values if self.kinds.get(path, plain) == "list" else tuple(values)
        if not isinstance(tree, Mapping):
            return tree
        kind = tree.get("class_name")
        if kind is None or ("config" not in tree and kind != "__tuple__"):
            parts = {k: self._part(v, (*path, k)) for k, v in tree.items()}
            return as_kind(parts, self.kinds.get(path))
        if kind == "__keras_tensor__":
            return self.tensor(tree, self.where)
        if kind == "__tuple__":
            items = checked_value(tree.get("items"), list, self.where, "items")
            with within("items"):
                return tuple(self._part(v, (*path, i)) for i, v in enumerate(items))
        return self._special(kind, tree)

    def _part(self, tree: Tree, path: Path) -> Tree:
        with within(path[-1]):
            return self.read(tree, path)

    def _special(self, kind: str, tree: Mapping) -> Any:
        config = tree["config"]
        if kind == "__ellipsis__":
            return ...
        if kind == "__slice__":
            config = checked_value(config, Mapping, self.where, "config")
            bounds = [config.get(k) for k in ("start", "stop", "step")]
            if not all(p is None or type(p) is int for p in bounds):
                raise FKerasError(
                    f"{self.where}: expected whole numbers or null as 'start', 'stop' and "
                    f"'step' of a slice, received {shown(bounds)}. Correct the argument.",
                    layer=self.where,
                )
            return slice(*bounds)
        if kind in ("__numpy__", "__tensor__"):
            return self._array(checked_value(config, Mapping, self.where, "config"))
        if kind == "__bytes__":
            config = checked_value(config, Mapping, self.where, "config")
            return checked_value(config.get("value"), str, self.where, "value").encode()
        if kind == "__lambda__":
            raise FKerasError(
                f"{self.where}: an argument is a lambda. Files hold lambdas as code, and fkeras runs no "
                "code of a file. Save the model with a named function, and pass the function by its "
                "name in custom_objects.",
                layer=self.where,
            )
        return decode(tree, self.custom_objects)

    def _array(self, config: Mapping) -> np.ndarray:
        dtype = checked_value(config.get("dtype"), str, self.where, "dtype")
        try:
            numbers = jnp.dtype(dtype)
            # objects and texts cannot be traced; bfloat16 has the kind "V" of structured arrays
            if numbers.kind in "OSUV" and numbers != jnp.bfloat16:
                raise TypeError(f"{dtype} is not a numeric dtype")
            return np.asarray(config.get("value"), dtype=numbers)
        except (TypeError, ValueError) as error:
            raise FKerasError(
                f"{self.where}: expected nested lists of numbers and their dtype as a constant, "
                f"received {shown(config.get('value'))} and {dtype!r} ({error}). Correct the "
                "argument.",
                layer=self.where,
            ) from None


def as_kind(tree: dict[str, Any], kind: str | None) -> dict[str, Any]:
    """Returns a dictionary as the kind that `write_tree` listed."""
    return ValuesByCall(tree) if kind == "calls" else tree


def histories(tree: Tree, where: str) -> list[Any]:
    """Returns the histories of all tensors in a tree of JSON data, from left to right."""
    tensors: list[Any] = []
    # a stack instead of recursion: a file decides the depth
    stack: list[tuple[Any, int]] = [(tree, 0)]
    while stack:
        value, depth = stack.pop()
        if depth > MAX_DEPTH:
            raise FKerasError(
                f"{where}: its arguments are nested deeper than {MAX_DEPTH} lists. Flatten them.",
                layer=where,
            )
        if isinstance(value, Mapping):
            if value.get("class_name") == "__keras_tensor__":
                tensors.append(history_of(value, where))
            else:
                stack.extend((v, depth + 1) for v in reversed(list(value.values())))
        elif isinstance(value, list | tuple):
            stack.extend((v, depth + 1) for v in reversed(value))
    return tensors


def history_of(tree: Mapping, where: str) -> tuple[str, int, int]:
    """Returns the layer, call and output that produced a stored tensor."""
    config = tree.get("config")
    history = config.get("keras_history") if isinstance(config, Mapping) else None
    return checked_history(history, where, "'keras_history' in the 'config' of a tensor")


def checked_history(history: Json, where: str, noun: str = "a tensor") -> tuple[str, int, int]:
    """Returns `(layer, call, output)` after a check of the types.

    Raises:
        FKerasError: for a history of another form.
    """
    has_three = isinstance(history, list | tuple) and len(history) == 3
    if has_three and isinstance(history[0], str) and all(type(n) is int for n in history[1:]):
        return history[0], history[1], history[2]
    raise FKerasError(
        f"{where}: expected {noun} as the name of a layer, the number of its call and the number "
        f"of the output, received {shown(history)}. Correct the history.",
        layer=where,
    )


def checked_value(value: Json, kind: Kind, where: str, key: str) -> Json:
    """Returns the value of a key of the configuration, if the value has the right type.

    Args:
        kind: a type, or several.
        where: the layer or call, for the message.

    Raises:
        FKerasError: for a value of another type.
    """

    def make_error(problem: str) -> FKerasError:
        return FKerasError(f"{where}: {problem} Correct the configuration.", layer=where)

    with within(key):
        return expect(value, kind, repr(key), make_error=make_error)


def shown(value: Json) -> str:
    """Returns a value as text for a message, truncated."""
    text = "null" if value is None else f"{type(value).__name__} {value!r:.60}"
    return text
