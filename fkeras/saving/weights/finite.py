"""A single warning for all weights of a file with NaN or infinite numbers."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

# most paths that the warning lists
_LISTED = 12


def warn_not_finite(paths: Sequence[str], file: Any = None) -> None:
    """Emits one warning that lists the paths of arrays with NaN or infinite numbers, if any.

    Args:
        paths: paths, in the model, of the arrays for which `is_finite` is False.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_not_finite(["dense/bias"], "m.keras")
        >>> print(caught[0].message)
        m.keras: 1 array holds NaN or infinite numbers: dense/bias. ...
    """
    if not paths:
        return
    shown_paths = ", ".join(paths[:_LISTED]) + (", ..." if len(paths) > _LISTED else "")
    subject = "array holds" if len(paths) == 1 else "arrays hold"
    where = f"{file}: " if file else ""
    warnings.warn(
        f"{where}{len(paths)} {subject} NaN or infinite numbers: {shown_paths}. The training that wrote the "
        "file may have diverged; load an earlier save.",
        stacklevel=2,
    )


def is_finite(array: Any) -> bool:
    """Returns whether all numbers of an array are finite; True for integers and strings.

    Example:
        >>> is_finite(np.ones(3)), is_finite(np.array([1.0, np.inf]))
        (True, False)
    """
    # NumPy gives most dtypes of ml_dtypes the kind "V"
    is_small_float = array.dtype.name.startswith(("bfloat", "float8"))
    if array.dtype.kind not in "fc" and not is_small_float:
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        # one pass without a temporary; the sum of finite numbers may overflow
        if not is_small_float and np.isfinite(np.sum(array)):
            return True
        return bool(np.isfinite(array).all())
