"""`save`: writes models as folders in Hugging Face's format."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.atomic_files.atomic import as_path, replacing
from fkeras.engine import FrozenDict, Layer, Model
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.tree.donated import SAVE_THE_NEW, check_donated
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.layers import Dropout
from fkeras.pretrained.families.table import family_of_config
from fkeras.pretrained.files.folder import CONFIG, INDEX, WEIGHTS
from fkeras.pretrained.tables.config import Config, thaw
from fkeras.pretrained.tables.layout import FileLayout, Layout
from fkeras.pretrained.tables.names import Match
from fkeras.pretrained.texts.tokenizer import Tokenizer
from fkeras.saving.weights.filling import abstract_build
from fkeras.saving.weights.safetensors import dtype_name, in_order, write_stream
from fkeras.training.processes.gathering import is_spread
from fkeras.training.processes.writing import write_together


@hides_internal_frames
def save(
    folder: str | os.PathLike[str],
    model: Model,
    state: Mapping[str, Any] | None,
    config: Config,
    *,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Writes a model as a folder in Hugging Face's format: `config.json` and safetensors files.

    If the configuration was read from a folder, the names, dtypes, metadata and shards are those of that
    folder, and unchanged weights give the same bytes.

    Args:
        folder: the folder; missing folders are created. Each file is replaced atomically.
        model: a model with the graph of the configuration. Merge adapters and dequantize weights first.
        state: the state, or None; the format cannot store a state.
        config: the configuration of the model, such as `loaded.config`.
        tokenizer: the tokenizer, such as `loaded.tokenizer`, whose files are also written.

    Raises:
        TypeError: if `config` is no configuration, or `model` no model.
        ValueError: if the weights or layers of the model differ from those of the configuration.
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
    folder = as_path(folder)
    family = family_of_config(config)
    if not isinstance(model, Layer):
        raise TypeError(
            f"pretrained.save: expected a model, received {type(model).__name__}. Write "
            "fk.pretrained.save(folder, loaded.model, loaded.state, loaded.config)."
        )
    weights = _leaves(model)
    described = abstract_build(family.build(config))[0]
    _check(weights, _leaves(described), type(config).__name__)
    _check_layers(model, described, type(config).__name__)
    check_donated(model, "pretrained.save", SAVE_THE_NEW)
    if is_spread(model):
        write_together(
            "pretrained.save",
            {"folder": folder},
            model,
            lambda whole: save(folder, whole, state, config, tokenizer=tokenizer),
        )
        return
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
    for file in _files(layout, sources, weights):
        written: dict[int, tuple[np.ndarray, ...]] = {}

        def tensor(name: str, written: dict = written) -> np.ndarray:
            match, n = sources[name]
            if id(match) not in written:
                # the host holds the tensors of one match: the tensors of its experts are adjacent
                written.clear()
                arrays = tuple(np.asarray(weights[path]) for path in match.weights)
                written[id(match)] = match.operation.write_all(arrays)
            return written[id(match)][n]

        with replacing(os.path.join(folder, file.name)) as out:
            write_stream(out, file.tensors, shapes, tensor, file.metadata)
    if layout.index is not None:
        weight_map = {name: file.name for file in layout.files for name in file.tensors}
        index = {**thaw(layout.index), "weight_map": dict(sorted(weight_map.items()))}
        _write_json(os.path.join(folder, INDEX), index)
    for name, content in config.beside.items():
        _write_json(os.path.join(folder, *name.split("/")), thaw(content))
    mapping = config.write()
    classes = family.classes.get(config.model_type)
    if classes and not config.source:
        mapping = {"architectures": [classes[0]], **mapping}
    _write_json(os.path.join(folder, CONFIG), mapping)
    if tokenizer is not None:
        tokenizer.write(folder)


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


def _files(
    layout: Layout, sources: Mapping[str, tuple[Match, int]], weights: Mapping[str, Any]
) -> tuple[FileLayout, ...]:
    """Returns the layouts of the files for the tensors of the model; new tensors go to the first file."""
    listed = {name: dtype for file in layout.files for name, dtype in file.tensors.items()}
    if listed.keys() == sources.keys():
        return layout.files
    new = {
        name: str(dtype_name(np.dtype(weights[match.weights[0]].dtype)))
        for name, (match, _) in sources.items()
        if name not in listed
    }
    files = []
    for file in layout.files:
        kept = {name: dtype for name, dtype in file.tensors.items() if name in sources}
        tensors = kept if files else in_order({**kept, **new})
        # transformers rejects files without this entry
        metadata = file.metadata or FrozenDict({"format": "pt"})
        files.append(FileLayout(file.name, FrozenDict(tensors), metadata))
    return tuple(files)


def _write_json(path: str, mapping: Any) -> None:
    # formatted like the files of transformers
    text = json.dumps(mapping, indent=2, ensure_ascii=False) + "\n"
    with replacing(path) as file:
        file.write(text.encode())
