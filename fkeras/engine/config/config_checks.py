"""Configurations read key by key: what is missing or of another type is named."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.messages.key_paths import within

# no default: the key must be there
MISSING = object()
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

# makes the exception of a problem
Refuse = Callable[[str], Exception]


def _word(kind: type) -> str:
    return next((word for known, word in _WORDS if issubclass(kind, known)), kind.__name__)


def _fits(value: Any, kinds: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in kinds
    if isinstance(value, int):
        return int in kinds or float in kinds
    return isinstance(value, kinds) or (dict in kinds and isinstance(value, Mapping))


def expect(
    value: Any, kind: Any, what: str, layer: str | None = None, refuse: Refuse | None = None
) -> Any:
    """`value`, where it is of the kind that it must be.

    Args:
        value: something out of a configuration.
        kind: a type, or several; a whole number is a `float` too, and `True` is no number.
        what: what it is, for the message.
        layer: whose it is, for the message of an `FKerasError`.
        refuse: makes the exception instead, as where the configuration is out of a file.

    Raises:
        FKerasError: where it is of another kind.

    Example:
        >>> expect([1], list, "the inbound_nodes")
        [1]
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if _fits(value, kinds):
        return value
    words = " or ".join(_word(k) for k in kinds)
    raise (refuse or _of_layer(layer))(
        f"expected {what} as {words}, received {_word(type(value))}: {reprlib.repr(value)}."
    )


def entry(
    config: Any,
    key: str,
    kind: Any,
    layer: str | None = None,
    default: Any = MISSING,
    refuse: Refuse | None = None,
) -> Any:
    """The value of one key of a configuration; the arguments are those of `expect`.

    Raises:
        FKerasError: where it is missing without a default, or of another kind.

    Example:
        >>> entry({"layers": []}, "layers", list)
        []
    """
    expect(config, Mapping, f"what holds {key!r}", layer, refuse)
    with within(key):
        if key in config:
            return expect(config[key], kind, repr(key), layer, refuse)
        if default is not MISSING:
            return default
        keys = ", ".join(repr(str(k)[:40]) for k in list(config)[:12]) or "none"
        raise (refuse or _of_layer(layer))(f"the key {key!r} is missing; the keys here are {keys}.")


def _of_layer(layer: str | None) -> Refuse:
    of = f"{layer!r}: " if layer else ""
    return lambda problem: FKerasError(f"{of}{problem} Pass what get_config returned.", layer=layer)


@contextlib.contextmanager
def naming(layer: Any) -> Iterator[None]:
    """Notes on an exception from the block which layer it is about, where it does not say so.

    Example:
        >>> try:
        ...     with naming("dense"):
        ...         raise ValueError("units")
        ... except ValueError as error:
        ...     error.layer
        'dense'
    """
    try:
        yield
    except Exception as error:
        if isinstance(layer, str) and getattr(error, "layer", None) is None:
            with contextlib.suppress(AttributeError):  # a class with slots
                error.layer = layer  # type: ignore[attr-defined]
        raise


def name_of(item: Any) -> str | None:
    """The layer's name that an entry of a list of layers has, where it has one."""
    if not isinstance(item, Mapping):
        return None
    config = item.get("config")
    inner = config.get("name") if isinstance(config, Mapping) else None
    name = item.get("name") or inner
    return name if isinstance(name, str) else None
