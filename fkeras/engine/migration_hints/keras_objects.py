"""Migration hints for Keras objects passed to fkeras, with the line that converts them.

The module that defines an object's class identifies the object, so fkeras never imports Keras.
"""

from __future__ import annotations

import sys
from typing import Any

_PACKAGES = ("keras", "tf_keras", "keras_core")
_PLAIN = (str, bool, int, float, tuple, dict, list)
_CONVERTED = "`converted = fk.{home}.deserialize(keras.{home}.serialize(value))`"
_MODEL = "`model, state = fk.from_keras(value)`"
# base class in Keras, namespace, conversion; the first row that matches applies, so subclasses
# precede their base classes: every Keras model is also a layer
_KINDS = (
    ("Model", "", _MODEL),
    ("Layer", "layers", f"{_CONVERTED}; build it and copy the weights with set_weights"),
    ("LearningRateSchedule", "optimizers.schedules", _CONVERTED),
    ("BaseOptimizer", "optimizers", _CONVERTED),
    ("Loss", "losses", _CONVERTED),
    ("Metric", "metrics", _CONVERTED),
    ("Initializer", "initializers", _CONVERTED),
    ("Regularizer", "regularizers", _CONVERTED),
    ("Constraint", "constraints", _CONVERTED),
    ("Quantizer", "quantizers", _CONVERTED),
    ("DTypePolicy", "", '`dtype = value.name`, such as dtype="mixed_bfloat16"'),
    ("SeedGenerator", "random", "an integer, such as seed=0"),
    ("KerasTensor", "", "`tensor = fk.Input(value.shape[1:], dtype=value.dtype)`"),
    ("Variable", "", "`array = np.asarray(value)`"),
)
_FUNCTION_HOMES = ("activations", "losses", "metrics", "initializers", "ops")


def is_from_keras(value: object) -> bool:
    """Returns whether a value is an object, class or function of Keras, or of a Keras subclass."""
    # most arguments are plain values
    if value is None or type(value) in _PLAIN or not _keras_is_imported():
        return False
    return bool(_keras_classes(value)) or _is_function(value)


def _keras_is_imported() -> bool:
    # without an import of Keras no object can come from Keras
    return "keras" in sys.modules or "tf_keras" in sys.modules or "keras_core" in sys.modules


def _from_keras(value: object) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] in _PACKAGES


def _keras_classes(value: object) -> tuple[type, ...]:
    cls = value if isinstance(value, type) else type(value)
    return tuple(base for base in cls.__mro__ if _from_keras(base))


def _is_function(value: object) -> bool:
    return callable(value) and not isinstance(value, type) and _from_keras(value)


def conversion(value: object) -> str | None:
    """Returns the end of an error message for a Keras object, with the line that converts it.

    Returns:
        The text, or None for a value that is not from Keras.
    """
    if not is_from_keras(value):
        return None
    name = getattr(value, "__name__", type(value).__name__)
    bases = {base.__name__ for base in _keras_classes(value)}
    if "Callback" in bases:
        return _callback(value)
    for base, namespace, line in _KINDS:
        if base in bases:
            if isinstance(value, type):
                return f"the class {name} of Keras. Use the class of fkeras: {_replacement(name, namespace)}."
            # a user's subclass of a Keras class: deserialize does not know the class
            if namespace and not _from_keras(type(value)):
                replacement = (
                    "Layer" if base == "Layer" else f"{namespace}.{base.removeprefix('Base')}"
                )
                line = f"a subclass of `fk.{replacement}` with the same mathematics"
            return (
                f"{name}, a mutable object of Keras. Use a value of fkeras: "
                f"{line.format(home=namespace)}."
            )
    namespace = next(
        (namespace for namespace in _FUNCTION_HOMES if f".{namespace}" in str(value.__module__)),
        "ops",
    )
    return f"the function {name} of Keras. Use the function of fkeras: {_replacement(name, namespace)}."


def _replacement(name: str, namespace: str) -> str:
    module = sys.modules.get(f"fkeras.{namespace}" if namespace else "fkeras")
    if name in getattr(module, "__all__", ()):
        return f"`fk.{namespace}.{name}`" if namespace else f"`fk.{name}`"
    return f"a name of `fk.{namespace}`" if namespace else "`fk.Model(inputs, outputs)`"


def _callback(value: object) -> str:
    cls = value if isinstance(value, type) else type(value)
    callback_names = getattr(sys.modules.get("fkeras.training.callbacks"), "__all__", ())
    callback_name = next(
        (base.__name__ for base in cls.__mro__ if base.__name__ in callback_names), "Callback"
    )
    if cls.__name__ == "BackupAndRestore":
        remedy = "`run, history = trainer.fit(run, x, y, checkpoint=folder)`"
    elif callback_name == cls.__name__ != "Callback" and (
        _from_keras(cls) or cls.__module__.startswith(("wandb.", "mlflow."))
    ):
        remedy = f"`fk.callbacks.{callback_name}`, with the same arguments"
    else:
        remedy = (
            f"a subclass of `fk.callbacks.{callback_name}` with `def on_epoch_end(self, epoch, run, "
            "logs): ...`"
        )
    return f"{cls.__name__}, a callback of Keras, which needs a Keras model. Use {remedy}."


def check_no_keras_in(value: Any) -> None:
    """Rejects a Keras object, also as an item of a list, tuple or dictionary.

    Raises:
        TypeError: as in `check_not_keras`.

    Example:
        >>> check_no_keras_in(["relu", None])
    """
    if not _keras_is_imported():
        return
    if type(value) in (list, tuple, dict):
        for inner in value.values() if isinstance(value, dict) else value:
            check_not_keras(inner)
    check_not_keras(value)


def check_not_keras(value: Any, where: str = "") -> Any:
    """Returns the value unchanged, or rejects a Keras object.

    Args:
        value: any value, such as an argument of a constructor.
        where: the class or call, for the message.

    Raises:
        TypeError: for an object, class or function of Keras; the message has the line that
            converts it.

    Example:
        >>> check_not_keras("relu")
        'relu'
    """
    message = conversion(value)
    if message is not None:
        raise TypeError(f"{where}: received {message}" if where else f"received {message}")
    return value
