"""Arguments of functions of users."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def accepts(function: Callable[..., Any], count: int) -> bool:
    """Returns whether a function may be called with `count` positional arguments.

    Wrapped functions (as by `jax.jit`), methods and objects with `__call__` are read. The result is True
    for classes and for functions written in C.
    """
    inner = inspect.unwrap(function)
    if not (isinstance(inner, type) or hasattr(inner, "__code__")):
        inner = inner.__call__
    called: Any = getattr(inner, "__func__", inner)
    code = getattr(called, "__code__", None)
    if code is None:
        return True
    most = code.co_argcount - (called is not inner)
    least = most - len(called.__defaults__ or ())
    if code.co_kwonlyargcount > len(called.__kwdefaults__ or ()):
        return False
    return least <= count and (count <= most or bool(code.co_flags & inspect.CO_VARARGS))


def argument_names(function: Callable[..., Any] | None) -> tuple[str, ...]:
    """Returns the names of the parameters of a plain or wrapped function; () if they are unknown."""
    inner = None if function is None else inspect.unwrap(function)
    code = getattr(getattr(inner, "__func__", inner), "__code__", None)
    return () if code is None else code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
