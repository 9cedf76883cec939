"""Prints a line of a callback once, also in a training of several processes."""

from __future__ import annotations

import jax


def print_once(run: object, text: str) -> None:
    """Prints a text in the first process of a run.

    Example:
        >>> print_once(None, "Epoch 1: stopped.")
        Epoch 1: stopped.
    """
    step = getattr(run, "step", None)
    if isinstance(step, jax.Array) and not step.is_fully_addressable:
        if jax.process_index() != min(d.process_index for d in step.sharding.device_set):
            return
    print(text)
