"""Activation functions: plain functions of arrays, with Keras's names, arguments and numerics.

Argument that all functions share, documented here only:
    x: array of any shape.
"""

from fkeras.activations.gated import gelu, glu, hard_silu, mish, silu
from fkeras.activations.naming import deserialize, get
from fkeras.activations.positive import exponential, softplus, sparse_plus, squareplus
from fkeras.activations.rectified import (
    celu,
    elu,
    leaky_relu,
    linear,
    relu,
    relu6,
    selu,
    threshold,
)
from fkeras.activations.saturating import (
    hard_sigmoid,
    hard_tanh,
    log_sigmoid,
    sigmoid,
    softsign,
    sparse_sigmoid,
    tanh,
)
from fkeras.activations.shares import log_softmax, softmax, sparsemax
from fkeras.activations.shrinking import hard_shrink, soft_shrink, tanh_shrink
from fkeras.engine.config.configurable import serialize

# Keras's aliases
swish = silu
hard_swish = hard_silu

__all__ = (
    "celu",
    "deserialize",
    "elu",
    "exponential",
    "gelu",
    "get",
    "glu",
    "hard_shrink",
    "hard_sigmoid",
    "hard_silu",
    "hard_swish",
    "hard_tanh",
    "leaky_relu",
    "linear",
    "log_sigmoid",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "serialize",
    "sigmoid",
    "silu",
    "soft_shrink",
    "softmax",
    "softplus",
    "softsign",
    "sparse_plus",
    "sparse_sigmoid",
    "sparsemax",
    "squareplus",
    "swish",
    "tanh",
    "tanh_shrink",
    "threshold",
)
