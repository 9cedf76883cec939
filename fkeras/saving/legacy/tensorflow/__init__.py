"""Converts TensorFlow functions in graphs of tf.keras 2 to operations of Keras 3."""

from fkeras.saving.legacy.tensorflow.network import is_function as is_function
from fkeras.saving.legacy.tensorflow.network import operations as operations
