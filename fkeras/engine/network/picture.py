"""`Picture`: an SVG drawing that notebooks show and that `save` writes to a file."""

from __future__ import annotations

import dataclasses
import os

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine.values.argument_types import FilePath


@dataclasses.dataclass(frozen=True, repr=False)
class Picture:
    """A drawing as SVG text, which needs no other program.

    Attributes:
        svg: the SVG element.
        title: what the drawing shows.

    Example:
        >>> import fkeras as fk
        >>> fk.utils.draw(fk.Sequential([fk.Input((4,)), fk.layers.Dense(2)], name="small"))
        <Picture of the graph of 'small' (Sequential), 'picture.save("file.svg")' writes it>
    """

    svg: str
    title: str

    def __repr__(self) -> str:
        return f"<Picture of {self.title}, 'picture.save(\"file.svg\")' writes it>"

    def _repr_html_(self) -> str:
        """Returns the drawing for notebooks; a wide drawing scrolls."""
        return f'<div style="overflow:auto">{self.svg}</div>'

    def save(self, path: FilePath) -> str:
        """Writes the drawing with a white background.

        Args:
            path: path of the file, which ends in ".svg".

        Returns:
            The path.

        Raises:
            ValueError: for another file extension.
        """
        path = as_path(path)
        if os.path.splitext(path)[1].lower() != ".svg":
            raise ValueError(
                f"Picture.save: expected a path that ends in .svg, received {path!r}. Write "
                "picture.save('picture.svg')."
            )
        # a viewer with a dark background would show black lines on black
        text = self.svg.replace("<svg ", '<svg style="background:white;color:black" ', 1)
        with replacing(path) as file:
            file.write(text.encode() + b"\n")
        return path
