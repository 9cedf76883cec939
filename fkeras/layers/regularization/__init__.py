"""What disturbs or penalizes activations in training: dropout, noise, a penalty on activity."""

from fkeras.layers.regularization.activity import ActivityRegularization
from fkeras.layers.regularization.alpha_dropout import AlphaDropout
from fkeras.layers.regularization.dropout import Dropout
from fkeras.layers.regularization.noise import GaussianDropout, GaussianNoise
from fkeras.layers.regularization.spatial_dropout import (
    SpatialDropout1D,
    SpatialDropout2D,
    SpatialDropout3D,
)
from fkeras.nn.noise import dropout

__all__ = (
    "ActivityRegularization",
    "AlphaDropout",
    "Dropout",
    "GaussianDropout",
    "GaussianNoise",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "dropout",
)
