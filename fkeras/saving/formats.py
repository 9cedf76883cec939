"""Table of the file formats: suffixes, recognition by content, readers and writers."""

from __future__ import annotations

import contextlib
import os
import types
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from fkeras.atomic_files import npz
from fkeras.atomic_files.atomic import replacing
from fkeras.engine import Layer
from fkeras.host.containers import file_type, safetensors
from fkeras.host.containers.errors import FileError
from fkeras.host.containers.hdf5 import Store, new_store, open_store
from fkeras.host.containers.limits import Limits
from fkeras.saving import wings
from fkeras.saving.keras import keras_file
from fkeras.saving.keras.training import read_training
from fkeras.saving.weights.placing import Layout
from fkeras.saving.weights.weight_paths import Place, places
from fkeras.saving.weights.weight_reading import (
    Head,
    Skips,
    lists_shards,
    open_hdf5,
    open_safetensors,
    open_shards,
    open_zip,
)
from fkeras.saving.weights.weight_source import Source, own_path, own_path_by_kind
from fkeras.training import Trainer, TrainState

WeightReader = Callable[[str, Limits, Skips], contextlib.AbstractContextManager[Source | Store]]


class Format(NamedTuple):
    """A file format.

    Attributes:
        recognises: returns whether a file has the format, from its first bytes.
        open_weights: opens the arrays of a file for `load_weights`.
        suffixes: suffixes for which `save_weights` writes the format.
        write_weights: writes weights and state for `save_weights`; None if nothing writes them.
        models: the readers of `load_model` and `load_training`; None if the format has no models.
    """

    recognises: Callable[[Head, Limits], bool]
    open_weights: WeightReader
    suffixes: tuple[str, ...] = ()
    write_weights: Callable[[str, Layer, Mapping[str, Any]], None] | None = None
    models: Models | None = None


class Models(NamedTuple):
    """The readers of whole models in one format.

    Attributes:
        signature: first bytes of the files.
    """

    signature: bytes
    read_model: Callable[[str, Mapping[str, Any] | None, Limits | None, Layout | None], Any]
    read_training: Callable[[str, Mapping[str, Any] | None, Limits], tuple[Trainer, TrainState]]


def weight_format(path: str, limits: Limits) -> Format:
    """Returns the format of a weight file. The content, not the name, determines the format."""
    head = _head(path)
    for row in FORMATS:
        if row.recognises(head, limits):
            return row
    raise FileError(
        "expected weights (.weights.h5, .h5, .safetensors, .npz, .keras), received "
        f"{file_type.describe(head.start, head.size)}.",
        file=path,
    )


def model_format(path: str) -> Models:
    """Returns the readers of a file with a whole model, by the first bytes of the file."""
    if keras_file.is_folder(path):
        return _ARCHIVES
    head = _head(path)
    for row in FORMATS:
        if row.models is not None and head.start.startswith(row.models.signature):
            return row.models
    raise FileError(
        f"expected a model (.keras, .h5), received {file_type.describe(head.start, head.size)}.",
        file=path,
    )


def _head(path: str) -> Head:
    with file_type.open_regular(path) as file:
        return Head(path, file.read(file_type.LENGTH), file.seek(0, os.SEEK_END))


def _read_hdf5(
    path: str,
    custom_objects: Mapping[str, Any] | None,
    limits: Limits | None,
    layout: Layout | None,
) -> Any:
    with open_store(path, path, limits=limits) as store:
        return wings.legacy.load(store, path, custom_objects, limits, layout)[:2]


def _read_hdf5_training(
    path: str, custom_objects: Mapping[str, Any] | None, limits: Limits
) -> tuple[Trainer, TrainState]:
    with open_store(path, path, limits=limits) as store:
        return wings.legacy.load_training(store, path, custom_objects, limits)


def _write_hdf5(path: str, model: Layer, state: Mapping[str, Any]) -> None:
    with replacing(path) as file, new_store(file) as store:
        keras_file.write_arrays(store, model, state)


def _write_safetensors(path: str, model: Layer, state: Mapping[str, Any]) -> None:
    arrays = _arrays_by_path(model, state, own_path)
    with replacing(path) as file:
        safetensors.write(file, arrays, {"format": "fkeras 1"})


def _write_npz(path: str, model: Layer, state: Mapping[str, Any]) -> None:
    npz.write(path, _arrays_by_path(model, state, own_path_by_kind))


def _arrays_by_path(
    model: Layer, state: Mapping[str, Any], key: Callable[[Place], str]
) -> dict[str, np.ndarray]:
    # Keras's paths may list a weight twice; the model's own paths name each array once
    places_by_name = {(place.kind, place.name): place for place in places(model, state)}
    values_by_key = {key(place): place.value for place in places_by_name.values()}
    if len(values_by_key) < len(places_by_name):
        raise ValueError(
            f"save_weights, {model._where}: a weight and an entry of the state have the same path, "
            "and safetensors needs distinct names. Save the model as .npz or .weights.h5."
        )
    return {name: np.asarray(array) for name, array in jax.device_get(values_by_key).items()}


# "PK" alone: a damaged archive gets the message of the archive reader
_ARCHIVES = Models(b"PK", keras_file.read, read_training)
FORMATS = (
    Format(
        recognises=lambda head, limits: head.start.startswith(file_type.HDF5),
        open_weights=open_hdf5,
        suffixes=(".h5", ".hdf5"),
        write_weights=_write_hdf5,
        models=Models(file_type.HDF5, _read_hdf5, _read_hdf5_training),
    ),
    Format(
        recognises=lambda head, limits: safetensors.is_safetensors(head.start, head.size),
        open_weights=open_safetensors,
        suffixes=(".safetensors",),
        write_weights=_write_safetensors,
    ),
    # `.keras` and `.npz` files; `save_model` writes the former
    Format(
        recognises=lambda head, limits: head.start.startswith(file_type.ZIP),
        open_weights=open_zip,
        suffixes=(".npz",),
        write_weights=_write_npz,
        models=_ARCHIVES,
    ),
    Format(recognises=lists_shards, open_weights=open_shards),
)
#: the writers of `save_weights` by suffix
WRITERS = types.MappingProxyType(
    {suffix: row.write_weights for row in FORMATS for suffix in row.suffixes}
)
