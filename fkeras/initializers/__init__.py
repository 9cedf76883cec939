"""Initializers: values that create a weight's initial array, `init(key, shape, dtype)`."""

from fkeras.engine.config.configurable import serialize as serialize
from fkeras.engine.config.public_names import publish as _publish
from fkeras.initializers.constant import Constant as Constant
from fkeras.initializers.constant import Identity as Identity
from fkeras.initializers.constant import Ones as Ones
from fkeras.initializers.constant import Zeros as Zeros
from fkeras.initializers.distributions import RandomNormal as RandomNormal
from fkeras.initializers.distributions import RandomUniform as RandomUniform
from fkeras.initializers.distributions import TruncatedNormal as TruncatedNormal
from fkeras.initializers.initializer import Initializer as Initializer
from fkeras.initializers.naming import deserialize as deserialize
from fkeras.initializers.naming import get as get
from fkeras.initializers.orthogonal import Orthogonal as Orthogonal
from fkeras.initializers.scaling import GlorotNormal as GlorotNormal
from fkeras.initializers.scaling import GlorotUniform as GlorotUniform
from fkeras.initializers.scaling import HeNormal as HeNormal
from fkeras.initializers.scaling import HeUniform as HeUniform
from fkeras.initializers.scaling import LecunNormal as LecunNormal
from fkeras.initializers.scaling import LecunUniform as LecunUniform
from fkeras.initializers.scaling import VarianceScaling as VarianceScaling
from fkeras.initializers.scaling import compute_fans as compute_fans
from fkeras.initializers.stft import STFT as STFT

# Keras's aliases
IdentityInitializer = Identity
OrthogonalInitializer = Orthogonal
STFTInitializer = STFT
zeros = Zeros
ones = Ones
constant = Constant
identity = Identity
random_uniform = RandomUniform
random_normal = RandomNormal
truncated_normal = TruncatedNormal
variance_scaling = VarianceScaling
glorot_uniform = GlorotUniform
glorot_normal = GlorotNormal
lecun_uniform = LecunUniform
lecun_normal = LecunNormal
he_uniform = HeUniform
he_normal = HeNormal
orthogonal = Orthogonal
stft = STFT

_publish(__name__)
