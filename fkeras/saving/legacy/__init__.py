"""Legacy HDF5 files (`.h5`, `.hdf5`) of Keras 1, 2 and 3 and `.keras` files of Keras 2.

Neither Keras nor TensorFlow is needed to read these files.
"""

import types

from fkeras.saving.legacy.archive_training import archive_training as archive_training
from fkeras.saving.legacy.archives import archive_groups as archive_groups
from fkeras.saving.legacy.archives import archive_origin as archive_origin
from fkeras.saving.legacy.configs.converter import Converter as Converter
from fkeras.saving.legacy.configs.functions import keras2_hard_sigmoid as keras2_hard_sigmoid
from fkeras.saving.legacy.configs.functions import keras2_hinge, keras2_squared_hinge
from fkeras.saving.legacy.opening import load as load
from fkeras.saving.legacy.trained.optimizers import Keras2Adagrad, Keras2Nadam, Keras2RMSprop
from fkeras.saving.legacy.training import load_training as load_training
from fkeras.saving.legacy.weights.source import legacy_source as legacy_source
from fkeras.saving.legacy.weights.weights import place_legacy_weights as place_legacy_weights

#: functions and optimizers of Keras 1 and 2 that Keras 3 lacks, by their names in saved models
OBJECTS = types.MappingProxyType(
    {
        "keras2_hard_sigmoid": keras2_hard_sigmoid,
        "keras2_hinge": keras2_hinge,
        "keras2_squared_hinge": keras2_squared_hinge,
        "Keras2Adagrad": Keras2Adagrad,
        "Keras2Nadam": Keras2Nadam,
        "Keras2RMSprop": Keras2RMSprop,
    }
)
