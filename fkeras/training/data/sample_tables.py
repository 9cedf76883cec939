"""Tables of samples with named columns and access by number: `datasets.Dataset` of Hugging Face."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from fkeras.host.processes.arrays import on_host
from fkeras.training.data.batch_parts import NAMES

_METHODS = ("column_names", "with_format", "select_columns", "__getitem__", "__len__")


@dataclasses.dataclass(frozen=True)
class SampleTable:
    """Named batches of a table of samples, in another order in each pass.

    Attributes:
        rows: the table, whose `rows[ids]` returns a dictionary of NumPy arrays.
        size: number of rows of a batch, over all shares together.
        seed: seed of the orders; None for the order of the table.
        shard: `(index, count)`: the block of each batch that this process reads.
    """

    rows: Any
    size: int
    seed: int | None
    shard: tuple[int, int]

    def __iter__(self) -> Iterator[Any]:
        return self.pass_at(0)

    def pass_at(self, step: int) -> Iterator[Any]:
        """Yields the batches of the pass that begins at a training step."""
        ids = np.arange(len(self.rows))
        if self.seed is not None:
            ids = np.random.default_rng([self.seed, step]).permutation(ids)
        index, count = self.shard
        part = self.size // count
        for begin in range(index * part, len(ids), self.size):
            yield self.rows[ids[begin : begin + part]]


def as_batches(x: Any, size: int, key_data: Any = None, shard: tuple[int, int] = (0, 1)) -> Any:
    """Returns a table of samples as a source of named batches; other data unchanged.

    Args:
        key_data: the words of the key whose last word is the seed of the orders; None for the order of
            the table.

    Raises:
        ValueError: for a table without a column "x", and for a size that the shares cannot divide.
    """
    if not all(hasattr(type(x), name) for name in _METHODS):
        return x
    columns = [name for name in NAMES if name in x.column_names]
    if "x" not in columns:
        shown = ", ".join(map(repr, x.column_names[:8]))
        raise ValueError(
            f"Trainer: expected a {type(x).__name__} with the columns 'x', 'y' and perhaps "
            f"'sample_weight', received {shown}. Rename them: rows.rename_columns("
            f"{{{x.column_names[0]!r}: 'x', ...}}), or for several inputs pass fk.utils.Dataset(len(rows), "
            "rows.with_format('numpy').__getitem__).map(function)."
        )
    if size % shard[1]:
        raise ValueError(
            f"Trainer: expected a batch_size that {shard[1]} processes can share, received {size}. "
            f"Write batch_size={-(-size // shard[1]) * shard[1]}."
        )
    seed = None if key_data is None else int(np.ravel(on_host(key_data))[-1])
    return SampleTable(x.select_columns(columns).with_format("numpy"), size, seed, shard)
