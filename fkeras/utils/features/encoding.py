"""Conversion of columns to arrays, and of the integers that layers return to vectors."""

from __future__ import annotations

import numpy as np

from fkeras import layers
from fkeras.engine import KerasTensor, Layer
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.values.argument_types import Numbers
from fkeras.utils.features.feature import Feature

# the field that `adapt` sets; None before `adapt`
_LEARNED_FIELDS = (
    (layers.Normalization, "mean"),
    (layers.Discretization, "bin_boundaries"),
    (layers.StringLookup, "vocabulary"),
    (layers.IntegerLookup, "vocabulary"),
    (layers.TextVectorization, "vocabulary"),
)


def needs_adapt(layer: Layer) -> bool:
    """Returns whether a layer needs `adapt`."""
    attribute = next((name for kind, name in _LEARNED_FIELDS if isinstance(layer, kind)), None)
    if attribute is not None:
        return getattr(layer, attribute) is None
    return hasattr(layer, "adapt")


def one_hot(name: str, layer: Layer, tensor: KerasTensor) -> KerasTensor:
    """Encodes the integers that a layer returns as one-hot vectors."""
    if isinstance(layer, layers.StringLookup | layers.IntegerLookup):
        size: int | None = layer.vocabulary_size()
    elif isinstance(layer, layers.Discretization):
        size = layer.num_bins or len(layer.bin_boundaries or ()) + 1
    elif isinstance(layer, layers.Hashing | layers.HashedCrossing):
        size = layer.num_bins
    else:
        size = layer.num_tokens if isinstance(layer, layers.CategoryEncoding) else None
    if size is None or not str(tensor.dtype).startswith(("int", "uint")):
        raise ValueError(
            f"FeatureSpace: feature {name!r}: output_mode='one_hot': expected a layer that returns a "
            f"limited number of integers, such as StringLookup, received {type(layer).__name__} of "
            f"dtype {tensor.dtype}. Choose output_mode='int' or 'float'."
        )
    return layers.CategoryEncoding(size, output_mode="multi_hot")(tensor)


def column_array(name: str, values: Numbers, feature: Feature) -> np.ndarray:
    """Converts a column to an array of strings or numbers, as the feature expects."""
    try:
        array = np.asarray(values)
    except ValueError:  # rows of different lengths: the dtype check below reports them
        array = np.asarray(None)
    has_strings = feature.dtype == "string"
    dtype_kinds = "USO" if has_strings else "biuf"
    if array.dtype.kind not in dtype_kinds or (array.dtype == object and array.ndim == 0):
        expected = "strings" if has_strings else f"numbers ({feature.dtype})"
        raise TypeError(
            f"FeatureSpace: column {name!r}: expected {expected}, received {describe_value(values)}. "
            "Convert the column, or choose another feature."
        )
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1):
        raise ValueError(
            f"FeatureSpace: column {name!r}: expected the shape (b,) or (b, 1), received "
            f"{array.shape}. Pass one value for each row; split a wider column into several features."
        )
    return array.astype(feature.dtype) if feature.dtype.startswith("float") else array
