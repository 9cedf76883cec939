"""`Dataset`: batches that grain loads in background threads, with a position that can be resumed.

A pass is one iteration over the samples. Its order is a function of the seed and of the training step
at which the pass begins, so `fit` gets another order in each epoch, and a resumed training continues
in the same order.
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
from fkeras.engine.config.rules import Rule
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.optional_packages import missing_package

_SIZE = integer(minimum=1, optional=True)
_SEED = integer(minimum=0, maximum=2**32 - 1, optional=True)
_SHARD = several(integer(minimum=0), "(index, count) of the share of a process", least=2)
# each thread holds a batch in memory, and threads beyond the number of cores add no speed
_THREADS = max(1, min(8, os.cpu_count() or 1))


@dataclasses.dataclass(frozen=True)
class Dataset:
    """Batches of samples, read in background threads; `fit` takes a dataset as its data.

    A dataset is an immutable value. Iterating a dataset gives the batches in the order of the first
    epoch; `fit` requests another order for each epoch. The position in the data is part of a
    checkpoint, so `fit(..., checkpoint=folder)` resumes at the next batch.

    The functions `*_dataset_from_directory` and `timeseries_dataset_from_array` return datasets. The
    constructor accepts any function that reads samples.

    Args:
        count: number of samples.
        read: function of an array of sample numbers (`ids`) that returns a batch: an array, or a
            structure of arrays, with one row for each number. Several threads call the function.
        batch_size: number of samples of a batch, over all shares together; None for single samples
            without a batch axis, which cannot be shared.
        shuffle: whether to shuffle the samples, in another order in each epoch of `fit`.
        seed: seed of the order; None for 0, so that each run of a program has the same order.
        shard: `(index, count)`: this process reads block number `index` of the `count` equal blocks
            of each batch. The blocks of all shares after each other are the batches of the dataset
            without shares, in the same order. The last batch of a pass may have fewer samples: its
            last blocks are then shorter or empty, and a share whose block is empty has one batch
            fewer.
        class_names: names of the classes by class number, or None.
        file_paths: the file of each sample, or None.
        functions: functions that are applied to each batch in turn; `map` adds a function.
        limit: maximum number of batches of a pass, or None; `take` sets the limit.

    Raises:
        ValueError: for arguments out of range, and for a batch_size that the shares cannot divide.
        ImportError: when the dataset is iterated, if grain is missing.

    Example:
        >>> squares = Dataset(5, lambda ids: (ids, ids**2), batch_size=2)
        >>> for x, y in squares:
        ...     print(x, y)
        [0 1] [0 1]
        [2 3] [4 9]
        [4] [16]
        >>> len(squares), [y.tolist() for y in squares.map(lambda x, y: -y).take(1)]
        (3, [[0, -1]])

        Two processes read one sample each of a batch; the last batch has one sample only:

        >>> for index in range(2):
        ...     share = dataclasses.replace(squares, shard=(index, 2))
        ...     print([x.tolist() for x, y in share])
        [[0], [2], [4]]
        [[1], [3]]
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
        def convert(name: str, rule: Rule) -> None:
            object.__setattr__(self, name, rule.check(f"Dataset: {name}", getattr(self, name)))

        convert("count", integer(minimum=1))
        convert("batch_size", _SIZE)
        convert("shuffle", boolean)
        convert("seed", _SEED)
        convert("limit", _SIZE)
        convert("shard", _SHARD)
        index, count = self.shard[0], self.shard[-1]
        if len(self.shard) != 2 or index >= count:
            raise ValueError(
                f"Dataset: shard: expected (index, count) with an index below count, received "
                f"{self.shard}. Write (jax.process_index(), jax.process_count())."
            )
        # without a batch axis, a share would have no rows to put beside the rows of the others
        if count > 1 and (self.batch_size is None or self.batch_size % count):
            fitting = -(-(self.batch_size or 1) // count) * count
            raise ValueError(
                f"Dataset: batch_size: expected a multiple of the {count} shares, which divide each "
                f"batch, received batch_size={self.batch_size} with shard={self.shard}. Write "
                f"batch_size={fitting}."
            )
        if not callable(self.read):
            raise ValueError(
                f"Dataset: read: expected a function of sample numbers, received "
                f"{describe_value(self.read)}. Write lambda ids: x[ids] for an array x."
            )

    def __repr__(self) -> str:
        # without the file paths, of which a dataset may have millions
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
        """Returns a dataset that applies a function to each batch, in the background threads.

        Args:
            function: receives the entries of a tuple as arguments, such as `function(x, y)`, and any
                other batch as its only argument. The function must have no side effects, since
                several threads call it.
        """
        if not callable(function):
            raise ValueError(
                f"Dataset.map: expected a function of a batch, received {describe_value(function)}. "
                "Write lambda x, y: (x / 255, y)."
            )
        return dataclasses.replace(self, functions=(*self.functions, function))

    def take(self, count: int) -> Self:
        """Returns a dataset of the first `count` batches of each pass."""
        count = integer(minimum=1).check("Dataset.take: count", count)
        return dataclasses.replace(self, limit=min(count, self.limit or count))

    def __len__(self) -> int:
        size = self.batch_size or 1
        # counts the batches in which the block of this share has a first sample
        batches = -(-(self.count - self._block_start()) // size)
        return min(batches, self.limit or batches)

    def __iter__(self) -> DatasetIterator:
        return self.pass_at(0)

    def pass_at(self, step: int) -> DatasetIterator:
        """Returns the iterator over the pass that begins at a training step."""
        return DatasetIterator(self, step)

    def to_grain(self, step: int = 0) -> Any:
        """Returns the batches as a `grain.MapDataset`, for grain's own transformations.

        The entries of all shares have the same numbers. A share whose block of the last batch is
        empty has None there, which grain's iterators leave out.

        Args:
            step: training step at which the pass begins.

        Raises:
            ImportError: if grain is missing.
        """
        grain = _grain()
        ids = grain.MapDataset.range(self.count)
        if self.shuffle:
            ids = ids.shuffle(seed=self._seed(step))
        if self.shard[1] > 1:
            ids = self._blocks(ids)
        elif self.batch_size is not None:
            ids = ids.batch(self.batch_size)
        if self.limit is not None:
            ids = ids[: self.limit]
        return ids.map(self._load_batch)

    def _block_start(self) -> int:
        index, shares = self.shard
        return index * ((self.batch_size or 1) // shares)

    def _blocks(self, ids: Any) -> Any:
        """Returns the sample numbers of this share's block of each batch, or None for no samples."""
        size = self.batch_size or 1
        batches = -(-self.count // size)
        start, length = self._block_start(), size // self.shard[1]

        # `ids.batch` would compute the numbers of the other shares too, several microseconds each
        def block(number: int, batch: int) -> np.ndarray | None:
            first = batch * size + start
            rows = range(first, min(first + length, self.count))
            # grain numbers the entries of a repeated dataset on: each repetition has its own order
            offset = number // batches * self.count
            return np.array([ids[offset + row] for row in rows]) if rows else None

        return _grain().MapDataset.range(batches).map_with_index(block)

    def _seed(self, step: int) -> int:
        seed = self.seed or 0
        # Keras passes the seed to grain unchanged: the first pass has Keras's order
        return seed if step == 0 else int(np.random.SeedSequence([seed, step]).generate_state(1)[0])

    def _load_batch(self, ids: np.ndarray) -> Any:
        batch = self.read(np.atleast_1d(np.asarray(ids)))
        if self.batch_size is None:
            batch = _first_sample(batch)
        for function in self.functions:
            batch = function(*batch) if isinstance(batch, tuple) else function(batch)
        return batch

    def fingerprint(self) -> int:
        """Returns a checksum of the samples' files and their order, by which checkpoints compare data.

        All shares of a dataset have the same checksum.
        """
        settings = (
            self.count,
            self.batch_size,
            self.shuffle,
            self.seed or 0,
            (0, 1),  # checkpoints of datasets without shares have this entry
            self.limit,
        )
        names = [os.path.basename(path) for path in self.file_paths or ()]
        return zlib.crc32(json.dumps([settings, names]).encode())


def _first_sample(batch: Any) -> Any:
    if isinstance(batch, tuple):
        return tuple(_first_sample(entry) for entry in batch)
    if isinstance(batch, Mapping):
        return {name: _first_sample(entry) for name, entry in batch.items()}
    return batch[0]


class DatasetIterator:
    """Iterator over one pass of a `Dataset`, whose position can be saved and restored.

    A position counts the batches of all shares together, so the position of one share is valid for
    all shares, and for any number of shares. For a share with one batch fewer, the position after
    the last batch is the end of its pass.

    Attributes:
        moves_between_shares: True: the position of one share is valid for all shares.
    """

    moves_between_shares = True

    def __init__(self, dataset: Dataset, step: int):
        self._dataset, self._step = dataset, step
        self._iterator = _start_pass(dataset, step)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def get_state(self) -> dict[str, Any]:
        """Returns the position as JSON data; the same for all shares after equally many calls."""
        return {
            "pass": self._step,
            "data": self._dataset.fingerprint(),
            "position": self._iterator.get_state(),
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Continues at a position that `get_state` returned, in this share or in another share.

        Raises:
            ValueError: if the position belongs to other data.
        """
        if state.get("data") != self._dataset.fingerprint():
            raise ValueError(
                "Dataset: expected the data of the checkpoint, received other files, or another "
                "batch_size, shuffle, seed or limit. Restore the files and arguments, or train with "
                "a new checkpoint folder."
            )
        self._step = int(state["pass"])
        self._iterator = _start_pass(self._dataset, self._step)
        self._iterator.set_state(dict(state["position"]))


def _start_pass(dataset: Dataset, step: int) -> Any:
    options = _grain().ReadOptions(num_threads=_THREADS, prefetch_buffer_size=_THREADS)
    return iter(dataset.to_grain(step).to_iter_dataset(options))


def _grain() -> Any:
    try:
        import grain
    except ImportError as error:
        raise missing_package("Dataset", "grain", error) from error
    return grain
