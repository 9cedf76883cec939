"""Migration hints for methods that Keras calls and fkeras does not, in models and callbacks.

Keras's `Model.fit` calls `train_step`, and Keras's callbacks receive logs. Here a `Trainer` trains
the model, and a callback's hook receives the run. Without these checks a Keras method would be
ignored, and a Keras hook would receive the run in its argument `logs`, both without an error.
"""

from __future__ import annotations

import difflib
import dis
from collections.abc import Sequence
from types import CodeType, MappingProxyType, MethodType
from typing import Any

from fkeras.engine.migration_hints.hints import hints

_OBJECTIVE = """\
{where}: {name} is never called, as a Trainer trains the model. Write the step's loss as an objective:

    def objective(model, state, batch, key, training):
        out = model.apply(batch[0], state=state, training=training, key=key)
        loss = jnp.mean((out.value - batch[1]) ** 2)
        return fk.Output(loss, out.updates, out.losses, metrics={{"mse": loss}})

    trainer = fk.Trainer(optimizer="adam", objective=objective)"""

_STEPS = ("train_step", "test_step", "compute_loss", "compute_metrics", "make_train_function")
_STEPS += ("make_test_function", "stateless_compute_loss")
_TRAINER = (*_STEPS, "step", "predict_step", "compile", "make_predict_function")
_HOOKS = MappingProxyType(
    {
        "on_train_begin": ("run",),
        "on_epoch_begin": ("epoch", "run"),
        "on_batch_end": ("step", "run", "logs"),
        "on_test_begin": ("run",),
        "on_epoch_end": ("epoch", "run", "logs"),
        "on_train_end": ("run",),
    }
)
# inspect.CO_VARARGS: the function has a parameter `*args`
_VARIADIC = 0x04


def check_model_methods(cls: type) -> None:
    """Rejects methods of a model class that Keras's training calls.

    Raises:
        TypeError: for such a method; the message shows an objective or a line to write instead.
    """
    for name, remedy in hints("model method").items():
        if hasattr(cls, name):
            if name in _STEPS:
                raise TypeError(_OBJECTIVE.format(where=cls.__name__, name=name))
            raise TypeError(f"{cls.__name__}: {name} is never called. Instead: {remedy}.")
    if isinstance(getattr(cls, "metrics", None), property):
        raise TypeError(
            f"{cls.__name__}: the property metrics is never read. Instead, an objective or a layer "
            'returns the numbers: `fk.Output(value, metrics={"name": number})`.'
        )


def own_attributes(cls: type, root: type) -> dict[str, Any]:
    """Returns the attributes that a class and its mixins define in addition to a base class.

    Args:
        root: a base class of `cls`.
    """
    bases = [base for base in cls.__mro__ if base not in root.__mro__]
    return {name: value for base in reversed(bases) for name, value in base.__dict__.items()}


def check_trainer_methods(cls: type, root: type) -> None:
    """Rejects methods of a `Trainer` subclass that `fit` does not call.

    Args:
        root: the class `Trainer`.

    Raises:
        TypeError: for such a method; the message shows an objective to write instead.
    """
    name = next((name for name in _TRAINER if name in own_attributes(cls, root)), None)
    if name is not None:
        message = _OBJECTIVE.format(where=cls.__name__, name=name)
        raise TypeError(message.replace("as a Trainer trains the model", "as fit compiles its own"))


def check_callback(where: str, methods: dict[str, Any], bound: bool = True) -> None:
    """Rejects hooks with Keras's parameters, and hooks that are never called.

    Args:
        bound: whether the first parameter is `self`.

    Raises:
        TypeError: for such a hook; the message shows the correct parameters.
    """
    for name, method in methods.items():
        if name in hints("hook") and name not in _HOOKS:
            raise TypeError(f"{where}: {name} is never called. Instead: {hints('hook')[name]}.")
        matches = difflib.get_close_matches(name, _HOOKS, 1, 0.85)
        if matches and name not in _HOOKS and callable(method):
            raise TypeError(
                f"{where}: {name} is never called. Did you mean {matches[0]!r}? The hooks are: "
                f"{', '.join(_HOOKS)}."
            )
        if name in _HOOKS:
            _check_hook(where, name, method, ("self", *_HOOKS[name]) if bound else _HOOKS[name])


def _assigned(code: CodeType) -> str | None:
    """The first attribute that a method sets on its first argument."""
    owner, last = code.co_varnames[0] if code.co_varnames else "", None
    for instruction in dis.get_instructions(code):
        # Python 3.13 loads two variables by one instruction
        loaded = last[-1] if isinstance(last, tuple) and last else last
        if instruction.opname == "STORE_ATTR" and loaded == owner:
            return instruction.argval
        last = instruction.argval
    return None


def _check_hook(where: str, name: str, method: object, expected: Sequence[str]) -> None:
    code = getattr(method, "__code__", None)
    # properties and partials have no code object; a wrong signature fails at the call
    if code is None:
        return
    assigned = _assigned(code) if expected[0] == "self" else None
    if assigned is not None:
        raise TypeError(
            f"{where}: {name} sets self.{assigned}, but a callback is a value. Values that change are "
            f"in the run's memory: `run = self.remember(run, {{{assigned!r}: value}})`, returned from "
            f"the hook; `self.recall(run)` reads them. A setting is a field of the class: `{assigned}: "
            "object = fk.option(default=None)`."
        )
    given = isinstance(method, MethodType)  # the object of a bound method
    parameters = code.co_varnames[given : code.co_argcount]
    required = len(parameters) - len(getattr(method, "__defaults__", None) or ())
    accepts_call = required <= len(expected) and (
        bool(code.co_flags & _VARIADIC) or len(parameters) >= len(expected)
    )
    # Keras's `on_train_begin(self, logs=None)` accepts the call but would take the run for the logs
    run_index = expected.index("run")
    if accepts_call and not (len(parameters) > run_index and parameters[run_index] == "logs"):
        return
    raise TypeError(
        f"{where}: {name} expected the parameters ({', '.join(expected)}), received "
        f"({', '.join(parameters)}). A hook receives the run; `run.model` is the model. Write "
        + (
            f"`def {name}({', '.join(expected)})`."
            if expected[0] == "self"
            else f"`{name}=lambda {', '.join(expected)}: None`."
        )
    )
