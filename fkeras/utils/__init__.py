"""Utilities with Keras's names, and `cache_programs`, which stores compiled programs."""

from fkeras.engine.config.public_names import publish as _publish
from fkeras.engine.network.picture import Picture as Picture
from fkeras.utils.categories import normalize as normalize
from fkeras.utils.categories import to_categorical as to_categorical
from fkeras.utils.confusion import ConfusionMatrix as ConfusionMatrix
from fkeras.utils.confusion import confusion_matrix as confusion_matrix
from fkeras.utils.drawing import draw as draw
from fkeras.utils.drawing import model_to_dot as model_to_dot
from fkeras.utils.drawing import plot_model as plot_model
from fkeras.utils.features.feature_space import FeatureSpace as FeatureSpace
from fkeras.utils.image_grid import image_grid as image_grid
from fkeras.utils.images import array_to_img as array_to_img
from fkeras.utils.images import img_to_array as img_to_array
from fkeras.utils.images import load_img as load_img
from fkeras.utils.images import save_img as save_img
from fkeras.utils.nearest import nearest_items as nearest_items
from fkeras.utils.packing import PackedSequences as PackedSequences
from fkeras.utils.packing import pack_sequences as pack_sequences
from fkeras.utils.programs import cache_programs as cache_programs
from fkeras.utils.report import ClassificationReport as ClassificationReport
from fkeras.utils.report import classification_report as classification_report
from fkeras.utils.sequences import pad_sequences as pad_sequences
from fkeras.utils.sources.dataset import Dataset as Dataset
from fkeras.utils.sources.files import audio_dataset_from_directory as audio_dataset_from_directory
from fkeras.utils.sources.files import image_dataset_from_directory as image_dataset_from_directory
from fkeras.utils.sources.files import text_dataset_from_directory as text_dataset_from_directory
from fkeras.utils.sources.stream import Stream as Stream
from fkeras.utils.sources.stream import parquet_dataset as parquet_dataset
from fkeras.utils.sources.timeseries import (
    timeseries_dataset_from_array as timeseries_dataset_from_array,
)
from fkeras.utils.splitting import split_dataset as split_dataset
from fkeras.utils.text_stream import TextStream as TextStream
from fkeras.utils.weight_values import print_weights as print_weights

_publish(__name__)
