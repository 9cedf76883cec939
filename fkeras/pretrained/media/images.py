"""Images as a vision model expects them: resized, cropped, rescaled and normalized on the host."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np

from fkeras.authoring.engine import describe_value
from fkeras.engine import FKerasError
from fkeras.nn.image.cubic import cubic

# fixed-point digits of Pillow's coefficients: with them the pixels are bit-equal to Pillow's
_DIGITS = 22
# classes in preprocessor_config.json with the defaults of absent keys:
# (class, filter, whether images are cropped, whether a size that is one number means both sides
# instead of the shorter side)
_KINDS = (
    ("ViT", 2, False, True),
    ("DeiT", 3, True, True),
    ("Siglip", 3, False, True),
    ("CLIP", 3, True, False),
    ("Bit", 3, True, False),
    ("ConvNext", 3, False, False),
)
# from this size on, processors of ConvNeXT resize both sides instead of cropping
_UNCROPPED = 384
_IGNORED = frozenset(
    [
        "image_processor_type",
        "feature_extractor_type",
        "processor_class",
        "do_convert_rgb",
        "data_format",
        "input_data_format",
        "valid_processor_keys",
        "_valid_processor_keys",
        "return_tensors",
        "device",
        "disable_grouping",
        "default_to_square",
        "size_divisor",
    ]
)


@dataclass(frozen=True)
class ImageProcessor:
    """Converts images of bytes to the pixels that a vision model was trained on.

    Resizing is that of Pillow, which Hugging Face's processors use, and bit-equal to Pillow 11:
    columns, then rows, with bytes in between. Later versions of Pillow resize the rows of some
    images first.

    Args:
        size: (height, width) after resizing, or one number for the shorter side; None to keep the
            size.
        resample: Pillow's number of the filter: 1 is Lanczos, 2 bilinear, 3 bicubic.
        crop: (height, width) of the central part that is kept, or None.
        factor: factor of the bytes.
        mean: mean of each channel after multiplication, or None for no normalization.
        std: standard deviation of each channel.
        rounds: whether the corner of the crop is rounded to an even pixel where it lies between two, as in
            torchvision; otherwise down.

    Raises:
        FKerasError: for a filter other than 1, 2 and 3, and for mean and std of different lengths.

    Example:
        >>> import numpy as np
        >>> process = ImageProcessor(size=(2, 2), mean=(0.5,) * 3, std=(0.5,) * 3)
        >>> process(np.full((4, 6, 3), 255, "uint8"))[0, 0]
        array([[1., 1., 1.],
               [1., 1., 1.]], dtype=float32)
    """

    size: tuple[int, int] | int | None
    resample: int = 3
    crop: tuple[int, int] | None = None
    factor: float = 1 / 255
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    rounds: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.resample, int) or self.resample not in _FILTERS:
            raise FKerasError(
                f"ImageProcessor: expected the filter (resample) 1, 2 or 3, received "
                f"{describe_value(self.resample)}. Resize the images before, and give size=None."
            )
        if self.mean is not None and len(self.mean) != len(self.std):
            raise FKerasError(
                "ImageProcessor: expected one number for each channel in mean and std, received "
                f"{len(self.mean)} and {len(self.std)}. Give both the same length."
            )

    @classmethod
    def read(cls, mapping: Mapping[str, Any]) -> Self:
        """Returns the processor that a `preprocessor_config.json` describes.

        Args:
            mapping: content of the file.

        Raises:
            FKerasError: for an unknown class, and for keys that change the pixels and are unknown.

        Example:
            >>> ImageProcessor.read({"image_processor_type": "ViTImageProcessor", "size": 4}).size
            (4, 4)
        """
        if not isinstance(mapping, Mapping):
            raise FKerasError(
                "preprocessor_config.json: expected an object of JSON, received "
                f"{describe_value(mapping)}. Correct the file."
            )
        name = mapping.get("image_processor_type") or mapping.get("feature_extractor_type") or "?"
        kind = str(name).removesuffix("Fast").removesuffix("Pil")
        kind = kind.removesuffix("ImageProcessor").removesuffix("FeatureExtractor")
        found = [row for row in _KINDS if row[0] == kind]
        if not found:
            classes = ", ".join(f"{row[0]}ImageProcessor" for row in _KINDS)
            raise FKerasError(
                f"preprocessor_config.json: expected one of {classes}, received "
                f"{describe_value(name)}. Build an ImageProcessor with the arguments of the file."
            )
        _, usual, crops, square = found[0]
        rest = dict(mapping)
        take = rest.pop
        size = _side(take("size", _UNCROPPED if kind == "ConvNext" else 224), square)
        resample = take("resample", usual)
        crop = _side(take("crop_size", 224), True)
        steps = {
            step: take(f"do_{step}", True) not in (False, None)
            for step in ("resize", "rescale", "normalize")
        }
        cropped = take("do_center_crop", crops)
        share = take("crop_pct", 224 / 256) if kind == "ConvNext" else None
        if kind == "ConvNext" and steps["resize"]:
            if cropped or not isinstance(size, int):
                raise FKerasError(
                    "preprocessor_config.json: expected one size and no do_center_crop for a ConvNextImageProcessor, "
                    f"received {describe_value(size)} and {describe_value(cropped)}. Build an ImageProcessor with "
                    "the arguments of the file."
                )
            size, crop = _cropped(size, share)
            cropped = crop is not None
        factor = take("rescale_factor", 1 / 255)
        mean, std = take("image_mean", (0.5,) * 3), take("image_std", (0.5,) * 3)
        unknown = [key for key, value in rest.items() if value and key not in _IGNORED]
        if unknown:
            raise FKerasError(
                f"preprocessor_config.json: unknown key {unknown[0]!r} with the value "
                f"{describe_value(rest[unknown[0]])}. The step is not implemented: remove the key if "
                "the pixels do not depend on it."
            )
        return cls(
            size if steps["resize"] else None,
            resample,
            crop if cropped and isinstance(crop, tuple) else None,
            _number("rescale_factor", factor) if steps["rescale"] else 1.0,
            _channels("image_mean", mean) if steps["normalize"] else None,
            _channels("image_std", std, divisor=True) if steps["normalize"] else (1.0,) * 3,
        )

    def __call__(self, images: np.ndarray | Sequence[np.ndarray]) -> np.ndarray:
        """Returns the pixels (b, h, w, c) of images.

        Args:
            images: bytes (h, w, c) or (b, h, w, c), or a list of images (h, w, c) of any sizes.

        Raises:
            FKerasError: for other shapes and dtypes, images below the size of the crop, and images
                whose sizes differ after the steps.

        Example:
            >>> import numpy as np
            >>> ImageProcessor(size=2)(np.zeros((1, 4, 8, 3), "uint8")).shape
            (1, 2, 4, 3)
        """
        if isinstance(images, list | tuple):
            batch = [np.asarray(image) for image in images]
        else:
            array = np.asarray(images)
            batch = list(array) if array.ndim == 4 else [array]
        if not batch:
            raise FKerasError(
                "ImageProcessor: expected at least one image, received an empty list."
            )
        pixels = [self._pixels(image) for image in batch]
        shapes = sorted({image.shape for image in pixels})
        if len(shapes) != 1:
            raise FKerasError(
                f"ImageProcessor: expected images of one size after the steps, received {shapes}. "
                "Process the images one by one, or set a crop."
            )
        return np.stack(pixels)

    def _pixels(self, image: np.ndarray) -> np.ndarray:
        channels = 3 if self.mean is None else len(self.mean)
        if image.ndim != 3 or image.shape[-1] != channels or image.dtype != np.uint8:
            raise FKerasError(
                f"ImageProcessor: expected images of bytes (uint8) of shape (h, w, {channels}), "
                f"received {image.dtype} of shape {image.shape}. For floats in [0, 1] write "
                "np.uint8(255 * image); for one channel np.repeat(image, 3, axis=-1)."
            )
        height, width = image.shape[:2]
        if height == 0 or width == 0:
            raise FKerasError(
                f"ImageProcessor: expected images with at least one pixel, received {image.shape}."
            )
        if isinstance(self.size, int):
            # the longer side is rounded down, as in Hugging Face's processors
            short = min(height, width)
            sides = (self.size * height // short, self.size * width // short)
            image = resized(image, sides, self.resample)
        elif self.size is not None:
            image = resized(image, self.size, self.resample)
        if self.crop is not None:
            rows, columns = self.crop
            spare = image.shape[0] - rows, image.shape[1] - columns
            top, left = (round(n / 2) if self.rounds else n // 2 for n in spare)
            if top < 0 or left < 0:
                raise FKerasError(
                    f"ImageProcessor: expected images of at least the crop {self.crop}, received "
                    f"{image.shape[:2]} after resizing. Give a larger size."
                )
            image = image[top : top + rows, left : left + columns]
        pixels = (image.astype(np.float64) * self.factor).astype(np.float32)
        if self.mean is None:
            return pixels
        mean, std = (np.asarray(values, np.float32) for values in (self.mean, self.std))
        return (pixels - mean) / std


def _cropped(size: int, share: Any) -> tuple[tuple[int, int] | int, tuple[int, int] | None]:
    """Returns the size and the crop for the size of the crop and its share of the resized image."""
    if size >= _UNCROPPED:
        return (size, size), None
    share = 1.0 if share is None else _number("crop_pct", share)
    if not 0 < share <= 1:
        raise FKerasError(
            "preprocessor_config.json: crop_pct: expected a share above 0, at most 1, received "
            f"{describe_value(share)}. Correct the file."
        )
    return int(size / share), (size, size)


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FKerasError(
            f"preprocessor_config.json: {key}: expected a number, received {describe_value(value)}. "
            "Correct the file."
        )
    return float(value)


def _channels(key: str, values: Any, divisor: bool = False) -> tuple[float, ...]:
    """Reads a number for each channel; a divisor is not 0."""
    listed = isinstance(values, list | tuple) and 0 < len(values) <= 4
    numbers = tuple(_number(key, value) for value in values) if listed else ()
    if not numbers or (divisor and 0 in numbers):
        raise FKerasError(
            f"preprocessor_config.json: {key}: expected a number for each channel, received "
            f"{describe_value(values)}. Correct the file."
        )
    return numbers


def _side(value: Any, square: bool) -> tuple[int, int] | int:
    """Reads a size: a number, `{"shortest_edge": n}`, or `{"height": h, "width": w}`."""
    if isinstance(value, Mapping):
        if set(value) == {"height", "width"}:
            value = [value["height"], value["width"]]
        elif set(value) == {"shortest_edge"}:
            value = [value["shortest_edge"]]
    elif square:
        value = [value, value]
    sides: Sequence[Any] = value if isinstance(value, tuple | list) else [value]
    valid = all(isinstance(n, int) and not isinstance(n, bool) and n > 0 for n in sides)
    if not valid or len(sides) not in (1, 2):
        raise FKerasError(
            "preprocessor_config.json: expected a size such as 224, "
            f'{{"height": 224, "width": 224}} or {{"shortest_edge": 224}}, received '
            f"{describe_value(value)}. Correct the file."
        )
    return (sides[0], sides[1]) if len(sides) == 2 else sides[0]


def _bicubic(x: np.ndarray) -> np.ndarray:
    return cubic(x, -0.5)


def _bilinear(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0.0)


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0.0)


_FILTERS = MappingProxyType({1: (3.0, _lanczos), 2: (1.0, _bilinear), 3: (2.0, _bicubic)})


def resampling_weights(old: int, new: int, resample: int) -> np.ndarray:
    """Returns Pillow's matrix (new, old) that resizes an axis, with antialiasing."""
    support, kernel = _FILTERS[resample]
    scale = old / new
    stretch = max(scale, 1.0)
    weights = np.zeros((new, old))
    for row in range(new):
        center = (row + 0.5) * scale
        first = max(int(center - support * stretch + 0.5), 0)
        last = min(int(center + support * stretch + 0.5), old)
        values = kernel((np.arange(first, last) - center + 0.5) * (1 / stretch))
        weights[row, first:last] = values * (1 / values.sum())
    return weights


def resized(image: np.ndarray, size: tuple[int, int], resample: int = 3) -> np.ndarray:
    """Returns an image (h, w, c) in another size, bit-equal to the `resize` of Pillow 11."""
    y = image.astype(np.float64)
    for axis, equation in ((1, "ow,hwc->hoc"), (0, "oh,hwc->owc")):
        old, new = image.shape[axis], size[axis]
        if old == new:
            continue
        weights = resampling_weights(old, new, resample) * 2**_DIGITS
        # rounds half away from 0; products of bytes and integers below 2**53 are exact
        weights = np.trunc(weights + np.where(weights < 0, -0.5, 0.5))
        sums = np.einsum(equation, weights, y, optimize=True) + 2 ** (_DIGITS - 1)
        y = np.clip(np.floor(sums / 2**_DIGITS), 0, 255)
    return y.astype(np.uint8)
