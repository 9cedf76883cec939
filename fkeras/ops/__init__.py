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

from fkeras.engine.symbolic.operation import Op, Operation, lift
from fkeras.engine.symbolic.operators import getitem
from fkeras.ops import control, core, image, linalg, masks, math, nn, numpy, rearranging
from fkeras.ops.control import *  # noqa: F403
from fkeras.ops.core import *  # noqa: F403
from fkeras.ops.linalg import *  # noqa: F403
from fkeras.ops.masks import *  # noqa: F403
from fkeras.ops.math import *  # noqa: F403
from fkeras.ops.nn.activation import *  # noqa: F403
from fkeras.ops.nn.attending import *  # noqa: F403
from fkeras.ops.nn.convolving import *  # noqa: F403
from fkeras.ops.nn.encoding import *  # noqa: F403
from fkeras.ops.nn.normalizing import *  # noqa: F403
from fkeras.ops.nn.spatial import *  # noqa: F403
from fkeras.ops.numpy.arithmetic import *  # noqa: F403
from fkeras.ops.numpy.comparison import *  # noqa: F403
from fkeras.ops.numpy.creation import *  # noqa: F403
from fkeras.ops.numpy.exponents import *  # noqa: F403
from fkeras.ops.numpy.joining import *  # noqa: F403
from fkeras.ops.numpy.nans import *  # noqa: F403
from fkeras.ops.numpy.products import *  # noqa: F403
from fkeras.ops.numpy.quantiles import *  # noqa: F403
from fkeras.ops.numpy.reductions import *  # noqa: F403
from fkeras.ops.numpy.searching import *  # noqa: F403
from fkeras.ops.numpy.shaping import *  # noqa: F403
from fkeras.ops.numpy.windows import *  # noqa: F403
from fkeras.ops.rearranging import *  # noqa: F403

# `import *` and `+=` on `__all__` are the only forms that mypy evaluates.
__all__: tuple[str, ...] = (
    "Op",
    "Operation",
    "getitem",
    "image",
    "lift",
    "linalg",
    "nn",
    "numpy",
)
__all__ += control.__all__
__all__ += core.__all__
__all__ += linalg.__all__
__all__ += math.__all__
__all__ += nn.__all__
__all__ += numpy.__all__
__all__ += rearranging.__all__
__all__ += masks.__all__
