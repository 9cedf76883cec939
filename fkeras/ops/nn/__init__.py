"""Neural network operations, with the names of `keras.ops.nn`."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.ops.nn.activation import *  # noqa: F403
from fkeras.ops.nn.attending import *  # noqa: F403
from fkeras.ops.nn.convolving import *  # noqa: F403
from fkeras.ops.nn.encoding import *  # noqa: F403
from fkeras.ops.nn.normalizing import *  # noqa: F403
from fkeras.ops.nn.spatial import *  # noqa: F403

_publish(__name__, ())
