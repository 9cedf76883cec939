"""Files of arrays that are spread over several processes: one process writes, all receive the outcome."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fkeras.host.processes.calls import together
from fkeras.host.processes.gathering import gathered, processes_of
from fkeras.host.processes.service import ProcessError


def write_together(
    call: str, arguments: object, tree: object, write: Callable[[Any], None]
) -> None:
    """Gathers a tree and writes its file in the first process of the arrays.

    Every process of the arrays makes this call, and returns after the file is complete. A writer calls
    this function for a spread tree only (`is_spread`), with itself as `write`, so that the files of one
    process and of several come from the same code.

    Args:
        arguments: JSON data that must be equal in all processes, such as the path.

    Raises:
        Exception: the error of `write`, in the process that writes.
        ProcessError: in the other processes, if `write` failed; in all processes, for different
            arguments, and for a process that has ended or makes another call.
    """
    with together(processes_of(tree), call) as group:
        group.require_equal("arguments", arguments)
        whole = gathered(tree, group, only_leader=True)
        failure = None
        if group.leads:
            try:
                write(whole)
            except Exception as error:
                failure = error
        # the exchange also makes the other processes wait for the file
        text = None if failure is None else f"{type(failure).__name__}: {failure}"
        outcome = group.agree(text, "the outcome of writing")[0]
        if failure is not None:
            raise failure
        if outcome is not None:
            raise ProcessError(
                f"{call}: the process that writes the file for all processes, "
                f"{_first(tree)}, failed: {outcome}",
                _first(tree),
            )


def _first(tree: object) -> int:
    mesh = processes_of(tree)
    return 0 if mesh is None else min(device.process_index for device in mesh.devices.flat)
