"""Functions of arrays that take symbolic tensors too: `fk.ops.mean(x, axis=1)`.

They have Keras's names, arguments and numbers. On arrays they compute, on symbolic tensors they
record a node. `lift` makes any other function such a one. Functions that work element by element
keep the mask of their input; the others refuse a masked input, and `unmask` drops a mask where you
mean to. `fk.ops.numpy`, `fk.ops.nn`, `fk.ops.linalg` and `fk.ops.image` are Keras's namespaces.
"""

from fkeras.engine.symbolic.operation import Op, Operation, lift
from fkeras.engine.symbolic.operators import getitem
from fkeras.ops import control, core, image, linalg, masks, math, nn, numpy, rearranging
from fkeras.ops.control import *  # noqa: F403
from fkeras.ops.core import *  # noqa: F403
from fkeras.ops.linalg import *  # noqa: F403
from fkeras.ops.masks import *  # noqa: F403
from fkeras.ops.math import *  # noqa: F403
from fkeras.ops.nn import *  # noqa: F403
from fkeras.ops.numpy import *  # noqa: F403
from fkeras.ops.rearranging import *  # noqa: F403

__all__ = (
    "Op",
    "Operation",
    "getitem",
    "image",
    "lift",
    "linalg",
    "nn",
    "numpy",
    *control.__all__,
    *core.__all__,
    *linalg.__all__,
    *math.__all__,
    *nn.__all__,
    *numpy.__all__,
    *rearranging.__all__,
    *masks.__all__,
)
