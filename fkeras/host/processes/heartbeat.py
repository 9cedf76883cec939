"""Heartbeats of this process, which the other processes read.

JAX detects a process that has ended after 100 seconds, and then ends all processes. A thread stores a
heartbeat every second: after 20 seconds without a heartbeat, a joint call raises an error.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
from typing import Any

from fkeras.host.processes.service import ProcessError, Service

#: seconds between two heartbeats
INTERVAL = 1.0
_NAME = "fkeras-heartbeat"


class Heartbeat(threading.Thread):
    """Thread that stores a heartbeat of this process every second."""

    def __init__(self, service: Service, process: int):
        super().__init__(name=_NAME, daemon=True)
        self.service, self._process = service, process
        self._end = threading.Event()
        #: key of the text that the program waits for, or None
        self.waits_for: str | None = None
        #: joint calls that have not returned, the innermost last
        self.calls: list[Any] = []

    def run(self) -> None:
        beat, facts = 0, {"pid": os.getpid(), "host": socket.gethostname(), "space": _pid_space()}
        ended = False
        # the last heartbeat reports the end of the program
        while not ended:
            ended = self._end.wait(INTERVAL if beat else 0)
            beat += 1
            text = {**facts, "beat": beat, "waits_for": self.waits_for, "ended": ended}
            try:
                self.service.put(key_of(self._process), json.dumps(text))
            except ProcessError:  # JAX has ended the connection, or process 0 has ended
                return

    def end(self) -> None:
        """Ends the thread, before Python ends: a thread inside of JAX could end the process."""
        self._end.set()
        self.join(5)


def start_heartbeat(service: Service, process: int) -> Heartbeat:
    """Returns the running heartbeat of this process; starts the thread in the first call."""
    for thread in threading.enumerate():
        if isinstance(thread, Heartbeat) and thread.service.is_same(service):
            return thread
    heartbeat = Heartbeat(service, process)
    heartbeat.start()
    # runs before JAX's own function at exit, which closes the connection
    atexit.register(heartbeat.end)
    return heartbeat


def key_of(process: int) -> str:
    """Returns the key of the heartbeats of a process."""
    return f"fkeras/heartbeat/{process}"


def _pid_space() -> str | None:
    """Returns the name of the space of process numbers; None where the system has no such name."""
    try:
        # the first space of each machine has the same number, and machines may share a name
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return None


def has_ended(facts: dict[str, Any]) -> bool:
    """Returns whether a process has reported its end, or no longer runs on this machine."""
    if facts["ended"]:
        return True
    if facts["space"] is None or facts["space"] != _pid_space():
        return False
    try:
        with open(f"/proc/{facts['pid']}/stat", encoding="utf-8") as file:
            # a process that has ended, and whose parent has not noticed, has the state Z
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True
    except OSError:
        return False
