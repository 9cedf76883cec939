"""Traces of `jax.profiler`: how long each operation of a compiled program ran."""

from __future__ import annotations

import pathlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

#: the name of the interval of one step in a trace
_STEP = "fkeras_profiled_step"
#: the time in which no operation of the program runs
IDLE = ""
_NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})


class Interval(NamedTuple):
    """An operation that runs from `start` to `end`, in nanoseconds."""

    start: float
    end: float
    name: str


def measure(
    function: Callable[[], Any], steps: int, awaited: Mapping[str, Sequence[str]]
) -> list[dict[str, float]]:
    """Returns the seconds of each operation in each call of a compiled function.

    Args:
        function: calls a compiled function; the result is awaited.

    Returns:
        The seconds by the name of the HLO operation, a dictionary for each call. Operations that run at the same
        time share the time. `IDLE` is the time without an operation: each dictionary sums to the
        duration of the call.
    """
    options = jax.profiler.ProfileOptions()
    # the tracer of Python functions slows the host down, and its events are not needed
    options.python_tracer_level = 0
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder, profiler_options=options):
            for _ in range(steps):
                with jax.profiler.TraceAnnotation(_STEP):
                    jax.block_until_ready(function())
        (path,) = pathlib.Path(folder).rglob("*.xplane.pb")
        # planes, lines and events are views of this object, which they do not keep alive
        data = jax.profiler.ProfileData.from_file(str(path))
        with warnings.catch_warnings():
            # older versions of JAX warn at the first event, and abort where warnings are errors
            warnings.simplefilter("ignore", DeprecationWarning)
            windows, lines = _events(data.planes)
        del data
    return [divide(lines, start, end, awaited) for start, end, _ in windows]


def _events(planes: Iterable[Any]) -> tuple[list[Interval], list[list[Interval]]]:
    """Returns the intervals of the steps, and those of the operations for each thread or stream."""
    windows: list[Interval] = []
    found: dict[bool, list[list[Interval]]] = {True: [], False: []}
    for plane in planes:
        on_device = plane.name.startswith("/device:")
        for line in plane.lines:
            operations = []
            for event in line.events:
                interval = Interval(event.start_ns, event.start_ns + event.duration_ns, event.name)
                if event.name == _STEP:
                    windows.append(interval)
                    continue
                name = dict(event.stats).get("hlo_op")
                if name is None and line.name == "XLA Ops":
                    # TPUs name the event by the whole instruction: "%fusion.3 = f32[8] fusion(...)"
                    name = event.name.partition(" ")[0].removeprefix("%")
                if name is not None:
                    operations.append(interval._replace(name=str(name)))
            if operations:
                found[on_device].append(innermost(operations))
    # the host of a GPU or a TPU only launches the operations
    return sorted(windows), found[True] or found[False]


def innermost(intervals: Iterable[Interval]) -> list[Interval]:
    """Returns the parts of nested intervals of one thread that belong to the innermost interval.

    A loop is an operation whose interval contains those of its body.
    """
    parts: list[Interval] = []
    stack: list[Interval] = []
    time = 0.0

    def until(end: float) -> None:
        nonlocal time
        if stack and end > time:
            parts.append(Interval(time, end, stack[-1].name))
        time = max(time, end)

    for interval in sorted(intervals, key=lambda each: (each.start, -each.end)):
        while stack and stack[-1].end <= interval.start:
            until(stack[-1].end)
            stack.pop()
        until(interval.start)
        time = interval.start
        stack.append(interval)
    while stack:
        until(stack[-1].end)
        stack.pop()
    return parts


def divide(
    lines: Iterable[Iterable[Interval]],
    start: float,
    end: float,
    awaited: Mapping[str, Sequence[str]] = _NOTHING,
) -> dict[str, float]:
    """Divides the time from `start` to `end` among the operations that run.

    If no operation runs, and the next one waits for a library, then the time belongs to the library's
    operation that started last.

    Args:
        lines: the intervals of each thread, without nested intervals, in nanoseconds.

    Example:
        >>> divide([[Interval(0, 4e9, "dot")], [Interval(2e9, 6e9, "exp")]], 0, 10e9)
        {'': 4.0, 'dot': 3.0, 'exp': 3.0}
    """
    seconds: dict[str, float] = {IDLE: 0.0}
    running: dict[str, int] = {}
    started: dict[str, float] = {}
    last = start
    for time, name, change in (*_changes(lines, start, end), (end, IDLE, 0)):
        active = sum(running.values())
        for each, count in running.items():
            seconds[each] = seconds.get(each, 0.0) + (time - last) * count / active / 1e9
        if not active:
            launched = [each for each in awaited.get(name, ()) if each in started]
            owner = max(launched, key=started.__getitem__) if launched else IDLE
            seconds[owner] = seconds.get(owner, 0.0) + (time - last) / 1e9
        last = time
        if change > 0:
            started[name] = time
        if change:
            running[name] = running.get(name, 0) + change
            if not running[name]:
                del running[name]
    return seconds


def _changes(
    lines: Iterable[Iterable[Interval]], start: float, end: float
) -> Iterator[tuple[float, str, int]]:
    changes = []
    for line in lines:
        for interval in line:
            first, last = max(interval.start, start), min(interval.end, end)
            if first < last:
                changes += [(first, interval.name, 1), (last, interval.name, -1)]
    # at the same time, an operation ends before another starts
    yield from sorted(changes, key=lambda change: (change[0], change[2]))
