"""Computes the frozen part of a model once for each sample, for `Trainer(cache_frozen=True)`.

The features are computed after a checkpoint is restored, with the weights that the training continues
with. The feeds of the training and of the validation then hold `Features` in the place of inputs.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.atomic_files.atomic import naming
from fkeras.atomic_files.npz import viewed
from fkeras.engine import Network
from fkeras.engine.network.network import device_part
from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.training.data import array_feed
from fkeras.training.data.array_feed import Feed
from fkeras.training.data.features import Cached, Features
from fkeras.training.loop.batch_loops import predicted
from fkeras.training.records.annotations import Trainer
from fkeras.training.records.state import TrainState
from fkeras.training.step import sharding, step
from fkeras.transforms.comparison.fingerprinting import array_digest, digest, fingerprint
from fkeras.transforms.frozen_part import TRAINED, FrozenPart, find_cut
from fkeras.transforms.graph.cutting import cut as cut_model
from fkeras.transforms.splitting import feature_coordinates, frozen_values, repeated_layers

_MANIFEST = "features.json"


def with_features(
    trainer: Trainer, run: TrainState, feed: Any, held: Any
) -> tuple[Feed, Feed | None]:
    """Returns the feeds of a training and its validation with features in the place of inputs.

    Args:
        feed: the feed of arrays of the training.
        held: the feed of arrays of the validation, or None.

    Raises:
        ValueError: if no call of the model can be cached; names the reason of each.

    Warns:
        UserWarning: if frozen layers remain in each step, and a layer without trained weights ends the
            frozen part, such as a Dropout; names both.
    """
    model: Any = device_part(run.model)
    part = find_cut(model, feed.example()[0])
    _check(model, part)
    cached = functools.partial(
        Cached, model=model, values=frozen_values(model, run.state, part.cut), cut=part.cut
    )
    return _mapped(trainer, run, feed, cached), (
        None if held is None else _mapped(trainer, run, held, cached)
    )


def _check(model: Network, part: FrozenPart) -> None:
    reasons = "; ".join(part.reasons[:5]) + "; ..." * (len(part.reasons) > 5)
    if not feature_coordinates(model, part.cut):
        raise ValueError(
            f"Trainer.fit: cache_frozen found nothing to cache: {reasons}. Freeze the layers before "
            "the trained ones, fk.freeze(model, 'body*'), and let no random layer and no layer that "
            "differs in training stand before these; or leave cache_frozen out."
        )
    # frozen layers behind trained weights are the usual case: the normalizations of a trained block
    unusual = [reason for reason in part.reasons if not reason.endswith(TRAINED)]
    repeated = repeated_layers(model, part.cut)
    if unusual and repeated:
        names = ", ".join(map(repr, repeated[:5])) + ", ..." * (len(repeated) > 5)
        warnings.warn(
            f"Trainer.fit: cache_frozen caches less than all frozen layers: {'; '.join(unusual[:5])}. Each step "
            f"computes the frozen layers {names}. Move the named layers behind the frozen ones.",
            stacklevel=7,
        )


def _mapped(trainer: Trainer, run: TrainState, feed: Feed, cached: Any) -> Feed:
    """Returns a feed with features, on the device if they fit there."""
    made: Cached = cached(feed.tree)
    _, *others = feed.tree
    form = step.evaluation_form(trainer)
    every = dataclasses.replace(feed, steps=-(-len(feed) // feed.size), exact=False)
    compute = functools.partial(step.compiled_features, form, made.cut)
    _, shapes = jax.eval_shape(compute, run.model, run.state, feed.example())
    specs, structure = jax.tree.flatten(shapes)
    put = functools.partial(sharding.split_rows, trainer)

    def fill(arrays: list[np.ndarray]) -> None:
        start = 0
        for batch in predicted(run, every, put, compute):
            leaves = jax.tree.leaves(batch)
            for array, rows in zip(arrays, leaves, strict=True):
                array[start : start + len(rows)] = rows
            start += len(leaves[0])

    forms = [((len(feed), *spec.shape[1:]), np.dtype(spec.dtype)) for spec in specs]
    if isinstance(trainer.cache_frozen, str):
        arrays = _in_folder(trainer.cache_frozen, _key(made), forms, fill)
    else:
        arrays = [np.empty(shape, dtype) for shape, dtype in forms]
        fill(arrays)
    values, masks = jax.tree.unflatten(structure, arrays)
    features = Features(values, masks, made.cut)
    feed = dataclasses.replace(feed, tree=(features, *others), cached=made)
    return array_feed.placed(feed, trainer.mesh)


# -- a folder -------------------------------------------------------------------------------------


def _key(cached: Cached) -> str:
    """Returns a digest of everything that the features depend on."""
    config: Any = jax.config  # JAX declares its flags at run time
    model, where = cached.model, "Trainer.fit: cache_frozen"
    front = cut_model(model, outputs=feature_coordinates(model, cached.cut))
    x, _, weights = cached.rows
    states = {p: v for p, v in cached.values.items() if p.endswith(", state")}
    arrays = [
        [jax.tree_util.keystr(path), array_digest(array, "an input", where)]
        for path, array in jax.tree_util.tree_flatten_with_path((x, weights, states))[0]
    ]
    precision = [jax.default_backend(), str(config.jax_default_matmul_precision)]
    facts = [fingerprint(front, weights=True), repr(cached.cut), arrays, precision]
    return digest(facts, size=16)


def _in_folder(folder: str, key: str, forms: list[tuple], fill: Any) -> list[np.ndarray]:
    """Returns memory-mapped arrays in a folder; `fill` computes them if the folder has none."""
    path = os.path.join(folder, key)
    manifest = [[list(shape), dtype.name] for shape, dtype in forms]
    if not os.path.exists(os.path.join(path, _MANIFEST)):
        with naming(folder):
            os.makedirs(folder, exist_ok=True)
            # complete or absent: the folder gets its name when all files are written
            partial = tempfile.mkdtemp(prefix=f"{key}.", suffix=".partial", dir=folder)
            try:
                _write(partial, manifest, forms, fill)
                try:
                    os.rename(partial, path)
                except OSError:
                    # another training has written the same features in the meantime
                    if not os.path.exists(os.path.join(path, _MANIFEST)):
                        raise
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    try:
        with open(os.path.join(path, _MANIFEST), encoding="utf-8") as file:
            if json.load(file) != manifest:
                raise ValueError("the arrays have other shapes")
        files = [np.load(_file(path, n), mmap_mode="r") for n in range(len(forms))]
        if [array.shape for array in files] != [shape for shape, _ in forms]:
            raise ValueError("an array has another shape")
    except (ValueError, EOFError, FileNotFoundError) as error:
        raise ValueError(
            f"Trainer.fit: cache_frozen={folder!r}: the features in {path!r} are damaged ({error}). "
            "Delete this folder; fit then computes the features again."
        ) from error
    return [viewed(array, dtype) for array, (_, dtype) in zip(files, forms, strict=True)]


def _write(folder: str, manifest: list, forms: list[tuple], fill: Any) -> None:
    arrays = []
    for number, (shape, dtype) in enumerate(forms):
        # NumPy's files have no bfloat16: its bits as integers
        stored = np.dtype(f"uint{8 * dtype.itemsize}") if dtype.kind == "V" else dtype
        array = np.lib.format.open_memmap(_file(folder, number), "w+", stored, shape)
        arrays.append(array.view(dtype))
    fill(arrays)
    for array in arrays:
        array.flush()
    with open(os.path.join(folder, _MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file)


def _file(folder: str, number: int) -> str:
    return os.path.join(folder, f"{number}.npy")


# -- changes during the training ------------------------------------------------------------------


def check_unchanged(cached: Cached | None, run: TrainState) -> None:
    """Raises a `ValueError` if the front of a run is not the one that made the features."""
    if cached is None:
        return
    model: Any = device_part(run.model)
    changed = _changed(cached, model, run.state)
    if changed is not None:
        raise ValueError(
            f"Trainer.fit: a callback changed {changed}, whose outputs cache_frozen computed before the "
            "first step. End this fit, and call fit again with the changed run; or train with "
            "cache_frozen=False."
        )


def _changed(cached: Cached, model: Network, state: Mapping[str, Any]) -> str | None:
    if model.graph != cached.model.graph:
        return "the graph of the model"
    values = frozen_values(model, state, cached.cut)
    for path, old in cached.values.items():
        pairs = zip(jax.tree.leaves(old), jax.tree.leaves(values[path]), strict=True)
        # a step returns other arrays with the same values
        if not all(a is b or np.array_equal(a, b, equal_nan=True) for a, b in pairs):
            return repr(path)
    was, now = (dict(sublayers(m)) for m in (cached.model, model))
    for path in {p.removesuffix(", state") for p in cached.values if p.endswith(", state")}:
        if skeleton_of(was[path]) != skeleton_of(now[path]):
            return repr(path)
    return None
