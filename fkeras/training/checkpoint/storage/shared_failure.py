"""Makes a failure of one process the same exception in all processes of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from fkeras.host.processes.alone import Alone
from fkeras.training.checkpoint.storage.errors import CheckpointError


def describe(error: BaseException) -> str:
    """Returns an exception of this process as text for the other processes."""
    if isinstance(error, CheckpointError):
        return str(error)
    return f"process {jax.process_index()}: {type(error).__name__}: {error}"


def do_together(group: Alone, what: str, function: Callable[[], Any]) -> list[Any]:
    """Calls a function in every process, and returns the results of all processes.

    Args:
        function: returns JSON data; may do something else in each process.

    Raises:
        Exception: the exception of the function, if the function failed in this process only.
        CheckpointError: if the function failed in another process, with that process's message.
    """
    value, failure = None, None
    try:
        value = function()
    except Exception as error:
        failure = error
    outcome = [value, None if failure is None else describe(failure)]
    outcomes = group.agree(outcome, what)
    failed = [index for index, (_, text) in enumerate(outcomes) if text is not None]
    if not failed:
        return [result for result, _ in outcomes]
    if failed[0] == group.index and failure is not None:
        raise failure
    raise CheckpointError(outcomes[failed[0]][1]) from failure
