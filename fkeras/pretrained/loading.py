"""`load`: reads pretrained models from folders and files."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from fkeras.atomic_files.atomic import as_path
from fkeras.authoring.engine import (
    NAMES,
    MissingAttributeError,
    declared_dtype_weights,
    describe_value,
    explains_arguments,
    get_policy,
)
from fkeras.authoring.saving import (
    abstract_build,
    as_layout,
    is_finite,
    warn_not_finite,
    with_arrays,
)
from fkeras.authoring.transforms import with_policies
from fkeras.engine import (
    DTypePolicy,
    FKerasError,
    Model,
    replace_weights,
)
from fkeras.host.containers.errors import FileError, reading
from fkeras.host.containers.limits import Limits
from fkeras.host.containers.stored import Stored
from fkeras.host.processes.arrays import put
from fkeras.pretrained.files.generation import Generation
from fkeras.pretrained.opening import Source, open_source
from fkeras.pretrained.quantizing import Coding, specs_of
from fkeras.pretrained.rooms import Rooms
from fkeras.pretrained.tables.config import Config
from fkeras.pretrained.tables.dtypes import layer_policies
from fkeras.pretrained.tables.layout import Layout
from fkeras.pretrained.tables.names import Match
from fkeras.pretrained.tables.state import state_entries
from fkeras.pretrained.texts.tokenizer import Tokenizer


class Loaded(NamedTuple):
    """A pretrained model.

    Attributes:
        model: the model with its weights.
        state: the state of the model, such as the averages of batch normalizations; `{}` if no layer has
            state.
        tokenizer: the tokenizer of the folder; None if the folder has no tokenizer.
        config: the configuration, such as a `LlamaConfig`.
        processor: preprocesses images or audio; None for text models.
        generation: the end tokens of the model, and its sampling settings; see `Generation`.

    Example:
        >>> import jax, tempfile, fkeras as fk
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4)
        >>> model = fk.pretrained.build(config).build(jax.random.key(0))
        >>> folder = tempfile.mkdtemp()
        >>> fk.pretrained.save(folder, model, {}, config)
        >>> loaded = fk.pretrained.load(folder)
        >>> loaded.config.num_hidden_layers, loaded.tokenizer is None
        (2, True)
    """

    model: Model
    state: dict[str, Any]
    tokenizer: Tokenizer | None
    config: Config
    processor: Any = None
    generation: Generation = Generation()

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)


@explains_arguments
def load(
    path: str | os.PathLike[str],
    *,
    dtype: str | DTypePolicy | None = None,
    mesh: jax.sharding.Mesh | None = None,
    sharding: str | Mapping[str, Any] | None = None,
    quantize: Any = None,
    ignore: Sequence[str] | str = (),
    ignore_keys: Sequence[str] | str = (),
    part: str | None = None,
    limits: Limits | None = None,
) -> Loaded:
    """Loads a pretrained model from a folder in Hugging Face's format or from a GGUF file.

    The folder has `config.json`, and `model.safetensors` or shards with an index. The tensors must have
    the names and shapes of the architecture; otherwise nothing is loaded, and one error lists all
    differences. Tensors are read one by one, each directly to its devices. Files are untrusted, as in
    `fk.load_model`.

    Args:
        path: the folder, the safetensors file in the folder, or a GGUF file.
        dtype: dtype or dtype policy of all layers, such as "float32" or "mixed_bfloat16". By default
            the model has the dtype of the checkpoint. Weights that are 8-bit floats with scales become
            floats of the dtype of the other weights, and MXFP4 becomes bfloat16. Routers of experts
            are always float32.
        mesh: mesh of the devices, as in `fk.Trainer`.
        sharding: sharding of the weights on the mesh, as in `fk.Trainer`.
        quantize: "int8", "int4" or another quantization without samples, as for `fk.quantize`, whose result
            the model is. Each layer is quantized once its weights are read, so that the memory never
            holds the whole model as floats. None for floats.
        ignore: patterns of the names of tensors to skip, such as "score.*".
        ignore_keys: keys of `config.json` or of the GGUF file to skip, such as "logit_multiplier" or
            "text_config.dropout".
        part: "text" for the language model alone of a folder whose model also reads images, such as one of
            Gemma 3 or Qwen2-VL; None for a folder that is one model. `ignore` and `ignore_keys` then have
            the names in the language model.
        limits: resource limits.

    Returns:
        Model, state, tokenizer, configuration, processor and settings of generation; see `Loaded`.

    Raises:
        FileNotFoundError: for a missing folder or file.
        FileError: for a damaged file, an unknown architecture, an unknown key of the configuration, and
            tensors that are missing, unexpected or of another shape.
        ValueError: for a dtype that is no floating-point dtype, a sharding that does not fit the
            weights, and a quantization that needs samples or fits no layer.

    Example:
        >>> import jax, tempfile, fkeras as fk
        >>> config = fk.pretrained.LlamaConfig(100, 32, 48, 2, 4)
        >>> model = fk.pretrained.build(config).build(jax.random.key(0))
        >>> folder = tempfile.mkdtemp()
        >>> fk.pretrained.save(folder, model, {}, config)
        >>> fk.pretrained.load(folder).model == model
        True
    """
    path, limits = as_path(path), limits or Limits()
    policy = None if dtype is None else _policy(dtype)
    placing = as_layout("pretrained.load", mesh, sharding)
    float8_as = None if policy is None else policy.variable_dtype
    source = open_source(path, limits, ignore_keys, part, float8_as)
    patterns = (*source.ignored, *((ignore,) if isinstance(ignore, str) else ignore))
    tensors = {
        name: stored
        for name, stored in source.tensors.items()
        if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
    }
    with reading(source.file, source.member):
        config, matches = _matched(source, tensors)
        processor = source.family.processor_of(config)
        model = source.family.build(config)
        # no policy decides their dtypes
        declared = declared_dtype_weights(model)
        weight_sources = {
            w: tensors[m.tensors[0]].dtype for m in matches for w in m.weights if w not in declared
        }
        policies = layer_policies(weight_sources, policy)
        model = with_policies(model, lambda path, layer: policies(path))
        model, state_shapes = abstract_build(model)
    # after `reading`, whose errors name the file
    coding, names = None if quantize is None else Coding(model, quantize), specs_of(model).keys()
    model = model if coding is None else coding.model
    if placing is not None:
        model, state_shapes = placing.apply(model, state_shapes)
    entries = state_entries(state_shapes)
    places = {**specs_of(model), **entries}
    # the floats of a quantized layer stay on the default device until the layer is complete
    floats = places if coding is None else places | coding.floats
    shapes = {name: floats[name] for name in [*names, *entries]}
    _check_shapes(matches, shapes, tensors, source.file)
    weights = _read(matches, shapes, tensors, source.file, coding, places)
    state = with_arrays(state_shapes, {("state", name): weights.pop(name) for name in entries})
    model = replace_weights(model, weights)
    if placing is not None:
        model, state = placing.apply(model, state)
    return Loaded(model, state, source.tokenizer, config, processor, source.generation)


def _policy(dtype: Any) -> DTypePolicy:
    try:
        policy = get_policy(dtype)
    except ValueError:
        policy = None
    if policy is None or policy.name not in NAMES:
        raise ValueError(
            f"pretrained.load: expected one of {', '.join(NAMES)} as dtype, received "
            f"{describe_value(dtype)}. Leave dtype out to load the dtype of the checkpoint; to "
            'quantize write quantize="int8", "int4" or "float8".'
        )
    return policy


def _matched(source: Source, tensors: Mapping[str, Stored]) -> tuple[Config, list[Match]]:
    """Returns the configuration adapted to the tensors, and the matches with the names in the file."""
    layout = source.layout or Layout(())
    candidates = [layout, dataclasses.replace(layout, removed=source.family.prefix)]
    segments = {name.partition(".")[0] for name in tensors if "/" not in name}
    if len(segments) == 1:
        candidates.append(dataclasses.replace(layout, added=f"{segments.pop()}."))
    # bounds the work for a configuration with many more tensors than the file
    most = 2 * len(tensors) + 1000

    def expand(config: Config) -> list[Match]:
        rows = itertools.chain.from_iterable(row.matches() for row in source.names(config))
        return list(itertools.islice(rows, most))

    expected = [name for match in expand(source.config) for name in match.tensors]
    layout = max(candidates, key=lambda c: sum(c.in_file(n) in tensors for n in expected))
    config = source.adapted(source.config, {*tensors, *map(layout.in_table, tensors)})
    matches = [
        dataclasses.replace(match, tensors=tuple(layout.in_file(n) for n in match.tensors))
        for match in expand(config)
    ]
    matches = [m for m in matches if not m.copy or m.tensors[0] in tensors]
    expected = [name for match in matches for name in match.tensors]
    missing = [name for name in expected if name not in tensors]
    unexpected = [f"{n} {tensors[n].shape}" for n in tensors.keys() - set(expected)]
    if missing or unexpected:
        raise _difference(source.file, missing, sorted(unexpected), [])
    return dataclasses.replace(config, layout=layout if source.layout else None), matches


def _difference(
    file: str, missing: Sequence[str], unexpected: Sequence[str], misshapen: Sequence[str]
) -> FileError:
    def listing(names: Sequence[str], most: int = 12) -> str:
        remainder = f" and {len(names) - most} more" if len(names) > most else ""
        return ", ".join(name[:200] for name in names[:most]) + remainder

    kinds = (
        ("missing in the file", missing),
        ("not in the model", unexpected),
        ("of another shape or dtype", misshapen),
    )
    parts = "; ".join(f"{heading}: {listing(names)}" for heading, names in kinds if names)
    return FileError(
        f"the tensors are those of another model than the configuration describes; nothing was loaded. {parts}. "
        "Download the folder again, or leave tensors of the file out with ignore=[...].",
        file=file,
    )


def _check_shapes(
    matches: Sequence[Match],
    shapes: Mapping[str, Any],
    tensors: Mapping[str, Stored],
    file: str,
) -> None:
    named = {weight for match in matches for weight in match.weights}
    if named != shapes.keys():
        differing = ", ".join(sorted(named ^ shapes.keys())[:6])
        raise FKerasError(
            f"pretrained.load: the table of names and the graph differ in {differing}. "
            "Please report this as a bug, with config.json."
        )
    misshapen = []
    for match in matches:
        expected = match.tensor_shapes({name: tuple(shapes[name].shape) for name in match.weights})
        for name, shape in zip(match.tensors, expected, strict=True):
            stored = tensors[name]
            if stored.shape != shape:
                misshapen.append(f"{name} {shape} (file: {stored.shape})")
            elif stored.dtype.kind not in "fV":  # NumPy gives small floats the kind "V"
                misshapen.append(f"{name} float (file: {stored.dtype.name})")
    if misshapen:
        raise _difference(file, [], [], misshapen)


def _read(
    matches: Sequence[Match],
    shapes: Mapping[str, Any],
    tensors: Mapping[str, Stored],
    file: str,
    coding: Coding | None,
    places: Mapping[str, Any],
) -> dict[str, jax.Array]:
    """Reads the tensors one by one to their devices, and compares copies with their originals.

    Args:
        shapes: the weights as they are read.
        places: the weights of the model: codes of quantized layers.
    """
    weights: dict[str, jax.Array] = {}
    not_finite = []
    originals = {path: match for match in matches if not match.copy for path in match.weights}
    rooms = Rooms(shapes if coding is None else {})
    for match in matches if coding is None else coding.ordered(matches):
        with reading(file, match.tensors[0]):
            arrays = _arrays_of(match, tensors)
            for path, array in arrays.items():
                if match.copy:
                    original = _arrays_of(originals[path], tensors)[path]
                    _check_copy(match.tensors[0], array, original, shapes[path].dtype, path)
                    continue
                if not is_finite(array):
                    not_finite.append(match.tensors[0])
                release = tensors[match.tensors[0]].release
                weights[path] = _placed(path, array, shapes[path], rooms, release)
            for name in match.tensors:
                tensors[name].release()
        if coding is not None and not match.copy:
            for path, codes in coding.code(weights, match.weights).items():
                like = places[path]
                is_split = getattr(like, "sharding", None) is not None
                weights[path] = put(np.asarray(codes), like.sharding) if is_split else codes
    warn_not_finite(not_finite, file)
    return weights


def _arrays_of(match: Match, tensors: Mapping[str, Stored]) -> dict[str, np.ndarray]:
    """Returns the weights of a match by path, as views of the mapped file if possible."""
    arrays = match.operation.read_all(tuple(tensors[name].read() for name in match.tensors))
    return dict(zip(match.weights, arrays, strict=True))


def _placed(
    path: str, array: np.ndarray, like: Any, rooms: Rooms, release: Callable[[], None]
) -> jax.Array:
    """Returns an array on its devices, in the dtype and layout of `like`.

    Args:
        rooms: the places of weights of equal blocks.
        release: releases the memory map of the file after the copy.
    """
    if array.dtype != like.dtype:
        array = array.astype(like.dtype)
    if (placed := rooms.placed(path, array)) is not None:
        return placed
    if array.flags.c_contiguous and not array.flags.writeable:
        # JAX may alias a contiguous array; an array of the mapped file is read-only, and may change
        array = array.copy()
    if array.flags.writeable:
        release()
    # JAX copies a transposed view much faster than NumPy
    layout = getattr(like, "sharding", None)
    placed = jax.device_put(array) if layout is None else put(array, layout)
    # blocks: the host holds one tensor at a time
    return placed.block_until_ready()


def _check_copy(name: str, array: np.ndarray, original: np.ndarray, dtype: Any, path: str) -> None:
    if not np.array_equal(np.asarray(array, dtype), np.asarray(original, dtype), equal_nan=False):
        raise FileError(
            f"expected a copy of {path!r}, received other numbers. If config.json ties the tensors, set "
            "tie_word_embeddings to false to use both; otherwise skip this tensor, which transformers does "
            f"not use: ignore=[{name!r}]."
        )
