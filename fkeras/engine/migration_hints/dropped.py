"""Warnings for calls whose result is dropped, such as Keras's statement `layer.adapt(x)`.

Keras changes objects in place; here functions return new values. CPython tells whether a caller keeps
a result: the instruction after the call is POP_TOP if the call is a statement of its own. In a
notebook the last expression of a cell is displayed, and no warning is given.
"""

from __future__ import annotations

import dis
import functools
import sys
import warnings
from types import CodeType
from typing import TypeVar

_T = TypeVar("_T")
_CACHE, _POP_TOP = dis.opmap["CACHE"], dis.opmap["POP_TOP"]


class DroppedResultWarning(UserWarning):
    """A statement calls a function that changes nothing, and drops its result."""


def returned(result: _T, where: str, line: str, depth: int = 1) -> _T:
    """Returns the result of a function, and warns if the function's caller drops it.

    Args:
        where: the function, such as "fk.freeze" or "Trainer.fit".
        line: the line to write instead.
        depth: number of frames from the caller of `returned` to the user's statement.
    """
    try:
        frame = sys._getframe(depth + 1)
    except ValueError:  # called from C, as `atexit` does
        return result
    code, after = frame.f_code.co_code, frame.f_lasti + 2
    while code[after] == _CACHE:
        after += 2
    if code[after] == _POP_TOP:
        name = where.rpartition(".")[2]
        # in `models.extend(map(fk.freeze, parts))` the frame that runs `freeze` drops the result of
        # `extend`
        if _called_name(frame.f_code, frame.f_lasti) == name:
            kept = f"_ = {line.partition('(')[0].rpartition(' ')[2]}"
            warnings.warn(
                f"{where}: returns a new value and changes nothing in place; this statement drops "
                f"the value. Write `{line}`, or `{kept}(...)` to drop it on purpose.",
                DroppedResultWarning,
                stacklevel=depth + 2,
            )
    return result


@functools.lru_cache(256)
def _called_name(code: CodeType, offset: int) -> str | None:
    """The last name in the expression that a statement calls: `fit` in `trainer.fit(run, x, y)`."""
    instructions = [i for i in dis.get_instructions(code) if i.offset <= offset]
    call = instructions[-1]
    if not call.opname.startswith("CALL") or call.positions is None:
        return None
    start = (call.positions.lineno, call.positions.col_offset)
    # the called expression begins where the call does; its arguments begin later
    for instruction in reversed(instructions):
        at = instruction.positions
        if at is not None and (at.lineno, at.col_offset) == start:
            if instruction.opname.startswith("LOAD_") and isinstance(instruction.argval, str):
                return instruction.argval
    return None
