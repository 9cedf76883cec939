"""Initializers: values that create a weight's initial array, `init(key, shape, dtype)`."""

from fkeras.engine.config.configurable import deserialize, serialize
from fkeras.initializers.constant import Constant, Identity, Ones, Zeros
from fkeras.initializers.distributions import RandomNormal, RandomUniform, TruncatedNormal
from fkeras.initializers.initializer import Initializer
from fkeras.initializers.naming import get
from fkeras.initializers.orthogonal import Orthogonal
from fkeras.initializers.scaling import (
    GlorotNormal,
    GlorotUniform,
    HeNormal,
    HeUniform,
    LecunNormal,
    LecunUniform,
    VarianceScaling,
    compute_fans,
)
from fkeras.initializers.stft import STFT

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

__all__ = (
    "Constant",
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "Identity",
    "IdentityInitializer",
    "Initializer",
    "LecunNormal",
    "LecunUniform",
    "Ones",
    "Orthogonal",
    "OrthogonalInitializer",
    "RandomNormal",
    "RandomUniform",
    "STFT",
    "STFTInitializer",
    "TruncatedNormal",
    "VarianceScaling",
    "Zeros",
    "compute_fans",
    "constant",
    "deserialize",
    "get",
    "glorot_normal",
    "glorot_uniform",
    "he_normal",
    "he_uniform",
    "identity",
    "lecun_normal",
    "lecun_uniform",
    "ones",
    "orthogonal",
    "random_normal",
    "random_uniform",
    "serialize",
    "stft",
    "truncated_normal",
    "variance_scaling",
    "zeros",
)
