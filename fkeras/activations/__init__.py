"""Activation functions: plain functions of arrays, with Keras's names, arguments and numerics.

Argument that all functions share, documented here only:
    x: array of any shape.
"""

from fkeras.activations.gated import gelu as gelu
from fkeras.activations.gated import glu as glu
from fkeras.activations.gated import hard_silu as hard_silu
from fkeras.activations.gated import mish as mish
from fkeras.activations.gated import silu as silu
from fkeras.activations.naming import deserialize as deserialize
from fkeras.activations.naming import get as get
from fkeras.activations.positive import exponential as exponential
from fkeras.activations.positive import softplus as softplus
from fkeras.activations.positive import sparse_plus as sparse_plus
from fkeras.activations.positive import squareplus as squareplus
from fkeras.activations.rectified import celu as celu
from fkeras.activations.rectified import elu as elu
from fkeras.activations.rectified import leaky_relu as leaky_relu
from fkeras.activations.rectified import linear as linear
from fkeras.activations.rectified import relu as relu
from fkeras.activations.rectified import relu6 as relu6
from fkeras.activations.rectified import selu as selu
from fkeras.activations.rectified import threshold as threshold
from fkeras.activations.saturating import hard_sigmoid as hard_sigmoid
from fkeras.activations.saturating import hard_tanh as hard_tanh
from fkeras.activations.saturating import log_sigmoid as log_sigmoid
from fkeras.activations.saturating import sigmoid as sigmoid
from fkeras.activations.saturating import softsign as softsign
from fkeras.activations.saturating import sparse_sigmoid as sparse_sigmoid
from fkeras.activations.saturating import tanh as tanh
from fkeras.activations.shares import log_softmax as log_softmax
from fkeras.activations.shares import softmax as softmax
from fkeras.activations.shares import sparsemax as sparsemax
from fkeras.activations.shrinking import hard_shrink as hard_shrink
from fkeras.activations.shrinking import soft_shrink as soft_shrink
from fkeras.activations.shrinking import tanh_shrink as tanh_shrink
from fkeras.engine.config.configurable import serialize as serialize
from fkeras.engine.config.public_names import publish as _publish

# Keras's aliases
swish = silu
hard_swish = hard_silu

_publish(__name__)
