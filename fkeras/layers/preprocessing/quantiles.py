"""Approximate quantiles of data in batches, from a weighted summary of bounded size."""

from __future__ import annotations

import numpy as np


def summarize(values: np.ndarray, epsilon: float) -> np.ndarray:
    """Returns about `1 / epsilon` of the sorted values, weighted by the values they represent.

    Returns:
        An array of shape (2, m): values, and their weights.
    """
    ordered = np.sort(np.ravel(values))
    # Keras's order of operations, whose rounding determines the step
    step = max(ordered.size / (1.0 / epsilon), 1)
    sampled = ordered[int(step - 1) :: int(step)]
    return np.stack([sampled, np.full_like(sampled, step)])


def compress(summary: np.ndarray, epsilon: float) -> np.ndarray:
    """Compresses a summary to about `1 / epsilon` values, by interpolation of the weights."""
    if summary.shape[1] * epsilon < 1:
        return summary
    fractions = epsilon + np.arange(0.0, 1.0, epsilon)
    totals = summary[1].cumsum()
    cumulative = totals / totals[-1]
    values = np.interp(fractions, cumulative, summary[0])
    weights = np.diff(np.interp(fractions, cumulative, totals), prepend=0.0)
    return np.stack([values, weights]).astype("float32")


def merge(one: np.ndarray, other: np.ndarray, epsilon: float) -> np.ndarray:
    """Merges two summaries into a summary of all their data."""
    both = np.concatenate([one, other], axis=1)
    return compress(both[:, np.argsort(both[0])], epsilon)


def find_boundaries(summary: np.ndarray, bins: int) -> tuple[float, ...]:
    """Returns the boundaries of `bins` bins with approximately equal numbers of values.

    Example:
        >>> import numpy as np
        >>> find_boundaries(summarize(np.arange(1.0, 9.0), 0.01), 4)
        (2.0, 4.0, 6.0)
    """
    return tuple(compress(summary, 1.0 / bins)[0, :-1].tolist())
