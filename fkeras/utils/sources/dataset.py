"""`Dataset`: batches that grain loads in background threads, in an order that can be resumed.

The order of a pass is a function of the seed and of the step at which the pass begins: `fit` gets
another order in each epoch, and a resumed training continues the same order.
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import numpy as np

from fkeras.engine.config.converters import boolean, integer, several
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.optional_packages import missing_package

_SIZE = integer(minimum=1, optional=True)
_SEED = integer(minimum=0, maximum=2**32 - 1, optional=True)
_SHARD = several(integer(minimum=0), "(index, count) of the share of a process", least=2)
# each thread holds a batch; more threads than cores only take memory
_THREADS = max(1, min(8, os.cpu_count() or 1))


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Batches of samples, read in background threads; `fit` takes a dataset as its data.

    A dataset is a value. Iterating gives the batches in the order of the first epoch; `fit` asks
    for another order in each epoch. The position in the data is part of a checkpoint, so that
    `fit(..., checkpoint=folder)` resumes at the next batch.

    `image_dataset_from_directory` and its relatives return datasets; the constructor makes one of
    any function that reads samples.

    Args:
        count: number of samples.
        read: `read(ids)` returns the batch of these samples: an array or a structure of arrays,
            with one row for each of the sample numbers `ids`. Threads call the function.
        batch_size: number of samples of a batch; None for single samples without a batch axis.
        shuffle: whether each pass has another order.
        seed: seed of the order; None for 0, so that a program repeats its order.
        shard: `(index, count)`: this process reads the share `index` of `count` equal shares.
        class_names: names of the classes by class number, or None.
        file_paths: the files of the samples, or None.
        functions: functions of batches, in the order of `map`.
        limit: largest number of batches, or None.

    Raises:
        ValueError: for arguments out of range.
        ImportError: if grain is missing; when the dataset is iterated.

    Example:
        >>> squares = Dataset(5, lambda ids: (ids, ids**2), batch_size=2)
        >>> for x, y in squares:
        ...     print(x, y)
        [0 1] [0 1]
        [2 3] [4 9]
        [4] [16]
        >>> len(squares), [y.tolist() for y in squares.map(lambda x, y: -y).take(1)]
        (3, [[0, -1]])
    """

    count: int
    read: Callable[[np.ndarray], Any]
    batch_size: int | None = 32
    shuffle: bool = False
    seed: int | None = None
    shard: tuple[int, int] = (0, 1)
    class_names: tuple[str, ...] | None = None
    file_paths: tuple[str, ...] | None = None
    functions: tuple[Callable[..., Any], ...] = ()
    limit: int | None = None

    def __post_init__(self) -> None:
        def convert(name: str, rule: Any) -> None:
            object.__setattr__(self, name, rule.check(f"Dataset: {name}", getattr(self, name)))

        convert("count", integer(minimum=1))
        convert("batch_size", _SIZE)
        convert("shuffle", boolean)
        convert("seed", _SEED)
        convert("limit", _SIZE)
        convert("shard", _SHARD)
        index, count = self.shard[0], self.shard[-1]
        if len(self.shard) != 2 or index >= count or count > self.count:
            raise ValueError(
                f"Dataset: shard: expected (index, count) with an index below count, and at most "
                f"{self.count} shares of {self.count} samples, received {self.shard}. Write "
                "(jax.process_index(), jax.process_count())."
            )
        if not callable(self.read):
            raise ValueError(
                f"Dataset: read: expected a function of sample numbers, received "
                f"{describe_value(self.read)}."
            )

    def __repr__(self) -> str:
        # file paths may be millions
        parts = [f"{self.count} samples"]
        if self.batch_size is not None:
            parts.append(f"{len(self)} batches of {self.batch_size}")
        if self.shuffle:
            parts.append(f"shuffled with seed {self.seed}")
        if self.shard != (0, 1):
            parts.append(f"share {self.shard[0]} of {self.shard[1]}")
        if self.class_names is not None:
            names = ", ".join(self.class_names[:5]) + ", ..." * (len(self.class_names) > 5)
            parts.append(f"{len(self.class_names)} classes: {names}")
        return f"<Dataset of {', '.join(parts)}>"

    def map(self, function: Callable[..., Any]) -> Self:
        """Returns a dataset of `function(x, y)` for each batch `(x, y)`, computed in the threads.

        Args:
            function: receives the entries of a batch as arguments; a batch that is no tuple is one
                argument. Threads call the function, so the function must not change anything.
        """
        if not callable(function):
            raise ValueError(
                f"Dataset.map: expected a function of a batch, received {describe_value(function)}."
            )
        return dataclasses.replace(self, functions=(*self.functions, function))

    def take(self, count: int) -> Self:
        """Returns a dataset of the first `count` batches of each pass."""
        count = integer(minimum=1).check("Dataset.take: count", count)
        return dataclasses.replace(self, limit=min(count, self.limit or count))

    def __len__(self) -> int:
        samples = self.count // self.shard[1]
        batches = -(-samples // (self.batch_size or 1))
        return min(batches, self.limit or batches)

    def __iter__(self) -> DatasetIterator:
        return self.pass_at(0)

    def pass_at(self, step: int) -> DatasetIterator:
        """Returns the iterator of the pass that begins at a step of the training."""
        return DatasetIterator(self, step)

    def to_grain(self, step: int = 0) -> Any:
        """Returns the batches as a `grain.MapDataset`, for further transformations by grain.

        Args:
            step: the step of the training at which the pass begins.

        Raises:
            ImportError: if grain is missing.
        """
        grain = _grain()
        index, shards = self.shard
        ids = grain.MapDataset.range(self.count)
        if self.shuffle:
            ids = ids.shuffle(seed=self._seed(step))
        if shards > 1:  # equal shares: processes with different numbers of batches would deadlock
            ids = ids[index : self.count // shards * shards : shards]
        if self.batch_size is not None:
            ids = ids.batch(self.batch_size)
        if self.limit is not None:
            ids = ids[: self.limit]
        return ids.map(self._load)

    def _seed(self, step: int) -> int:
        seed = self.seed or 0
        # the first pass has grain's order of the plain seed, as in Keras
        return seed if step == 0 else int(np.random.SeedSequence([seed, step]).generate_state(1)[0])

    def _load(self, ids: Any) -> Any:
        batch = self.read(np.atleast_1d(np.asarray(ids)))
        if self.batch_size is None:
            batch = _first(batch)
        for function in self.functions:
            batch = function(*batch) if isinstance(batch, tuple) else function(batch)
        return batch

    def fingerprint(self) -> int:
        """Returns a number that changes with the samples and their order, for checkpoints."""
        facts = (self.count, self.batch_size, self.shuffle, self.seed or 0, self.shard, self.limit)
        names = [os.path.basename(path) for path in self.file_paths or ()]
        return zlib.crc32(json.dumps([facts, names]).encode())


def _first(batch: Any) -> Any:
    if isinstance(batch, tuple):
        return tuple(_first(entry) for entry in batch)
    if isinstance(batch, Mapping):
        return {name: _first(entry) for name, entry in batch.items()}
    return batch[0]


class DatasetIterator:
    """Iterator over one pass of a `Dataset`, whose position can be saved and restored."""

    def __init__(self, dataset: Dataset, step: int):
        self._dataset, self._step = dataset, step
        self._running = _start(dataset, step)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._running)

    def get_state(self) -> dict[str, Any]:
        """Returns the position as JSON values."""
        return {
            "pass": self._step,
            "data": self._dataset.fingerprint(),
            "position": self._running.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a position of `get_state`, in this process or another.

        Raises:
            ValueError: if the position is that of other data.
        """
        if state.get("data") != self._dataset.fingerprint():
            raise ValueError(
                "Dataset: expected the data of the checkpoint, received other files, or another "
                "batch_size, seed or shard. Restore the files and arguments, or train in a new "
                "folder."
            )
        self._step = int(state["pass"])
        self._running = _start(self._dataset, self._step)
        self._running.set_state(dict(state["position"]))


def _start(dataset: Dataset, step: int) -> Any:
    options = _grain().ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_THREADS)
    return iter(dataset.to_grain(step).to_iter_dataset(options))


def _grain() -> Any:
    try:
        import grain
    except ImportError as error:
        raise missing_package("Dataset", "grain", error) from error
    return grain
