"""Loops over the batches of an evaluation or a prediction, and the number of batches per call.

The number of batches per device call follows the measured time of a step, so that the progress
bar, signals and callbacks are served about ten times a second. The compiled program is the same
for any number of batches.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fkeras.host.processes.alone import ALONE, Alone
from fkeras.training.data import host_arrays
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.features import without_front
from fkeras.training.data.stream_feed import Batches
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.progress import Progress
from fkeras.training.records.state import TrainState
from fkeras.training.step import objective, outputs, step
from fkeras.training.step.donation import calls_host

# Target duration of a device call, in seconds: long enough to hide the cost of the dispatch, short
# enough for a progress bar and for Ctrl-C.
_DISPATCH = 0.1


class CallSize:
    """Chooses the number of batches per call: first 1, then as many as the target time allows.

    Args:
        fixed: the number that the user chose (`steps_per_execution`), or None.
    """

    def __init__(self, fixed: int | None = None):
        self.number, self.calls, self.fixed = fixed or 1, 0, fixed
        self.mode: str | None = None
        self.overwrites: bool | None = None
        self.start()

    @property
    def batches(self) -> int:
        """Largest number of batches of the next call."""
        return 1 if self.mode == "once" else self.number

    @property
    def fresh(self) -> bool:
        """Whether no call has ended yet."""
        return self.calls == 0

    def start(self) -> None:
        """Starts the clock before a sequence of calls."""
        self.began = time.perf_counter()
        self.previous = (self.began, 0)  # clock and batches of the call before

    def measured(self, number: int) -> None:
        """Adapts the number of batches after a call of `number` batches ended.

        The first call is not measured: its time includes the compilation.
        """
        now = time.perf_counter()
        if self.calls and self.fixed is None:
            # The mean over two calls, since the host reads the batches of a call while the device
            # computes the call before. By the time of a single call, long and short calls would
            # alternate, and reading would not overlap with computation.
            began, before = self.previous
            # a coarse clock may show no time at all
            duration = max((now - began) / (before + number), 1e-9)
            self.number = int(np.clip(_DISPATCH / duration, 1, 1 << 20))
        self.previous = (self.began, number) if self.calls else (now, 0)
        self.calls += 1
        self.began = now

    def choose(
        self, large: bool, function: jax.stages.Wrapped, static: tuple, arguments: tuple
    ) -> str:
        """Returns the mode of `step.compiled_train`: single steps where a loop would be slow.

        Args:
            large: whether the run is so large that a call donates its arrays.
        """
        if self.mode is None:
            # On CPUs, XLA runs convolutions of other libraries far slower inside a while loop.
            slow = self.fixed is None and jax.default_backend() == "cpu"
            if slow:
                leaves, treedef = jax.tree.flatten(arguments)
                specs = tuple((leaf.shape, leaf.dtype) for leaf in leaves)
                slow = step.call_convolves(function, static, treedef, specs)
            single = slow or large or self.fixed == 1
            self.mode = "once" if single else "loop"
        return self.mode

    def length(self, number: int) -> int | None:
        """Returns the number of batches of a call if a program of its own for this number pays off.

        The host of a GPU reads the condition of a loop before each step, unless the program states the
        number of steps. A number that the user chose is the same in all calls but the last of an epoch.
        """
        return number if number == self.fixed and jax.default_backend() == "gpu" else None

    def function(self, large: bool, *arguments: Any) -> Any:
        """Returns the compiled step; for a large run a step that overwrites the arrays, if allowed."""
        if large and self.overwrites is None:
            program = step.donating_train.by_default.trace(*arguments).jaxpr
            self.overwrites = not calls_host(program)
        compiled = step.donating_train if large and self.overwrites else step.compiled_train
        rows = arguments[-2]
        shapes = tuple(np.shape(leaf) for leaf in jax.tree.leaves(rows))
        return functools.partial(compiled, (*arguments[:3], shapes))


def evaluate(
    trainer: Trainer,
    run: TrainState,
    sums: Mapping[str, Any],
    feed: Feed | Batches,
    progress: Progress | None = None,
    call_size: CallSize | None = None,
    group: Alone = ALONE,
) -> tuple[dict[str, Any], int]:
    """Evaluates the model on a feed.

    Returns:
        `(logs, batches)`: the logs, and the number of batches.
    """
    cut = None if feed.cached is None else feed.cached.cut
    leaves, structure = jax.tree.flatten(without_front(run.model, cut))
    names = objective.log_names(outputs.heads(trainer, run.model), sums)
    leaves, carry = tuple(leaves), (run.state, sums)
    call_size = CallSize() if call_size is None else call_size
    epoch, logs = feed.epoch(None), {}
    waiting: tuple[int, Any] | None = None  # batches and logs of the call before
    call_size.start()
    while True:
        chunk = epoch.take(group.agree(call_size.batches, "the batches of a call")[0])
        if chunk is None:
            break
        rows, number = chunk
        if call_size.fresh and progress is not None:
            progress.compile_starts()
        static = (step.evaluation_form(trainer), structure)
        arguments = (leaves, carry, rows, np.int32(number))
        mode = call_size.choose(False, step.compiled_test, (*static, "loop"), arguments)
        # In mode "once" the argument is the index of the batch in `rows`, otherwise the count.
        steps = np.int32(number if mode == "loop" else 0)
        carry, logs = step.compiled_test(*static, mode, leaves, carry, rows, steps)
        if call_size.fresh:
            group.wait(logs)
            call_size.measured(number)
            if progress is not None:
                progress.compiled()
        elif waiting is not None:
            # Wait for the call before the newest call: the device keeps one call in its queue.
            group.wait(waiting[1])
            call_size.measured(waiting[0])
        waiting = (number, logs)
        if progress is not None:
            progress.step(epoch.done, feed.rows(epoch.done), _reader(names, logs))
    group.wait(logs)
    return as_floats(names, logs), epoch.done


def _reader(names: tuple[str, ...], logs: Mapping[str, Any]) -> Any:
    # Lazy: the transfer waits for the device, and the progress bar rarely redraws.
    return lambda: as_floats(names, logs)


def predict(
    run: TrainState,
    feed: Feed | Batches,
    put: Callable[[Any], Any],
    compute: Callable[..., tuple[Any, Any]] = step.compiled_predict,
    group: Alone = ALONE,
) -> Any:
    """Returns the model's outputs on a feed, as NumPy arrays.

    Args:
        compute: `(model, state, batch) -> (updates, value)`.
    """
    parts = list(predicted(run, feed, put, compute, group))
    if len(parts) == 1:
        return parts[0]
    return jax.tree.map(_joined, *parts)


def _joined(*arrays: np.ndarray) -> np.ndarray:
    """Returns the rows of all batches in one array."""
    shapes = list(dict.fromkeys(array.shape for array in arrays))
    for shape in shapes:
        if not shape or shape[1:] != shapes[0][1:]:
            raise ValueError(
                "Trainer.predict: expected outputs that differ in their first axis only, received "
                f"shapes {shapes[0]} and {shape} from batches of one call. Compute the batches one by "
                "one: [model(x) for x in batches]."
            )
    return np.concatenate(arrays)


def predicted(
    run: TrainState,
    feed: Feed | Batches,
    put: Callable[[Any], Any],
    compute: Callable[..., tuple[Any, Any]],
    group: Alone = ALONE,
) -> Iterator[Any]:
    """Yields the outputs of each batch, without filled-up rows; the arguments are those of `predict`."""
    state, pending = run.state, []
    for batch, count in feed.batches():
        # the outputs of a batch of real rows alone may have any number of rows
        rest = count if host_arrays.length(batch) > count else None
        updates, value = compute(run.model, state, put(batch))
        state = {**state, **updates}
        pending.append((value, rest))
        # Fetch with a delay of two batches: the device computes during the transfer, and at most
        # three outputs occupy its memory.
        if len(pending) > 2:
            yield _fetch(group, *pending.pop(0))
    for entry in pending:
        yield _fetch(group, *entry)


def predict_batch(run: TrainState, x: np.ndarray, size: int) -> Any:
    """Returns the model's outputs on one batch, filled up to `size` rows, as NumPy arrays."""
    count = len(x)
    if count < size:
        x = np.concatenate([x, np.broadcast_to(x[-1:], (size - count, *x.shape[1:]))])
    _, value = step.compiled_predict(run.model, run.state, x)
    return _on_host(value, count if count < size else None)


def _fetch(group: Alone, value: object, count: int | None) -> Any:
    group.wait(value)
    return _on_host(value, count)


def _on_host(value: Any, count: int | None) -> Any:
    """Returns outputs as NumPy arrays: the first `count` rows of a filled batch, or all."""
    if count is None:
        return jax.tree.map(np.asarray, value)
    # Sliced on the host: slicing on the device would compile a program for each `count`.
    return jax.tree.map(lambda array: np.asarray(array)[:count], value)


def as_floats(names: tuple[str, ...], logs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns logs as Python numbers in the order of `names`; an array becomes a list."""
    # One transfer for all logs: `device_get` starts all copies before waiting for the first.
    arrays = jax.device_get({name: logs[name] for name in names})
    return {name: arrays[name].tolist() for name in names}
