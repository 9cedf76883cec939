"""Table of the supported TensorFlow functions, by their names in files."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.saving.legacy.tensorflow import direct, elementwise, selecting, shaping
from fkeras.saving.legacy.tensorflow.builder import Builder

#: TensorFlow modules whose prefix is dropped; functions of `image` and others keep the prefix
_PLACES = ("", "math.", "nn.", "linalg.", "dtypes.", "__operators__.")


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of TensorFlow.

    Attributes:
        required: required parameters, the tensor first.
        optional: optional parameters.
        silent: parameters that do not change the result, and are ignored.
        make: builds the operations from a builder and the arguments.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    silent: tuple[str, ...]
    make: Callable

    @property
    def names(self) -> tuple[str, ...]:
        return (*self.required, *self.optional)


def _function(signature: str, make: Callable) -> Function:
    parameters = signature.split()
    return Function(
        tuple(w for w in parameters if w[-1] not in "?~"),
        tuple(w[:-1] for w in parameters if w[-1] == "?"),
        tuple(w[:-1] for w in parameters if w[-1] == "~"),
        make,
    )


def _operation(class_name: str, signature: str) -> Callable:
    optional = tuple(w[:-1] for w in signature.split() if w[-1] == "?")

    def make(builder: Builder, *args: Any, **options: Any) -> Any:
        # Drop trailing missing arguments, so that the operation's defaults apply.
        values = [*args, *(options.get(name) for name in optional)]
        while values[-1] is None:
            values.pop()
        return builder(class_name, *values)

    return make


def _table() -> Mapping[str, Function]:
    functions = {}
    for signature, class_name, names in direct.ROWS:
        for name in names.split():
            functions[name] = _function(signature, _operation(class_name, signature))
    for rows in (elementwise.ROWS, shaping.ROWS, selecting.ROWS):
        functions |= {name: _function(*row) for name, row in rows.items()}
    return types.MappingProxyType(functions)


FUNCTIONS = _table()


def key_of(word: str) -> str | None:
    """Returns the table's key for a function's name in a file, or None for an unknown function.

    Example:
        >>> key_of("math.reduce_sum"), key_of("compat.v1.transpose"), key_of("strings.split")
        ('reduce_sum', 'transpose', None)
    """
    word = word.removeprefix("compat.v1.").removeprefix("compat.v2.")
    if word in FUNCTIONS:
        return word
    prefix, _, last = word.rpartition(".")
    return last if f"{prefix}." in _PLACES and last in FUNCTIONS else None


def call(builder: Builder, key: str, arguments: list[Any], options: Mapping[str, Any]) -> Any:
    """Builds the operations of a function and returns the result.

    Args:
        builder: builder of the operations.
        key: key of the function in the table.
        arguments: arguments by position.
        options: arguments by name; None means missing.

    Raises:
        FileError: for an unknown or missing argument.
    """
    function = FUNCTIONS[key]
    names = function.names
    values_by_name = dict(zip(names, arguments, strict=False))
    # Extra positional arguments are the operands of `einsum`.
    extra_arguments = arguments[len(names) :]
    for name, value in options.items():
        current_name = name if name in names else direct.RENAMED.get(name, name)
        if value is None or name == "name" or name in function.silent:
            continue
        # An ignored argument would change the result silently.
        if current_name not in names:
            raise builder.error(
                f"unsupported argument {name!r:.40}; the supported arguments are "
                f"{', '.join(names)}. Save the model without it, {builder.instead}"
            )
        if current_name in values_by_name:
            raise builder.error(
                f"received the argument {current_name!r} twice. The file is damaged."
            )
        values_by_name[current_name] = value
    missing = [name for name in function.required if name not in values_by_name]
    if missing:
        raise builder.error(f"the argument {missing[0]!r} is missing. The file is damaged.")
    required_values = [values_by_name.pop(name) for name in function.required]
    return function.make(builder, *required_values, *extra_arguments, **values_by_name)
