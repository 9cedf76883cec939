"""`load_model`, `model_from_json`, `load_training` and `save_model`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import jax

from fkeras.atomic_files import atomic
from fkeras.engine import DTypePolicy, Layer, Network
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.migration_hints.arguments import check_path_first, explains_arguments
from fkeras.engine.migration_hints.attributes import MissingAttributeError
from fkeras.engine.tree.donated import SAVE_THE_NEW, check_donated
from fkeras.engine.values.argument_types import Inputs
from fkeras.host.containers.limits import Limits
from fkeras.host.processes.gathering import is_spread
from fkeras.host.processes.writing import write_together
from fkeras.saving.formats import model_format
from fkeras.saving.keras import keras_file
from fkeras.saving.keras.mask_warnings import warn_of_masks
from fkeras.saving.trained.compile_config import compiled_parts
from fkeras.saving.weights.placing import as_layout
from fkeras.training import Trainer, TrainState
from fkeras.transforms.comparison.checking import require_agreement


class Loaded(NamedTuple):
    """Result of `load_model`: the model and its state.

    Example:
        >>> import fkeras as fk
        >>> model, state = Loaded(fk.Sequential([fk.Input((3,)), fk.layers.Dense(1)]), {})
    """

    model: Network
    state: dict[str, Any]

    if not TYPE_CHECKING:  # a type checker would accept every attribute

        def __getattr__(self, name: str) -> Any:
            raise MissingAttributeError(self, name)


@explains_arguments
def load_model(
    path: str | os.PathLike[str],
    *,
    custom_objects: Mapping[str, Any] | None = None,
    mesh: jax.sharding.Mesh | None = None,
    sharding: str | Mapping[str, Any] | None = None,
    dtype: str | DTypePolicy | None = None,
    limits: Limits | None = None,
    check: tuple[Inputs, Any] | None = None,
) -> tuple[Network, dict[str, Any]]:
    """Loads `(model, state)` from a file of Keras or of `save_model`.

    The loader moves the weights from the file to the device without running initializers, and never
    executes code of the file: custom classes and functions come from `custom_objects` only.

    Args:
        path: a `.keras` file (Keras 3, tf.keras 2.12 to 2.15), a folder that Keras wrote under
            `zipped=False`, or an HDF5 file of a whole model (Keras 1 to 3).
        custom_objects: custom classes and functions by their names in the file.
        mesh: devices to load to, as in `fk.Trainer`; None for the default device.
        sharding: the layout of the weights on the mesh, as in `fk.Trainer`. Each array is moved to its
            shards when it is read, so that no device holds more than its share. On a mesh of
            several processes each process reads the file, and keeps its own shards.
        dtype: a dtype such as "bfloat16", or a dtype policy such as "mixed_bfloat16", of all layers, as
            of `fk.cast`: each array is cast when it is read. None for the dtypes of the file.
        limits: limits on sizes.
        check: `(inputs, outputs)`: the outputs that the program which wrote the file computes for
            inputs, or its values by coordinates; both are compared as by `transforms.agree`.

    Returns:
        The built model and its state, such as moving statistics; `{}` for a model without state.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: for a file that holds no model, is damaged or exceeds a limit. The error names
            the part of the file and the layer.
        ValueError: for rules that the weights cannot follow, or a dtype that is none of floats; if the model disagrees with `check`.
        ImportError: if h5py is not installed.

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
    layout = as_layout("load_model", mesh, sharding, dtype)
    model, state = model_format(path).read_model(path, custom_objects, limits, layout)
    # the file may lack entries of the state, which are then on the default device
    if layout is not None and model.built:
        # the layers that the `call` of a custom model makes are known now
        model, read = layout.cast(model), model
        if model is not read:
            state = jax.tree.map(lambda a, like: a.astype(like.dtype), state, model.init_state())
        model, state = layout.apply(model, state)
    if check is not None:
        if not isinstance(check, tuple | list) or len(check) != 2:
            raise TypeError(
                f"load_model: expected check=(inputs, outputs), received {describe_value(check)}. "
                "Compute the outputs in the program that wrote the file."
            )
        inputs, outputs = check
        require_agreement("fk.load_model", lambda _: outputs, (model, state), inputs)
    return Loaded(model, state)


@explains_arguments
def model_from_json(
    text: str | bytes,
    custom_objects: Mapping[str, Any] | None = None,
    *,
    limits: Limits | None = None,
) -> Network:
    """Returns the model of JSON from `to_json` of Keras 1 to 3 or of fkeras.

    The model has no weights: `fk.load_weights` reads them from a file.

    Args:
        text: the JSON, for example `pathlib.Path("model.json").read_text()`.
        custom_objects: custom classes and functions by their names in the JSON.
        limits: limits on sizes.

    Raises:
        TypeError: for another type, such as a path.
        FileError: for a text that is not the configuration of a model, or that exceeds a limit. The
            error names the layer.

    Example:
        >>> import fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2)])
        >>> fk.model_from_json(model.to_json()) == model
        True
    """
    if not isinstance(text, str | bytes):
        raise TypeError(
            f"model_from_json: expected the text of to_json, received {describe_value(text)}. Read a "
            "file by path.read_text()."
        )
    return keras_file.from_text(text, custom_objects, limits or Limits())


def load_training(
    path: str | os.PathLike[str],
    *,
    custom_objects: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[Trainer, TrainState]:
    """Loads `(trainer, run)` of a compiled model, to resume training.

    The `Trainer` holds optimizer, losses and metrics; the `TrainState` holds weights, state, the
    optimizer's state, the learning rate and the number of steps. The next steps on the same batches
    equal those of Keras. Files hold no JAX key: the run's key, which shuffles rows and draws
    dropout masks, is `jax.random.key(0)`. To set another key, call `run.replace(key=...)`.

    Args:
        path: a file of `save_model` or of Keras.
        custom_objects: custom classes and functions, losses and metrics included, by their names in
            the file.
        limits: limits on sizes.

    Raises:
        FileNotFoundError: for a missing file.
        FileError: as in `load_model`; also for a model that was not compiled, and for optimizer
            state that does not match the weights.
        ImportError: if h5py is not installed.

    Warns:
        UserWarning: for a file without the state of its optimizer: archives of tf.keras omit the
            state of `tf.keras.optimizers.legacy`. The run then starts at step 0.

    Example:
        >>> import jax, pathlib, tempfile, numpy as np, fkeras as fk
        >>> model = fk.Sequential([fk.Input((3,)), fk.layers.Dense(2)])
        >>> trainer = fk.Trainer(fk.optimizers.Adam(), "mse")
        >>> run = trainer.init(model, jax.random.key(0))
        >>> run, _ = trainer.step(run, (np.ones((4, 3), "float32"), np.ones((4, 2), "float32")))
        >>> path = pathlib.Path(tempfile.mkdtemp(), "m.keras")
        >>> fk.save_model(path, run.model, run.state, trainer=trainer, run=run)
        >>> again, resumed = fk.load_training(path)
        >>> again == trainer, int(resumed.step)
        (True, 1)
    """
    limits, path = limits or Limits(), atomic.as_path(path)
    return model_format(path).read_training(path, custom_objects, limits)


@explains_arguments
def save_model(
    path: str | os.PathLike[str],
    model: Layer,
    state: Mapping[str, Any] | None = None,
    *,
    trainer: Trainer | None = None,
    run: TrainState | None = None,
) -> None:
    """Writes a `.keras` file that Keras 3 opens with the same outputs.

    The writer writes to a temporary name and then renames the file: an interrupted save leaves the
    old file intact. A subclass of `fk.Model` is written as its graph, so that the file opens
    without the class.

    If the arrays are spread over several processes, every process makes the call: the first process
    writes the file, and all processes return when the file is complete.

    Args:
        path: path of the file, ending in ".keras".
        model: a built `fk.Model` or `fk.Sequential`.
        state: state of the model.
        trainer: trainer of the model, for `load_training`; Keras then opens the model compiled.
        run: training run with the optimizer's state; None for the initial state.

    Raises:
        TypeError: for an object that is not a model, or a configuration without JSON form, such as
            an optimizer of optax.
        ValueError: for a model without weights or without its state, and for a run of another model
            or without its trainer.
        OSError: if the file cannot be written; an existing file stays unchanged.
        ProcessError: if another process could not write the file, has ended, or makes another call.

    Warns:
        UserWarning: if Keras computes other masks than the model; names the layers and the change
            that gives equal numbers.

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
    # a donated array has no data left: report the argument here, before a file is opened
    check_donated((model, state, run), "save_model", SAVE_THE_NEW)
    if not path.endswith(".keras"):
        raise ValueError(
            f"save_model: expected a path that ends in .keras, received {path!r}. Keras "
            "chooses the format by the suffix. fk.save_weights saves weights alone."
        )
    arrays = (model, state, run)
    if is_spread(arrays):

        def write(whole: Any) -> None:
            save_model(path, *whole[:2], trainer=trainer, run=whole[2])

        write_together("save_model", {"path": path}, arrays, write)
        return
    warn_of_masks(model, stacklevel=3)
    if trainer is None and run is None:
        keras_file.write(path, model, state)
    else:
        keras_file.write(path, model, state, *compiled_parts(trainer, run, model))
