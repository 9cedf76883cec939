"""Starts the processes of `tests.support.processes`, from a process that has imported all packages.

    python -m tests.support.process_worker

Importing takes most of the time of a small process. This program imports once, then makes a copy of
itself (a fork) for each process that a line on its standard input asks for. It computes nothing: a
process that has computed cannot be copied safely. The end of the standard input ends all processes.
"""

import faulthandler
import importlib
import json
import os
import pathlib
import pickle
import select
import signal
import sys
import time
import traceback
import warnings

import jax
import orbax.checkpoint  # noqa: F401  (fkeras imports it in the first save)

import fkeras  # noqa: F401
from tests.support.private_jax import share_mlir_contexts

#: seconds in which all processes must connect
CONNECT = 60
_PAUSE = 0.01


def main():
    share_mlir_contexts()
    running = {}  # folder and number of each living process
    text = b""
    while True:
        pause = _PAUSE if running else None
        if select.select([sys.stdin], [], [], pause)[0]:
            received = os.read(sys.stdin.fileno(), 1 << 16)
            if not received:
                break
            *lines, text = (text + received).split(b"\n")
            for line in lines:
                running.update(_start(json.loads(line)))
        while running and (ended := os.waitpid(-1, os.WNOHANG))[0]:
            folder, rank = running.pop(ended[0])
            _write(folder / f"{rank}.code", str(os.waitstatus_to_exitcode(ended[1])).encode())
    for process in running:
        os.kill(process, signal.SIGKILL)


def _start(request):
    """Starts the processes of a request; returns their folder and number by process number."""
    folder, started = pathlib.Path(request["folder"]), {}
    for rank in range(request["count"]):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it forks: no computation has run in this process
            process = os.fork()
        if not process:
            _run(request, folder, rank)
        started[process] = folder, rank
    _write(folder / "pids", json.dumps(list(started)).encode())
    return started


def _run(request, folder, rank):
    """Runs the case in a new process, which ends here."""
    code, count = 1, request["count"]
    try:
        os.setsid()
        # the files of the parent stay with the parent: the end of its input is the end of all
        _redirect("/dev/null", os.O_RDONLY, 0)
        _redirect(folder / f"{rank}.log", os.O_WRONLY | os.O_CREAT, 1, 2)
        # a process that does not end in time shows what it does
        faulthandler.register(signal.SIGUSR1, all_threads=True)
        os.environ.update(request["environment"])
        jax.config.update("jax_numpy_dtype_promotion", "strict")
        jax.config.update("jax_numpy_rank_promotion", "raise")
        if count > 1:
            address = f"localhost:{request['port']}"
            jax.distributed.initialize(address, count, rank, initialization_timeout=CONNECT)
            # also waits for the others, and two minutes for a process that has been killed
            jax.devices()
        _write(folder / f"{rank}.started", b"")
        arguments = pickle.loads((folder / "arguments").read_bytes())
        module, _, function = request["case"].partition(":")
        warnings.simplefilter("error")
        value = getattr(importlib.import_module(module), function)(rank, *arguments)
        _write(folder / f"{rank}.value", pickle.dumps(value))
        code = 0
    except BaseException:
        text = traceback.format_exc()
        print(text, file=sys.stderr)
        _write(folder / f"{rank}.error", text.encode())
    sys.stdout.flush()
    sys.stderr.flush()
    # Process 0 runs JAX's service, without which JAX ends the others.
    others = [] if rank else [folder / f"{other}.code" for other in range(1, count)]
    while not all(path.exists() for path in others):
        time.sleep(_PAUSE)
    # JAX would wait 100 seconds for a process that has been killed
    os._exit(code)


def _redirect(path, flags, *numbers):
    file = os.open(path, flags)
    for number in numbers:
        os.dup2(file, number)
    os.close(file)


def _write(path, data):
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.rename(path)


if __name__ == "__main__":
    main()
