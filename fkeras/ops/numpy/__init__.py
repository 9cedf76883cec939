"""NumPy's functions with Keras's arguments, as in `keras.ops.numpy`."""

from fkeras.engine.config.public_names import publish as _publish
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

_publish(__name__, ())
