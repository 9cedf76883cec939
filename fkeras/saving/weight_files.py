"""`load_weights` and `save_weights`: weights and state without the model's configuration."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import jax
import numpy as np

from fkeras.atomic_files import npz
from fkeras.atomic_files.atomic import as_path
from fkeras.engine import Layer, Network, replace_weights, suggest
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.arguments import check_path_first
from fkeras.engine.migration_hints.dropped import returned
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.tree.donated import SAVE_THE_NEW, check_donated
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.hdf5 import Store
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.stored import Stored, fits
from fkeras.host.processes.gathering import is_spread
from fkeras.host.processes.writing import write_together
from fkeras.saving import wings
from fkeras.saving.formats import WRITERS, weight_format
from fkeras.saving.weights.filling import abstract_build
from fkeras.saving.weights.placing import Key, Transfer, as_layout, with_arrays
from fkeras.saving.weights.weight_paths import Place, copied_groups, places, with_copies
from fkeras.saving.weights.weight_reading import Skips
from fkeras.saving.weights.weight_source import Source

Model = TypeVar("Model", bound=Layer)


@hides_internal_frames
def load_weights(
    path: str | os.PathLike[str],
    model: Model,
    state: Mapping[str, Any] | None = None,
    *,
    skip: Sequence[str] | str = (),
    mesh: jax.sharding.Mesh | None = None,
    sharding: str | Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[Model, dict[str, Any]]:
    """Returns `(model, state)` with the weights and statistics of a file.

    Model and file must have the same arrays with the same shapes; otherwise nothing is loaded, and
    one error lists all differences. Frozen layers are loaded too. Arrays are cast to the dtypes of
    the model, as in Keras. For a model that is not built, no initializers run.

    Args:
        path: a file by Keras 3 (`.weights.h5`, `.weights.json` with its shards, `.keras`), by
            Keras 1 or 2 (`.h5`, weights alone or a whole model), by `save_weights` or
            `ModelCheckpoint` (`.npz`), or a `.npz` or safetensors file with names such as
            "dense/kernel", or "weights/dense/kernel" and "state/norm/moving_mean". The content of
            the file determines the format.
        model: model that is built or has known inputs. For weights of a subclassed Keras model: an
            `fk.Model` whose fields have the names of the Keras model's attributes, in the order in
            which Keras's constructor assigns them. For a Keras layer made of layers, `call` may also
            create the layers, under the names of the attributes.
        state: state of the model; entries that no file stores stay unchanged.
        skip: patterns, as in `fk.freeze`, of layers or weights to leave unchanged: "head",
            "head/*", "*/bias". The patterns apply to names in the file too.
        mesh: devices to load to, as in `fk.Trainer`. Without a mesh, the arrays of a built model keep
            their devices.
        sharding: the layout of the weights on the mesh, as in `fk.Trainer`. Each array is moved to its
            shards when it is read.
        limits: limits on sizes.

    Returns:
        A new model and a new state; `{}` for a model without state.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: for a damaged file, and for a file that does not match the model.
        ValueError: for a pattern that matches nothing, for a skipped weight without a value, and for
            rules that the weights cannot follow.

    Example:
        >>> import jax, pathlib, tempfile, fkeras as fk
        >>> x = fk.Input((3,))
        >>> model = fk.Model(x, fk.layers.Dense(2, name="body")(x)).build(jax.random.key(0))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "w.safetensors")
        >>> fk.save_weights(path, model)
        >>> fk.load_weights(path, fk.engine.unbuilt(model))[0] == model
        True
    """
    path = as_path(path)
    patterns = (skip,) if isinstance(skip, str) else tuple(skip)
    limits = limits or Limits()

    def skips(name: str) -> bool:
        # a pattern that matches a layer covers all weights inside: match every leading part
        parts = name.split("/")
        prefixes = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        return any(fnmatch.fnmatchcase(prefix, p) for prefix in prefixes for p in patterns)

    # shapes first, and arrays only after all differences are known: an error loads nothing
    shapes, state_shapes = _shapes(model, state)
    layout = as_layout("load_weights", mesh, sharding)
    if layout is not None:
        shapes, state_shapes = layout.apply(shapes, state_shapes)
    with weight_format(path, limits).open_weights(path, limits, skips) as source:
        if isinstance(source, Store):
            if not isinstance(model, Network):
                raise ValueError(
                    f"load_weights, {model._where}: a file of Keras 1 or 2 holds the weights of a "
                    "model. Load it into an fk.Model or fk.Sequential."
                )
            with reading(path):
                source = wings.legacy.legacy_source(source, shapes, state_shapes, skips)
        model_places = places(shapes, state_shapes, source.groups)
        copies = copied_groups(shapes, source.groups)
        _check_patterns(patterns, model_places, source)
        matches = _matched(model, model_places, source, skips, copies)
        arrays = _read(matches, source)
    skipped_names = [
        p.name for p in model_places if p.kind == "weight" and ("weight", p.name) not in arrays
    ]
    if skipped_names and not model.built:
        raise ValueError(
            f"load_weights, {model._where}: {skipped_names[0]!r} is skipped, and the model has no value for "
            "it yet. Build it first: model.build(jax.random.key(0))."
        )
    loaded = {name: array for (kind, name), array in arrays.items() if kind == "weight"}
    model = replace_weights(shapes, loaded)
    missing = any(p.kind == "state" and ("state", p.name) not in arrays for p in model_places)
    # the given state serves for entries that the file lacks; else the initial state, computed only
    # if some entry is missing
    base = state if state is not None else model.init_state() if missing else state_shapes
    state = with_arrays(base, arrays)
    # entries that the file lacks are still on the default device
    loaded_pair = (model, state) if layout is None else layout.apply(model, state)
    line = "model, state = fk.load_weights(path, model, state)"
    return returned(loaded_pair, "fk.load_weights", line, depth=2)


def _shapes(model: Layer, state: Mapping[str, Any] | None) -> tuple[Any, Mapping[str, Any]]:
    """Returns the model and its state, or shapes of both for a model that is not built."""
    if not isinstance(model, Layer):
        check_not_keras(model, "load_weights")
        raise TypeError(
            f"load_weights: expected a model, received {type(model).__name__}. Write "
            "model, state = fk.load_weights(path, model); a run takes them by "
            "run.replace(model=model, state=state)."
        )
    if not model.built:
        abstract_model, abstract_state = abstract_build(model)
        return abstract_model, abstract_state if state is None else state
    if state is not None or not model.stateful:
        return model, state or {}
    # the state of a single layer depends on the shapes of its inputs, which a layer does not store
    if not isinstance(model, Network):
        raise ValueError(
            f"load_weights, {model._where}: expected the layer's state, received none. Pass it: "
            "fk.load_weights(path, layer, layer.init_state((None, 8)))."
        )
    return model, jax.eval_shape(model.init_state)


def _check_patterns(patterns: Sequence[str], model_places: Sequence[Place], source: Source) -> None:
    if not patterns:
        return
    names = [p.name for p in model_places] + [source.label(key) for key in source.arrays]
    prefixes = {
        "/".join(n.split("/")[: i + 1]): None for n in names for i in range(n.count("/") + 1)
    }
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(prefix, pattern) for prefix in prefixes):
            raise ValueError(
                f"load_weights: nothing in the model or the file matches skip={pattern!r}."
                f"{suggest(pattern.strip('*/'), prefixes)}"
            )


def _matched(
    model: Layer, model_places: Sequence[Place], source: Source, skips: Skips, copies: Sequence
) -> dict[Key, tuple[Place, Stored]]:
    """Returns the stored array of each place that is not skipped."""
    matches: dict[Key, tuple[Place, Stored]] = {}
    used: set[str] = set()
    missing, mismatched = [], []
    for place in model_places:
        key = source.key(place)
        if key is None:
            continue
        # before the skip: the file's arrays of a skipped place are not unexpected
        used.update(with_copies(key, copies))
        if skips(place.name):
            continue
        shape = tuple(place.value.shape)
        stored = source.arrays.get(key)
        if stored is None:
            missing.append((place.name, f"{place.name} {shape}"))
        elif stored.shape != shape:
            mismatched.append((place.name, f"{place.name} {shape} (file: {stored.shape})"))
        elif not fits(stored.dtype, place.value.dtype):
            description = (
                f"{place.name} {np.dtype(place.value.dtype).name} (file: {stored.dtype.name})"
            )
            mismatched.append((place.name, description))
        else:
            matches[place.kind, place.name] = place, stored
    unused_labels = {key: source.label(key) for key in source.arrays if key not in used}
    unexpected = [
        (label, f"{label} {source.arrays[key].shape}")
        for key, label in unused_labels.items()
        if not (skips(label) or skips(key))
    ]
    if missing or unexpected or mismatched:
        raise _difference(model, missing, unexpected, mismatched, source)
    return matches


def _difference(
    model: Layer, missing: list, unexpected: list, mismatched: list, source: Source
) -> FileError:
    def listing(rows: list, most: int = 12) -> str:
        remainder = f" and {len(rows) - most} more" if len(rows) > most else ""
        return ", ".join(text for _, text in rows[:most]) + remainder

    parts = [
        f"{heading}: {listing(rows)}"
        for heading, rows in (
            ("missing in the file", missing),
            ("not in the model", unexpected),
            ("of another shape or dtype", mismatched),
        )
        if rows
    ]
    names = [name for name, _ in (*missing, *unexpected, *mismatched)]
    skips = list(dict.fromkeys(n.rpartition("/")[0] or n for n in names))
    shown_names = ", ".join(repr(n) for n in skips[:6]) + (", ..." if len(skips) > 6 else "")
    return FileError(
        f"the weights of another model than {model._where}; nothing was loaded. "
        f"{'; '.join(parts)}. Build the model that was saved, or load the other weights with "
        f"skip=[{shown_names}].",
        file=source.file,
        member=source.member,
    )


def _read(matches: Mapping[Key, tuple[Place, Stored]], source: Source) -> dict[Key, jax.Array]:
    """Returns the arrays on the device, with the dtypes and shardings of the replaced arrays."""
    transfer = Transfer(source.file)
    for key, (place, stored) in matches.items():
        with reading(source.file, source.member, place.name.rpartition("/")[0] or None):
            array = npz.viewed(stored.read(), place.value.dtype)
        transfer.add(key, array, place.value)
    return transfer.arrays()


def save_weights(
    path: str | os.PathLike[str], model: Layer, state: Mapping[str, Any] | None = None
) -> None:
    """Writes a model's weights and state to a file, atomically.

    If the arrays are spread over several processes, every process makes the call: the first process
    writes the file, and all processes return when the file is complete.

    Args:
        path: path of the file; missing folders are created. `.weights.h5` (or `.h5`) is Keras 3's
            format, which `keras_model.load_weights` opens; `.safetensors` and `.npz` use the
            model's own paths and hold the whole state. All formats preserve bfloat16; `.npz` stores
            bfloat16 as marked integers, see `fkeras.atomic_files.npz`.
        model: a built model or layer.
        state: state of the model.

    Raises:
        ValueError: for another suffix, a model that is not built, and a missing state.
        OSError: if the file cannot be written; an existing file stays unchanged.
        ProcessError: if another process could not write the file, has ended, or makes another call.
        ImportError: if h5py is not installed, for `.h5`.

    Example:
        >>> import jax, pathlib, tempfile, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1, name="d")])
        >>> path = pathlib.Path(tempfile.mkdtemp(), "w.npz")
        >>> fk.save_weights(path, model.build(jax.random.key(0)))
        >>> with np.load(path) as file:
        ...     print(file.files)
        ['weights/d/bias', 'weights/d/kernel', 'about']
    """
    check_path_first(path, "save_weights", "fk.save_weights(path, model, state)")
    path = as_path(path)
    suffix = os.path.splitext(path)[1].lower()
    write = WRITERS.get(suffix)
    if write is None:
        raise ValueError(
            f"save_weights: expected a file .weights.h5, .safetensors or .npz, received {path!r}."
            f"{suggest(suffix, WRITERS)} A whole model is saved by fk.save_model."
        )
    _check(model, state)
    state = {} if state is None else state
    check_donated((model, state), "save_weights", SAVE_THE_NEW)
    if is_spread((model, state)):
        write_together(
            "save_weights", {"path": path}, (model, state), lambda whole: save_weights(path, *whole)
        )
        return
    write(path, model, state)


def _check(model: Layer, state: Mapping[str, Any] | None) -> None:
    if not isinstance(model, Layer):
        check_not_keras(model, "save_weights")
        raise TypeError(
            f"save_weights: expected a model, received {type(model).__name__}. Write "
            "fk.save_weights(path, run.model, run.state) for a run."
        )
    if not model.built or any(isinstance(w, jax.ShapeDtypeStruct) for w in leaves_of(model)):
        raise ValueError(
            f"save_weights, {model._where}: has no weights yet. Build it: "
            "model = model.build(jax.random.key(0))."
        )
    if not isinstance(model, Network) or not model.stateful:
        return
    # eval_shape: the names of the state are needed, not its arrays
    needed_names = {p.name for p in places(model, jax.eval_shape(model.init_state))}
    passed_names = {p.name for p in places(model, state or {})}
    missing_names = sorted(needed_names - passed_names - set(skeleton_of(model).names))
    if missing_names:
        raise ValueError(
            f"save_weights, {model._where}: expected the state with {missing_names[0]!r}, received "
            f"{'none' if state is None else 'a state without it'}. Pass the state: "
            "fk.save_weights(path, model, state)."
        )
