"""NumPy's functions with Keras's arguments, as in `keras.ops.numpy`."""

from fkeras.ops.numpy import (
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

__all__: tuple[str, ...] = ()
__all__ += arithmetic.__all__
__all__ += comparison.__all__
__all__ += creation.__all__
__all__ += exponents.__all__
__all__ += joining.__all__
__all__ += nans.__all__
__all__ += products.__all__
__all__ += quantiles.__all__
__all__ += reductions.__all__
__all__ += searching.__all__
__all__ += shaping.__all__
__all__ += windows.__all__
