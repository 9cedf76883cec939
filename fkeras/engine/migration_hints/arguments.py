"""Migration hints for arguments that Keras accepts and fkeras does not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import ParamSpec, TypeVar

from fkeras.engine.messages.errors import suggest
from fkeras.engine.messages.tracebacks import hide_internal_frames
from fkeras.engine.migration_hints.hints import hints

_P = ParamSpec("_P")
_T = TypeVar("_T")


def unknown_argument(where: str, name: str, names: Sequence[str]) -> str:
    """Returns the error message for an unknown argument.

    Args:
        where: the class or function.
    """
    remedy = hints("argument").get(name)
    if remedy is not None:
        return f"{where}: there is no argument {name!r}. Instead: {remedy}."
    return (
        f"{where}: there is no argument {name!r}.{suggest(name, names)} It takes: "
        f"{', '.join(names) or 'no arguments'}."
    )


def explains_arguments(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Wraps a function so that the errors for unknown and missing arguments have migration hints.

    The tracebacks of all errors show no internal frames.

    Example:
        >>> @explains_arguments
        ... def load(path): ...
        >>> try:
        ...     load("m.keras", safe_mode=False)
        ... except TypeError as error:
        ...     print(error)
        load: there is no argument 'safe_mode'. Instead: code from a file never runs; leave the argument out.
    """
    # read from the code object: inspect.signature is slow at import, once for each function
    code = function.__code__  # type: ignore[attr-defined]
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    parameters = frozenset(names)
    where = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    required = code.co_argcount - len(function.__defaults__ or ())  # type: ignore[attr-defined]

    @functools.wraps(function)
    def explained(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            if not parameters.issuperset(kwargs):
                unknown = next(name for name in kwargs if name not in parameters)
                raise TypeError(_unknown_option(where, unknown, names))
            if len(args) < required:
                missing = next((n for n in names[len(args) : required] if n not in kwargs), None)
                line = hints("missing argument").get(function.__qualname__)
                if missing is not None and line is not None:
                    raise TypeError(
                        f"{function.__qualname__}: the argument {missing!r} is missing. Write {line}."
                    )
            if len(args) > code.co_argcount:
                line = hints("missing argument").get(function.__qualname__)
                if line is not None:
                    raise TypeError(
                        f"{function.__qualname__}: expected at most {code.co_argcount} arguments by "
                        f"position, received {len(args)}. Write {line}."
                    )
            return function(*args, **kwargs)
        except BaseException as error:
            hide_internal_frames(error)
            raise

    return explained


def check_path_first(path: object, where: str, call: str) -> None:
    """Rejects a model passed as the path, as in Keras's `save_model(model, path)`.

    Raises:
        TypeError: if `path` is a layer or a model.

    Example:
        >>> check_path_first("m.keras", "save_model", "fk.save_model(path, model)")
    """
    # an attribute of every layer class; the class itself cannot be imported here, as its module
    # imports the migration hints
    if hasattr(type(path), "_transparent_field"):
        raise TypeError(
            f"{where}: expected a path first, received {type(path).__name__}. Write `{call}`."
        )


def _unknown_option(where: str, name: str, names: Sequence[str]) -> str:
    remedy = hints("function argument").get(name)
    if remedy is not None:
        return f"{where}: there is no argument {name!r}. Instead: {remedy}."
    return unknown_argument(where, name, [n for n in names if n != "self"])
