"""Activations as layers: any one by name, and those with settings or weights of their own."""

from fkeras.layers.activation.activation import Activation
from fkeras.layers.activation.linear_units import ELU, LeakyReLU, ReLU
from fkeras.layers.activation.prelu import PReLU
from fkeras.layers.activation.softmax import Softmax
from fkeras.nn.softmax import masked_softmax

__all__ = (
    "Activation",
    "ELU",
    "LeakyReLU",
    "PReLU",
    "ReLU",
    "Softmax",
    "masked_softmax",
)
