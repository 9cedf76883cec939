"""Layers around models of other libraries: functions of JAX, modules of Flax."""

from fkeras.layers.foreign.flax_layer import FlaxLayer
from fkeras.layers.foreign.jax_layer import JaxLayer

__all__ = (
    "FlaxLayer",
    "JaxLayer",
)
