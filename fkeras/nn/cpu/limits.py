"""Limits up to which the computations for CPUs are faster, measured by `benchmarks/cpu_forms.py`."""

from __future__ import annotations

import math
from collections.abc import Sequence

#: cells of a depthwise kernel: the program has one product per cell
DEPTHWISE_CELLS = 81
#: cells of a window of max pooling: the program has one maximum per cell
POOLING_CELLS = 64
#: cells of a kernel whose gradient is one product of matrices per cell
PRODUCT_CELLS = 9
#: input and output channels, the smaller and the larger number, from which such products are faster
PRODUCT_CHANNELS = (32, 64)


def products_are_faster(kernel: Sequence[int]) -> bool:
    """Returns whether the gradient of a kernel is faster as products than as a convolution.

    Args:
        kernel: the shape (*window, c, f) of the kernel.
    """
    cells, channels = math.prod(kernel[:-2]), sorted(kernel[-2:])
    wide = all(size >= limit for size, limit in zip(channels, PRODUCT_CHANNELS, strict=True))
    return cells == 1 or (len(kernel) == 4 and cells <= PRODUCT_CELLS and wide)
