"""A row of the table of operations, and the arrays that rows share.

The tests replace arrays among the arguments by symbolic tensors and compute gradients with respect to
them. Other arguments are passed unchanged.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    args: tuple = ()
    kwargs: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    # computes the call, if it is not `ops.name(*args, **kwargs)`
    call: Callable | None = None
    symbolic: bool = True
    grad: bool = True
    keras: bool = True
    # whether Keras can compute the operation inside of jit
    keras_traced: bool = True
    tolerance: float = 1e-5
    id: str = ""

    def __str__(self):
        return self.id or self.name


def row(*args, **kwargs):
    """Returns a row with positional arguments; `options` are the operation's keyword arguments."""
    name, *args = args
    return Row(name, tuple(args), kwargs.pop("options", {}), **kwargs)


X = np.array([[0.3, -1.2, 2.5], [-0.7, 0.9, 0.1]], "float32")
Y = np.array([[1.5, 0.4, -2.0], [0.6, -0.8, 3.0]], "float32")
P = np.array([[0.3, 1.2, 2.5], [0.7, 0.9, 0.1]], "float32")  # positive
U = np.array([[0.3, 0.2, 0.5], [0.7, 0.9, 0.1]], "float32")  # between 0 and 1
G = P + 1  # above 1
I = np.array([[3, 1, 2], [5, 4, 6]], "int32")
J = np.array([[2, 5, 1], [4, 3, 7]], "int32")
B = np.array([[True, False, True], [False, False, True]])
C = np.array([[True, True, False], [False, True, False]])
N = np.array([[0.3, np.nan, 2.5], [-0.7, 0.9, np.nan]], "float32")
F = np.array([[0.3, np.inf, -np.inf], [np.nan, 0.0, 0.1]], "float32")
V = np.array([0.3, -1.2, 2.5, 0.7, -0.1], "float32")
W = np.array([1.0, 2.0, 0.5, -1.0, 0.2], "float32")
K = np.array([1, 0, 3, 1, 2], "int32")
S = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 2.0]], "float32")  # positive definite
M = np.array([[2.0, -1.0, 0.3], [0.7, 1.5, -0.2], [0.1, 0.4, 3.0]], "float32")
Z = np.array([[1 + 2j, -0.5j, 0.3], [2, -1 - 1j, 0.1j]], "complex64")
H = X.astype("float16")
L = np.arange(24, dtype="float32").reshape(2, 3, 4) / 7 - 1
D = np.arange(8, dtype="float32").reshape(2, 2, 2) / 3
IMAGE = (np.arange(96, dtype="float32").reshape(2, 4, 4, 3) * 37 % 19) / 19
FIRST = IMAGE.transpose(0, 3, 1, 2)
SIGNAL = np.sin(np.arange(40, dtype="float32").reshape(2, 20) ** 1.3)
SCORES = np.sin(np.arange(30, dtype="float32").reshape(2, 5, 3) ** 1.7) * 3
