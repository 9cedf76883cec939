"""`load_model` and `save_model`: whole models in files, told apart by their content."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from fkeras.engine import Layer, Network
from fkeras.engine.migration_hints.arguments import check_path_first, explains_arguments
from fkeras.engine.tree.donated import SAVE_THE_NEW, check_donated
from fkeras.files import atomic
from fkeras.saving import legacy
from fkeras.saving.containers import file_type
from fkeras.saving.containers.errors import FileError
from fkeras.saving.containers.hdf5 import open_store
from fkeras.saving.containers.limits import Limits
from fkeras.saving.keras import keras_file
from fkeras.saving.trained.compile_config import compiled_parts
from fkeras.training import Trainer, TrainState


@explains_arguments
def load_model(
    path: str | os.PathLike[str],
    *,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[Network, dict[str, Any]]:
    """`(model, state)` of a file that Keras 3 or `save_model` wrote.

    The weights go straight from the file to the device; nothing is initialised first. Nothing in
    the file is run: classes and functions that are not part of the library come from
    `custom_objects` alone.

    Args:
        path: a `.keras` file (Keras 3, tf.keras 2.12 to 2.15), or an HDF5 file of a whole model (Keras 1 to
            3).
        custom_objects: classes and functions of your own by the names that the file has for them.
        limits: the greatest sizes that a file may ask for.

    Returns:
        The built model, and its state (moving statistics), `{}` where it has none.

    Raises:
        FileNotFoundError: where there is no such file.
        FileError: for a file that is no model, that is damaged, or that asks for what no file may
            ask for; it names the part of the file and the layer.
        ImportError: without h5py.

    Example:
        >>> import jax, jax.numpy as jnp, pathlib, tempfile, fkeras as fk
        >>> x = fk.Input((3,))
        >>> model = fk.Model(x, fk.layers.Dense(2)(x)).build(jax.random.key(0))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "m.keras")
        >>> fk.save_model(path, model)
        >>> again, state = fk.load_model(path)
        >>> bool((again(jnp.ones((1, 3))) == model(jnp.ones((1, 3)))).all())
        True
    """
    path = atomic.as_path(path)
    kind = content(path)
    if kind == "archive":
        return keras_file.read(path, custom_objects, limits)
    with open_store(path, path, limits=limits) as store:
        return legacy.load(store, path, custom_objects, limits)


def content(path: Any) -> str:
    """What a file holds by its first bytes: "archive" or "hdf5".

    Raises:
        FileError: for anything else.
    """
    with file_type.open_regular(path) as file:
        start = file.read(file_type.LENGTH)
        size = file.seek(0, os.SEEK_END)
    if start.startswith((file_type.ZIP, b"PK")):
        return "archive"
    if start.startswith(file_type.HDF5):
        return "hdf5"
    raise FileError(
        f"expected a model (.keras, .h5), received {file_type.describe(start, size)}.",
        file=os.fspath(path),
    )


@explains_arguments
def save_model(
    path: str | os.PathLike[str],
    model: Layer,
    state: Mapping[str, Any] | None = None,
    *,
    trainer: Trainer | None = None,
    run: TrainState | None = None,
) -> None:
    """Writes a `.keras` file that Keras 3 opens, and that computes the same numbers there.

    The file is written beside its place and then renamed: at any moment the old one or the new one
    is there, whole. A composed model (a subclass of `fk.Model`) goes in as its graph, so that
    nothing but the library is needed to open it.

    Args:
        path: where it shall be.
        model: a built `fk.Model` or `fk.Sequential`.
        state: its state.
        trainer: what it is trained by; Keras then opens it compiled, and `load_training` too.
        run: how far it was trained, for the optimizer's state; without it that of the beginning.

    Raises:
        TypeError: for anything that is no model, or a configuration that JSON cannot hold, such
            as an optimizer of optax.
        ValueError: for a model without weights, or without the state that it needs, and for a run
            of another model or without its trainer.
        OSError: where the file cannot be written; what stood there still stands.

    Example:
        >>> import jax, pathlib, tempfile, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2)]).build(jax.random.key(0))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "m.keras")
        >>> fk.save_model(path, model)
        >>> fk.load_model(path)[0] == model
        True
    """
    check_path_first(path, "save_model", "fk.save_model(path, model, state)")
    path = atomic.as_path(path)
    check_donated((model, state, run), "save_model", SAVE_THE_NEW)
    if not path.endswith(".keras"):
        raise ValueError(
            f"save_model: expected a path that ends in .keras, received {path!r}. Keras tells "
            "files by their names. Weights alone are saved by fk.save_weights."
        )
    if trainer is None and run is None:
        keras_file.write(path, model, state)
    else:
        keras_file.write(path, model, state, *compiled_parts(trainer, run, model))
