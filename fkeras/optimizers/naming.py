"""Lookup of optimizers by name, from the registration rows at the end of each module."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias, TypeGuard

import optax

from fkeras.engine.config.configurable import deserializer, lookup
from fkeras.engine.config.field_types import Named
from fkeras.engine.layer.layer import Layer
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.values.registry import by_name
from fkeras.optimizers import adam, adaptive, descent, ftrl, muon, schedule_free
from fkeras.optimizers.base import BaseOptimizer
from fkeras.optimizers.optimizer import Optimizer

#: the argument of `get`: a name, a configuration, a class, an optimizer, or a transformation of optax
Identifier: TypeAlias = Named | BaseOptimizer | optax.GradientTransformation | None

NAMES: Mapping[str, type[Optimizer]] = by_name(
    descent.OPTIMIZERS,
    adam.OPTIMIZERS,
    adaptive.OPTIMIZERS,
    ftrl.OPTIMIZERS,
    muon.OPTIMIZERS,
    schedule_free.OPTIMIZERS,
)


@hides_internal_frames
def get(
    identifier: Identifier, custom_objects: Mapping[str, Any] | None = None
) -> BaseOptimizer | optax.GradientTransformation | None:
    """Returns the optimizer for a name, an object or a configuration; None for None.

    Args:
        identifier: Keras's name of an optimizer, an optimizer of fkeras or its class, a
            configuration from `serialize`, or an optax transformation, which is returned unchanged.
        custom_objects: your optimizers by name.

    Raises:
        ValueError: for an unknown name; the message suggests the nearest known name.
        TypeError: for an identifier of another type.

    Example:
        >>> get("adam")
        Adam(0.001)
    """
    # before the lookup, which rejects optax's transformations, as they are not callable
    if _is_transformation(identifier):
        return identifier
    optimizer = lookup(identifier, "optimizer", NAMES, custom_objects)
    if optimizer is None or isinstance(optimizer, BaseOptimizer) or _is_transformation(optimizer):
        return optimizer
    if isinstance(optimizer, Layer):
        raise TypeError(
            "Expected an optimizer, received a model. A Trainer holds no model: write `trainer = "
            'fk.Trainer("adam", "mse")`, then `run = trainer.init(model, jax.random.key(0))`.'
        )
    raise TypeError(
        f"Expected an optimizer, received {optimizer!r}, which has no init and update. Pass a name "
        "such as 'adam', a value of fkeras.optimizers, or an optax transformation."
    )


deserialize = deserializer(get)


def _is_transformation(value: object) -> TypeGuard[optax.GradientTransformation]:
    return callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))


def transformation(
    identifier: Identifier,
) -> optax.GradientTransformation:
    """Returns the optax transformation for an identifier: the pure functions `init` and `update`.

    Args:
        identifier: an identifier that `get` accepts, other than None.

    Raises:
        TypeError: for None.

    Example:
        >>> import jax.numpy as jnp
        >>> int(transformation("adam").init(jnp.ones(2)).count)
        0
    """
    optimizer = get(identifier)
    if optimizer is None:
        raise TypeError("Expected an optimizer, received None. Pass a name such as 'adam'.")
    return optimizer.transformation() if isinstance(optimizer, BaseOptimizer) else optimizer
