"""The operations of neural networks, as `keras.ops.nn` names them."""

from fkeras.ops import activation, attending, convolving, encoding, normalizing, spatial
from fkeras.ops.activation import *  # noqa: F403
from fkeras.ops.attending import *  # noqa: F403
from fkeras.ops.convolving import *  # noqa: F403
from fkeras.ops.encoding import *  # noqa: F403
from fkeras.ops.normalizing import *  # noqa: F403
from fkeras.ops.spatial import *  # noqa: F403

__all__ = (
    *activation.__all__,
    *attending.__all__,
    *convolving.__all__,
    *encoding.__all__,
    *normalizing.__all__,
    *spatial.__all__,
)
