"""`.keras` files, read and written: configuration, weights and what was compiled, in one archive."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from fkeras.engine import Network
from fkeras.engine.naming import snake_case
from fkeras.engine.serialization import deserialize, serialize
from fkeras.engine.spec import as_spec
from fkeras.saving import legacy
from fkeras.saving.archive import Archive, open_archive, write_archive
from fkeras.saving.claims import check_state
from fkeras.saving.errors import FileError, reading
from fkeras.saving.hdf5 import Writer, new_store, open_store
from fkeras.saving.keras_masks import merged_as_in
from fkeras.saving.keras_quantized import quantized_as_in
from fkeras.saving.limits import Limits
from fkeras.saving.own_options import put_back, put_beside
from fkeras.saving.places import places, walk_groups
from fkeras.saving.strict_json import check, field, parse
from fkeras.saving.structure import abstract_build, fill_from_store, plain
from fkeras.saving.vocabularies import stored_weights, with_vocabularies

CONFIG, METADATA, WEIGHTS = "config.json", "metadata.json", "model.weights.h5"
# the version of Keras whose form is written
_KERAS = "3.15.0"
# in the metadata of files that are written here, which Keras passes over
_MARK = "fkeras"


def read(
    path: Any,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
    finish: Callable[[Any, Mapping, Any, Mapping], Any] | None = None,
) -> Any:
    """`(model, state)` of a `.keras` file, or what `finish` makes of it.

    Args:
        path: the file.
        custom_objects: classes and functions of your own by name.
        limits: the greatest sizes.
        finish: `((model, state), config, store, custom_objects) -> result`, called while the file
            is open; among the objects is what models of Keras 1 and 2 bring along.

    Raises:
        FileError: for a file that is no such model.
    """
    limits = limits or Limits()
    custom_objects = {**legacy.OBJECTS, **(custom_objects or {})}
    with open_archive(path, limits) as archive:
        config = read_config(archive, limits, custom_objects)
        with open_store(archive.open(WEIGHTS), archive.file, WEIGHTS, limits) as store:
            with reading(archive.file, CONFIG):
                config = with_vocabularies(config, archive, store)
                model = _model(config, custom_objects, archive.file)
                shapes = _shapes(model, config, archive.file)
                if shapes is not None:
                    check_state(*shapes, limits)
            with reading(archive.file, WEIGHTS):
                found = (model, {}) if shapes is None else fill_from_store(*shapes, store)
            return found if finish is None else finish(found, config, store, custom_objects)


def read_config(archive: Archive, limits: Limits, custom: Iterable[str] = ()) -> Mapping[str, Any]:
    """The configuration in an archive in the words of here, after a look at who wrote it.

    Args:
        archive: the archive.
        limits: the greatest sizes.
        custom: names of classes of the user's own.
    """
    metadata = parse(archive.read(METADATA), archive.file, METADATA, limits)
    place = {"file": archive.file, "member": METADATA}
    version = field(metadata, "keras_version", str, **place)
    if not version.startswith("3."):
        raise FileError(
            f"expected a version of Keras 3, received {version[:40]!r}. Open the model with Keras "
            "3 and save it again.",
            **place,
        )
    config = parse(archive.read(CONFIG), archive.file, CONFIG, limits)
    check(config, dict, "the configuration", file=archive.file, member=CONFIG)
    with reading(archive.file, CONFIG):
        if _MARK in metadata:
            return put_back(config, archive.file, CONFIG)
        return quantized_as_in(version, merged_as_in(version, config, custom))


def _model(config: Mapping, custom_objects: Mapping[str, Any] | None, file: str) -> Network:
    model = deserialize(config, custom_objects)
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
    for group, _, layer in walk_groups(model):
        inner = f"{group}/vars" if group else "vars"
        store.group(inner)
        store.attribute(inner, "name", layer.name or snake_case(type(layer).__name__))
    for place in places(model, state):
        if place.path is not None:
            store.write(place.path, place.value)
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
