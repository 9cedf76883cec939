"""Operations on arrays and symbolic tensors: `fk.ops.mean(x, axis=1)`.

Operations have Keras's names, arguments and results. An operation computes on arrays, and records
a node on symbolic tensors. `lift` turns any other function into an operation. Elementwise
operations keep the mask of their input; the others reject a masked input, and `unmask` drops a mask
explicitly. `fk.ops.numpy`, `fk.ops.nn`, `fk.ops.linalg` and `fk.ops.image` are Keras's namespaces.

Arguments that all functions share, documented here only:
    x: array of any shape, a list of numbers, or a symbolic tensor.
    x1, x2: two arrays, lists or symbolic tensors, which broadcast.
    inputs: array of shape (b, *sizes, c), or (b, c, *sizes) with "channels_first".
    axis, axes: one axis or several; None for all axes, or for the flattened array in functions of
        one axis.
    keepdims: whether to keep the reduced axes with size 1.
    shape: the sizes of the result, or one size.
    dtype: dtype of the result; None for that of `x`, and float32 without an `x`.
    k: index of the diagonal: 0 for the main diagonal, positive above.
    data_format: "channels_last" (also None) or "channels_first".
"""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.engine.symbolic.operation import Op as Op
from fkeras.engine.symbolic.operation import Operation as Operation
from fkeras.engine.symbolic.operation import lift as lift
from fkeras.engine.symbolic.operators import getitem as getitem
from fkeras.ops import image as image
from fkeras.ops import linalg as linalg
from fkeras.ops import nn as nn
from fkeras.ops import numpy as numpy
from fkeras.ops.control import *  # noqa: F403
from fkeras.ops.core import *  # noqa: F403
from fkeras.ops.linalg import *  # noqa: F403
from fkeras.ops.masks import *  # noqa: F403
from fkeras.ops.math import *  # noqa: F403
from fkeras.ops.nn import *  # noqa: F403
from fkeras.ops.numpy import *  # noqa: F403
from fkeras.ops.rearranging import *  # noqa: F403

_publish(__name__, ("image", "linalg", "nn", "numpy"))
