"""`image_grid`: images with predictions as one drawing."""

from __future__ import annotations

import base64
import html
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fkeras.engine.config.converters import integer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.network.picture import Picture
from fkeras.nn.image.png import png
from fkeras.utils.classes import class_names_of, classes_of

_SPACE, _LINE, _CHARACTER = 6, 15, 6.8
# a smaller image is enlarged, so that its pixels are visible
_SMALLEST, _LARGEST = 64, 160
_WRONG = "#dc2626"
_SIZE = integer(minimum=1)
# colors of heat from 0 to 1, and the opacity of the largest
_HEAT = ((60, 0, 120), (190, 50, 90), (250, 140, 10), (255, 250, 150))
_OPACITY = 0.85


def image_grid(
    images: Any,
    predictions: Any = None,
    labels: Any = None,
    *,
    heat: Any = None,
    class_names: Sequence[str] | None = None,
    columns: int | None = None,
    row_names: Sequence[object] | None = None,
    size: int | None = None,
) -> Picture:
    """Draws images side by side, with the predicted classes above them.

    A notebook shows the drawing, and `save` writes a file. With scores as predictions the drawing
    shows the score of the predicted class. With labels, a wrong prediction is red and names the label.

    Args:
        images: `(b, h, w)`, or `(b, h, w, c)` with 1, 3 or 4 channels. Values of uint8 are 0 to 255.
            Other values are 0 to 1 if all are in this range; otherwise the smallest value of all
            images is black, and the largest is white.
        predictions: scores `(b, classes)`, class numbers `(b,)`, probabilities of the second of two
            classes, names among `class_names`, or None.
        labels: class numbers, one-hot vectors or names, or None.
        heat: numbers for the pixels, `(b, h, w)` or `(b, h, w, c)`, such as those of
            `transforms.grad_cam` or `saliency`: the larger the absolute value, the brighter the color on
            the image. The largest value of each image has the brightest color.
        class_names: the names of the classes, in the order of their numbers.
        columns: images in a row; by default at most 8, and with `row_names` as many as fill the rows.
        row_names: texts before the rows.
        size: width of an image in the drawing, in pixels; by default that of the image, but at least
            64 and at most 160.

    Returns:
        The drawing.

    Raises:
        TypeError: for values that are neither numbers nor names.
        ValueError: for other shapes, NaN, and predictions or labels of another number than the images.

    Example:
        >>> import numpy as np, fkeras as fk
        >>> images, scores = np.zeros((2, 8, 8)), [[0.9, 0.1], [0.2, 0.8]]
        >>> picture = fk.utils.image_grid(images, scores, [0, 0], class_names=["cat", "dog"])
        >>> "cat 90%" in picture.svg, "dog 80%, not cat" in picture.svg
        (True, True)
    """
    where = "image_grid"
    pixels = _pixels(where, images)
    pixels = pixels if heat is None else _heated(where, pixels, heat)
    count, height, width = pixels.shape[:3]
    names = class_names_of(where, class_names)
    titles = list(_titles(where, predictions, labels, names, count))
    sides = [] if row_names is None else [str(name) for name in row_names]
    default = -(-count // len(sides)) if sides else min(count, 8)
    across = default if columns is None else int(_SIZE.check(f"{where}: columns", columns))
    rows = -(-count // across)
    if row_names is not None and len(sides) != rows:
        raise ValueError(
            f"{where}: row_names: expected {rows} names, one for each row of {across} images, received "
            f"{len(sides)}."
        )
    shown = min(max(width, _SMALLEST), _LARGEST)
    shown = shown if size is None else _SIZE.check(f"{where}: size", size)
    tall = max(round(shown * height / width), 1)
    left = _SPACE + max((len(name) for name in sides), default=0) * _CHARACTER
    text_width = max((len(title) for title, _ in titles), default=0) * _CHARACTER
    cell_width = max(shown, text_width) + _SPACE
    cell_height = tall + _SPACE + (_LINE if titles else 0)
    parts = []
    for number in range(count):
        row, column = number // across, number % across
        x, y = left + column * cell_width, _SPACE + row * cell_height
        center = x + (cell_width - _SPACE) / 2
        if titles:
            title, is_wrong = titles[number]
            color = _WRONG if is_wrong else "currentColor"
            parts.append(_text(center, y + _LINE - 4, title, "middle", color))
            y += _LINE
        data = base64.b64encode(png(pixels[number])).decode()
        parts.append(
            f'<image x="{center - shown / 2:.1f}" y="{y:.1f}" width="{shown}" height="{tall}" '
            f'preserveAspectRatio="none" style="image-rendering:pixelated" '
            f'href="data:image/png;base64,{data}"/>'
        )
    for row, name in enumerate(sides):
        middle = _SPACE + row * cell_height + cell_height / 2
        parts.append(_text(left - _SPACE, middle, name, "end", "currentColor"))
    total = left + across * cell_width
    depth = _SPACE + rows * cell_height
    title = f"{count} images"
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total:.0f}" height="{depth:.0f}" '
        f'viewBox="0 0 {total:.0f} {depth:.0f}" role="img" aria-label="{title}" '
        f'font-family="sans-serif" font-size="12">{"".join(parts)}</svg>'
    )
    return Picture(svg, title)


def _pixels(where: str, images: Any) -> np.ndarray:
    """Returns the images as uint8 `(b, h, w, c)`."""
    try:
        array = np.asarray(images)
    except ValueError:
        array = np.asarray("images of different sizes")
    if array.dtype.kind not in "biu":
        try:
            array = array.astype("float64")
        except (TypeError, ValueError):
            raise TypeError(
                f"{where}: images: expected an array of numbers, images of one size, received "
                f"{describe_value(images)}. Resize them first: fk.ops.image.resize(image, (32, 32))."
            ) from None
    array = array[..., None] if array.ndim == 3 else array
    if array.ndim != 4 or array.shape[3] not in (1, 3, 4) or not array.size:
        raise ValueError(
            f"{where}: images: expected at least one image, (b, h, w) or (b, h, w, c) with 1, 3 or 4 "
            f"channels, received the shape {np.shape(images)}. A single image is images[None]."
        )
    if array.dtype == "uint8":
        return array
    array = array.astype("float64")
    finite = np.isfinite(array)
    if not finite.all():
        number = int(np.argwhere(~finite)[0][0])
        raise ValueError(
            f"{where}: images: expected finite numbers, received NaN or infinity in image {number}."
        )
    low, high = array.min(), array.max()
    low, high = (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)
    return np.rint((array - low) / ((high - low) or 1.0) * 255).astype("uint8")


def _heated(where: str, pixels: np.ndarray, heat: Any) -> np.ndarray:
    """Returns the images in color, with a heat map over each."""
    heat = np.asarray(heat)
    if heat.dtype.kind not in "biuf" or heat.shape[:3] != pixels.shape[:3] or heat.ndim > 4:
        raise ValueError(
            f"{where}: heat: expected numbers of shape {pixels.shape[:3]}, one for each pixel, received "
            f"{heat.dtype} of shape {heat.shape}. transforms.grad_cam resizes its maps to the images."
        )
    strength = np.abs(heat.astype("float64"))
    strength = strength.max(-1) if heat.ndim == 4 else strength
    if not np.isfinite(strength).all():
        raise ValueError(f"{where}: heat: expected finite numbers, received NaN or infinity.")
    largest = strength.max((1, 2), keepdims=True)
    strength = strength / np.where(largest > 0, largest, 1)
    positions = np.linspace(0, 1, len(_HEAT))
    color = np.stack(
        [np.interp(strength, positions, channel) for channel in np.transpose(_HEAT)], -1
    )
    share = (_OPACITY * strength)[..., None]
    return np.rint((1 - share) * pixels[..., :3] + share * color).astype("uint8")


def _titles(
    where: str, predictions: Any, labels: Any, names: tuple[str, ...] | None, count: int
) -> Iterator[tuple[str, bool]]:
    """Yields the title of each image, and whether the prediction is wrong."""
    columns = {}
    for argument, values in (("predictions", predictions), ("labels", labels)):
        if values is None:
            continue
        numbers, scores, _ = classes_of(where, argument, values, names)
        if len(numbers) != count:
            raise ValueError(
                f"{where}: {argument}: expected {count} rows, one for each image, received "
                f"{len(numbers)}."
            )
        columns[argument] = ([names[n] if names else str(n) for n in numbers], scores)
    texts, scores = columns.get("predictions", (None, None))
    right, _ = columns.get("labels", (None, None))
    # logits are not shown: they are no probabilities
    if scores is not None and not ((scores >= 0) & (scores <= 1)).all():
        scores = None
    for number in range(count if columns else 0):
        if texts is None:
            yield (right or [])[number], False
            continue
        title = texts[number]
        if scores is not None:
            title += f" {float(scores[number]):.0%}"
        is_wrong = right is not None and right[number] != texts[number]
        yield (f"{title}, not {right[number]}" if right and is_wrong else title), is_wrong


def _text(x: float, y: float, text: str, anchor: str, color: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">'
        f"{html.escape(text)}</text>"
    )
