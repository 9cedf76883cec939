"""Types of arguments in words that a reader of the reference knows: "int", "sequence of float"."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import re
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any

import fkeras as fk
from fkeras.engine.config import field_types
from fkeras.engine.config.field_types import Converted

# a longer text says less than the description of the argument
_LONGEST = 60
_SEQUENCES = (list, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Collection)


def argument_types(value: Any) -> dict[str, str]:
    """Returns the types of the arguments of a class or function, by the name of the argument.

    Arguments without an annotation, and those of any type, are left out.
    """
    if isinstance(value, type) and dataclasses.is_dataclass(value):
        fields = {field.name: field for field in dataclasses.fields(value) if field.init}
        annotations = {name: (_owner(value, name), field.type) for name, field in fields.items()}
    elif callable(value) and not isinstance(value, type):
        function = inspect.unwrap(value)  # also of an operation of `fk.ops`
        annotations = {
            name: (function, annotation)
            for name, annotation in getattr(function, "__annotations__", {}).items()
        }
    else:
        return {}
    texts = {name: shown(_evaluated(*pair)) for name, pair in annotations.items()}
    return {name: text for name, text in texts.items() if text and len(text) <= _LONGEST}


def shown(annotation: Any) -> str:
    """Returns a type in words; "" for any type."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is None or annotation is type(None):
        return "None"
    if origin is Converted:
        return shown(arguments[0])
    if origin in (typing.Union, types.UnionType):
        # NumPy's scalars stand beside those of Python, which say the same to a reader
        texts = [text for argument in arguments if (text := shown(argument)) != "NumPy scalar"]
        words = (
            [w for text in texts for w in re.split(r" or (?![^(]*\))", text)] if all(texts) else []
        )
        return " or ".join(sorted(dict.fromkeys(words), key="None".__eq__))
    if origin is typing.Literal:
        return " or ".join(map(repr, arguments))
    if origin in _SEQUENCES or (origin is tuple and Ellipsis in arguments):
        text = shown(arguments[0]) or "values"
        return f"sequence of ({text})" if " or " in text else f"sequence of {text}"
    if collections.abc.Callable in (origin, annotation):
        return "function"
    if origin is collections.abc.Mapping or origin is dict:
        return "dictionary"
    value = origin or annotation
    if isinstance(value, str | typing.ForwardRef):
        name = value if isinstance(value, str) else value.__forward_arg__
        return name.rpartition(".")[2] if re.fullmatch(r"[\w.]+", name) else ""
    if value is Any or not isinstance(value, type):
        return ""
    return _NAMES.get(value.__name__, value.__name__)


_NAMES: Mapping[str, str] = {
    "integer": "NumPy scalar",
    "floating": "NumPy scalar",
    "ndarray": "array",
    "Array": "array",
    "PathLike": "path",
    "SupportsDType": "dtype",
    "type": "dtype",
}


def _owner(value: type, field: str) -> Any:
    """Returns the class whose annotation declares a field."""
    return next(base for base in value.__mro__ if field in inspect.get_annotations(base))


def _evaluated(owner: Any, annotation: Any) -> Any:
    """Returns an annotation as a type; Any for names that only type checkers know."""
    names = {
        **vars(field_types),
        **vars(sys.modules[owner.__module__]),
        "DTypePolicy": fk.DTypePolicy,
    }
    try:
        while isinstance(annotation, str):  # the text of an annotation may be the name of a text
            annotation = eval(annotation, names)
    except (NameError, AttributeError, TypeError):
        return Any
    return annotation
