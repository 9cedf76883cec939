"""Numbers of channels, and the padding before strided convolutions."""

from __future__ import annotations

from fkeras.engine import KerasTensor


def divisible(width: float, divisor: int = 8, smallest: float = 0.9) -> int:
    """Rounds a scaled number of channels to a multiple of `divisor`.

    Args:
        width: number of channels, scaled by a width multiplier.
        divisor: the divisor of the result, and its lower bound.
        smallest: the next multiple is taken where rounding down leaves less than this share.

    Example:
        >>> divisible(16 * 0.75), divisible(33), divisible(11), divisible(11, smallest=0.0)
        (16, 32, 16, 8)
    """
    rounded = max(divisor, int(width + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < smallest * width else rounded


def strided_padding(x: KerasTensor, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Returns the zeros before and after height and width for a convolution with stride 2.

    An even size gets one row less at the front, so that a "valid" convolution takes the same
    positions as TensorFlow's "same". An unknown size counts as even, as in Keras.

    Args:
        x: images (b, h, w, c).
        size: the kernel's width and height.

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
