"""The product of Nadam's momenta, for files that do not store it.

Files of TensorFlow 2.11's optimizers have no entry for the product, and TensorFlow restarts it at 1
when it opens a file: the next steps differ from those of the saved run. Here a run is resumed, so
the product is computed from the number of steps. TensorFlow computes the same when it runs eagerly;
in a compiled graph TensorFlow 2.11 multiplies once per weight and step.
"""

from __future__ import annotations

import numpy as np

from fkeras.optimizers import Optimizer

_MANY = 4096
# smaller numbers are flushed to 0 by processors
_SMALLEST = np.finfo(np.float32).tiny


def product_after(optimizer: Optimizer, count: int) -> np.float32:
    """Returns the product of `beta_1 * (1 - 0.5 * 0.96**t)`, t from 1 to `count`, in float32 as steps do.

    Args:
        optimizer: Nadam of Keras 3, or of Keras 2, whose `schedule_decay` scales t.
        count: number of steps taken.

    Example:
        >>> from fkeras.optimizers import Nadam
        >>> round(float(product_after(Nadam(beta_1=0.5), 1)), 2)
        0.26
    """
    beta = np.float32(getattr(optimizer, "beta_1", 0.0))
    speed = np.float32(getattr(optimizer, "schedule_decay", 1.0))
    product, done = np.float32(1.0), 0
    while done < count and product >= _SMALLEST:
        steps = np.arange(done + 1, min(count, done + _MANY) + 1, dtype=np.float32)
        missing = np.float32(0.96) ** (steps * speed)
        momenta = beta * (np.float32(1.0) - np.float32(0.5) * missing)
        if momenta[0] == momenta[-1]:  # it has grown to beta_1, and stays so
            return np.float32(float(product) * float(momenta[0]) ** (count - done))
        for momentum in momenta:
            product *= momentum
        done += len(steps)
    return product if product >= _SMALLEST else np.float32(0.0)
