"""Base class of initializers, and functions that initializers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.config.configurable import Configurable, from_configuration
from fkeras.engine.values.argument_types import DTypeLike
from fkeras.engine.values.random import fold_in


class Initializer(Configurable):
    """Base class of initializers, which create a weight's initial array from a key and a shape.

    Subclasses define `__call__(key, shape, dtype="float32")`; fields declared with `option` are
    the constructor's arguments.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import fkeras as fk
        >>> class Ramp(fk.initializers.Initializer):
        ...     last: float = fk.option(default=1.0)
        ...     def __call__(self, key, shape, dtype="float32"):
        ...         return jnp.broadcast_to(jnp.linspace(0, self.last, shape[-1], dtype=dtype), shape)
        >>> Ramp(2.0)(jax.random.key(0), (3,))
        Array([0., 1., 2.], dtype=float32)
    """

    def __call__(self, key: jax.Array, shape: Sequence[int], dtype: Any = "float32") -> jax.Array:
        raise NotImplementedError(
            f"{type(self).__name__}: an initializer needs its own __call__(key, shape, dtype). "
            f"Write it in class {type(self).__name__}."
        )

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], custom_objects: Mapping[str, Any] | None = None
    ) -> Self:
        """Creates an initializer from a configuration; a Keras SeedGenerator becomes its seed."""
        seed = config.get("seed")
        if isinstance(seed, Mapping) and seed.get("class_name") == "SeedGenerator":
            config = {**config, "seed": int(seed["config"]["seed"])}
        return from_configuration(cls, config, custom_objects)

    def clone(self) -> Initializer:
        """Returns the initializer: an immutable value needs no copy."""
        return self


def own_key(key: jax.Array, seed: Any) -> jax.Array:
    """Returns the key, with the initializer's seed folded in unless the seed is None."""
    # folded in instead of replacing the key: layers with equal seeds still differ by their keys
    return key if seed is None else fold_in(key, int(seed))


def full(key: jax.Array, shape: Sequence[int], value: Any, dtype: DTypeLike) -> jax.Array:
    """Returns an array filled with a value, which must broadcast to the shape."""
    if isinstance(key, Tracer):
        # tracing computes shapes only, without allocation: a file may declare a weight of any size
        return jnp.full(tuple(shape), value, jnp.dtype(dtype))
    # device_put of a NumPy array compiles nothing; jnp.full compiles a program for each shape
    return jax.device_put(np.full(tuple(shape), value, jnp.dtype(dtype)))


def moved(drawn: jax.Array, scale: float, mean: float, dtype: DTypeLike) -> jax.Array:
    """Computes drawn * scale + mean, with NumPy for concrete arrays, which compiles nothing."""
    if isinstance(drawn, Tracer):
        return (drawn * np.float32(scale) + np.float32(mean)).astype(dtype)
    host = np.asarray(drawn) * np.float32(scale) + np.float32(mean)
    return jax.device_put(host.astype(jnp.dtype(dtype)))
