"""Limits up to which the computations for CPUs are faster, measured by `benchmarks/cpu_forms.py`."""

from __future__ import annotations

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
#: channels from which the gradient of a kernel is faster as products
PRODUCT_CHANNELS = 16
#: bytes of the matrices of one product: the best number, and the largest for one image
PRODUCT_BYTES, LARGEST_PRODUCT = 2**21, 12 * 2**20

#: least size of a kernel whose product with one row is a convolution, and the divisor of the numbers of columns
#: of other kernels, whose rows collide in caches (`benchmarks/first_tokens.py`)
LEAST_PIXEL, COLLIDING = 2**16, 256

#: most terms of a sum that one operation computes from slices of a stack of kernels, and fewest such sums: XLA
#: keeps an array that an operation reads at 16 or more places
MOST_TERMS, FEWEST_SUMS = 24, 16
#: most rows that the last operation of such a product adds
MOST_ROWS = 256


def row_is_convolution(dtype: Any, kernel: Any) -> bool:
    """Returns whether a product of one row compiles faster as a convolution and runs about as fast.

    Args:
        dtype: the dtype of the row.
        kernel: the kernel (d, u), or its shape and dtype.
    """
    is_single = dtype == kernel.dtype == "float32"
    return is_single and kernel.size >= LEAST_PIXEL and kernel.shape[1] % COLLIDING != 0


def products_are_faster(windows: Any, kernel: Any, y: Any) -> bool:
    """Returns whether the gradient of a kernel is faster as products than as a convolution.

    Args:
        windows: the windows of the convolution.
        kernel: the kernel (*window, c, f), or its shape and dtype.
        y: the result (b, *counts, f), or its shape.
    """
    if len(windows.sizes) != 2 or kernel.dtype.itemsize <= 2:
        return False
    # short arrays would consist of copies
    is_long = _reach(windows) * windows.sizes[1] < y.shape[1]
    is_wide = min(kernel.shape[-2:]) >= PRODUCT_CHANNELS
    return is_long and is_wide and _product_bytes(windows, kernel, y) <= LARGEST_PRODUCT


def rows_of_products(windows: Any, kernel: Any, y: Any) -> int:
    """Returns how many rows of the batch have one product: a divisor of the number of rows.

    The arguments are those of `products_are_faster`.
    """
    rows = y.shape[0]
    most = max(PRODUCT_BYTES // _product_bytes(windows, kernel, y), 2)
    return max(size for size in range(1, min(most, rows) + 1) if rows % size == 0)


def _reach(windows: Any) -> int:
    return (windows.sizes[0] - 1) * windows.dilation[0] // windows.strides[0]


def _product_bytes(windows: Any, kernel: Any, y: Any) -> int:
    """Estimates the bytes of the matrices for one row of the batch; the limits are measured with this estimate."""
    columns = windows.sizes[1] * kernel.shape[-2] + windows.sizes[0] * kernel.shape[-1]
    return (y.shape[1] + _reach(windows)) * y.shape[2] * columns * kernel.dtype.itemsize
