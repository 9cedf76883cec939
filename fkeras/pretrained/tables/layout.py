"""The layout of a checkpoint: the safetensors files, and the order and dtypes of their tensors."""

from __future__ import annotations

from typing import Any

from fkeras.engine import Configurable, FrozenDict, option


class FileLayout(Configurable):
    """The tensors of one safetensors file.

    Args:
        name: name of the file in the folder; a file in a subfolder is that of a module beside the model.
        tensors: dtype of each tensor by name, such as "BF16", in the order of the file. The names of a
            module begin with the subfolder, such as "2_Dense/linear.weight".
        metadata: the entry `__metadata__` of the file.
    """

    name: str
    tensors: FrozenDict[str] = option()
    metadata: FrozenDict[str] = option(default=FrozenDict({}))

    @property
    def prefix(self) -> str:
        """The subfolder with "/", which the names in the file lack; "" for a file of the model."""
        folder = self.name.rpartition("/")[0]
        return f"{folder}/" if folder else ""


class Layout(Configurable):
    """The files of a folder.

    Args:
        files: the safetensors files.
        index: content of the index of shards, without its `weight_map`; None without an index.
        removed: prefix of the names in the family's table that the file omits, such as "model.".
        added: prefix that the file adds to the names in the family's table.
    """

    files: tuple[FileLayout, ...] = option()
    index: FrozenDict[Any] | None = option(default=None)
    removed: str = option(default="")
    added: str = option(default="")

    @property
    def renames(self) -> bool:
        """Whether the names in the file differ from those in the family's table."""
        return bool(self.removed or self.added)

    def in_file(self, name: str) -> str:
        """Converts a name in the family's table to the name in the file.

        Example:
            >>> Layout((), removed="model.").in_file("model.norm.weight")
            'norm.weight'
        """
        return name if "/" in name else self.added + name.removeprefix(self.removed)

    def in_table(self, name: str) -> str:
        """Converts a name in the file to the name in the family's table.

        Names without the prefix, such as those of heads, are the same in both.

        Example:
            >>> Layout((), removed="model.").in_table("norm.weight")
            'model.norm.weight'
        """
        return name if "/" in name else self.removed + name.removeprefix(self.added)
