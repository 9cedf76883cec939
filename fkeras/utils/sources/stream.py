"""`Stream`: batches of the samples of a stream, shuffled in a buffer; and the streams of Parquet files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from fkeras.engine.config.converters import boolean, integer, several, text
from fkeras.engine.messages.errors import describe_value, suggest
from fkeras.engine.messages.optional_packages import missing_package
from fkeras.engine.values.argument_types import FilePath
from fkeras.engine.values.callables import accepts
from fkeras.utils.sources.columns import columns_of, is_table

_RULES = (
    ("batch_size", integer(minimum=1)),
    ("shuffle", integer(minimum=0)),
    ("seed", integer(minimum=0, maximum=2**32 - 1, optional=True)),
    ("batched", boolean),
    ("drop_remainder", boolean),
)
_NAMES = several(text(), "a list of names of columns", optional=True)


@dataclasses.dataclass(frozen=True)
class Stream:
    """Batches of the samples of a stream, in the order of a shuffle buffer; `fit` takes a stream.

    A stream is an immutable value. `fit` requests another order for each epoch, a function of the
    seed and of the training step, so `fit(..., checkpoint=folder)` resumes in the same order: it reads
    the pass again up to its position. Data with access by number need no buffer: use `Dataset`.

    Args:
        source: an iterable; or a function that begins a pass over the data and returns an iterator,
            called as `source()`, or as `source(rng)` with a `numpy.random.Generator`, for example
            to choose the order of files. An iterator yields one pass only.
        batch_size: number of samples of a batch.
        shuffle: number of samples in the buffer; 0 for the order of the source. A sample leaves the
            buffer at random when another one arrives, so each batch mixes about so many samples.
        seed: seed of the order; None for 0.
        batched: whether the source yields batches of any sizes, such as the tables of Arrow, pandas or
            polars, which become dictionaries of columns; otherwise samples without a batch axis.
        drop_remainder: whether to leave out a last batch of fewer samples.
        functions: functions that are applied to each batch in turn; `map` adds a function.

    A sample is an array, a number or a string, or a tuple or dictionary of these; lists are arrays.

    Raises:
        ValueError: for arguments out of range; in a pass, for samples of different shapes or dtypes.

    Example:
        >>> stream = Stream(lambda: ((x, x**2) for x in range(5)), batch_size=2)
        >>> [x.tolist() for x, y in stream]
        [[0, 1], [2, 3], [4]]
        >>> shuffled = dataclasses.replace(stream, shuffle=4)
        >>> [x.tolist() for x, y in shuffled], sorted(int(x) for batch, _ in shuffled for x in batch)
        ([[3, 2], [0, 1], [4]], [0, 1, 2, 3, 4])
    """

    source: Iterable[Any] | Callable[..., Iterable[Any]]
    batch_size: int = 32
    shuffle: int = 0
    seed: int | None = None
    batched: bool = False
    drop_remainder: bool = False
    functions: tuple[Callable[..., Any], ...] = ()

    def __post_init__(self) -> None:
        for name, rule in _RULES:
            object.__setattr__(self, name, rule.check(f"Stream: {name}", getattr(self, name)))
        if not callable(self.source) and not hasattr(self.source, "__iter__"):
            raise ValueError(
                f"Stream: source: expected an iterable, or a function that returns an iterator, "
                f"received {describe_value(self.source)}. Write def samples(): yield x, y."
            )

    def map(self, function: Callable[..., Any]) -> Self:
        """Returns a stream that applies a function to each batch.

        Args:
            function: receives the entries of a tuple as arguments, such as `function(x, y)`, and any
                other batch as its only argument.
        """
        if not callable(function):
            raise ValueError(
                f"Stream.map: expected a function of a batch, received {describe_value(function)}. "
                "Write lambda x, y: (x / 255, y)."
            )
        return dataclasses.replace(self, functions=(*self.functions, function))

    def __iter__(self) -> Iterator[Any]:
        return self.pass_at(0)

    def pass_at(self, step: int) -> Iterator[Any]:
        """Returns the iterator over the pass that begins at a training step."""
        rng = np.random.default_rng([self.seed or 0, step])
        blocks = self._blocks(rng)
        if self.shuffle:
            blocks = _shuffled(blocks, self.shuffle, rng)
        for batch in _cut(blocks, self.batch_size, self.drop_remainder):
            for function in self.functions:
                batch = function(*batch) if isinstance(batch, tuple) else function(batch)
            yield batch

    def _source(self, rng: np.random.Generator) -> Any:
        """Returns the samples or batches of a pass."""
        source: Any = self.source
        if hasattr(source, "__iter__"):
            return source
        source = source() if accepts(source, 0) else source(rng)
        if not hasattr(source, "__iter__"):
            raise TypeError(
                f"Stream: expected an iterator from source(), received {describe_value(source)}. "
                "Write def samples(): yield x, y."
            )
        return source

    def _blocks(self, rng: np.random.Generator) -> Iterator[Any]:
        """Yields trees of arrays whose first axis counts samples."""
        samples: list[Any] = []
        first = None
        for number, item in enumerate(self._source(rng)):
            if self.batched:
                block = _mapped(_array, columns_of(item) if is_table(item) else item)
                if not _length(block, number):
                    continue
            else:
                samples.append(item)
                if len(samples) < self.batch_size:
                    continue
                block, samples = _stacked(samples, number), []
            first = _checked(block, first, number)
            yield block
        if samples:
            block = _stacked(samples, number)
            _checked(block, first, number)
            yield block


def parquet_dataset(
    paths: FilePath | Sequence[FilePath],
    columns: Sequence[str] | None = None,
    batch_size: int = 32,
    shuffle: int = 0,
    seed: int | None = None,
) -> Stream:
    """Returns a stream of the rows of Parquet files, as dictionaries of columns.

    The files are read in parts, so they may be larger than the memory. With `shuffle`, a pass also
    reads the row groups of all files in a random order.

    Args:
        paths: a file, a folder whose files end in ".parquet", or a list of files.
        columns: names of the columns to read; None for all.
        batch_size: number of rows of a batch.
        shuffle: number of rows in the shuffle buffer; 0 for the order of the files.
        seed: seed of the order; None for 0.

    Raises:
        ImportError: if pyarrow is missing.
        FileNotFoundError: for a path without files.
        ValueError: for a column that a file does not have; in a pass, for missing values.

    Example:
        >>> import os, tempfile, pyarrow as pa, pyarrow.parquet as pq
        >>> path = os.path.join(tempfile.mkdtemp(), "flats.parquet")
        >>> pq.write_table(pa.table({"area": [30.0, 50.0, 90.0], "price": [1, 2, 3]}), path)
        >>> dataset = parquet_dataset(path, batch_size=2)
        >>> [batch["area"].tolist() for batch in dataset]
        [[30.0, 50.0], [90.0]]
        >>> [y.tolist() for x, y in dataset.map(lambda row: (row["area"], row["price"]))]
        [[1, 2], [3]]
    """
    try:
        import pyarrow.parquet as parquet
    except ImportError as error:
        raise missing_package("parquet_dataset", "pyarrow", error) from error
    files, columns = _files(paths), _NAMES.check("parquet_dataset: columns", columns)
    counts = []
    for file in files:
        with parquet.ParquetFile(file) as opened:
            counts.append(opened.num_row_groups)
            names = opened.schema_arrow.names
        for name in columns or ():
            if name not in names:
                raise ValueError(
                    f"parquet_dataset: the file {file!r} has no column {name!r}."
                    f"{suggest(name, names)} Its columns are: {', '.join(names)}."
                )
    groups = [(file, n) for file, count in zip(files, counts, strict=True) for n in range(count)]

    def tables(rng: np.random.Generator) -> Iterator[Any]:
        order = rng.permutation(len(groups)) if shuffle else range(len(groups))
        for index in order:
            file, number = groups[index]
            with parquet.ParquetFile(file) as opened:
                names = None if columns is None else list(columns)
                yield from opened.iter_batches(row_groups=[number], columns=names)

    return Stream(tables, batch_size, shuffle, seed, batched=True)


def _files(paths: Any) -> list[str]:
    """Returns the paths of the files, of which a folder stands for those that end in ".parquet"."""
    if isinstance(paths, str | os.PathLike):
        folder = os.fspath(paths)
        if os.path.isdir(folder):
            names = sorted(name for name in os.listdir(folder) if name.endswith(".parquet"))
            paths = [os.path.join(folder, name) for name in names]
            if not paths:
                raise FileNotFoundError(
                    f"parquet_dataset: the folder {folder!r} has no files that end in '.parquet'."
                )
        else:
            paths = [folder]
    if not isinstance(paths, list | tuple):
        raise TypeError(
            f"parquet_dataset: expected a path or a list of paths, received {describe_value(paths)}. "
            "Write parquet_dataset('folder')."
        )
    files = [os.fspath(path) for path in paths]
    missing = next((file for file in files if not os.path.isfile(file)), None)
    if missing is not None or not files:
        raise FileNotFoundError(f"parquet_dataset: there is no file {missing!r}.")
    return files


def _mapped(function: Callable[..., Any], *trees: Any) -> Any:
    """Maps a function over the arrays of trees of tuples and dictionaries."""
    first = trees[0]
    if isinstance(first, tuple):
        return tuple(_mapped(function, *entries) for entries in zip(*trees, strict=True))
    if isinstance(first, Mapping):
        if any(tree.keys() != first.keys() for tree in trees):
            raise ValueError("dictionaries with different keys")
        return {name: _mapped(function, *(tree[name] for tree in trees)) for name in first}
    return function(*trees)


def _leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, tuple | Mapping):
        for entry in tree.values() if isinstance(tree, Mapping) else tree:
            yield from _leaves(entry)
    else:
        yield tree


def _array(value: Any) -> np.ndarray:
    array = np.asarray(value)
    # strings of several lengths have several dtypes of NumPy
    return array.astype(object) if array.dtype.kind in "US" else array


def _length(block: Any, number: int) -> int:
    """Returns the number of samples of a block, which all arrays must have."""
    lengths = {np.shape(leaf)[:1] for leaf in _leaves(block)}
    if len(lengths) != 1 or lengths == {()}:
        shapes = " and ".join(str(np.shape(leaf)) for leaf in _leaves(block))
        raise ValueError(
            f"Stream: batch {number + 1} of the source: expected arrays with the same number of rows, "
            f"received {shapes or 'no array'}. For single samples leave batched=True out."
        )
    return lengths.pop()[0]


def _stacked(samples: list[Any], number: int) -> Any:
    try:
        return _mapped(lambda *leaves: _array(np.stack([np.asarray(v) for v in leaves])), *samples)
    except (ValueError, TypeError, AttributeError) as error:
        begin = number + 2 - len(samples)
        raise ValueError(
            f"Stream: samples {begin} to {number + 1}: expected samples of one structure and shape, "
            f"received others ({error}). Pad or crop them to one shape; for a source of batches "
            "write batched=True."
        ) from error


def _checked(block: Any, first: Any, number: int) -> Any:
    """Returns the shapes and dtypes of a sample, which must be those of the first block."""
    form = _mapped(lambda array: (array.shape[1:], array.dtype), block)
    if first is not None and form != first:
        raise ValueError(
            f"Stream: up to sample or batch {number + 1} of the source: expected shapes and dtypes "
            f"{first}, as before, received {form}. Convert them: x.astype('float32')."
        )
    return form


def _rows(block: Any, places: slice | np.ndarray) -> Any:
    return _mapped(lambda array: array[places], block)


def _put(block: Any, places: slice | np.ndarray, rows: Any) -> None:
    _mapped(lambda array, row: array.__setitem__(places, row), block, rows)


def _shuffled(blocks: Iterator[Any], size: int, rng: np.random.Generator) -> Iterator[Any]:
    """Yields the samples of blocks in a random order, from a buffer of `size` samples."""
    pool: Any = None
    held = 0
    for block in blocks:
        if pool is None:
            pool = _mapped(lambda a: np.empty((size, *a.shape[1:]), a.dtype), block)
        count = len(next(_leaves(block)))
        for begin in range(0, count, size):
            rows = min(size, count - begin)
            free = min(size - held, rows)
            _put(pool, slice(held, held + free), _rows(block, slice(begin, begin + free)))
            held += free
            if rows > free:
                places = rng.choice(size, rows - free, replace=False)
                yield _rows(pool, places)  # a copy
                _put(pool, places, _rows(block, slice(begin + free, begin + rows)))
    if held:
        yield _rows(pool, rng.permutation(held))


def _cut(blocks: Iterator[Any], size: int, drop_remainder: bool) -> Iterator[Any]:
    """Yields batches of `size` samples, and a last batch of fewer."""
    held: Any = None
    for block in blocks:
        if held is not None:
            block = _mapped(lambda *parts: np.concatenate(parts), held, block)
        count = len(next(_leaves(block)))
        full = count - count % size
        for begin in range(0, full, size):
            yield _rows(block, slice(begin, begin + size))
        held = _rows(block, slice(full, None)) if full < count else None
    if held is not None and not drop_remainder:
        yield held
