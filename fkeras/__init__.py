"""fkeras: Keras's way of composing networks, as pure values on JAX."""

from fkeras import engine, layers, ops
from fkeras.engine import *  # temporary
