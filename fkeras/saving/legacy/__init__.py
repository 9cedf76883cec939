"""Legacy HDF5 files (`.h5`, `.hdf5`) of Keras 1, 2 and 3 and `.keras` files of Keras 2.

Neither Keras nor TensorFlow is needed to read these files.
"""

from fkeras.saving.legacy.archive_training import archive_training as archive_training
from fkeras.saving.legacy.archives import archive_groups as archive_groups
from fkeras.saving.legacy.configs.converter import Converter as Converter
from fkeras.saving.legacy.opening import load as load
from fkeras.saving.legacy.training import load_training as load_training
from fkeras.saving.legacy.weights.source import legacy_source as legacy_source
