"""The product of Nadam's momenta, for files that do not store it.

Files of TensorFlow 2.11's optimizers do not store the product. TensorFlow restarts the product at 1
when it opens a file, so the next steps differ from those of the saved run. To resume the saved run,
this module computes the product from the number of steps. The result equals that of TensorFlow in
eager mode; in a compiled graph TensorFlow 2.11 multiplies once per weight and step.
"""

from __future__ import annotations

import numpy as np

from fkeras.optimizers import Optimizer

# momenta per NumPy call: bounds the memory for a step count from a file, which may be any number
_MANY = 4096
# processors flush smaller float32 numbers to 0
_SMALLEST = np.finfo(np.float32).tiny


def product_after(optimizer: Optimizer, count: int) -> np.float32:
    """Returns the product of `beta_1 * (1 - 0.5 * 0.96**t)` for t from 1 to `count`.

    Args:
        optimizer: Nadam of Keras 3, or of Keras 2, whose `schedule_decay` scales t.
    """
    # float32 throughout, and one factor at a time: the training steps round in the same way
    beta = np.float32(getattr(optimizer, "beta_1", 0.0))
    speed = np.float32(getattr(optimizer, "schedule_decay", 1.0))
    product, step = np.float32(1.0), 0
    while step < count and product >= _SMALLEST:
        steps = np.arange(step + 1, min(count, step + _MANY) + 1, dtype=np.float32)
        decays = np.float32(0.96) ** (steps * speed)
        momenta = beta * (np.float32(1.0) - np.float32(0.5) * decays)
        # 0.96**t no longer changes the momentum in float32: the other factors are equal
        if momenta[0] == momenta[-1]:
            return np.float32(float(product) * float(momenta[0]) ** (count - step))
        for momentum in momenta:
            product *= momentum
        step += len(steps)
    return product if product >= _SMALLEST else np.float32(0.0)
