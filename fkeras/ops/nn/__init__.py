"""Neural network operations, with the names of `keras.ops.nn`."""

from fkeras.ops.nn import activation, attending, convolving, encoding, normalizing, spatial
from fkeras.ops.nn.activation import *  # noqa: F403
from fkeras.ops.nn.attending import *  # noqa: F403
from fkeras.ops.nn.convolving import *  # noqa: F403
from fkeras.ops.nn.encoding import *  # noqa: F403
from fkeras.ops.nn.normalizing import *  # noqa: F403
from fkeras.ops.nn.spatial import *  # noqa: F403

__all__: tuple[str, ...] = ()
__all__ += activation.__all__
__all__ += attending.__all__
__all__ += convolving.__all__
__all__ += encoding.__all__
__all__ += normalizing.__all__
__all__ += spatial.__all__
