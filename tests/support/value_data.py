"""Inputs and tables that the tests of activations, regularizers and constraints share."""

import jax
import numpy as np

import fkeras as fk
from tests.support.keras_oracle import keras_rules

KEY = jax.random.key(3)


X = np.random.default_rng(0).normal(size=(6, 8)).astype("float32") * 2


ACTIVATIONS = [
    (name, {})
    for name in fk.activations.__all__
    if name not in ("get", "serialize", "deserialize", "threshold", "glu", "sparsemax")
] + [
    ("relu", {"negative_slope": 0.1, "max_value": 1.5, "threshold": 0.3}),
    ("leaky_relu", {"negative_slope": 0.3}),
    ("elu", {"alpha": 0.7}),
    ("celu", {"alpha": 0.7}),
    ("gelu", {"approximate": True}),
    ("softmax", {"axis": 0}),
    ("threshold", {"threshold": 0.4, "default_value": -1.0}),
    ("glu", {"axis": 1}),
]


def ours_and_theirs(mine, theirs):
    """The values of both functions at X, in one compiled program."""

    def both(x):
        own_value = mine(x)
        with keras_rules():
            return own_value, theirs(x)

    return jax.jit(both)(X)
