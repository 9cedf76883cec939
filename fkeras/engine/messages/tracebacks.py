"""Tracebacks with the frames of users, without the internal frames of fkeras and JAX.

A public function catches its own exceptions, calls `hide_internal_frames` and raises again with a bare
`raise`, which adds no frame of the function itself. A `try` block costs nothing until an exception.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import pathlib
from collections.abc import Callable
from types import TracebackType
from typing import ParamSpec, TypeVar

import jax

_P = ParamSpec("_P")
_T = TypeVar("_T")
_JAX = importlib.util.find_spec("jax")
_HIDDEN = (
    str(pathlib.Path(__file__).parents[2]) + os.sep,
    *((str(pathlib.Path(_JAX.origin).parent) + os.sep,) if _JAX and _JAX.origin else ()),
)


def hide_internal_frames(error: BaseException) -> None:
    """Removes the frames of fkeras and JAX from the traceback of an exception and of its causes.

    With the environment variable `FKERAS_TRACEBACK_FILTERING=off` or `JAX_TRACEBACK_FILTERING=off`
    tracebacks stay complete.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.layers.Dense(-1)
        ... except ValueError as error:
        ...     error.__traceback__.tb_next is None
        True
    """
    try:
        if (
            os.environ.get("FKERAS_TRACEBACK_FILTERING") == "off"
            or getattr(jax.config, "jax_traceback_filtering", None) == "off"
        ):
            return
        seen: set[int] = set()  # `__cause__` and `__context__` may form a cycle
        current: BaseException | None = error
        while current is not None and id(current) not in seen:
            seen.add(id(current))
            # the methods of the base class: exception classes of users may override or reject them
            trace = BaseException.__getattribute__(current, "__traceback__")
            BaseException.with_traceback(current, _users_frames(trace))
            current = current.__cause__ or current.__context__
    except Exception:  # no failure here may replace the exception that the user has to see
        return


def _users_frames(trace: TracebackType | None) -> TracebackType | None:
    """Returns the entries of a traceback whose code is outside fkeras and JAX."""
    entries = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_HIDDEN):
            entries.append(trace)
        trace = trace.tb_next
    short = None
    for entry in reversed(entries):
        short = TracebackType(short, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return short


def hides_internal_frames(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wraps a function so that the tracebacks of its exceptions show no internal frames.

    Example:
        >>> @hides_internal_frames
        ... def double(x):
        ...     return 2 * x
        >>> double(3)
        6
    """

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except BaseException as error:
            hide_internal_frames(error)
            raise

    return call
