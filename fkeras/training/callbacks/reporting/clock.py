"""Times in the memory of a run, for durations between two hooks."""

from __future__ import annotations

import time

import jax
import numpy as np

# seconds and microseconds as two integers: JAX without x64 turns float64 in the run's memory into
# float32, which is too coarse for a clock
_UNITS = (1.0, 1e-6)


def now() -> np.ndarray:
    """Returns the time of a steady clock as two int32: seconds and microseconds."""
    seconds = time.perf_counter()
    return np.asarray([int(seconds), int(seconds % 1 * 1e6)], "int32")


def seconds_since(then: jax.Array | np.ndarray) -> float:
    """Returns the seconds since a time of `now`."""
    # not negative: after a resume, the start comes from the clock of another process
    return max(float(np.sum((now() - np.asarray(then)) * _UNITS)), 0.0)
