"""`together`: begins and ends a call that all processes of a mesh make."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any

import jax
from jax.errors import JaxRuntimeError

from fkeras.host.processes import heartbeat
from fkeras.host.processes.alone import ALONE, Alone
from fkeras.host.processes.group import SILENCE, Group
from fkeras.host.processes.service import ProcessError, Service

# Words in the errors of JAX for a connection to a process that has ended.
_LOST = ("gloo", "connection", "unavailable", "socket", "timed out", "deadline")


@functools.lru_cache(maxsize=64)
def members_of(mesh: jax.sharding.Mesh | None) -> tuple[int, ...]:
    """Returns the numbers of the processes whose devices are in a mesh."""
    if mesh is None:
        return ()
    return tuple(sorted({device.process_index for device in mesh.devices.flat}))


def together(mesh: jax.sharding.Mesh | None, call: str) -> Together:
    """Returns a context in which all processes of a mesh make a call; yields their group.

    Raises:
        ProcessError: if another process makes another call, has ended or leaves with an exception.
    """
    return Together(members_of(mesh), call)


class Together:
    """Context of a joint call; see `together`."""

    # not a generator, which would set attributes of an exception that passes

    def __init__(self, members: tuple[int, ...], call: str):
        self._members, self._call = members, call
        self._group: Alone = ALONE
        self._calls: list[Any] = []

    def __enter__(self) -> Alone:
        if not self._members or self._members == (jax.process_index(),):
            return ALONE
        group, self._calls = _open(self._members, self._call)
        self._group = group
        self._calls.append(group)
        try:
            group.begin()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise
        return group

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        group = self._group
        if not isinstance(group, Group):
            return
        self._calls.remove(group)
        ended = None
        if error is not None and isinstance(error, JaxRuntimeError):
            ended = _ended_process(group, error)
        group.leave(ended or error)
        if ended is not None:
            raise ended from error


def _open(members: tuple[int, ...], call: str) -> tuple[Group, list[Group]]:
    """Returns the group of the next call of the processes, and the calls that it is a part of."""
    process = jax.process_index()
    if process not in members:
        raise ProcessError(
            f"{call}: expected a mesh with devices of this process, {process}, received a "
            f"mesh of the processes {', '.join(map(str, members))}. Make the call in those only."
        )
    beats = heartbeat.start_heartbeat(Service(), process)
    thread = threading.get_ident()
    outer_calls = [
        outer
        for outer in beats.calls
        if outer.thread == thread and set(members) <= set(outer.members)
    ]
    outer = outer_calls[-1] if outer_calls else None
    root = f"{'fkeras' if outer is None else outer.path}/{'-'.join(map(str, members))}"
    # The number of the call is kept by the service: a call counts even if an exception left it.
    counter = f"{root}/calls/{process}"
    number = int(beats.service.peek(counter) or 0) + 1
    # The others have given up the calls for which they waited while this process made another call.
    while str(process) in beats.service.entries(f"{root}/{number}/end"):
        number += 1
    beats.service.put(counter, str(number))
    return Group(members, call, f"{root}/{number}", beats, outer), beats.calls


def _ended_process(group: Group, error: BaseException) -> ProcessError | None:
    """Returns the error for a process that has ended, if an error of JAX reports a lost connection."""
    text = str(error).lower()
    if not any(word in text for word in _LOST):
        return None
    # the error of the connection arrives before the silence of the process is long enough
    deadline = time.monotonic() + SILENCE + 2
    while time.monotonic() < deadline:
        try:
            group.check_alive()
        except ProcessError as ended:
            return ended
        time.sleep(0.2)
    return None
