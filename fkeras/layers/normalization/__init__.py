"""Normalization: of batches, layers, groups, vectors, of the features of a data set, of kernels."""

from fkeras.layers.normalization.batch import BatchNormalization
from fkeras.layers.normalization.feature import Normalization
from fkeras.layers.normalization.group import GroupNormalization
from fkeras.layers.normalization.layer import LayerNormalization
from fkeras.layers.normalization.rms import RMSNormalization
from fkeras.layers.normalization.spectral import SpectralNormalization
from fkeras.layers.normalization.unit import UnitNormalization
from fkeras.nn.normalization import layer_normalization, rms_normalization

__all__ = (
    "BatchNormalization",
    "GroupNormalization",
    "LayerNormalization",
    "Normalization",
    "RMSNormalization",
    "SpectralNormalization",
    "UnitNormalization",
    "layer_normalization",
    "rms_normalization",
)
