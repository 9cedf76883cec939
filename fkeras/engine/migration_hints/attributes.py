"""Migration hints for attributes and methods of Keras objects that fkeras's values do not have."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Any

from fkeras.engine.messages.errors import suggest
from fkeras.engine.migration_hints.hints import hints

# name of a base class (with its module, if two classes have the name), and the noun for messages and for
# the table of hints; the first row whose class is a base of the value applies
_NOUNS = (
    ("Metric", "metric"),
    ("BaseOptimizer", "optimizer"),
    ("Callback", "callback"),
    ("Trainer", "trainer"),
    ("TrainState", "run"),
    ("fkeras.training.records.history.Fitted", "result of fit"),
    ("fkeras.saving.models.Loaded", "loaded pair"),
    ("fkeras.pretrained.loading.Loaded", "pretrained model"),
    ("Tokenizer", "tokenizer"),
    ("SymbolicTensor", "symbolic tensor"),
    ("Layer", "layer"),
)

if TYPE_CHECKING:
    from fkeras.engine.layer.layer import Layer


class MissingAttributeError(AttributeError):
    """A missing attribute of a layer, model or other value; builds its message lazily.

    Most of these errors are raised and discarded by `getattr(layer, name, default)`, once for each
    layer of a deep network. The search for similar names therefore runs when the message is read.
    """

    def __str__(self) -> str:
        if len(self.args) != 2:  # raised with a message, as any AttributeError
            return super().__str__()
        return missing_attribute(*self.args)


def missing_attribute(value: object, name: str) -> str:
    """Returns the error message for a missing attribute.

    Args:
        value: a layer, a model, a Trainer, a run, a metric, an optimizer, a callback or a tensor.

    Example:
        >>> import fkeras as fk
        >>> print(missing_attribute(fk.layers.Dense(2, name="head"), "output_shape"))
        'head' (Dense): has no attribute 'output_shape'; a layer is a value and records nothing about its calls. Instead: the graph knows the calls of a layer: `shape = model.graph.layer('head').output_shape`.
    """
    cls = type(value)
    # compared by name: importing the classes here would be circular
    bases = {n for b in cls.__mro__ for n in (b.__name__, f"{b.__module__}.{b.__name__}")}
    noun = next((noun for base, noun in _NOUNS if base in bases), "value")
    table = hints(noun)
    where = _where(value)
    if name in table:
        calls_note = " and records nothing about its calls" if noun == "layer" else ""
        layer = getattr(value, "name", None) if noun == "layer" else None
        remedy = table[name].replace("{name}", repr(layer or "name"))
        if name in ("input", "output") and hasattr(cls, f"{name}s"):
            remedy = f"`model.{name}s`"
        article = "an" if noun[0] in "aeiou" else "a"
        return (
            f"{where}: has no attribute {name!r}; {article} {noun} is a value{calls_note}. Instead: "
            f"{remedy}."
        )
    if noun == "symbolic tensor" and name in _public("fkeras.ops"):
        return f"{where}: has no attribute {name!r}. Instead: `fk.ops.{name}(x, ...)`."
    if noun == "layer" and name in (value.__dict__.get("layers") or ()):
        return f"{where}: has no attribute {name!r}. Instead: `model.layers[{name!r}]`."
    names = [n for n in dir(cls) if not n.startswith("_")]
    names += [f.name for f in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else []
    return f"{where}: has no attribute {name!r}.{suggest(name, names)}"


def _where(value: object) -> str:
    cls = type(value).__name__
    # not getattr: a missing name would raise another MissingAttributeError
    name = value.__dict__.get("name") if hasattr(value, "__dict__") else None
    return f"{name!r} ({cls})" if isinstance(name, str) else cls


def _public(module: str) -> Any:
    return getattr(sys.modules.get(module), "__all__", ())


def rejected_arithmetic(layer: Layer, *_: object) -> Any:
    """Rejects `layer + other` and other operators of arrays."""
    raise TypeError(
        f"{_where(layer)}: a layer has no arithmetic. For its outputs call the layer first, `layer(x) + 1`; "
        "for its weights write `jax.tree.map(lambda w, g: w - 0.1 * g, model, grads)`."
    )


def rejected_field_assignment(value: Any, name: str) -> str:
    """Returns the error message for the assignment `value.name = ...` of a loss, metric or callback.

    Example:
        >>> import fkeras as fk
        >>> print(rejected_field_assignment(fk.losses.MeanSquaredError(), "total"))
        MeanSquaredError: is a value, so 'total' cannot be set. Declare a field in the class: `total: object = fk.option(default=None)`; the fields are the arguments of the constructor.
    """
    where, bases = type(value).__name__, {base.__name__ for base in type(value).__mro__}
    start = f"{where}: is a value, so {name!r} cannot be set."
    if name in {f.name for f in dataclasses.fields(value)}:
        if "BaseOptimizer" in bases:
            return (
                f"{start} Make a copy for a new trainer: `optimizer = dataclasses.replace(optimizer, "
                f"{name}=...)`. During a training, a callback changes the rate: "
                "`fk.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2)`."
            )
        return f"{start} Make a copy: `value = dataclasses.replace(value, {name}=...)`."
    field = f"Declare a field in the class: `{name}: object = fk.option(default=None)`"
    if "Callback" in bases:
        return (
            f"{start} Values that change are in the run's memory, in arrays: `run = self.remember(run, "
            f"{{{name!r}: value}})`, returned from the hook, and `self.recall(run)`. {field} for a setting."
        )
    if "Metric" in bases:
        return (
            f"{start} Sums are a state that `init` returns and `update` replaces: `state = {{{name!r}: "
            f"state[{name!r}] + x}}`. {field} for a setting."
        )
    return f"{start} {field}; the fields are the arguments of the constructor."


def rejected_assignment(layer: Layer, name: str, value: object = None) -> str:
    """Returns the error message for the assignment `layer.name = value`."""
    where, cls = _where(layer), type(layer)
    declared = {f.name for f in dataclasses.fields(layer)}
    if name == "trainable":
        remedy = hints("assignment")["layer.trainable = ..."]
    elif name in declared:
        remedy = f"make a copy: `layer = layer.replace({name}=...)`"
    # a model that is assigned a layer, as in the `__init__` of a Keras subclass
    elif getattr(cls, "_transparent_field", None) and hasattr(type(value), "_transparent_field"):
        remedy = (
            f"call layers in `call`, or declare a field: `{name}: fk.Layer = fk.option(default=...)`; "
            "a subclass of fk.Model has no `__init__`"
        )
    elif hasattr(type(value), "_transparent_field"):
        remedy = (
            f"make sublayers in `call` of a subclass of fk.Model: `def call(self, x): return "
            f"layers.Dense(3)(x)`; or declare a field, `{name}: fk.Layer = fk.option(default="
            "layers.Dense(3))`. The class has no `__init__`"
        )
    else:
        remedy = (
            f"declare a field in the class: `{name}: object = fk.option(default=...)`; the fields are "
            "the arguments of the constructor, and the class has no `__init__`"
        )
    return f"{where}: a layer is a value, so {name!r} cannot be set. Instead, {remedy}."
