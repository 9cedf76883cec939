"""Blocks that repeat: equal blocks of a graph are recorded once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator

from fkeras.engine import Model


def repeated(block: Callable[[int], Model], kinds: Iterable[Hashable]) -> Iterator[Model]:
    """Yields a model for each block, named "block_{i}"; blocks of one kind differ only in their names.

    Args:
        block: records the block of an index.
        kinds: the kind of each block.
    """
    recorded: dict[Hashable, Model] = {}
    for i, kind in enumerate(kinds):
        if kind not in recorded:
            recorded[kind] = block(i)
        yield recorded[kind].replace(name=f"block_{i}")
