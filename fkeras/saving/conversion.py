"""`from_keras` and `to_keras`: models between Keras and fkeras in one process.

Both go through a `.keras` file in a temporary folder, which Keras and fkeras write and read with
their public functions. One converter thus serves files and objects.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from typing import Any

from fkeras.engine import Layer, Network
from fkeras.engine.messages.errors import describe_value
from fkeras.engine.messages.tracebacks import hides_internal_frames
from fkeras.engine.migration_hints.keras_objects import is_from_keras
from fkeras.engine.tree.sublayers import sublayers
from fkeras.engine.values.argument_types import Inputs
from fkeras.host.containers.errors import FileError
from fkeras.host.processes.gathering import gathered, is_spread
from fkeras.layers.adapters.adapted import Adapted
from fkeras.saving.models import load_model, save_model
from fkeras.transforms.comparison.checking import require_agreement

# long names of models would exceed the limits of file systems
_FILE = "model.keras"


@hides_internal_frames
def from_keras(
    keras_model: Any,
    *,
    custom_objects: Mapping[str, Any] | None = None,
    check: Inputs | None = None,
) -> tuple[Network, dict[str, Any]]:
    """Converts a model of Keras 3 to `(model, state)`.

    The weights are copied: later changes of the Keras model do not change the result. Optimizer and
    losses of a compiled model are not converted; `fk.load_training` reads them from a file.

    Args:
        keras_model: a built `keras.Model` or `keras.Sequential`, on any backend.
        custom_objects: your fkeras versions of the model's custom layers and functions, by the names
            of their Keras versions.
        check: inputs on which the outputs of both models are compared, as by `transforms.agree`.

    Returns:
        The built model and its state, such as moving statistics; `{}` for a model without state.

    Raises:
        TypeError: for a value that is not a Keras model.
        FileError: for a model with custom layers that are not in `custom_objects`.
        ValueError: if the outputs on `check` disagree.
        ImportError: if h5py is not installed.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.from_keras("m.keras")
        ... except TypeError as error:
        ...     print(error)
        from_keras: expected a Keras model, received 'm.keras' (str). Files: fk.load_model(path).
    """
    if isinstance(keras_model, Layer):
        raise TypeError(
            f"from_keras: expected a Keras model, received {keras_model._where}, which belongs to "
            "fkeras already. fk.to_keras(model, state) converts it to a Keras model."
        )
    # every Keras model has `save`, and no other object of Keras has
    save = getattr(keras_model, "save", None)
    if isinstance(keras_model, type) or save is None or not is_from_keras(keras_model):
        raise TypeError(
            f"from_keras: expected a Keras model, received {describe_value(keras_model)}. Files: "
            "fk.load_model(path)."
        )
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, _FILE)
        save(path)
        try:
            model, state = load_model(path, custom_objects=custom_objects)
        except FileError as error:
            # without the path, which exists during this call only
            problem = f"from_keras: {error.problem}"
            place = {"member": error.member, "layer": error.layer, "key": error.key}
            raise FileError(problem, **place) from None
    if check is not None:
        require_agreement("fk.from_keras", keras_model, (model, state), check)
    return model, state


@hides_internal_frames
def to_keras(
    model: Network,
    state: Mapping[str, Any] | None = None,
    *,
    custom_objects: Mapping[str, Any] | None = None,
    check: Inputs | None = None,
) -> Any:
    """Converts a model and its state to a Keras model, which is not compiled.

    The program has to import Keras 3 itself, since the environment variable KERAS_BACKEND chooses the
    backend at that import: fkeras imports no Keras.

    Args:
        model: a built `fk.Model` or `fk.Sequential`. A subclass is converted to its graph.
        state: state of the model.
        custom_objects: your Keras versions of the model's custom layers and functions, by name.
        check: as for `from_keras`.

    Returns:
        A `keras.Model` or `keras.Sequential` with copies of the weights and statistics.

    Raises:
        ImportError: if the program has not imported Keras, and if h5py is not installed.
        TypeError: for a value that is not a model.
        ValueError: for a model without weights or without its state, and for a model with adapters;
            if the outputs on `check` disagree.

    Example:
        >>> import fkeras as fk
        >>> try:
        ...     fk.to_keras("m.keras")
        ... except TypeError as error:
        ...     print(error)
        to_keras: expected an fk.Model or fk.Sequential, received 'm.keras' (str).
    """
    if is_from_keras(model):
        raise TypeError(
            f"to_keras: expected a model of fkeras, received {describe_value(model)}, which belongs "
            "to Keras already. fk.from_keras(keras_model) converts it."
        )
    if not isinstance(model, Network):
        raise TypeError(
            f"to_keras: expected an fk.Model or fk.Sequential, received {describe_value(model)}."
        )
    keras = sys.modules.get("keras")
    if keras is None:
        raise ImportError(
            "to_keras: expected that the program has imported Keras. Write `import keras` before the "
            "call; the environment variable KERAS_BACKEND chooses its backend.",
            name="keras",
        )
    if any(isinstance(layer, Adapted) for _, layer in sublayers(model)):
        raise ValueError(
            f"to_keras, {model._where}: has adapters, for which Keras has no class. Convert the plain model: "
            "fk.to_keras(transforms.merge_adapters(model), state)."
        )
    # every process gets its own Keras model
    if is_spread((model, state)):
        model, state = gathered((model, state))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, _FILE)
        save_model(path, model, state)
        keras_model = keras.saving.load_model(path, custom_objects=custom_objects, compile=False)
    if check is not None:
        require_agreement("fk.to_keras", (model, state), keras_model, check)
    return keras_model
