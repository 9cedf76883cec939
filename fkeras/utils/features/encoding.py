"""Columns as arrays, and integers of layers as vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from fkeras import layers
from fkeras.engine import KerasTensor, Layer
from fkeras.engine.messages.errors import describe_value
from fkeras.utils.features.feature import Feature

# the fields that `adapt` sets
_ADAPTED = (
    (layers.Normalization, "mean"),
    (layers.Discretization, "bin_boundaries"),
    (layers.StringLookup, "vocabulary"),
    (layers.IntegerLookup, "vocabulary"),
    (layers.TextVectorization, "vocabulary"),
)


def learns(layer: Layer) -> bool:
    """Returns whether a layer needs `adapt`.

    Example:
        >>> learns(layers.StringLookup()), learns(layers.StringLookup(vocabulary=["a"]))
        (True, False)
    """
    attribute = next((name for kind, name in _ADAPTED if isinstance(layer, kind)), None)
    if attribute is not None:
        return getattr(layer, attribute) is None
    return hasattr(layer, "adapt")


def one_hot(name: str, layer: Layer, tensor: KerasTensor) -> KerasTensor:
    """Encodes the integers of a layer as vectors.

    Args:
        name: name of the feature or cross.
        layer: the layer that computed the integers.
        tensor: the integers, symbolic.

    Raises:
        ValueError: for a layer whose number of integers is unknown.
    """
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
            f"FeatureSpace: feature {name!r}: expected for output_mode='one_hot' a layer of integers "
            f"with a known number, such as StringLookup, received {type(layer).__name__} of dtype "
            f"{tensor.dtype}. Choose output_mode='int' or 'float'."
        )
    return layers.CategoryEncoding(size, output_mode="multi_hot")(tensor)


def column(name: str, values: Any, feature: Feature) -> np.ndarray:
    """Converts a column to an array of the feature's kind.

    Args:
        name: name of the feature.
        values: the column.
        feature: the feature.

    Raises:
        TypeError: for strings where numbers are expected, and for numbers instead of strings.
        ValueError: for more than one value in a row.
    """
    try:
        array = np.asarray(values)
    except ValueError:
        array = np.asarray(None)
    strings = feature.dtype == "string"
    kinds = "USO" if strings else "biuf"
    if array.dtype.kind not in kinds or (array.dtype == object and array.ndim == 0):
        wanted = "strings" if strings else f"numbers ({feature.dtype})"
        raise TypeError(
            f"FeatureSpace: column {name!r}: expected {wanted}, received {describe_value(values)}."
        )
    if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 1):
        raise ValueError(
            f"FeatureSpace: column {name!r}: expected the shape (b,) or (b, 1), received "
            f"{array.shape}. A feature is one value for each row."
        )
    return array.astype(feature.dtype) if feature.dtype.startswith("float") else array
