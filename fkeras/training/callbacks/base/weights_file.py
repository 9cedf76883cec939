"""Writes and reads the weights of a run as `.npz` files; see `fkeras.atomic_files.npz` for the format."""

from __future__ import annotations

import json
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from fkeras.atomic_files import npz
from fkeras.atomic_files.atomic import as_path
from fkeras.engine import suggest
from fkeras.engine.values.argument_types import FilePath
from fkeras.host.processes.arrays import with_key_data, with_keys
from fkeras.host.processes.gathering import is_spread
from fkeras.host.processes.writing import write_together
from fkeras.training.callbacks.base import snapshot
from fkeras.training.records.state import TrainState

_WHERE = "load_weights"


def save_weights(path: FilePath, run: TrainState, *, weights_only: bool = True) -> None:
    """Writes weights and state of a run to a `.npz` file atomically.

    Args:
        path: path of the file; missing folders are created.
        run: the run.
        weights_only: whether to omit the optimizer state and the step.

    Example:
        >>> import jax, tempfile, numpy as np, fkeras as fk
        >>> from fkeras.training.callbacks import save_weights
        >>> model = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1, name="d")])
        >>> run = fk.Trainer("adam", "mse").init(model, jax.random.key(0))
        >>> path = tempfile.mkdtemp() + "/w.npz"
        >>> save_weights(path, run)
        >>> with np.load(path) as file:
        ...     print(file.files)
        ['weights/d/bias', 'weights/d/kernel', 'about']
    """
    parts = snapshot.take(run)
    if not weights_only:
        parts |= {"opt_state": snapshot.by_path(with_key_data(run.opt_state))}
    leaves = {
        f"{part}/{leaf_path}": leaf
        for part, tree in parts.items()
        for leaf_path, leaf in tree.items()
    }
    if not weights_only:
        leaves["step"] = run.step
    if is_spread(leaves):
        write_together("save_weights", {"path": as_path(path)}, leaves, lambda a: _write(path, a))
        return
    _write(path, leaves)


def _write(path: FilePath, leaves: Mapping[str, Any]) -> None:
    # one transfer for all arrays, not one per array
    arrays = {name: np.asarray(array) for name, array in jax.device_get(leaves).items()}
    npz.write(path, arrays)


def load_weights(path: FilePath, run: TrainState, *, weights_only: bool = False) -> Any:
    """Returns the run with the weights and state of a file from `ModelCheckpoint`.

    Also reads the optimizer state and the step if the file has them. All other fields of the run,
    such as the key, are unchanged. Paths and shapes must be those of the run's model.

    Args:
        path: path of the file.
        run: a run of the same model.
        weights_only: whether to keep the run's optimizer state and step.

    Raises:
        FileNotFoundError: for a missing file; suggests the most similar name.
        ValueError: for a damaged file, another file type, or a file of another model.

    Example:
        >>> import jax, tempfile, fkeras as fk
        >>> from fkeras.training.callbacks import load_weights, save_weights
        >>> model, trainer = fk.Sequential([fk.Input((2,)), fk.layers.Dense(1)]), fk.Trainer(loss="mse")
        >>> run, other = (trainer.init(model, jax.random.key(seed)) for seed in (0, 1))
        >>> path = tempfile.mkdtemp() + "/w.npz"
        >>> save_weights(path, run)
        >>> load_weights(path, other).model == run.model
        True
    """
    path = as_path(path)
    if path.endswith((".keras", ".h5")):
        raise ValueError(
            f"{_WHERE}: expected a .npz file, received {path!r}. Write model, state = "
            "fk.load_weights(path, run.model, run.state), which reads Keras's files too, and "
            "run.replace(model=model, state=state)."
        )
    parts = _read(path)
    where = f"{_WHERE}, {path}"
    run_parts = snapshot.take(run)
    for part in ("weights", "state"):
        kind = {"weights": "weight", "state": "state"}[part]
        snapshot.check_paths(where, kind, parts[part], run_parts[part])
        parts[part] = _like(run_parts[part], parts[part])
    run = snapshot.put(run, parts)
    if weights_only or "step" not in parts:
        return run
    plain = with_key_data(run.opt_state)
    run_leaves = snapshot.by_path(plain)
    hint = "optimizer state (weights_only=True leaves the optimizer as it is)"
    snapshot.check_paths(where, hint, parts["opt_state"], run_leaves)
    opt_state = snapshot.filled(plain, _like(run_leaves, parts["opt_state"]))
    opt_state = with_keys(run.opt_state, opt_state)
    return run.replace(opt_state=opt_state, step=_like({"": run.step}, {"": parts["step"]})[""])


def _like(old: Mapping[str, Any], new: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Returns the new arrays with the dtypes and order of the old arrays, on the device."""
    return {
        path: jax.device_put(npz.viewed(new[path], array.dtype).astype(array.dtype))
        for path, array in old.items()
    }


def _read(path: str) -> dict[str, Any]:
    """Returns the arrays of a file by part and path."""
    file_path = pathlib.Path(path)
    if not file_path.is_file():
        folder = file_path.parent
        file_names = sorted(p.name for p in folder.glob("*.npz")) if folder.is_dir() else []
        raise FileNotFoundError(
            f"{_WHERE}: no such file: {path!r}.{suggest(file_path.name, file_names)} Files in its "
            f"folder: {', '.join(file_names[:8]) or 'no .npz file'}."
        )
    # not np.load, which allocates the size that a header claims; `npz.read_array` checks it first
    try:
        with zipfile.ZipFile(path) as file:
            arrays = {i.filename.removesuffix(".npy"): _array(file, i) for i in file.infolist()}
        about = arrays.pop(npz.ABOUT, None)
        # the run of an exported step, written by np.savez, has no description
        if about is None and "weights" not in {name.partition("/")[0] for name in arrays}:
            raise ValueError("the file has neither 'about' nor 'weights'")
        dtypes = {} if about is None else npz.check_about(json.loads(str(about)))
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, NotImplementedError) as error:
        raise ValueError(
            f"{_WHERE}: expected a complete file written by ModelCheckpoint, but {path!r} is "
            f"damaged or of another type: {type(error).__name__}, {str(error).rstrip('.')}. Load "
            "an earlier file."
        ) from error
    parts: dict[str, Any] = {"weights": {}, "state": {}, "opt_state": {}}
    for name, array in arrays.items():
        array = npz.viewed(array, dtypes.get(name, array.dtype))
        part, _, leaf_path = name.partition("/")
        if leaf_path:
            parts.setdefault(part, {})[leaf_path] = array
        else:
            parts[part] = array
    return parts


def _array(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    # np.savez writes uncompressed entries, so an array cannot be larger than the file
    if info.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{info.filename} is compressed; expected the format of np.savez")
    with file.open(info) as stream:
        return npz.read_array(stream, info.file_size)
