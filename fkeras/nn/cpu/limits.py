"""Limits up to which the computations for CPUs are faster, measured by `benchmarks/cpu_forms.py`."""

from __future__ import annotations

import math
from typing import Any

#: cells of a depthwise kernel: the program has one product per cell
DEPTHWISE_CELLS = 81
#: cells of a window of max pooling: the program has one maximum per cell
POOLING_CELLS = 64
#: least and most cells of windows of average pooling, for overlapping and for separate windows
OVERLAPPING_SUMS, SEPARATE_SUMS = (2, 9), (5, 64)
#: largest factor of bilinear interpolation: a factor n needs n weighted sums for each axis
ENLARGING = 8
#: least size of a weight whose gradient is a product with ones, not a sum over rows
REPEATED = 20_000
#: cells of a kernel whose gradient is one product of matrices per cell
PRODUCT_CELLS = 9
#: input and output channels, the smaller and the larger number, from which such products are faster,
#: but not in half precision
PRODUCT_CHANNELS = (32, 64)


def products_are_faster(kernel: Any) -> bool:
    """Returns whether the gradient of a kernel is faster as products than as a convolution.

    Args:
        kernel: the kernel (*window, c, f), or its shape and dtype.
    """
    *window, inputs, filters = kernel.shape
    channels = sorted((inputs, filters))
    wide = all(size >= limit for size, limit in zip(channels, PRODUCT_CHANNELS, strict=True))
    suits = len(window) == 2 and math.prod(window) <= PRODUCT_CELLS and wide
    return math.prod(window) == 1 or (suits and kernel.dtype.itemsize > 2)
