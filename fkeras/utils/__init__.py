"""Utilities with Keras's names, and `cache_programs`, which stores compiled programs."""

from fkeras.engine.migration_hints.names import explain_unknown_names
from fkeras.utils.categories import normalize, to_categorical
from fkeras.utils.drawing import model_to_dot, plot_model
from fkeras.utils.features.feature_space import FeatureSpace
from fkeras.utils.images import array_to_img, img_to_array, load_img, save_img
from fkeras.utils.programs import cache_programs
from fkeras.utils.sequences import pad_sequences
from fkeras.utils.sources.dataset import Dataset
from fkeras.utils.sources.files import (
    audio_dataset_from_directory,
    image_dataset_from_directory,
    text_dataset_from_directory,
)
from fkeras.utils.sources.timeseries import timeseries_dataset_from_array
from fkeras.utils.splitting import split_dataset

__all__ = (
    "Dataset",
    "FeatureSpace",
    "array_to_img",
    "audio_dataset_from_directory",
    "cache_programs",
    "image_dataset_from_directory",
    "img_to_array",
    "load_img",
    "model_to_dot",
    "normalize",
    "pad_sequences",
    "plot_model",
    "save_img",
    "split_dataset",
    "text_dataset_from_directory",
    "timeseries_dataset_from_array",
    "to_categorical",
)

explain_unknown_names(__name__)
