"""Layers that make one tensor of several, and the same as functions."""

from fkeras.layers.merging.concatenate import Concatenate
from fkeras.layers.merging.dot import Dot
from fkeras.layers.merging.elementwise import Add, Average, Maximum, Minimum, Multiply, Subtract
from fkeras.layers.merging.functions import (
    add,
    average,
    concatenate,
    dot,
    maximum,
    minimum,
    multiply,
    subtract,
)

__all__ = (
    "Add",
    "Average",
    "Concatenate",
    "Dot",
    "Maximum",
    "Minimum",
    "Multiply",
    "Subtract",
    "add",
    "average",
    "concatenate",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "subtract",
)
