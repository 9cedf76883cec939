"""Files of patches: `save_patch` and `load_patch`.

A file is a zip archive: `patch.json` has the fingerprints, the paths of the weights and, where the
structure changes, the configurations of both models; each array is a `.npy` entry. Loading executes
nothing from the file, and checks that the models have the fingerprints that the file states.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.atomic_files import npz
from fkeras.atomic_files.atomic import as_path
from fkeras.engine import FKerasError, Layer, Network
from fkeras.engine.config.custom_objects import CustomObjects
from fkeras.engine.config.serialization import deserialize, serialize
from fkeras.engine.migration_hints.arguments import check_path_first
from fkeras.engine.tree.skeleton import Skeleton, skeleton_of
from fkeras.engine.tree.sublayers import replace_children, sublayers
from fkeras.engine.values.argument_types import FilePath
from fkeras.engine.values.frozen import FrozenDict
from fkeras.host.containers.archive import Archive, open_archive, write_archive
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.strict_json import check, field, parse
from fkeras.saving.weights.filling import abstract_build
from fkeras.transforms.comparison.differences import Difference, listed
from fkeras.transforms.comparison.fingerprinting import fingerprint_of

_ABOUT = "patch.json"
_FORMAT, _VERSION = "fkeras patch", 1
_SIDES = ("before", "after")


def save_patch(path: FilePath, patch: Difference) -> None:
    """Writes a difference of two models to a file, which `fk.load_patch` reads.

    A patch that changes weights only holds the old and new values of these weights. A patch that
    changes the structure also holds the configurations of both models. The writer writes to a
    temporary name and then renames the file.

    Args:
        path: path of the file; the suffix is free, such as ".patch".
        patch: the result of `transforms.diff`.

    Raises:
        TypeError: for a value that is no difference, and for a configuration without JSON form, such
            as a lambda.
        FKerasError: for a structure that its configuration does not describe completely, such as a
            built layer outside of a model.
        OSError: if the file cannot be written; an existing file stays unchanged.

    Example:
        >>> import jax, pathlib, tempfile, fkeras as fk
        >>> from fkeras import transforms
        >>> a, b = (fk.layers.Dense(2).build(jax.random.key(seed), (None, 3)) for seed in (0, 1))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a_to_b.patch")
        >>> fk.save_patch(path, transforms.diff(a, b))
        >>> transforms.apply(a, fk.load_patch(path)) == b
        True
    """
    check_path_first(path, "save_patch", "fk.save_patch(path, patch)")
    if not isinstance(patch, Difference):
        raise TypeError(
            f"save_patch: expected a difference, received {type(patch).__name__}. Pass the result of "
            "transforms.diff(a, b)."
        )
    arrays = {side: getattr(patch, side) for side in _SIDES}
    about: dict[str, Any] = {
        "format": _FORMAT,
        "version": _VERSION,
        "base": patch.base,
        "target": patch.target,
        "outlines": list(patch.outlines),
        "carried": dict(patch.carried),
        **{side: {n: array.dtype.name for n, array in arrays[side].items()} for side in _SIDES},
        "structure": None,
    }
    if patch.structure is not None:
        about["structure"] = [_form(skeleton) for skeleton in patch.structure]
    members: dict[str, Any] = {_ABOUT: json.dumps(about).encode()}
    for side in _SIDES:
        # numbers, since paths of weights may be no names of files
        for number, array in enumerate(arrays[side].values()):
            members[f"{side}/{number}.npy"] = _npy(array)
    write_archive(as_path(path), members)


def load_patch(
    path: FilePath,
    *,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> Difference:
    """Reads a patch from a file of `fk.save_patch`.

    Args:
        path: path of the file.
        custom_objects: your classes and functions by name, as for `fk.load_model`.
        limits: limits on sizes.

    Returns:
        The difference, for `transforms.apply` and `transforms.revert`; its changes are listed anew.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: for a file that holds no patch, is damaged or exceeds a limit, and for an unknown
            class or function.

    Example:
        >>> import pathlib, tempfile, fkeras as fk
        >>> from fkeras import layers, transforms
        >>> path = pathlib.Path(tempfile.mkdtemp(), "rate.patch")
        >>> fk.save_patch(path, transforms.diff(layers.Dropout(0.1), layers.Dropout(0.2)))
        >>> print(fk.load_patch(path))
        1 difference: 1 setting
        Configuration
          ~ the model  rate  0.1 -> 0.2
    """
    limits, path = limits or Limits(), as_path(path)
    with open_archive(path, limits) as archive, reading(archive.file, _ABOUT):
        about = parse(archive.read(_ABOUT), archive.file, _ABOUT, limits)
        place = {"file": archive.file, "member": _ABOUT}
        stated = field(about, "format", str, **place), field(about, "version", int, **place)
        if stated[0] != _FORMAT or stated[1] > _VERSION:
            raise FileError(
                f"expected the format {_FORMAT!r}, version {_VERSION}, received {stated[0][:40]!r}, version "
                f"{stated[1]}. Read the file with the program that wrote it.",
                **place,
            )
        outlines = _texts(field(about, "outlines", list, **place), "outlines", place)
        forms = field(about, "structure", (list, type(None)), **place)
        if len(outlines) != 2 or (forms is not None and len(forms) != 2):
            raise FileError("expected two models. The file is damaged.", **place)
        structure = None
        if forms is not None:
            objects = CustomObjects(custom_objects or {})
            pairs = zip(forms, outlines, strict=True)
            first, second = (_structure(form, outline, objects, place) for form, outline in pairs)
            structure = (first, second)
        carried = field(about, "carried", dict, **place)
        _texts(list(carried.values()), "carried", place)
        before, after = (
            _arrays(archive, side, field(about, side, dict, **place), place) for side in _SIDES
        )
        patch = Difference(
            base=field(about, "base", str, **place),
            target=field(about, "target", str, **place),
            outlines=(outlines[0], outlines[1]),
            structure=structure,
            before=before,
            after=after,
            carried=FrozenDict(carried),
            changes=(),
        )
        return listed(patch)


def _form(skeleton: Skeleton) -> dict[str, Any]:
    """Returns the JSON form of a structure, and checks that the form describes the structure."""
    model = skeleton.join((None,) * len(skeleton.names))
    # configurations, which are Keras's, do not say which networks are rolled
    graphs = {path: getattr(layer, "graph", None) for path, layer in sublayers(model)}
    depths = {path: g.depth for path, g in graphs.items() if g is not None and g.depth != "unroll"}
    form = {"config": serialize(model), "built": bool(model.built), "depths": depths}
    classes = {type(layer).__name__: type(layer) for _, layer in sublayers(model)}
    own = {name: cls for name, cls in classes.items() if cls.__module__.split(".")[0] != "fkeras"}
    try:
        copy = _rebuilt(json.loads(json.dumps(form)), CustomObjects(own))
    except ValueError:  # functions of the user, which are known when the file is loaded
        return form
    if skeleton_of(copy) != skeleton:
        raise FKerasError(
            f"save_patch, {model._where}: expected a structure that its configuration describes, received "
            f"one that becomes {skeleton_of(copy)!r}. Save both models with fk.save_model instead.",
            layer=model._where,
        )
    return form


def _rebuilt(form: Mapping[str, Any], objects: Mapping[str, Any]) -> Layer:
    """Returns the model of a JSON form, with shapes in the place of arrays."""
    model = deserialize(form["config"], objects)
    if not isinstance(model, Layer):
        raise ValueError(f"expected a layer, received {type(model).__name__}. The file is damaged.")
    model = _with_depths(model, form["depths"], "")
    if form["built"] and isinstance(model, Network) and model.graph is not None:
        model = abstract_build(model)[0]
    return model


def _with_depths(layer: Layer, depths: Mapping[str, Any], path: str) -> Any:
    layer = replace_children(layer, lambda at, child: _with_depths(child, depths, at), path)
    if depths.get(path) == "scan" and isinstance(layer, Network) and layer.graph is not None:
        return layer.replace(graph=dataclasses.replace(layer.graph, depth="scan"))
    return layer


def _structure(
    form: Any, outline: str, objects: Mapping[str, Any], place: Mapping[str, str]
) -> Skeleton:
    check(form, dict, "a structure", **place)
    field(form, "config", dict, **place)
    field(form, "built", bool, **place)
    field(form, "depths", dict, **place)
    model = _rebuilt(form, objects)
    # weights that are no arrays of the model's own shapes, such as other dtypes, are in the patch
    skeleton = skeleton_of(model)
    if not jax.tree.leaves(model) and fingerprint_of(model) != outline:
        raise FileError(
            f"expected a model with the fingerprint {outline[:8]}, received "
            f"{fingerprint_of(model)[:8]}. The file is damaged, or your classes have other fields than "
            "when it was written.",
            **place,
        )
    return skeleton


def _texts(values: list[Any], what: str, place: Mapping[str, str]) -> list[str]:
    return [check(value, str, f"an entry of {what}", **place) for value in values]


def _npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    # NumPy writes bfloat16 and other small types as raw bytes without the name
    plain = array if array.dtype.kind in "biufc" else array.view(f"uint{8 * array.dtype.itemsize}")
    np.lib.format.write_array(file, plain, allow_pickle=False)
    return file.getvalue()


def _arrays(
    archive: Archive, side: str, dtypes: Mapping[str, Any], place: Mapping[str, str]
) -> FrozenDict[np.ndarray]:
    arrays = {}
    for number, (path, dtype) in enumerate(dtypes.items()):
        check(dtype, str, f"the dtype of {path[:80]!r}", **place)
        name = f"{side}/{number}.npy"
        with reading(archive.file, name):
            array = npz.read_array(archive.open(name), archive.size(name))
            if array.dtype.name != dtype:
                about = {"format": npz.FORMAT, "version": npz.VERSION, "dtypes": {path: dtype}}
                array = npz.viewed(array, npz.check_about(about)[path])
            array.setflags(write=False)
            arrays[path] = array
    return FrozenDict(arrays)
