"""`.keras` files, read and written: configuration, weights and what was compiled, in one archive."""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Mapping
from typing import Any

from fkeras.engine import Network
from fkeras.engine.config.custom_objects import CustomObjects
from fkeras.engine.config.serialization import deserialize, serialize
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.symbolic.input import needs_batch_size
from fkeras.engine.values.naming import snake_case
from fkeras.engine.values.spec import as_spec
from fkeras.saving import legacy
from fkeras.saving.containers.archive import Archive, open_archive, write_archive
from fkeras.saving.containers.errors import FileError, reading
from fkeras.saving.containers.hdf5 import Store, Writer, new_store, open_store
from fkeras.saving.containers.limits import Limits
from fkeras.saving.containers.strict_json import check, field, parse
from fkeras.saving.quirks.batch_sizes import made_for_any_batch
from fkeras.saving.quirks.empty_attention import attention_as_in_keras
from fkeras.saving.quirks.extension_keys import put_back, put_beside
from fkeras.saving.quirks.four_bit_layers import quantized_as_in
from fkeras.saving.quirks.merge_masks import merged_as_in
from fkeras.saving.trained.resource_limits import check_state
from fkeras.saving.weights.filling import abstract_build, fill_from_store, plain
from fkeras.saving.weights.vocabularies import stored_weights, with_vocabularies
from fkeras.saving.weights.weight_paths import copied_groups, places, walk_groups, with_copies

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
# the version of Keras whose form is written
_KERAS = "3.15.0"
# in the metadata of files that are written here, which Keras passes over
_MARK = "fkeras"


@dataclasses.dataclass(frozen=True)
class Opened:
    """An archive whose model was read, for what reads more of the archive.

    Attributes:
        model: the model.
        state: the state of the model.
        config: the configuration as the file has it.
        store: the weights of the file.
        custom_objects: the user's own by name, and what models of Keras 1 and 2 bring along.
        converter: what converted a configuration of Keras 2; None for an archive of Keras 3.
    """

    model: Any
    state: Mapping[str, Any]
    config: Mapping[str, Any]
    store: Store
    custom_objects: Mapping[str, Any]
    converter: legacy.Converter | None


def read(
    path: Any,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    finish: Callable[[Opened], Any] | None = None,
) -> Any:
    """`(model, state)` of a `.keras` file, or what `finish` makes of it.

    Args:
        path: the file.
        custom_objects: classes and functions of your own by name.
        limits: the greatest sizes.
        finish: `opened -> result`, called while the file is open.

    Raises:
        FileError: for a file that is no such model.
    """
    limits = limits or Limits()
    custom_objects = CustomObjects({**legacy.OBJECTS, **(custom_objects or {})})
    with open_archive(path, limits) as archive:
        stored, version = read_config(archive, limits)
        with open_store(archive.open(WEIGHTS), archive.file, WEIGHTS, limits) as store:
            with reading(archive.file, CONFIG):
                stored = with_vocabularies(stored, archive, store)
                config, converter = _converted(stored, version, archive.file, custom_objects)
                if converter is not None:
                    custom_objects = converter.all_objects
                model = _model(config, version is None, custom_objects, archive.file)
                shapes = _shapes(model, stored, archive.file)
                if shapes is not None:
                    check_state(*shapes, limits)
            with reading(archive.file, WEIGHTS):
                groups = None if converter is None else legacy.archive_groups(stored, store)
                found = (model, {}) if shapes is None else fill_from_store(*shapes, store, groups)
            if finish is None:
                return found
            return finish(Opened(*found, stored, store, custom_objects, converter))


def read_config(archive: Archive, limits: Limits) -> tuple[Mapping[str, Any], str | None]:
    """`(config, version)`: the configuration in an archive, and the version of Keras.

    The version is None for a file that this library wrote.

    Args:
        archive: the archive.
        limits: the greatest sizes.
    """
    metadata = parse(archive.read(METADATA), archive.file, METADATA, limits)
    version = field(metadata, "keras_version", str, file=archive.file, member=METADATA)
    config = parse(archive.read(CONFIG), archive.file, CONFIG, limits)
    check(config, dict, "the configuration", file=archive.file, member=CONFIG)
    if _MARK not in metadata:
        return config, version
    legacy.archive_origin(version, {}, archive.file, CONFIG)
    with reading(archive.file, CONFIG):
        return put_back(config, archive.file, CONFIG), None


def _converted(
    config: Mapping[str, Any], version: str | None, file: str, custom_objects: Mapping[str, Any]
) -> tuple[Mapping[str, Any], legacy.Converter | None]:
    """The configuration in today's form, and what converted a configuration of Keras 2."""
    if version is None:
        return config, None
    origin = legacy.archive_origin(version, config, file, CONFIG)
    if origin is not None:
        converter = legacy.Converter(origin, custom_objects)
        return converter.model(config), converter
    config = attention_as_in_keras(merged_as_in(version, config, custom_objects), custom_objects)
    return quantized_as_in(version, config), None


def _model(
    config: Mapping, ours: bool, custom_objects: Mapping[str, Any] | None, file: str
) -> Network:
    def make(config: Mapping) -> Any:
        return deserialize(config, custom_objects)

    model = make(config) if ours else made_for_any_batch(config, make)
    if not isinstance(model, Network):
        raise FileError(
            f"expected a model, received {type(model).__name__}. `.keras` files hold "
            "fk.Model or fk.Sequential, or subclasses passed in custom_objects.",
            file=file,
            member=CONFIG,
        )
    return model


def _shapes(model: Network, config: Mapping, file: str) -> tuple[Any, dict] | None:
    """The model of shapes and its state; None for one that has never met its inputs."""
    if model.graph is not None:
        return abstract_build(model)
    place = {"file": file, "member": CONFIG}
    build = field(config, "build_config", (dict, type(None)), None, **place) or {}
    shape = field(build, "input_shape", (list, type(None)), None, **place)
    if not shape:
        return None
    for size in shape:
        check(size, (int, type(None)), "a size in build_config", **place)
    if not needs_batch_size(config):
        shape = [None, *shape[1:]]
    return abstract_build(model, as_spec(tuple(shape)))


def write(
    path: Any,
    model: Any,
    state: Mapping[str, Any] | None = None,
    compiled: Mapping[str, Any] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> None:
    """Writes a `.keras` file that Keras 3 opens; a composed model goes in as its graph.

    Args:
        path: where it shall be.
        model: a built network.
        state: its state.
        compiled: the compile_config.
        arrays: further arrays for the weight file, by path.
    """
    if not isinstance(model, Network):
        check_not_keras(model, "save_model")
        raise TypeError(
            f"save_model: expected fk.Model or fk.Sequential, received {type(model).__name__}. "
            "Wrap a layer: fk.Sequential([fk.Input(shape), layer])."
        )
    if not model.built:
        raise ValueError(
            f"{model.where}: save_model needs a built model, and this one has no weights. Build "
            "it: `model = model.build(jax.random.key(0))`."
        )
    state = {} if state is None else state
    _check_state(model, state)
    model = plain(model)
    config = {**put_beside(serialize(model)), "build_config": _build_config(model)}
    config["compile_config"] = dict(compiled or {})
    moment = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d@%H:%M:%S")
    metadata = {"keras_version": _KERAS, "date_saved": moment, _MARK: True}

    def write_weights(file: Any) -> None:
        with new_store(file) as store:
            write_arrays(store, model, state)
            for name, array in (arrays or {}).items():
                store.write(name, array)

    members = {
        METADATA: json.dumps(metadata).encode(),
        CONFIG: json.dumps(config).encode(),
        WEIGHTS: write_weights,
    }
    write_archive(path, members)


def write_arrays(store: Writer, model: Any, state: Mapping[str, Any]) -> None:
    """Puts weights and state into a store in Keras's layout."""
    copies = copied_groups(model)
    for group, _, layer in walk_groups(model):
        for path in with_copies(f"{group}/vars" if group else "vars", copies):
            store.group(path)
            store.attribute(path, "name", layer.name or snake_case(type(layer).__name__))
    for place in places(model, state):
        if place.path is not None:
            for path in with_copies(place.path, copies):
                store.write(path, place.value)
    for path, array in stored_weights(model):
        store.write(path, array)


def _build_config(model: Network) -> dict[str, Any]:
    specs = [model.graph.specs[slot] for slot in model.graph.input_slots]
    shapes = [list(spec.shape) for spec in specs]
    return {"input_shape": shapes[0] if len(shapes) == 1 else None}


def _check_state(model: Network, state: Mapping[str, Any]) -> None:
    missing = set(abstract_build(model)[1]) - set(state) if model.stateful else set()
    if missing:
        raise ValueError(
            f"{model.where}: save_model expected the state of {', '.join(sorted(missing))}, "
            f"received that of {', '.join(sorted(state)) or 'no layer'}. Pass it: "
            "`fk.save_model(path, model, state)`, or run.state of a training."
        )
