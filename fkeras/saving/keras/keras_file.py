"""Reads and writes `.keras` files: archives with the configuration and the weights of a model.

Reads archives of Keras 3, of tf.keras 2.12 to 2.15 and of this library; writes Keras 3's format.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from fkeras.engine import Layer, Model, Network, Sequential
from fkeras.engine.config.custom_objects import CustomObjects
from fkeras.engine.config.serialization import deserialize, serialize
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.symbolic.input import needs_batch_size
from fkeras.engine.values.argument_types import FilePath
from fkeras.engine.values.naming import snake_case
from fkeras.engine.values.spec import as_spec
from fkeras.host.containers.archive import Archive, write_archive
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.folder import open_entries
from fkeras.host.containers.hdf5 import Store, Writer, new_store, open_store
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import check, field, parse
from fkeras.saving import wings
from fkeras.saving.keras.extension_keys import put_back, put_beside
from fkeras.saving.keras.lora_keys import with_fresh_adapters
from fkeras.saving.quirks.keras2_objects import OBJECTS
from fkeras.saving.quirks.origin import Origin, archive_origin, origin_from
from fkeras.saving.quirks.table import make_model, with_quirks
from fkeras.saving.trained.resource_limits import check_calls, check_state
from fkeras.saving.weights.filling import abstract_build, fill_from_store, plain
from fkeras.saving.weights.placing import Layout
from fkeras.saving.weights.vocabularies import stored_weights, with_vocabularies
from fkeras.saving.weights.weight_paths import copied_groups, places, walk_groups, with_copies

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
# version of Keras whose format `write` follows
_KERAS = "3.15.0"
# key in the metadata that marks files of this library, to which no quirk applies; ignored by Keras
_MARK = "fkeras"


@dataclasses.dataclass(frozen=True)
class Opened:
    """An open archive and its model.

    Attributes:
        config: configuration as the file holds it.
        custom_objects: classes and functions by name, of the user and of old Keras versions.
        converter: converter of Keras 2 configurations; None for archives of Keras 3.
    """

    model: Network
    state: Mapping[str, Any]
    config: Mapping[str, Any]
    store: Store
    custom_objects: Mapping[str, Any]
    converter: wings.legacy.Converter | None


def is_folder(path: str) -> bool:
    """Returns whether a path is a folder that Keras wrote under `zipped=False`."""
    # a folder with `config.json` alone may be of another library
    return any(os.path.isfile(os.path.join(path, name)) for name in (METADATA, WEIGHTS))


def read(
    path: FilePath,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    layout: Layout | None = None,
) -> tuple[Network, Mapping[str, Any]]:
    """Reads `(model, state)` from a `.keras` file, or from a folder with the entries of that file."""
    with opened(path, custom_objects, limits, layout) as file, reading(os.fspath(path), CONFIG):
        return with_fresh_adapters(file.model, file.config), file.state


@contextlib.contextmanager
def opened(
    path: FilePath,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    layout: Layout | None = None,
) -> Iterator[Opened]:
    """Opens a `.keras` file and reads its model, as `read` does, which also documents the arguments."""
    limits = limits or Limits()
    # the user's objects override those of old Keras versions
    custom_objects = CustomObjects({**OBJECTS, **(custom_objects or {})})
    with open_entries(path, limits) as archive:
        stored_config, origin = read_config(archive, limits)
        with open_store(archive.open(WEIGHTS), archive.file, WEIGHTS, limits) as store:
            with reading(archive.file, CONFIG):
                stored_config = with_vocabularies(stored_config, archive, store)
                config, converter = _current_form(stored_config, origin, custom_objects)
                if converter is not None:
                    custom_objects = converter.all_objects
                model = _model(config, origin, custom_objects, archive.file)
                model = model if layout is None else layout.cast(model)
                shapes = _shapes(model, stored_config, archive.file)
                # before `fill_from_store` allocates: a few bytes of JSON can request a carry of
                # any size, and no data in the file bounds that size
                if shapes is not None:
                    check_state(*shapes, limits)
            if shapes is not None and layout is not None:
                shapes = layout.apply(*shapes)
            with reading(archive.file, WEIGHTS):
                # a model without known inputs stays unbuilt, without weights
                groups = (
                    None if converter is None else wings.legacy.archive_groups(stored_config, store)
                )
                if shapes is None:
                    state = {}
                else:
                    model, state = fill_from_store(*shapes, store, groups)
            with reading(archive.file, CONFIG):
                check_calls(model, limits)
            yield Opened(model, state, stored_config, store, custom_objects, converter)


def read_config(archive: Archive, limits: Limits) -> tuple[Mapping[str, Any], Origin | None]:
    """Reads `(config, origin)` from an archive; the origin is None for files of this library."""
    file = archive.file
    metadata = parse(archive.read(METADATA), file, METADATA, limits)
    version = field(metadata, "keras_version", str, file=file, member=METADATA)
    config = parse(archive.read(CONFIG), file, CONFIG, limits)
    check(config, dict, "the configuration", file=file, member=CONFIG)
    with reading(file, CONFIG):
        if _MARK not in metadata:
            return config, archive_origin(version, config, file, CONFIG)
        archive_origin(version, {}, file, CONFIG)  # raises for a damaged version
        return put_back(config, file, CONFIG), None


def from_text(
    text: str | bytes, custom_objects: Mapping[str, Any] | None, limits: Limits
) -> Network:
    """Returns the model, without weights, of JSON from `to_json` of Keras or fkeras."""
    config = parse(text, None, None, limits)
    # some programs write the text of `to_json` with `json.dump`: a JSON string that holds JSON
    config = parse(config, None, None, limits) if isinstance(config, str) else config
    check(config, dict, "the configuration of a model")
    custom_objects = CustomObjects({**OBJECTS, **(custom_objects or {})})
    with reading(None):
        if "class_name" not in config:
            field(config, "layers", list)
            cls = Model if "input_layers" in config else Sequential
            return cls.from_config(config, custom_objects)
        # Keras 1 and 2 write their version, Keras 3 writes modules
        is_keras_3 = "module" in config and "keras_version" not in config
        version = "3" if is_keras_3 else config.get("keras_version", "1")
        origin = origin_from(version, config.get("backend"), Origin())
        config, converter = _current_form(config, origin, custom_objects)
        custom_objects = custom_objects if converter is None else converter.all_objects
        return _model(config, origin, custom_objects, None)


def _current_form(
    config: Mapping[str, Any], origin: Origin | None, custom_objects: Mapping[str, Any]
) -> tuple[Mapping[str, Any], wings.legacy.Converter | None]:
    """Returns the configuration in Keras 3's form, and the converter used for Keras 2."""
    if origin is None:
        return config, None
    if origin.major < 3:
        converter = wings.legacy.Converter(origin, custom_objects)
        return converter.model(config), converter
    # Keras 3's form needs no conversion between the two stages
    config = with_quirks(config, origin, custom_objects, "stored")
    return with_quirks(config, origin, custom_objects), None


def _model(
    config: Mapping,
    origin: Origin | None,
    custom_objects: Mapping[str, Any] | None,
    file: str | None,
) -> Network:
    def make(config: Mapping) -> Any:
        return deserialize(config, custom_objects)

    model = make(config) if origin is None else make_model(config, origin, make)
    if not isinstance(model, Network):
        raise FileError(
            f"expected a model, received {type(model).__name__}. `.keras` files hold "
            "fk.Model or fk.Sequential, or subclasses passed in custom_objects.",
            file=file,
            member=CONFIG,
        )
    return model


def _shapes(model: Network, config: Mapping, file: str) -> tuple[Any, dict] | None:
    """Returns the model and its state as shapes; None for a model without known inputs."""
    if model.graph is not None:
        return abstract_build(model)
    place = {"file": file, "member": CONFIG}
    build = field(config, "build_config", (dict, type(None)), None, **place) or {}
    shape = field(build, "input_shape", (list, type(None)), None, **place)
    if not shape:
        return None
    for size in shape:
        check(size, (int, type(None)), "a size in build_config", **place)
    # Keras stores the batch size of the first call, which does not restrict the model
    if not needs_batch_size(config):
        shape = [None, *shape[1:]]
    return abstract_build(model, as_spec(tuple(shape)))


def write(
    path: FilePath,
    model: Layer,
    state: Mapping[str, Any] | None = None,
    compiled: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> None:
    """Writes a `.keras` file that Keras 3 opens; writes a subclassed model as its graph.

    Args:
        arrays: additional arrays for the weight file by path, such as the optimizer's slots.
    """
    if not isinstance(model, Network):
        check_not_keras(model, "save_model")
        raise TypeError(
            f"save_model: expected fk.Model or fk.Sequential, received {type(model).__name__}. "
            "Wrap a layer: fk.Sequential([fk.Input(shape), layer])."
        )
    if not model.built:
        raise ValueError(
            f"save_model, {model._where}: expected a built model, received a model without weights. "
            "Build it: `model = model.build(jax.random.key(0))`."
        )
    state = {} if state is None else state
    _check_state(model, state)
    # Keras could not construct a user's subclass without its code; the graph needs only layers
    graph_model: Network = plain(model)
    config = {**put_beside(serialize(graph_model)), "build_config": _build_config(graph_model)}
    config["compile_config"] = dict(compiled or {})
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d@%H:%M:%S")
    metadata = {"keras_version": _KERAS, "date_saved": date, _MARK: True}

    def write_weights(file: BinaryIO) -> None:
        with new_store(file) as store:
            write_arrays(store, graph_model, state)
            for name, array in (arrays or {}).items():
                store.write(name, array)

    members = {
        METADATA: json.dumps(metadata).encode(),
        CONFIG: json.dumps(config).encode(),
        WEIGHTS: write_weights,
    }
    write_archive(path, members)


def write_arrays(store: Writer, model: Layer, state: Mapping[str, Any]) -> None:
    """Writes weights and state into an HDF5 file in Keras's layout."""
    copies = copied_groups(model)
    for group, _, layer in walk_groups(model):
        for path in with_copies(f"{group}/vars" if group else "vars", copies):
            # layers without weights have a group too, as in Keras's files
            store.group(path)
            store.attribute(path, "name", layer.name or snake_case(type(layer).__name__))
    for place in places(model, state):
        if place.path is not None:
            for path in with_copies(place.path, copies):
                store.write(path, place.value)
    for path, array in stored_weights(model):
        store.write(path, array)


def _build_config(model: Network) -> dict[str, Any]:
    # Keras stores one shape; models with several inputs are rebuilt from their graph
    specs = [model.graph.specs[slot] for slot in model.graph.input_slots]
    shapes = [list(spec.shape) for spec in specs]
    return {"input_shape": shapes[0] if len(shapes) == 1 else None}


def _check_state(model: Network, state: Mapping[str, Any]) -> None:
    missing = set(abstract_build(model)[1]) - set(state) if model.stateful else set()
    if missing:
        raise ValueError(
            f"save_model, {model._where}: expected the state of {', '.join(sorted(missing))}, "
            f"received the state of {', '.join(sorted(state)) or 'no layer'}. Pass the state: "
            "`fk.save_model(path, model, state)`, or run.state of a training."
        )
