"""Computes the frozen part of a model once for each sample, for `Trainer(cache_frozen=True)`.

The features are computed after a checkpoint is restored, with the weights that the training continues
with. The feeds of the training and of the validation then hold `Features` in the place of inputs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fkeras.atomic_files.atomic import naming
from fkeras.atomic_files.npz import viewed
from fkeras.engine import Network
from fkeras.engine.strings.network import device_part
from fkeras.engine.tree.skeleton import skeleton_of
from fkeras.engine.tree.sublayers import sublayers
from fkeras.training.checkpoint.storage.disk import check_file, checksums, flush_all
from fkeras.training.checkpoint.storage.errors import BrokenSaveError, CheckpointError
from fkeras.training.checkpoint.storage.lock import Lock
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
_PARTIAL = ".partial"


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

    def batches() -> Iterator[list[np.ndarray]]:
        return map(jax.tree.leaves, predicted(run, every, put, compute))

    forms = [((len(feed), *spec.shape[1:]), np.dtype(spec.dtype)) for spec in specs]
    if isinstance(trainer.cache_frozen, str):
        arrays = _in_folder(trainer.cache_frozen, _key(made), forms, batches)
    else:
        arrays, start = [np.empty(shape, dtype) for shape, dtype in forms], 0
        for batch in batches():
            for array, rows in zip(arrays, batch, strict=True):
                array[start : start + len(rows)] = rows
            start += len(batch[0])
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


def _in_folder(folder: str, key: str, forms: list[tuple], batches: Any) -> list[np.ndarray]:
    """Returns memory-mapped arrays in a folder; writes `batches()` there if the folder has none.

    Raises:
        ValueError: for a file that differs from the file that was written.
        OSError: if a file cannot be written or read.
    """
    path = os.path.join(folder, key)
    if _manifest(path) is None:
        with naming(folder):
            os.makedirs(folder, exist_ok=True)
            _remove_left(folder)
            _write_new(folder, path, forms, batches)
    # the training reads the files anyway, so that the check costs a checksum of cached pages
    manifest = _manifest(path) or {}
    arrays = []
    for number, (shape, dtype) in enumerate(forms):
        name, facts = _file(number), manifest.get("files", {}).get(_file(number), {})
        try:
            if facts.get("array") != _described(shape, dtype):
                raise BrokenSaveError(f"{name} holds {facts.get('array')}")
            check_file(os.path.join(path, name), name, facts["bytes"], int(facts["crc32"], 16))
            array = np.load(os.path.join(path, name), mmap_mode="r")
        except (BrokenSaveError, ValueError, KeyError, TypeError) as error:
            raise ValueError(
                f"Trainer.fit: cache_frozen={folder!r}: the features in {path!r} are damaged: {error}. "
                "Delete this folder; fit then computes the features again."
            ) from error
        arrays.append(viewed(array, dtype))
    return arrays


def _manifest(path: str) -> dict[str, Any] | None:
    """Returns the facts about the files in a folder; None for a folder without digests."""
    try:
        with open(os.path.join(path, _MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return manifest if isinstance(manifest, dict) and "files" in manifest else None


def _write_new(folder: str, path: str, forms: list[tuple], batches: Any) -> None:
    # complete or absent: the folder gets its name when all files are written
    new = tempfile.mkdtemp(prefix=f"{os.path.basename(path)}.", suffix=".new", dir=folder)
    lock = Lock(new)
    partial = f"{new.removesuffix('.new')}{_PARTIAL}"
    os.rename(new, partial)  # locked from the first moment: another run removes nothing of this one
    try:
        _write(partial, forms, batches)
        if _manifest(path) is None:  # also files without a manifest, which nothing can check
            shutil.rmtree(path, ignore_errors=True)
        try:
            os.rename(partial, path)
        except OSError:
            # another training has written the same features in the meantime
            if _manifest(path) is None:
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):  # the folder of the lock has another name
            lock.release()


def _remove_left(folder: str) -> None:
    """Removes what killed processes have left; a process that still writes holds its lock."""
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name.endswith(_PARTIAL):
            with contextlib.suppress(CheckpointError, FileNotFoundError, NotADirectoryError):
                lock = Lock(path)
                shutil.rmtree(path, ignore_errors=True)
                lock.release()


def _write(folder: str, forms: list[tuple], batches: Any) -> None:
    # Not by `np.memmap`: a full disk would end the process by a signal at the first write to a page.
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(open(os.path.join(folder, _file(number)), "wb"))
            for number in range(len(forms))
        ]
        for file, (shape, dtype) in zip(files, forms, strict=True):
            header = {"descr": _stored(dtype).str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
        written = 0
        for batch in batches():
            for file, rows, (_, dtype) in zip(files, batch, forms, strict=True):
                with naming(file.name):
                    file.write(np.ascontiguousarray(rows, dtype).view(_stored(dtype)).data)
            written += len(batch[0])
        for file in files:
            with naming(file.name):
                file.flush()
    assert all(shape[0] == written for shape, _ in forms)
    facts = checksums(folder)
    files = {
        _file(number): {**facts[_file(number)], "array": _described(*form)}
        for number, form in enumerate(forms)
    }
    with open(os.path.join(folder, _MANIFEST), "w", encoding="utf-8") as file:
        json.dump({"files": files}, file)
    flush_all(folder)


def _stored(dtype: np.dtype) -> np.dtype:
    # NumPy's files have no bfloat16: its bits as integers
    return np.dtype(f"uint{8 * dtype.itemsize}") if dtype.kind == "V" else dtype


def _described(shape: tuple[int, ...], dtype: np.dtype) -> str:
    return f"{dtype.name}{list(shape)} in C order"


def _file(number: int) -> str:
    return f"{number}.npy"


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
