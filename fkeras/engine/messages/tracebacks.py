"""Shorter tracebacks: the frames of users, without the internal frames of fkeras and JAX."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from types import TracebackType
from typing import TypeVar

_Error = TypeVar("_Error", bound=BaseException)
_JAX = importlib.util.find_spec("jax")
_HIDDEN = (
    *(str(pathlib.Path(__file__).parents[2]) + os.sep,),
    *((str(pathlib.Path(_JAX.origin).parent) + os.sep,) if _JAX and _JAX.origin else ()),
)


def without_internal_frames(error: _Error) -> _Error:
    """Returns an error whose traceback has only frames outside fkeras and JAX.

    With the environment variable `FKERAS_TRACEBACK_FILTERING=off` the traceback stays complete.

    Example:
        >>> str(without_internal_frames(ValueError("no traceback")))
        'no traceback'
    """
    if os.environ.get("FKERAS_TRACEBACK_FILTERING") == "off":
        return error
    kept, trace = [], error.__traceback__
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(_HIDDEN):
            kept.append(trace)
        trace = trace.tb_next
    short = None
    for one in reversed(kept):
        short = TracebackType(short, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return error.with_traceback(short)
