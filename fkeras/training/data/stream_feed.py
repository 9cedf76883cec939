"""Feeds batches from an iterable, a generator, a loader or a function of the step.

The batches of a chunk are stacked, so that one device call takes several. A batch with fewer rows
than the first batch is filled up with copies of its first row where these change no result; otherwise
the batch is a call of its own.
"""

from __future__ import annotations

import dataclasses
import inspect
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import numpy as np

from fkeras.engine.messages.errors import add_note
from fkeras.engine.values.arrays import computed_dtype, is_array_like
from fkeras.engine.values.callables import accepts
from fkeras.training.data import host_arrays
from fkeras.training.data.read_ahead import ReadAhead, ahead_of
from fkeras.training.data.stream_epoch import END, BatchEpoch, copied
from fkeras.training.records.state import TrainState

#: seconds after which a source without a known length may be endless
_LONG = 60.0


def is_batches(x: object) -> bool:
    """Returns whether `x` yields batches: an iterator, a function, or an iterable of batches."""
    # A list that begins with a tuple, or with a named batch, is a list of batches; any other list is a
    # list of inputs, as in Keras.
    if isinstance(x, list) and x:
        if isinstance(x[0], tuple) or (isinstance(x[0], dict) and "x" in x[0]):
            return True
    array = hasattr(x, "shape") or is_array_like(x)
    if array or isinstance(x, dict | list | tuple | str | bytes):
        return False
    return callable(x) or hasattr(x, "__iter__") or hasattr(x, "__getitem__")


@dataclasses.dataclass
class Batches:
    """Feed of batches from a source.

    With a fixed number of steps, the epochs of a training continue one pass over the source; each
    evaluation begins a new pass.

    Attributes:
        source: an iterable of batches, or a function of the step number.
        steps: number of batches of an epoch; None for a whole pass over the source.
        what: name of the call in messages.
        check: called with every batch and the rows of a full batch (None if the arrays of the batch
            have different numbers of rows); returns the batch with its weights, or the inputs alone.
        host: `(batch, call) -> tree`: converts a batch to arrays on the host; rejects a batch of
            another structure.
        fills: `(full batch, count) -> bool`: whether a batch of `count` rows may be filled up.
        sums: empty sums of the losses and metrics of the batches.
        first: the first batch, on the host; all batches must have its shapes and dtypes.
        running: the iterator of the current pass.
        seen: number of batches received.
        full: number of rows of a full batch, if a checkpoint knows it.
        positioned: whether `running` is at the right batch already, after a resume or a peek.
        peeked: `(step, batch)` if `example` read the first batch before the first epoch.
        may_be_endless: whether no pass over the source has ended yet.
        training: whether the batches are those of a training; otherwise of evaluations.
        workers: number of threads that read ahead; 0 to read in the thread of the training.
        by_number: returns the batch of a step, for a function of the step number.
    """

    source: Any
    steps: int | None
    what: str
    check: Callable[[Any, int | None], Any]
    host: Callable[[Any, str], Any] = host_arrays.as_host
    fills: Callable[[Any, int], bool] = lambda batch, count: True
    sums: Any = None
    first: Any = None
    running: Iterator[Any] | None = None
    seen: int = 0
    full: int = 0
    positioned: bool = False
    peeked: tuple[int, Any] | None = None
    may_be_endless: bool = True
    training: bool = True
    workers: int = 0
    by_number: Callable[[int], Any] = dataclasses.field(init=False, repr=False)
    cached: ClassVar[None] = None  # as of `Feed`; a source has no features

    def __post_init__(self) -> None:
        if self._by_step and not _takes_step(self.source):
            name = getattr(self.source, "__name__", type(self.source).__name__)
            raise TypeError(
                f"Trainer.{self.what}: expected a function of the step number that returns one batch, "
                f"received {name!r}, a generator function or a function of other arguments. For a "
                "generator pass its result, make_batches(); a function begins with `def batch(step):`."
            )
        if self._by_step and self.steps is None:
            raise ValueError(
                f"Trainer.{self.what}: missing {self.steps_name} for a function of the step number. "
                "A function has no end: pass the number of batches."
            )
        self.by_number = self.source
        if self._by_step and self.workers:
            self.by_number = ReadAhead(self.source, self.workers)

    @property
    def _by_step(self) -> bool:
        return callable(self.source) and not hasattr(self.source, "__iter__")

    @property
    def steps_name(self) -> str:
        """Name of the argument for the number of batches."""
        call, _, part = self.what.partition(": ")
        return "validation_steps" if part else {"fit": "steps_per_epoch"}.get(call, "steps")

    @property
    def continues(self) -> bool:
        """Whether an epoch continues the pass of the epoch before."""
        return self.training and self.steps is not None

    def check_passes(self, number: int) -> None:
        """Rejects an iterator as the source of several validations, which need the same batches."""
        if number > 1 and self.once:
            raise ValueError(
                f"Trainer.{self.what}: expected a source that begins again in each of {number} "
                f"validations, received an iterator ({type(self.source).__name__}). Pass a list of "
                "batches, an object with __iter__, or a function of the step number with "
                "validation_steps."
            )

    def check_length(self) -> None:
        """Rejects more steps of an evaluation than the source has batches."""
        name, steps = self.steps_name, self.steps or 0
        if self.training or self.once:  # the hint of an iterator is an estimate
            return
        length = operator.length_hint(self.source, steps)  # `steps` for a source without length
        if length < steps:
            raise ValueError(
                f"Trainer.{self.what}: expected {name} up to {length}, the length of the source, "
                f"received {steps}. Reduce {name}, or pass a longer source."
            )

    @property
    def moves_between_shares(self) -> bool:
        """Whether the position of the source in one process is valid in any number of processes."""
        # a function of the step has no position
        running = None if self._by_step else self._pass_at(0)
        return running is None or getattr(running, "moves_between_shares", False)

    @property
    def size(self) -> int:
        """Number of rows of a full batch; 0 before the first batch."""
        # After a resume in the last batch of a pass, the first batch received may be a short one.
        return max(self.full, 0 if self.first is None else host_arrays.length(self.first))

    def rows(self, steps: int) -> int:
        """Returns the number of rows in `steps` batches, if all are full."""
        return steps * self.size

    def is_alone(self, batch: object) -> bool:
        """Returns whether a batch needs a separate call: its rows differ and may not be filled up."""
        count = host_arrays.length(batch)
        if not self._is_even(batch):
            return specs(batch) != specs(self.first)
        return count < self.size and not self.fills(specs(batch, self.size), count)

    def _is_even(self, batch: object) -> bool:
        """Returns whether all arrays of a batch, and all of the first batch, have one number of rows."""
        return all(map(host_arrays.is_even, (batch, self.first)))

    def epoch(self, run: TrainState | None, step: int = 0, begin: int = 0) -> BatchEpoch:
        """Returns the batches of the epoch that began at `step`, from batch `begin` on."""
        if self._by_step:
            return BatchEpoch(self, None, step, begin)
        if self.running is None:
            self.running = self._pass_at(step)
        elif not self.continues and not self.positioned:
            if self.once:
                raise ValueError(
                    f"Trainer.{self.what}: the iterator is exhausted after the first epoch. Pass "
                    "an iterable that starts again, such as a list of batches or an object with "
                    "__iter__, or pass steps_per_epoch for an endless iterator."
                )
            self.running = self._pass_at(step)
        self.positioned = False
        return BatchEpoch(self, self.running, step, begin)

    def batches(self) -> Iterator[tuple[Any, int]]:
        """Yields each batch of a pass, filled up where that changes no result, and its row count."""
        epoch = self.epoch(None)
        while (chunk := epoch.take(1)) is not None:
            (arrays, counts), _ = chunk
            yield jax.tree.map(lambda array: array[0], arrays), int(counts[0])

    # A source may have another order in each pass: a function of the step, so that it can resume.
    def _pass_at(self, step: int) -> Iterator[Any]:
        source, workers = self.source, self.workers
        begin = getattr(source, "pass_at", None)
        if begin is None and hasattr(source, "__len__") and not hasattr(source, "__iter__"):
            # `iter` would ignore the length, and go on as long as `__getitem__` raises no error
            read, count = source.__getitem__, len(source)
            return map(ReadAhead(read, workers, count) if workers else read, range(count))
        running = iter(source) if begin is None else begin(step)
        if not workers:
            return running
        if hasattr(running, "get_state"):
            raise ValueError(
                f"Trainer.{self.what}: expected a source without threads of its own for workers="
                f"{workers}, received {type(source).__name__}, which reads ahead and saves its position "
                "in checkpoints. Leave workers out, and set the number of threads of the loader."
            )
        return ahead_of(running, workers, END)

    @property
    def once(self) -> bool:
        """Whether the source is an iterator, which cannot begin a second pass."""
        return hasattr(self.source, "__next__") and iter(self.source) is self.source

    def example(self, step: int = 0) -> Any:
        """Returns the specs of the first batch; the first epoch still receives the batch."""
        if self.first is None and self.peeked is None:
            self.peeked = (step, copied(self._host(self._first(step), 0)))
        host = self.first if self.peeked is None else self.peeked[1]
        return specs(host)

    def _first(self, step: int) -> Any:
        try:
            if self._by_step:
                return self.by_number(step)
            running = self._pass_at(step)
            self.running, self.positioned = running, True
            batch = next(running, END)
        except Exception as error:
            add_note(error, f"while batch 1 of Trainer.{self.what} was read")
            raise
        if batch is END:
            raise self.ended()
        return batch

    def unpeek(self, step: int) -> Any:
        """Returns the batch that `example` read, if it is the batch of this step; `END` otherwise."""
        peeked_step, batch = self.peeked or (step, END)
        self.peeked = None
        return batch if peeked_step == step or not self._by_step else END

    def ended(self) -> ValueError:
        """Returns the error for a source without batches."""
        return ValueError(
            f"Trainer.{self.what}: expected batches, received an empty source. An iterator that "
            "was used before is exhausted: create a new iterator."
        )

    def go_on(
        self, state: object, batches: int, skip: int = 0, rows: int = 0, step: int = 0
    ) -> None:
        """Continues the source of a resumed training: from a loader's state, or by skipping.

        Args:
            batches: number of batches to skip from the beginning, without a state.
            skip: number of batches to skip after the state.
            rows: number of rows of a full batch; 0 if unknown.
        """
        self.full = rows
        if self._by_step:
            return
        # For an iterator, the batch that `example` read is gone and counts as skipped. Another
        # source begins a new pass below, which yields that batch again.
        batches -= self.once and self.unpeek(0) is not END
        self.peeked = None
        running: Any = self._pass_at(step)
        self.running, self.positioned = running, True
        if state is not None and hasattr(running, "set_state"):
            running.set_state(state)
            batches, self.seen = skip, 1
        # `_next` begins a new pass only if `seen` is positive: an empty source must not loop.
        self.seen = max(self.seen, batches)
        self.skip(batches, step)

    def skip(self, batches: int, step: int) -> None:
        """Skips batches of the source, over the ends of passes."""
        for skipped in range(batches):
            assert self.running is not None  # `again` replaces the iterator at the end of a pass
            if next(self.running, END) is END and self.again(step + skipped) is END:
                return

    def again(self, step: int) -> Any:
        """Begins a new pass and returns its first batch; `END` for an iterator at its end."""
        if self.once:
            return END
        self.begin_pass(step)
        assert self.running is not None
        return next(self.running, END)

    def warn_if_endless(self, seconds: float, batches: int) -> None:
        """Warns once if an epoch that ends with its source does not end."""
        has_length = hasattr(type(self.source), "__len__")
        if seconds < _LONG or self.steps is not None or has_length or not self.may_be_endless:
            return
        self.may_be_endless = False
        name = self.steps_name
        warnings.warn(
            f"Trainer.{self.what}: the source has yielded {batches} batches in {seconds:.0f} seconds "
            f"and has not ended. Without {name} the source has to end; for an endless source pass "
            f"{name}, the number of batches.",
            stacklevel=2,
        )

    def begin_pass(self, step: int) -> None:
        """Begins a new pass over the source."""
        self.running = self._pass_at(step)

    def read(self, batch: object, number: int) -> Any:
        """Returns a batch as host arrays, checked against the first batch."""
        host = self._host(batch, number)
        if self.first is not None:
            self._compare(host, f"{self.what}, batch {number + 1}")
        try:
            size = self.size if self._is_even(host) else None
            batch = jax.tree.map(host_arrays.canonical, self.check(host, size))
        except Exception as error:
            add_note(error, f"in batch {number + 1} of Trainer.{self.what}")
            raise
        if self.first is None:
            self.first = jax.tree.map(host_arrays.canonical, host)
        return batch

    def _host(self, batch: object, number: int) -> Any:
        what = f"{self.what}, batch {number + 1}"
        if batch is None:
            raise TypeError(
                f"Trainer.{what}: expected a batch, received None. Let the source end after its last "
                "batch, or skip entries that are None: (batch for batch in source if batch is not "
                "None)."
            )
        return self.host(batch, what)

    def _compare(self, batch: object, what: str) -> None:
        first_leaves, structure = jax.tree_util.tree_flatten_with_path(self.first)
        if jax.tree.structure(batch) != structure:
            raise ValueError(
                f"Trainer.{what}: expected the structure of the first batch, {structure}, received "
                f"{jax.tree.structure(batch)}. Every batch needs the same arrays."
            )
        limit = self.size if self._is_even(batch) else np.inf
        for (path, first), array in zip(first_leaves, jax.tree.leaves(batch), strict=True):
            name = "the batch" + jax.tree_util.keystr(path)
            if type(batch) is tuple and len(batch) <= 3:
                name = ("x", "y", "sample_weight")[path[0].idx] + jax.tree_util.keystr(path[1:])
            dtype = computed_dtype(array.dtype)
            fits = array.shape[1:] == first.shape[1:] and array.ndim and dtype == first.dtype
            if not fits or not 0 < len(array) <= limit:
                raise ValueError(
                    f"Trainer.{what}: expected {name} of shape {first.shape} and dtype "
                    f"{first.dtype} as in the first batch (all arrays of a batch may have fewer "
                    f"rows), received {array.shape} and {dtype}. Each batch shape compiles another "
                    "program: pad the batches, texts with TextVectorization(output_sequence_length=...), "
                    "or use trainer.step."
                )


def _takes_step(source: Callable[..., Any]) -> bool:
    return not inspect.isgeneratorfunction(source) and accepts(source, 1)


def specs(batch: object, count: int | None = None) -> Any:
    """Returns the specs of a batch, of `count` rows or of its own rows."""

    def spec(array: np.ndarray) -> jax.ShapeDtypeStruct:
        shape = array.shape if count is None else (count, *array.shape[1:])
        return jax.ShapeDtypeStruct(shape, computed_dtype(array.dtype))

    return jax.tree.map(spec, batch)
