"""Weights in one `.npz` file: arrays by path, readable with NumPy alone.

The entries of the file are

- `weights/<path>`: each weight of the model, such as `weights/dense/kernel`,
- `state/<path>`: each array of the state, such as `state/batch_normalization/moving_mean`,
- `opt_state/<path>` and `step`: the optimizer's state and the number of steps taken, where asked,
- `about`: a text in JSON: `format` and `version`, and under `dtypes` the dtypes that NumPy does
  not have (bfloat16, float8) by entry; these arrays are stored as unsigned integers of their size.
"""

from __future__ import annotations

import json
import pathlib
import zipfile
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fkeras.engine import suggest
from fkeras.files import as_path, replacing
from fkeras.training.callbacks import snapshot

_FORMAT = "fkeras weights"
_VERSION = 1
_WHERE = "load_weights"


def save_weights(path: Any, run: Any, *, weights_only: bool = True) -> None:
    """Writes weights and state of a run into a `.npz` file, whole or not at all.

    Args:
        path: the file; its folder is made.
        run: the run.
        weights_only: whether optimizer's state and step are left out.

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
        parts |= {"opt_state": snapshot.by_path(run.opt_state)}
    leaves = {f"{part}/{at}": leaf for part, tree in parts.items() for at, leaf in tree.items()}
    if not weights_only:
        leaves["step"] = run.step
    arrays: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    for name, array in jax.device_get(leaves).items():
        array = np.asarray(array)
        if array.dtype.kind not in "biufc":
            dtypes[name] = array.dtype.name
            array = array.view(f"uint{8 * array.dtype.itemsize}")
        arrays[name] = array
    about = {"format": _FORMAT, "version": _VERSION, "dtypes": dtypes}
    arrays["about"] = np.asarray(json.dumps(about))
    with replacing(path) as file:
        np.savez(file, **arrays)


def load_weights(path: Any, run: Any, *, weights_only: bool = False) -> Any:
    """The run with the weights and state of a file that `ModelCheckpoint` wrote.

    Optimizer's state and step come too where the file has them. All else, such as the key, is as
    it was; the paths and shapes must be those of the run's model.

    Args:
        path: the file.
        run: a run of the same model.
        weights_only: whether optimizer's state and step are left as they are in the run.

    Raises:
        FileNotFoundError: where there is no such file, with the nearest one.
        ValueError: for a file that is damaged or of another kind, or of another model.

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
    parts = _read(path)
    where = f"{_WHERE}, {path}"
    now = snapshot.take(run)
    for part in ("weights", "state"):
        what = {"weights": "weight", "state": "state"}[part]
        snapshot.check_paths(where, what, parts[part], now[part])
        parts[part] = _like(now[part], parts[part])
    run = snapshot.put(run, parts)
    if weights_only or "step" not in parts:
        return run
    old = snapshot.by_path(run.opt_state)
    hint = "optimizer state (weights_only=True leaves the optimizer as it is)"
    snapshot.check_paths(where, hint, parts["opt_state"], old)
    opt_state = snapshot.filled(run.opt_state, _like(old, parts["opt_state"]))
    return run.replace(opt_state=opt_state, step=_like({"": run.step}, {"": parts["step"]})[""])


def _like(old: Mapping[str, Any], new: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The new arrays in the dtypes and order of the old ones, on the device."""
    return {at: jax.device_put(new[at].astype(array.dtype)) for at, array in old.items()}


def _read(path: str) -> dict[str, Any]:
    """The arrays of a file by part and path."""
    place = pathlib.Path(path)
    if not place.is_file():
        folder = place.parent
        near = sorted(p.name for p in folder.glob("*.npz")) if folder.is_dir() else []
        raise FileNotFoundError(
            f"{_WHERE}: there is no file {path!r}.{suggest(place.name, near)} In its folder: "
            f"{', '.join(near[:8]) or 'no .npz file'}."
        )
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
    except (zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError, AttributeError) as error:
        raise ValueError(
            f"{_WHERE}: expected a whole file that ModelCheckpoint wrote, and {path!r} is not one: "
            f"{type(error).__name__}, {error}. Take the one before it."
        ) from error
    if about.get("format") != _FORMAT or about.get("version", 0) > _VERSION:
        raise ValueError(
            f"{_WHERE}: expected the format {_FORMAT!r}, version {_VERSION}, and {path!r} has "
            f"{about.get('format')!r}, version {about.get('version')!r}. Read it with the program "
            "that wrote it."
        )
    parts: dict[str, Any] = {"weights": {}, "state": {}, "opt_state": {}}
    for name, array in arrays.items():
        dtype = about["dtypes"].get(name)
        array = array if dtype is None else array.view(jnp.dtype(dtype))
        part, _, at = name.partition("/")
        if at or part in parts:
            parts[part][at] = array
        else:
            parts[part] = array
    return parts
