"""Runs a function in several processes together, as `jax.distributed` connects them.

    [first, second] = run_processes("tests.host.processes.cases.group:exchange", 2)
    assert first.get() == second.get()

The function receives the number of its process, and returns a value that pickle can store. A case
should do much work, so that many tests read the results of one run: a process costs about a second.
"""

import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.quick_flags import QUICK

_PAUSE = 0.01
_ATTEMPTS = 3


@dataclasses.dataclass(frozen=True)
class Result:
    """The end of one process.

    Attributes:
        rank: number of the process.
        value: the value that the function returned.
        error: the traceback of its exception; None without an exception.
        code: exit code of the process: 0, 1 after an exception, or minus the number of a signal.
        output: the text that the process wrote to stdout and stderr.
    """

    rank: int
    value: Any
    error: str | None
    code: int
    output: str

    def get(self):
        """Returns the value; raises an AssertionError if the process failed."""
        assert self.code == 0, f"process {self.rank} ended with code {self.code}:\n{self.output}"
        return self.value


def run_processes(case, count, devices=2, *, arguments=(), timeout=300):
    """Runs a case in several processes and returns their results, in the order of the processes.

    Args:
        case: module and function, such as "tests.host.processes.cases.group:exchange".
        count: number of processes; a single process is not distributed.
        devices: number of devices of each process.
        arguments: arguments of the function after the number of the process.
        timeout: seconds after which all processes are killed.

    Raises:
        AssertionError: if the processes do not start, or do not end in time.
    """
    with start_processes(case, count, devices, arguments=arguments) as processes:
        return processes.wait(timeout)


def start_processes(case, count, devices=2, *, arguments=()):
    """Starts a case in several processes, and returns them when they are connected.

    Args:
        case: see `run_processes`.
        count: number of processes.
        devices: number of devices of each process.
        arguments: arguments of the function after the number of the process.

    Raises:
        AssertionError: if the processes do not start.
    """
    if not hasattr(os, "fork"):
        pytest.skip("a process that has imported JAX forks the others")
    if count > 1 and not has_address(name := socket.gethostname()):
        pytest.skip(f"JAX connects no processes: the name of this machine, {name}, has no address")
    for attempt in range(_ATTEMPTS):
        processes = Processes(case, count, devices, arguments)
        # a program may have taken the port in the meantime
        if processes.connect() or attempt == _ATTEMPTS - 1:
            return processes
        processes.close()
    raise AssertionError("unreachable")


def has_address(name):
    """Returns whether a name has an address of this machine, on which gloo can wait for connections."""
    with contextlib.suppress(OSError):
        for family, kind, protocol, _, address in socket.getaddrinfo(
            name, 0, type=socket.SOCK_STREAM
        ):
            with contextlib.suppress(OSError), socket.socket(family, kind, protocol) as server:
                server.bind(address)
                return True
    return False


class Processes:
    """Running processes; a context manager, which kills those that still run.

    Args:
        case: see `run_processes`.
        count: number of processes.
        devices: number of devices of each process.
        arguments: arguments of the function after the number of the process.
    """

    def __init__(self, case, count, devices, arguments):
        self.case, self.count = case, count
        self._folder = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self._folder.name)
        (self.folder / "arguments").write_bytes(pickle.dumps(tuple(arguments)))
        request = {
            "case": case,
            "count": count,
            "folder": str(self.folder),
            "port": _free_port(),
            "environment": {
                "XLA_FLAGS": f"{QUICK} --xla_force_host_platform_device_count={devices}"
            },
        }
        self._worker = _worker()
        self._worker.stdin.write(json.dumps(request).encode() + b"\n")
        self._worker.stdin.flush()
        self._await(self.folder / "pids", 60)
        self.pids = json.loads((self.folder / "pids").read_text())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def connect(self):
        """Returns whether all processes have connected to each other; waits for them."""
        started = [self.folder / f"{rank}.started" for rank in range(self.count)]
        deadline = time.monotonic() + 90
        while not all(path.exists() for path in started):
            if self.ended() or time.monotonic() > deadline:
                return all(path.exists() for path in started)
            time.sleep(_PAUSE)
        return True

    def ended(self):
        """Returns the numbers of the processes that have ended."""
        return [rank for rank in range(self.count) if (self.folder / f"{rank}.code").exists()]

    def kill(self, rank, number=None):
        """Sends SIGKILL or another signal to a process; a process that has ended is no error."""
        if rank not in self.ended():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pids[rank], number or signal.SIGKILL)

    def await_file(self, path, timeout=60):
        """Waits until the case has written a file.

        Raises:
            AssertionError: if a process ends before, or after some seconds.
        """
        self._await(pathlib.Path(path), timeout)

    def wait(self, timeout=300):
        """Waits until all processes have ended, and returns their results.

        Raises:
            AssertionError: after `timeout` seconds; all processes are killed then.
        """
        deadline = time.monotonic() + timeout
        while len(self.ended()) < self.count:
            if time.monotonic() > deadline:
                living = sorted(set(range(self.count)) - set(self.ended()))
                for rank in living:  # each writes the lines that its threads are at
                    self.kill(rank, signal.SIGUSR1)
                time.sleep(1)
                self._kill_all()
                raise AssertionError(
                    f"{self.case}: after {timeout} s, these of {self.count} processes still ran: "
                    f"{living}\n{self._outputs()}"
                )
            time.sleep(_PAUSE)
        return [self._result(rank) for rank in range(self.count)]

    def close(self):
        """Kills the processes that still run, and removes their files."""
        self._kill_all()
        self._folder.cleanup()

    def _kill_all(self):
        # JAX swallows SIGTERM
        for rank in range(self.count):
            self.kill(rank)
        deadline = time.monotonic() + 10
        while len(self.ended()) < self.count and time.monotonic() < deadline:
            time.sleep(_PAUSE)

    def _await(self, path, timeout):
        deadline = time.monotonic() + timeout
        while not path.exists():
            late = time.monotonic() > deadline
            if late or self.ended() or self._worker.poll() is not None:
                self._kill_all()
                raise AssertionError(f"{self.case}: no file {path.name}\n{self._outputs()}")
            time.sleep(_PAUSE)

    def _outputs(self):
        return "\n".join(f"process {rank}:\n{self._output(rank)}" for rank in range(self.count))

    def _output(self, rank):
        path = self.folder / f"{rank}.log"
        return path.read_text(errors="replace")[-6000:] if path.exists() else ""

    def _result(self, rank):
        value, error = (self.folder / f"{rank}.{kind}" for kind in ("value", "error"))
        return Result(
            rank,
            pickle.loads(value.read_bytes()) if value.exists() else None,
            error.read_text() if error.exists() else None,
            int((self.folder / f"{rank}.code").read_text()),
            self._output(rank),
        )


@functools.cache
def _worker():
    """The program that starts processes; it ends with this process."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "JAX_PLATFORMS": "cpu",
        "JAX_ENABLE_COMPILATION_CACHE": "0",
        # one thread for each device
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.process_worker"],
        stdin=subprocess.PIPE,
        cwd=ROOT,
        env=environment,
    )


def _free_port():
    with socket.socket() as listener:
        listener.bind(("localhost", 0))
        return listener.getsockname()[1]
