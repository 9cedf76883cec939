"""Codes of GPTQ and AWQ: rounding that takes the inputs of a layer into account.

Both minimize the error of the product, `sum((x @ kernel - x @ rounded) ** 2)`, which depends on the
samples only through the matrix of moments `x.T @ x`. Kernels are matrices of shape (rows, columns),
with a row for each input. All functions use NumPy in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fkeras.quantizers.configs import AWQConfig, GPTQConfig

# columns of the inverse that one product applies to all later rows
_BLOCK = 128
# bounds of scales: Keras's
_SMALLEST = 1e-4


class Codes(NamedTuple):
    """Codes of a kernel.

    Attributes:
        codes: uint8, (columns, rows).
        scale: (columns, groups).
        zero: uint8 codes that stand for 0, (columns, groups).
        groups: the group of each row.
        row_scales: AWQ's factors of the rows before rounding, otherwise None.
    """

    codes: np.ndarray
    scale: np.ndarray
    zero: np.ndarray
    groups: np.ndarray
    row_scales: np.ndarray | None = None


def gptq_codes(kernel: np.ndarray, moments: np.ndarray, config: GPTQConfig) -> Codes:
    """Rounds the rows one after the other; later rows correct the errors of the rows before.

    Args:
        kernel: the kernel, (rows, columns).
        moments: `x.T @ x` of the inputs, (rows, rows).

    Raises:
        ValueError: if the moments with the damping have no inverse.
    """
    rows = kernel.shape[0]
    order = (
        np.argsort(-np.diag(moments), kind="stable") if config.activation_order else np.arange(rows)
    )
    inverse = _inverse_factor(moments[np.ix_(order, order)], config.hessian_damping)
    rest = np.array(kernel.T[:, order], np.float64)
    size = rows if config.group_size == -1 else config.group_size
    step = min(size, _BLOCK)
    codes, scales, zeros = np.zeros(rest.shape, np.uint8), [], []
    for group in range(0, rows, size):
        scale, zero = _grid(rest[:, group : group + size], config)
        scales.append(scale)
        zeros.append(zero)
        for start in range(group, min(group + size, rows), step):
            stop = min(start + step, group + size, rows)
            errors = np.zeros((rest.shape[0], stop - start))
            for row in range(start, stop):
                column = rest[:, row : row + 1]
                codes[:, row : row + 1] = rounded = _round(column, scale, zero, config.weight_bits)
                error = (column - (rounded.astype(np.float64) - zero) * scale) / inverse[row, row]
                errors[:, row - start] = error[:, 0]
                rest[:, row + 1 : stop] -= error * inverse[row, row + 1 : stop]
            rest[:, stop:] -= errors @ inverse[start:stop, stop:]
    back = np.argsort(order)
    groups = (np.arange(rows) // size)[back]
    return Codes(codes[:, back], np.concatenate(scales, 1), np.concatenate(zeros, 1), groups)


def awq_codes(
    kernel: np.ndarray, moments: np.ndarray, largest: np.ndarray, config: AWQConfig
) -> Codes:
    """Rounds the kernel with rows scaled by powers of the largest inputs, for the best power.

    Args:
        kernel: the kernel, (rows, columns).
        moments: `x.T @ x` of the inputs, (rows, rows).
        largest: the largest magnitude of each input.

    Example:
        >>> import numpy as np
        >>> kernel, x = np.array([[0.3, 1.0], [1.5, 0.2]]), np.array([[9.0, 0.1], [8.0, -0.2]])
        >>> awq_codes(kernel, x.T @ x, abs(x).max(0), AWQConfig()).row_scales.shape
        (2,)
    """
    largest = np.where(largest < 1e-8, 1.0, largest)
    best, least = None, np.inf
    for power in np.linspace(0, 1, config.num_grid_points + 1):
        scales = np.maximum(largest**power, _SMALLEST)
        scales = scales / np.sqrt(scales.max() * scales.min())
        codes = _nearest(kernel * scales[:, None], config)._replace(row_scales=scales)
        error = kernel - decoded(codes)
        loss = float(np.sum(error * (moments @ error)))
        if loss < least:
            best, least = codes, loss
    assert best is not None
    return best


def decoded(codes: Codes) -> np.ndarray:
    """Returns the kernel that codes represent, (rows, columns).

    Example:
        >>> import numpy as np
        >>> ones = np.ones((1, 1))
        >>> decoded(Codes(np.array([[3, 5]]), ones / 2, ones, np.zeros(2, int)))
        array([[1.],
               [2.]])
    """
    scale, zero = codes.scale[:, codes.groups], codes.zero[:, codes.groups].astype(np.float64)
    kernel = ((codes.codes - zero) * scale).T
    return kernel if codes.row_scales is None else kernel / codes.row_scales[:, None]


def _nearest(kernel: np.ndarray, config: AWQConfig) -> Codes:
    rows = kernel.shape[0]
    size = rows if config.group_size == -1 else config.group_size
    parts = [kernel.T[:, start : start + size] for start in range(0, rows, size)]
    grids = [_grid(part, config) for part in parts]
    codes = [_round(p, *grid, config.weight_bits) for p, grid in zip(parts, grids, strict=True)]
    scale, zero = (np.concatenate(p, 1) for p in zip(*grids, strict=True))
    return Codes(np.concatenate(codes, 1), scale, zero, np.arange(rows) // size)


def _grid(part: np.ndarray, config: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns scale and zero point, (columns, 1), of rows that share them; the range includes 0."""
    most = 2**config.weight_bits - 1
    axis = 1 if getattr(config, "per_channel", True) else None
    low = np.minimum(part.min(axis=axis, keepdims=True), 0)
    high = np.maximum(part.max(axis=axis, keepdims=True), 0)
    if getattr(config, "symmetric", False):
        high = np.maximum(-low, high)
        low = -high
    scale = np.where(high > low, high - low, 1.0) / most
    # the layer stores float32, and its products use the stored scale
    scale = scale.astype(np.float32).astype(np.float64)
    middle = np.full_like(scale, (most + 1) / 2)
    zero = middle if getattr(config, "symmetric", False) else np.round(-low / scale)
    columns = (part.shape[0], 1)
    return np.broadcast_to(scale, columns), np.broadcast_to(zero, columns).astype(np.uint8)


def _round(values: np.ndarray, scale: np.ndarray, zero: np.ndarray, bits: int) -> np.ndarray:
    return np.clip(np.round(values / scale) + zero, 0, 2**bits - 1).astype(np.uint8)


def _inverse_factor(moments: np.ndarray, damping: float) -> np.ndarray:
    """Returns the upper triangular factor U of the inverse `U.T @ U` of the damped moments."""
    diagonal = np.diag(moments)
    # an input that is always 0 has no influence
    filled = moments + np.diag(np.where(diagonal == 0, 1.0, 0.0))
    filled = filled + damping * np.mean(np.diag(filled)) * np.eye(len(moments))
    try:
        return np.linalg.cholesky(np.linalg.inv(filled)).T
    except np.linalg.LinAlgError:
        raise ValueError(
            "expected samples whose inputs vary independently, received fewer samples than inputs "
            "and no damping. Give more samples, or hessian_damping=0.01."
        ) from None
