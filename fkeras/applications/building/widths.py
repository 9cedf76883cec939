"""Rounded numbers of channels, and padding before strided convolutions."""

from __future__ import annotations

from fkeras.engine import KerasTensor


def round_channels(width: float, min_ratio: float = 0.9) -> int:
    """Rounds a scaled number of channels to a multiple of 8.

    Args:
        min_ratio: the result is rounded up if rounding to nearest gives less than this share of `width`.

    Example:
        >>> round_channels(16 * 0.75), round_channels(33), round_channels(11), round_channels(11, min_ratio=0.0)
        (16, 32, 16, 8)
    """
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < min_ratio * width else rounded


def strided_padding(x: KerasTensor, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the padding of height and width before a convolution with stride 2.

    An even height or width gets one zero less at the front than at the end. A convolution with
    padding="valid" then has the same positions as TensorFlow's padding="same". An unknown size counts
    as even, as in Keras.

    Example:
        >>> import fkeras as fk
        >>> strided_padding(fk.Input((8, 7, 3)), 5)
        ((1, 2), (2, 2))
    """
    half = size // 2
    height, width = (
        (half - (1 if length is None else 1 - length % 2), half) for length in x.shape[1:3]
    )
    return height, width
