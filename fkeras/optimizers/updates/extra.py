"""Additional arguments of an optimizer's update: the loss of the step, its gradient, and its function.

Some transformations of optax choose the length of a step or the rate by the loss: `optax.lbfgs`,
`optax.polyak_sgd`, `optax.contrib.reduce_on_plateau`. The names are those of optax.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax

#: the names of the arguments
NAMES = ("value", "grad", "value_fn", "obj_fn", "grad_fn")


def extra_arguments(loss_fn: Callable[[Any], Any], value: Any, gradients: Any) -> dict[str, Any]:
    """Returns the additional arguments by name.

    Args:
        loss_fn: the loss of the step as a function of the weights.
        value: the loss at the weights of the step.
        gradients: the gradients at these weights.
    """
    # optax.contrib.sam passes a number as the second argument
    grad_fn = jax.grad(loss_fn)
    values = (value, gradients, loss_fn, loss_fn, lambda weights, *_: grad_fn(weights))
    return dict(zip(NAMES, values, strict=True))


def in_form(extra: Mapping[str, Any], read: Callable, write: Callable) -> dict[str, Any]:
    """Returns the additional arguments for weights in another form.

    Args:
        read: converts weights of the other form to the form that the functions in `extra` take.
        write: converts gradients to the other form.
    """
    converted = dict(extra)
    if "grad" in extra:
        converted["grad"] = write(extra["grad"])
    for name in [name for name in ("value_fn", "obj_fn") if name in extra]:
        converted[name] = lambda weights, f=extra[name]: f(read(weights))
    if "grad_fn" in extra:
        converted["grad_fn"] = lambda weights, *rest: write(extra["grad_fn"](read(weights), *rest))
    return converted
