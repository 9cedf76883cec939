"""The operations that `keras.ops.numpy` has: NumPy's functions with Keras's arguments."""

from fkeras.ops import (
    arithmetic,
    comparison,
    creation,
    exponents,
    joining,
    nans,
    products,
    quantiles,
    reductions,
    searching,
    shaping,
    windows,
)
from fkeras.ops.arithmetic import *  # noqa: F403
from fkeras.ops.comparison import *  # noqa: F403
from fkeras.ops.creation import *  # noqa: F403
from fkeras.ops.exponents import *  # noqa: F403
from fkeras.ops.joining import *  # noqa: F403
from fkeras.ops.nans import *  # noqa: F403
from fkeras.ops.products import *  # noqa: F403
from fkeras.ops.quantiles import *  # noqa: F403
from fkeras.ops.reductions import *  # noqa: F403
from fkeras.ops.searching import *  # noqa: F403
from fkeras.ops.shaping import *  # noqa: F403
from fkeras.ops.windows import *  # noqa: F403

__all__ = (
    *arithmetic.__all__,
    *comparison.__all__,
    *creation.__all__,
    *exponents.__all__,
    *joining.__all__,
    *nans.__all__,
    *products.__all__,
    *quantiles.__all__,
    *reductions.__all__,
    *searching.__all__,
    *shaping.__all__,
    *windows.__all__,
)
