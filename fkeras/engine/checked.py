"""Configurations read key by key: what is missing or of another type is named."""

from __future__ import annotations

import contextlib
import reprlib
from collections.abc import Iterator, Mapping
from typing import Any

from fkeras.engine.errors import FKerasError

_MISSING = object()


def expect(value: Any, kind: Any, what: str, layer: str | None = None) -> Any:
    """`value`, where it is of the kind that it must be.

    Args:
        value: something out of a configuration.
        kind: a type, or several.
        what: what it is, for the message.
        layer: whose it is.

    Raises:
        FKerasError: where it is of another kind.

    Example:
        >>> expect([1], list, "the inbound_nodes")
        [1]
    """
    kinds = kind if isinstance(kind, tuple) else (kind,)
    if isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool)):
        return value
    words = " or ".join("null" if k is type(None) else k.__name__ for k in kinds)
    of = f"{layer!r}: " if layer else ""
    raise FKerasError(
        f"{of}expected {what} as {words}, received {type(value).__name__}: {reprlib.repr(value)}. "
        "Pass what get_config returned.",
        layer=layer,
    )


def entry(
    config: Any, key: str, kind: Any, layer: str | None = None, default: Any = _MISSING
) -> Any:
    """The value of one key of a configuration.

    Raises:
        FKerasError: where it is missing without a default, or of another kind.

    Example:
        >>> entry({"layers": []}, "layers", list)
        []
    """
    expect(config, Mapping, f"what holds {key!r}", layer)
    if key not in config:
        if default is not _MISSING:
            return default
        of = f"{layer!r}: " if layer else ""
        keys = ", ".join(repr(str(k)[:40]) for k in list(config)[:12]) or "none"
        raise FKerasError(
            f"{of}the key {key!r} is missing from a configuration whose keys are {keys}. Pass "
            "what get_config returned.",
            layer=layer,
        )
    return expect(config[key], kind, repr(key), layer)


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
