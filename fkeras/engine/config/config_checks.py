"""Typed access to configuration keys, with error messages that name missing or mistyped keys."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.key_paths import within
from fkeras.engine.values.annotations import Json, Kind

# a sentinel, since None is a valid default: a key without a default is required
MISSING = object()
# bool precedes int, which it subclasses
_WORDS = (
    (bool, "true or false"),
    (str, "a string"),
    (int, "a whole number"),
    (float, "a number"),
    (list, "a list"),
    (tuple, "a tuple"),
    (Mapping, "a dictionary"),
    (type(None), "null"),
)

# builds the exception from the description of a problem
MakeError = Callable[[str], Exception]


def _type_name(kind: type) -> str:
    return next((type_word for base, type_word in _WORDS if issubclass(kind, base)), kind.__name__)


def _fits(value: Json, kinds: tuple[type, ...]) -> bool:
    # Python's bool is an int; JSON keeps the two apart, and True for a size is an error in the file
    if isinstance(value, bool):
        return bool in kinds
    # JSON writers drop the fraction of whole numbers, so 1 is a valid float
    if isinstance(value, int):
        return int in kinds or float in kinds
    return isinstance(value, kinds) or (dict in kinds and isinstance(value, Mapping))


def expect(
    value: Json,
    kind: Kind,
    noun: str,
    layer: str | None = None,
    make_error: MakeError | None = None,
) -> Json:
    """Returns `value` if its type is one of the expected types.

    Args:
        kind: a type, or a tuple of types. An integer is also accepted as a `float`; a boolean is
            not accepted as a number.

    Raises:
        FKerasError: if the value has another type and `make_error` is None.
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if _fits(value, kinds):
        return value
    type_names = " or ".join(_type_name(k) for k in kinds)
    raise (make_error or _of_layer(layer))(
        f"expected {noun} as {type_names}, received {_type_name(type(value))}: {reprlib.repr(value)}."
    )


def entry(
    config: Json,
    key: str,
    kind: Kind,
    layer: str | None = None,
    default: Any = MISSING,
    make_error: MakeError | None = None,
) -> Json:
    """Returns the value of one key of a configuration, after checking its type.

    Args:
        kind: the expected type or types, as in `expect`.
        default: the value of a missing key; without a default the key is required.
        make_error: builds the exception from its message, as in `expect`.

    Raises:
        FKerasError: if a required key is missing or its value has another type.

    Example:
        >>> entry({"layers": []}, "layers", list)
        []
    """
    expect(config, Mapping, f"the container of {key!r}", layer, make_error)
    with within(key):
        if key in config:
            return expect(config[key], kind, repr(key), layer, make_error)
        if default is not MISSING:
            return default
        # keys come from an untrusted file: cut their length and their number
        keys = ", ".join(repr(str(k)[:40]) for k in list(config)[:12]) or "none"
        raise (make_error or _of_layer(layer))(
            f"the key {key!r} is missing; the keys here are {keys}."
        )


def _of_layer(layer: str | None) -> MakeError:
    prefix = f"{layer!r}: " if layer else ""
    return lambda problem: FKerasError(
        f"{prefix}{problem} Pass the result of get_config.", layer=layer
    )


@contextlib.contextmanager
def naming(layer: str | None) -> Iterator[None]:
    """Sets the attribute `layer` of exceptions from the block, unless they already have a layer."""
    try:
        yield
    except Exception as error:
        if isinstance(layer, str) and getattr(error, "layer", None) is None:
            with contextlib.suppress(AttributeError):  # an exception class with __slots__
                error.layer = layer  # type: ignore[attr-defined]
        raise


def name_of(item: Json) -> str | None:
    """Returns the layer name in an entry of a configuration's list of layers, or None."""
    if not isinstance(item, Mapping):
        return None
    config = item.get("config")
    inner = config.get("name") if isinstance(config, Mapping) else None
    name = item.get("name") or inner
    return name if isinstance(name, str) else None
