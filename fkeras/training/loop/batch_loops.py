"""The loops over batches of an evaluation and a prediction, and how many batches a call takes.

The number follows the time that a step takes, so that the screen, the keyboard and the callbacks
get their turn; the program is the same for any number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, outputs, step
from fkeras.training.step.donation import donates

_DISPATCH = 0.1  # seconds that a call of a compiled function shall take at most


class Pace:
    """How many batches the next call takes: one at first, then as many as fit into the time.

    Args:
        fixed: the number, where the user chose it.
    """

    def __init__(self, fixed: int | None = None):
        self.number, self.calls, self.fixed = fixed or 1, 0, fixed
        self.mode: str | None = None
        self.overwrites: bool | None = None
        self.began = time.perf_counter()

    @property
    def batches(self) -> int:
        """How many batches the next call takes at most."""
        return 1 if self.mode == "once" else self.number

    @property
    def fresh(self) -> bool:
        """Whether no call is over yet."""
        return self.calls == 0

    def start(self) -> None:
        """A row of calls begins."""
        self.began = time.perf_counter()

    def measured(self, number: int) -> None:
        """A call of `number` batches is over; the first one may have compiled and says nothing."""
        now = time.perf_counter()
        if self.calls and self.fixed is None:
            each = max((now - self.began) / number, 1e-9)
            self.number = int(np.clip(_DISPATCH / each, 1, 1 << 20))
        self.calls += 1
        self.began = now

    def choose(self, large: bool, function: Any, static: tuple, arguments: tuple) -> str:
        """The mode of `step.compiled_train`: single steps where a loop would make them slow.

        Args:
            large: whether the run is so large that its arrays are overwritten.
            function: the compiled function of the call.
            static: the static arguments of the call.
            arguments: the other arguments.
        """
        if self.mode is None:
            slow = self.fixed is None and jax.default_backend() == "cpu"
            if slow:
                leaves, treedef = jax.tree.flatten(arguments)
                specs = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
                slow = step.call_convolves(function, static, treedef, specs)
            single = slow or large or self.fixed == 1
            self.mode = "once" if single else "loop"
        return self.mode

    def function(self, large: bool, *arguments: Any) -> Any:
        """The compiled step; for large runs the one that overwrites what it is given, if it may."""
        if large and self.overwrites is None:
            self.overwrites = donates(step.compiled_train, step.donating_train, *arguments)
        return step.donating_train if large and self.overwrites else step.compiled_train


def evaluate(
    trainer: Any,
    run: TrainState,
    sums: Any,
    feed: Any,
    progress: Progress | None = None,
    pace: Pace | None = None,
) -> tuple[dict[str, Any], int]:
    """`(logs, batches)` of the model on a feed, from empty `sums`; `run` stays as it is."""
    leaves, structure = jax.tree.flatten(run.model)
    names = objective.log_names(outputs.heads(trainer, run.model), sums)
    leaves, carry = tuple(leaves), (run.state, sums)
    pace = Pace() if pace is None else pace
    epoch, logs = feed.epoch(None), {}
    waiting: tuple[int, Any] | None = None  # batches and logs of the call before
    pace.start()
    while (taken := epoch.take(pace.batches)) is not None:
        rows, number = taken
        if pace.fresh and progress is not None:
            progress.compile_starts()
        static = (trainer, structure)
        arguments = (leaves, carry, rows, np.int32(number))
        mode = pace.choose(False, step.compiled_test, (*static, "loop"), arguments)
        steps = np.int32(number if mode == "loop" else 0)
        carry, logs = step.compiled_test(*static, mode, leaves, carry, rows, steps)
        if pace.fresh:
            jax.block_until_ready(logs)
            pace.measured(number)
            if progress is not None:
                progress.compiled()
        elif waiting is not None:
            jax.block_until_ready(waiting[1])
            pace.measured(waiting[0])
        waiting = (number, logs)
        if progress is not None:
            progress.step(epoch.done, feed.rows(epoch.done), _reader(names, logs))
    return as_floats(names, logs), epoch.done


def _reader(names: tuple[str, ...], logs: Mapping[str, Any]) -> Any:
    return lambda: as_floats(names, logs)


def predict(run: TrainState, feed: Any, put: Callable[[Any], Any]) -> Any:
    """The model's outputs on a feed, as NumPy arrays; `put` takes each batch to the devices."""
    state, pending, parts = run.state, [], []
    for start in range(feed.steps):
        batch = put(feed.batch(start))
        updates, value = step.compiled_predict(run.model, state, batch)
        state = {**state, **updates}
        pending.append((value, int(feed.counts(start, 1)[0])))
        if len(pending) > 2:
            parts.append(_fetch(*pending.pop(0)))
    parts.extend(_fetch(*one) for one in pending)
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(lambda *arrays: np.concatenate(arrays), *parts)


def predict_batch(run: TrainState, x: np.ndarray) -> Any:
    """The model's outputs on one batch, as NumPy arrays."""
    _, value = step.compiled_predict(run.model, run.state, x)
    return np.asarray(value) if isinstance(value, jax.Array) else jax.tree.map(np.asarray, value)


def _fetch(value: Any, count: int) -> Any:
    return jax.tree.map(lambda array: np.asarray(array)[:count], value)


def as_floats(names: tuple[str, ...], logs: Mapping[str, Any]) -> dict[str, Any]:
    """Logs on the host, in order; a metric of several numbers becomes a list."""
    arrays = jax.device_get({name: logs[name] for name in names})
    return {name: arrays[name].tolist() for name in names}
