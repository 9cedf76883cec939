"""Optimizers by name, from the rows at the end of each family module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import optax

from fkeras.engine.config.configurable import lookup
from fkeras.engine.values.registry import by_name
from fkeras.optimizers import adam, adaptive, descent, ftrl, muon, schedule_free
from fkeras.optimizers.base import BaseOptimizer
from fkeras.optimizers.optimizer import Optimizer

NAMES: Mapping[str, type[Optimizer]] = by_name(
    descent.OPTIMIZERS,
    adam.OPTIMIZERS,
    adaptive.OPTIMIZERS,
    ftrl.OPTIMIZERS,
    muon.OPTIMIZERS,
    schedule_free.OPTIMIZERS,
)


def get(
    identifier: Any, custom_objects: Mapping[str, Any] | None = None
) -> BaseOptimizer | optax.GradientTransformation | None:
    """The optimizer that a name, a value or a configuration means; None for none.

    Args:
        identifier: Keras's name of an optimizer, one of ours or its class, what `serialize`
            wrote, or any optax transformation, which is returned as it is.
        custom_objects: your own by name.

    Raises:
        ValueError: for an unknown name, with the nearest one.
        TypeError: for anything else.

    Example:
        >>> get("adam")
        Adam()
    """
    if _is_transformation(identifier):
        return identifier
    optimizer = lookup(identifier, "optimizer", NAMES, custom_objects)
    if optimizer is None or isinstance(optimizer, BaseOptimizer) or _is_transformation(optimizer):
        return optimizer
    raise TypeError(
        f"Expected an optimizer, received {optimizer!r}, which has no init and update. Pass a name "
        "such as 'adam', a value of fkeras.optimizers, or an optax transformation."
    )


def _is_transformation(value: Any) -> bool:
    return callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))


def transformation(identifier: Any) -> optax.GradientTransformation:
    """As `get`, and in the form of optax: a pair of pure functions, `init` and `update`.

    Args:
        identifier: what `get` takes.

    Example:
        >>> import jax.numpy as jnp
        >>> int(transformation("adam").init(jnp.ones(2)).count)
        0
    """
    optimizer = get(identifier)
    if optimizer is None:
        raise TypeError("Expected an optimizer, received None. Pass a name such as 'adam'.")
    return optimizer.transformation() if isinstance(optimizer, BaseOptimizer) else optimizer
