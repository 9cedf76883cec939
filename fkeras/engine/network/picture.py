"""`Picture`: an SVG drawing that notebooks show and that `save` writes to an SVG or image file."""

from __future__ import annotations

import dataclasses
import os

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine.config.converters import boolean, integer
from fkeras.engine.network.raster import FORMATS, write_image
from fkeras.engine.values.argument_types import FilePath

_DPI = integer(minimum=1, maximum=2400)


@dataclasses.dataclass(frozen=True, repr=False)
class Picture:
    """A drawing as SVG text, which needs no other program.

    Attributes:
        svg: the SVG element.
        title: what the drawing shows.

    Example:
        >>> import fkeras as fk
        >>> fk.utils.draw(fk.Sequential([fk.Input((4,)), fk.layers.Dense(2)], name="small"))
        <Picture of the graph of 'small' (Sequential), 'picture.save("file.png")' writes it>
    """

    svg: str
    title: str

    def __repr__(self) -> str:
        return f"<Picture of {self.title}, 'picture.save(\"file.png\")' writes it>"

    def _repr_html_(self) -> str:
        """Returns the drawing for notebooks; a wide drawing scrolls."""
        return f'<div style="overflow:auto">{self.svg}</div>'

    def save(self, path: FilePath, dpi: int = 200, dark: bool = False) -> str:
        """Writes the drawing with a background: as SVG, or as an image by matplotlib.

        Args:
            path: path of the file, which ends in ".svg", ".png", ".pdf", ".jpg", ".jpeg", ".eps" or
                ".ps".
            dpi: resolution of an image, in dots per inch; a drawing has 96 pixels per inch. An image has at
                most 65,000 pixels along an axis.
            dark: whether to draw light lines on a dark background.

        Returns:
            The path.

        Raises:
            ImportError: for an image, if matplotlib is missing.
            ValueError: for another file extension, and for an option out of range.
        """
        path, dpi = as_path(path), _DPI.check("Picture.save: dpi", dpi)
        dark = boolean.check("Picture.save: dark", dark)
        extension = os.path.splitext(path)[1][1:].lower()
        if extension not in ("svg", *FORMATS):
            raise ValueError(
                f"Picture.save: expected a path that ends in {', '.join(f'.{f}' for f in FORMATS)} or "
                f".svg, received {path!r}. Write picture.save('picture.png')."
            )
        with replacing(path) as file:
            if extension == "svg":
                # a viewer with a dark background would show black lines on black
                colors = (
                    "background:#18181b;color:#e5e5e5" if dark else "background:white;color:black"
                )
                text = self.svg.replace("<svg ", f'<svg style="{colors}" ', 1)
                file.write(text.encode() + b"\n")
            else:
                write_image(self.svg, file, extension, dpi, dark)
        return path
