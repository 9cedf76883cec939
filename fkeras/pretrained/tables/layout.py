"""The layout of a checkpoint: which file holds which tensor, in which order and dtype."""

from __future__ import annotations

from typing import Any

from fkeras.engine import Configurable, FrozenDict, option


class FileLayout(Configurable):
    """The tensors of one safetensors file.

    Args:
        name: name of the file in the folder.
        tensors: dtype of each tensor, such as "BF16", by name, in the order of the file.
        metadata: the entry `__metadata__` of the file.
    """

    name: str
    tensors: FrozenDict[str] = option()
    metadata: FrozenDict[str] = option(default=FrozenDict({}))


class Layout(Configurable):
    """The files of a folder.

    Args:
        files: the safetensors files.
        index: the index of shards as it was read, without its `weight_map`; None without an index.
        removed: first segment of the family's names that the file leaves out, such as "model.".
        added: first segment that the file puts before the family's names.
    """

    files: tuple[FileLayout, ...] = option()
    index: FrozenDict[Any] | None = option(default=None)
    removed: str = option(default="")
    added: str = option(default="")

    def in_file(self, name: str) -> str:
        """Returns the name in the file of a name in the family's table.

        Example:
            >>> Layout((), removed="model.").in_file("model.norm.weight")
            'norm.weight'
        """
        return self.added + name.removeprefix(self.removed)

    def in_table(self, name: str) -> str:
        """Returns the name in the family's table of a name in the file.

        Names without the segment that is removed or added, such as those of heads, are the same in
        both.

        Example:
            >>> Layout((), removed="model.").in_table("norm.weight")
            'model.norm.weight'
        """
        return self.removed + name.removeprefix(self.added)
