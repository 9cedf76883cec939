"""`save`: writes models as folders in Hugging Face's format."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.authoring.engine import (
    SAVE_THE_NEW,
    check_donated,
    check_path_first,
    declared_dtype_weights,
    describe_value,
    explains_arguments,
    leaves_of,
    skeleton_of,
)
from fkeras.authoring.engine import dtype_name as numeric_name
from fkeras.authoring.saving import abstract_build
from fkeras.engine import FrozenDict, Layer, Model, sublayers
from fkeras.host.containers.safetensors import dtype_name, in_order, named_dtype, write_stream
from fkeras.host.processes.gathering import is_spread
from fkeras.host.processes.writing import write_together
from fkeras.layers import Dropout
from fkeras.pretrained.families.table import family_of_config
from fkeras.pretrained.files.folder import CONFIG, INDEX, WEIGHTS
from fkeras.pretrained.tables.config import Config, thaw
from fkeras.pretrained.tables.dtypes import COMPUTED, common_dtype, layer_policies
from fkeras.pretrained.tables.family import Family
from fkeras.pretrained.tables.heads import HeadsConfig, class_of, parts_of_class
from fkeras.pretrained.tables.layout import FileLayout, Layout
from fkeras.pretrained.tables.names import Match
from fkeras.pretrained.tables.state import state_entries
from fkeras.pretrained.texts.tokenizer import Tokenizer

_SINGLE = np.dtype("float32")


_CALL = "fk.pretrained.save(folder, loaded.model, loaded.state, loaded.config)"


@explains_arguments
def save(
    folder: str | os.PathLike[str],
    model: Model,
    state: Mapping[str, Any] | None,
    config: Config,
    *,
    tokenizer: Tokenizer | None = None,
    dtype: Any = None,
) -> None:
    """Writes a model as a folder in Hugging Face's format: `config.json` and safetensors files.

    If the configuration was read from a folder, the names, metadata and shards are those of that folder.
    The tensors have the dtype of the weights: a model that was loaded in its own dtype and did not change
    gives the same bytes, and a model that was loaded with `dtype="float32"` is written in float32. The key
    `dtype` or `torch_dtype` in `config.json`, if present, is then the new dtype.

    Args:
        folder: the folder; missing folders are created. Each file is replaced atomically.
        model: a model with the graph of the configuration. Merge adapters and dequantize weights first.
        state: the state, such as `loaded.state`; None for a model without state.
        config: the configuration of the model, such as `loaded.config`.
        tokenizer: the tokenizer, such as `loaded.tokenizer`, whose files are also written.
        dtype: "float32", "bfloat16" or "float16", to which the weights are rounded, apart from routers of
            experts with other numbers; by default the weights keep their own dtypes.

    Raises:
        TypeError: for arguments of other types or in another order.
        ValueError: if the weights or layers of the model differ from those of the configuration, and for
            numbers that are too large for `dtype`.
        OSError: if a file cannot be written.
        ProcessError: if another process cannot write, has ended, or makes another call. The first process
            writes arrays that span several processes.

    Example:
        >>> import jax, pathlib, tempfile, fkeras as fk
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4)
        >>> model = fk.pretrained.build(config).build(jax.random.key(0))
        >>> folder = tempfile.mkdtemp()
        >>> fk.pretrained.save(folder, model, {}, config)
        >>> sorted(path.name for path in pathlib.Path(folder).iterdir())
        ['config.json', 'model.safetensors']
    """
    check_path_first(folder, "pretrained.save", _CALL)
    folder = as_path(folder)
    typed = isinstance(model, Layer) and isinstance(state, Mapping | None)
    if not (typed and isinstance(config, Config)):
        received = ", ".join(type(value).__name__ for value in (model, state, config))
        raise TypeError(
            "pretrained.save: expected a folder, a model, its state and a configuration, received "
            f"{received} after the folder. Write {_CALL}."
        )
    family = family_of_config(config)
    config = _named(config, family)
    target = None if dtype is None else str(numeric_name(dtype))
    if target not in (None, *COMPUTED):
        raise ValueError(
            f"pretrained.save: expected one of {', '.join(COMPUTED)} as dtype, received "
            f"{describe_value(dtype)}. Leave dtype out to write the weights in their own dtypes."
        )
    described, described_state = abstract_build(family.build(config))
    entries = state_entries(state)
    # caches are no part of a checkpoint
    weights = _leaves(model) | {
        k: entries[k] for k in state_entries(described_state) if k in entries
    }
    _check(weights, _leaves(described) | state_entries(described_state), type(config).__name__)
    _check_layers(model, described, type(config).__name__)
    check_donated(model, "pretrained.save", SAVE_THE_NEW)
    if is_spread(model):
        write_together(
            "pretrained.save",
            {"folder": folder},
            model,
            lambda whole: save(folder, whole, state, config, tokenizer=tokenizer, dtype=dtype),
        )
        return
    is_other = _has_other_head(family, config)
    if is_other and config.layout is not None and config.layout.renames:
        # the names of a file without heads lack the prefix that tells the heads from the rest
        config = dataclasses.replace(config, layout=None)
    matches = [match for row in family.names(config) for match in row.matches()]
    layout = config.layout or Layout((FileLayout(WEIGHTS, FrozenDict({})),))
    sources = {
        layout.in_file(name): (match, n)
        for match in matches
        for n, name in enumerate(match.tensors)
        if not match.copy or any(layout.in_file(name) in file.tensors for file in layout.files)
    }
    shapes = {
        layout.in_file(name): shape
        for match in matches
        for name, shape in zip(
            match.tensors,
            match.tensor_shapes({k: v.shape for k, v in weights.items()}),
            strict=True,
        )
    }
    written: dict[int, tuple[np.ndarray, ...]] = {}

    def tensor(name: str) -> np.ndarray:
        match, n = sources[name]
        if id(match) not in written:
            # the host holds the tensors of one match: the tensors of its experts are adjacent
            written.clear()
            arrays = [np.asarray(weights[path]) for path in match.weights]
            kind = _promoted(arrays)
            written[id(match)] = match.operation.write_all(
                tuple(array.astype(kind, copy=False) for array in arrays)
            )
        return written[id(match)][n]

    kinds = _dtypes(layout, sources, model, weights, entries, tensor, target)
    files = _files(layout, {name: str(dtype_name(kind)) for name, kind in kinds.items()})
    is_changed = files != layout.files
    for file in files:
        with replacing(os.path.join(folder, file.name)) as out:
            names = {name.removeprefix(file.prefix): name for name in file.tensors}
            write_stream(
                out,
                {short: file.tensors[name] for short, name in names.items()},
                {short: shapes[name] for short, name in names.items()},
                lambda short, names=names: tensor(names[short]),
                file.metadata,
            )
    if layout.index is not None:
        weight_map = {name: f.name for f in files if not f.prefix for name in f.tensors}
        index = {**thaw(layout.index), "weight_map": dict(sorted(weight_map.items()))}
        if is_changed and "total_size" in index.get("metadata", {}):
            index["metadata"]["total_size"] = sum(
                math.prod(shapes[name]) * kinds[name].itemsize for name in weight_map
            )
        _write_json(os.path.join(folder, INDEX), index)
    for name, content in config.beside.items():
        _write_json(os.path.join(folder, *name.split("/")), thaw(content))
    mapping = config.write()
    classes = family.classes.get(config.model_type)
    if classes and is_other:
        mapping = {"architectures": None, **mapping}  # the first key of a new file
        mapping["architectures"] = [class_of(config, classes)]
    if is_changed:
        mapping = _with_dtype(mapping, common_dtype(kinds))
    _write_json(os.path.join(folder, CONFIG), mapping)
    if tokenizer is not None:
        tokenizer.write(folder)


def _named(config: Config, family: Family) -> Config:
    """Returns the configuration with a `model_type`, which `load` needs."""
    # timm's configurations name the architecture in another field
    if config.model_type or not family.tiny.model_type:
        return config
    # without a `model_type`, `build` makes the first architecture of the family
    return dataclasses.replace(config, model_type=next(iter(family.classes)))


def _has_other_head(family: Family, config: Config) -> bool:
    """Returns whether the class in `config.json` is that of another model; True without the file."""
    if not config.source or not isinstance(config, HeadsConfig):
        return not config.source
    if config.layout is None:
        classes = family.classes.get(config.model_type, ())
        return bool(classes) and config.named_parts != parts_of_class(class_of(config, classes))
    names = [name for file in config.layout.files for name in file.tensors]
    try:
        before = family.adapted(config, {*names, *map(config.layout.in_table, names)})
    except ValueError:  # the file has no head of this class
        return True
    return {*before.parts} != {*config.parts}


def _leaves(model: Layer) -> dict[str, Any]:
    """Returns the weights by path, or their specs for an unbuilt model."""
    named = zip(skeleton_of(model).names, leaves_of(model), strict=True)
    return {name: leaf for name, leaf in named if leaf is not None}


def _check(weights: Mapping[str, Any], expected: Mapping[str, Any], config: str) -> None:
    if not weights or any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in weights.values()):
        raise ValueError(
            "pretrained.save: the model has no weights yet. Build it: model.build(jax.random.key(0))."
        )
    differing = sorted(weights.keys() ^ expected.keys())
    differing += [
        f"{name} {expected[name].shape} (model: {weights[name].shape})"
        for name in sorted(expected.keys() & weights.keys())
        if expected[name].shape != weights[name].shape
    ]
    if differing:
        # an adapter of PEFT of tied weights unties them
        is_untied = any(name.endswith("reverse_embeddings") for name in differing)
        remedy = (
            "dataclasses.replace(config, tie_word_embeddings=...) if the ties of the logits changed"
        )
        raise ValueError(
            f"pretrained.save: expected the weights of {config}, received a model that differs in "
            f"{', '.join(differing[:6])}. Pass the configuration of this model"
            f"{f', such as {remedy}' if is_untied else ''}; merge adapters with "
            "transforms.merge_adapters, and dequantize weights with fk.dequantize."
        )


def _check_layers(model: Layer, described: Layer, config: str) -> None:
    """Raises an error for layers without weights that the configuration lacks: readers would omit them."""
    # dropout is the identity in inference
    computing = [
        {path for path, layer in sublayers(one) if not isinstance(layer, Dropout)}
        for one in (model, described)
    ]
    differing = sorted(computing[0] ^ computing[1])
    if differing:
        raise ValueError(
            f"pretrained.save: expected the layers of {config}, received a model that differs in "
            f"{', '.join(differing[:6])}. A folder holds weights and the configuration, and no edits of "
            "the graph: write the model with fk.save_model, or remove the layer with transforms.remove."
        )


def _promoted(arrays: Sequence[Any]) -> np.dtype:
    """Returns the dtype that holds the numbers of all arrays."""
    dtypes = {np.dtype(array.dtype) for array in arrays}
    # NumPy has no common dtype of bfloat16 and float16
    return dtypes.pop() if len(dtypes) == 1 else functools.reduce(np.promote_types, dtypes, _SINGLE)


def _dtypes(
    layout: Layout,
    sources: Mapping[str, tuple[Match, int]],
    model: Layer,
    weights: Mapping[str, Any],
    entries: Collection[str],
    tensor: Callable[[str], np.ndarray],
    dtype: str | None,
) -> dict[str, np.dtype]:
    """Returns the dtype of each tensor in the files; `entries` are the paths of the state.

    Raises:
        ValueError: for a dtype that the format lacks, and numbers that are too large for `dtype`.
    """
    declared, inside = declared_dtype_weights(model), dict(sublayers(model))
    listed = {name: named_dtype(d) for file in layout.files for name, d in file.tensors.items()}
    read = {
        path: kind
        for name, (match, _) in sources.items()
        if (kind := listed.get(name)) is not None
        for path in match.weights
        if path not in declared
    }
    loaded = layer_policies(read)
    dtypes = {}
    for name, (match, _) in sources.items():
        own, before = _promoted([weights[path] for path in match.weights]), listed.get(name)
        kind, path = own if dtype is None else np.dtype(dtype), match.weights[0]
        layer = path.rpartition("/")[0]
        if kind != own and path in declared:
            kind = kind if _is_exact(tensor(name), kind) else own
        elif kind != own:
            array = tensor(name)
            with np.errstate(over="ignore"):
                is_lost = np.isfinite(array) & ~np.isfinite(array.astype(kind))
            if is_lost.any():
                raise ValueError(
                    f"pretrained.save: {name!r} has the number {array[is_lost][0]}, which is too large for "
                    f"{dtype}. Nothing was written; give dtype='bfloat16', or leave dtype out."
                )
        # NumPy's float64 equals None
        elif (
            dtype is None
            and before is not None
            and before != own
            and inside[layer].policy == loaded(layer)
            and (path in entries or path in declared or own == loaded(layer).variable_dtype)
        ):
            # loading converted the file's dtype, such as float64, which may hold the numbers exactly;
            # averages and routers are float32 with all policies
            kind = before if _is_exact(tensor(name), before) else own
        if dtype_name(kind) is None:
            raise ValueError(
                f"pretrained.save: safetensors has no dtype {kind}, which {name!r} has. Give "
                "dtype='float32'."
            )
        dtypes[name] = kind
    return dtypes


def _is_exact(array: np.ndarray, kind: np.dtype) -> bool:
    """Returns whether a dtype holds the numbers of an array."""
    with np.errstate(over="ignore"):
        return np.array_equal(array.astype(kind).astype(array.dtype), array, equal_nan=True)


def _files(layout: Layout, dtypes: Mapping[str, str]) -> tuple[FileLayout, ...]:
    """Returns the layouts of the files for the tensors of the model.

    New tensors go to the first file, or to the file of their module.
    """
    listed = {name: dtype for file in layout.files for name, dtype in file.tensors.items()}
    if listed == dtypes:
        return layout.files
    new = {name: dtype for name, dtype in dtypes.items() if name not in listed}
    places = {name: f"{name.rpartition('/')[0]}/{WEIGHTS}" for name in new if "/" in name}
    known = {file.name for file in layout.files}
    added = dict.fromkeys(place for place in places.values() if place not in known)
    files = []
    for file in (*layout.files, *(FileLayout(place, FrozenDict({})) for place in added)):
        tensors = {name: dtypes[name] for name in file.tensors if name in dtypes}
        # transformers rejects files without this entry
        metadata = file.metadata or FrozenDict({"format": "pt"})
        own = None if not files else file.name
        tensors |= {name: dtype for name, dtype in new.items() if places.get(name) == own}
        tensors = tensors if tensors == file.tensors else in_order(tensors)
        files.append(FileLayout(file.name, FrozenDict(tensors), metadata))
    return tuple(files)


def _with_dtype(mapping: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Returns the mapping of `config.json` with this dtype, also in the configurations of towers."""
    return {
        key: dtype
        if key in ("dtype", "torch_dtype") and value is not None
        else _with_dtype(value, dtype)
        if key.endswith("_config") and isinstance(value, dict)
        else value
        for key, value in mapping.items()
    }


def _write_json(path: str, mapping: Any) -> None:
    # formatted like the files of transformers
    text = json.dumps(mapping, indent=2, ensure_ascii=False) + "\n"
    with replacing(path) as file:
        file.write(text.encode())
