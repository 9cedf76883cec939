"""Legacy HDF5 files (`.h5`, `.hdf5`) of Keras 1, 2 and 3, read without Keras and TensorFlow."""

from fkeras.saving.legacy.functions import keras2_hard_sigmoid
from fkeras.saving.legacy.opening import load
from fkeras.saving.legacy.source import legacy_source
from fkeras.saving.legacy.training import load_training
from fkeras.saving.legacy.weights import place_legacy_weights

__all__ = ("keras2_hard_sigmoid", "legacy_source", "load", "load_training", "place_legacy_weights")
