"""Replaces a TensorFlow function by a function that the user passes in `custom_objects`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.saving.legacy.tensorflow.builder import Builder
from fkeras.saving.legacy.tensorflow.folding import Arg, has_tensor, is_tensor
from fkeras.saving.legacy.tensorflow.sizes import tensors_in


class _Call:
    """Calls a function with tensors at their original positions among the file's arguments."""

    def __init__(self, function: Callable, arguments: list[Any], options: Mapping[str, Any]):
        self._function = function
        self._arguments = arguments
        self._options = options

    def __call__(self, tensors: Any) -> Any:
        # A Lambda takes one list of tensors: the constants of the call are inserted again here.
        remaining_tensors = list(tensors) if isinstance(tensors, list | tuple) else [tensors]
        args = [_insert_tensors(v, remaining_tensors) for v in self._arguments]
        options = {k: _insert_tensors(v, remaining_tensors) for k, v in self._options.items()}
        return self._function(*args, **options)


def _insert_tensors(value: Arg, remaining_tensors: list[Any]) -> Any:
    if is_tensor(value):
        return remaining_tensors.pop(0)
    if isinstance(value, list):
        return [_insert_tensors(v, remaining_tensors) for v in value]
    return value


@dataclasses.dataclass
class UserFunctionCall:
    """A call of a function that the user passed.

    Attributes:
        builder: the builder of the call.
        function: the user's function.
        extra: receives the function under a generated name.
    """

    builder: Builder
    function: Callable
    extra: dict[str, Any]

    def result(self, arguments: list[Any], options: Mapping[str, Any]) -> Any:
        """Returns the tensor of a `Lambda` that calls the function with the file's arguments."""
        builder = self.builder
        if not callable(self.function):
            raise builder.error(
                f"expected a function in custom_objects, received {type(self.function).__name__}. "
                "Give a function of arrays."
            )
        # Keras writes null for arguments that the call did not set: keep the function's defaults.
        keyword_args = {k: v for k, v in options.items() if v is not None and k != "name"}
        keyword_args = {
            k: v if has_tensor(v) else builder.plain(v) for k, v in keyword_args.items()
        }
        args = [v if has_tensor(v) else builder.plain(v) for v in arguments]
        tensors = list(tensors_in([args, keyword_args]))
        if not tensors:
            raise builder.error(
                "expected a tensor among the arguments, received constants only. Compute the "
                "constant first."
            )
        # The count makes the name unique: one function may be called with different constants.
        function_name = f"function of {builder.layer}, {len(self.extra)}"
        self.extra[function_name] = _Call(self.function, args, keyword_args)
        item = {
            "module": "keras.layers",
            "class_name": "Lambda",
            "config": {"function": function_name, "trainable": True},
            "registered_name": None,
            "name": f"{builder.layer}/{len(builder.items)}",
            "inbound_nodes": [{"args": tensors if len(tensors) == 1 else [tensors], "kwargs": {}}],
        }
        return builder.record(item)
