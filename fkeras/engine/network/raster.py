"""Image files of SVG drawings, by matplotlib: the elements that the drawings of fkeras consist of."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

from fkeras.engine.messages.optional_packages import missing_package

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: extensions of image files; one CSS pixel is 1/96 inch, a point 1/72 inch
FORMATS = ("png", "pdf", "jpg", "jpeg", "eps", "ps")
_PIXEL, _POINT = 1 / 96, 0.75
_LARGEST = 65_000  # pixels along an axis that matplotlib can draw
_STEP = re.compile(r"([MLC])([^MLC]*)")
_ANCHORS = (("start", "left"), ("middle", "center"), ("end", "right"))


def write_image(svg: str, file: BinaryIO, extension: str, dpi: int, dark: bool) -> None:
    """Writes a drawing to a file as an image.

    Args:
        svg: the drawing, of rectangles, paths, texts, images and groups.
        extension: one of `FORMATS`.
        dpi: dots per inch of a drawing whose pixels are 1/96 inch.
        dark: whether the background is dark.

    Raises:
        ImportError: if matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_package("Picture.save", "matplotlib", error) from error
    root = ElementTree.fromstring(svg)
    width, height = float(root.get("width", 0)), float(root.get("height", 0))
    figure = Figure(figsize=(width * _PIXEL, height * _PIXEL))
    _Canvas(figure, width, height, dark).draw(root, (0.0, 0.0), {})
    dpi = max(min(dpi, int(_LARGEST / (max(width, height) * _PIXEL))), 1)
    figure.savefig(file, format=extension, dpi=dpi, facecolor=figure.get_facecolor())


class _Canvas:
    """Axes in the coordinates of the drawing, and its two colors."""

    def __init__(self, figure: Figure, width: float, height: float, dark: bool):
        self.ink, self.paper = ("#e5e5e5", "#18181b") if dark else ("black", "white")
        figure.set_facecolor(self.paper)
        self.axes = figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.set_axis_off()

    def draw(self, element: Any, shift: tuple[float, float], outer: Mapping[str, str]) -> None:
        """Draws an element and the elements inside."""
        get: dict[str, str] = {**outer, **element.attrib}
        if "transform" in element.attrib:
            x, y = re.findall(r"-?[\d.]+", element.attrib["transform"])
            shift = (shift[0] + float(x), shift[1] + float(y))
        kind = element.tag.rpartition("}")[2]
        if kind in ("svg", "g"):
            inherited = {n: get[n] for n in ("font-family", "font-size", "stroke") if n in get}
            for child in element:
                self.draw(child, shift, inherited)
        else:
            getattr(self, f"_{kind}")(get, shift, element.text)

    def _color(self, name: str, opacity: float = 1.0) -> Any:
        """Returns a color on the background: EPS has no transparency."""
        from matplotlib.colors import to_rgb

        pairs = zip(
            to_rgb(self.ink if name == "currentColor" else name), to_rgb(self.paper), strict=True
        )
        return tuple(opacity * color + (1 - opacity) * paper for color, paper in pairs)

    def _rect(self, get: dict[str, str], shift: tuple[float, float], text: str | None) -> None:
        from matplotlib.patches import FancyBboxPatch

        x, y, width, height = (float(get[name]) for name in ("x", "y", "width", "height"))
        fill = get.get("fill", "none")
        box = FancyBboxPatch(
            (x + shift[0], y + shift[1]),
            width,
            height,
            boxstyle=f"round,pad=0,rounding_size={get.get('rx', 0)}",
            mutation_aspect=1,
            linewidth=_POINT,
            edgecolor=self._color(get["stroke"]),
            facecolor=(
                "none" if fill == "none" else self._color(fill, float(get.get("fill-opacity", 1)))
            ),
            linestyle=(0, (4, 3)) if "stroke-dasharray" in get else "solid",
        )
        self.axes.add_patch(box)

    def _path(self, get: dict[str, str], shift: tuple[float, float], text: str | None) -> None:
        from matplotlib.patches import PathPatch
        from matplotlib.path import Path

        codes, points = [], []
        for step, body in _STEP.findall(get["d"]):
            numbers = [float(number) for number in re.findall(r"-?[\d.]+", body)]
            pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
            code = {"M": Path.MOVETO, "L": Path.LINETO, "C": Path.CURVE4}[step]
            codes += [code] * len(pairs)
            points += [(x + shift[0], y + shift[1]) for x, y in pairs]
        color = self._color(get["stroke"])
        patch = PathPatch(Path(points, codes), fill=False, edgecolor=color, linewidth=_POINT)
        self.axes.add_patch(patch)

    def _text(self, get: dict[str, str], shift: tuple[float, float], text: str | None) -> None:
        self.axes.text(
            float(get["x"]) + shift[0],
            float(get["y"]) + shift[1],
            text or "",
            horizontalalignment=dict(_ANCHORS)[get.get("text-anchor", "start")],
            verticalalignment="baseline",
            fontfamily=get["font-family"],
            fontsize=float(get["font-size"]) * _POINT,
            fontweight=get.get("font-weight", "normal"),
            color=self._color(get["fill"]),
            parse_math=False,  # a name may contain dollar signs
        )

    def _image(self, get: dict[str, str], shift: tuple[float, float], text: str | None) -> None:
        from matplotlib.image import imread

        x, y, width, height = (float(get[name]) for name in ("x", "y", "width", "height"))
        pixels = imread(io.BytesIO(base64.b64decode(get["href"].partition(",")[2])))
        left, top = x + shift[0], y + shift[1]
        limits = self.axes.get_xlim(), self.axes.get_ylim()
        extent = (left, left + width, top + height, top)
        # gray images have no color axis
        self.axes.imshow(
            pixels,
            cmap="gray",
            vmin=0,
            vmax=1,
            extent=extent,
            interpolation="nearest",
            aspect="auto",
        )
        self.axes.set(xlim=limits[0], ylim=limits[1])
