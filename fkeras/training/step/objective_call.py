"""Calls the objective of a `Trainer`, and checks the `Output` that the call returns.

An objective replaces loss and metrics by one function of the model, the state and a batch:
`objective(model, state, batch, key, training) -> fk.Output`. The scalars in `Output.metrics` are
logged as means over the batches of an epoch, weighted by the number of rows of each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from fkeras.engine import (
    Context,
    FKerasError,
    Layer,
    Output,
    replace_weights,
    subkey,
    suggest,
    trainable_weights,
)
from fkeras.engine.call.calls import describe_state
from fkeras.programs.walk import depends
from fkeras.transforms.intercepting import intercept

#: `(model, state, batch, key, training) -> Output`
Objective: TypeAlias = Callable[..., Output]

_SIGNATURE = "def objective(model, state, batch, key, training)"
_RETURN = "return fk.Output(loss, updates=out.updates, metrics={...})"


def check_objective(value: object) -> Any:
    """Returns the objective in the form that `Trainer` stores; None for a trainer with a loss.

    Raises:
        TypeError: if the value is a class or not callable.
    """
    if value is None or (callable(value) and not isinstance(value, type)):
        return value
    received = f"the class {value.__name__}" if isinstance(value, type) else repr(value)
    raise TypeError(
        f"expected a function, received {received}. Write {_SIGNATURE}: ... and end the function "
        f"with {_RETURN}."
    )


def label_of(objective: object) -> str:
    """Returns the name of an objective for messages: the function's name, or the object's class."""
    function = getattr(objective, "func", objective)  # functools.partial
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"the objective {name.split('.')[-1]!r}"


def call_objective(
    objective: Objective,
    model: Layer,
    state: Mapping[str, Any],
    batch: object,
    key: jax.Array | None,
    training: bool,
) -> tuple[jax.Array, dict[str, Any], dict[str, Any]]:
    """Returns `(loss, updates, metrics)` of one batch, all checked.

    An `Output` without `updates` is rejected if a call of the model changes the state; `{}` keeps the
    state.

    Returns:
        The scalar to minimise (the value and the losses of the `Output`), the changed entries of
        the state, and the metrics as float32 scalars.

    Raises:
        TypeError: if the function takes other arguments, returns no `Output`, or returns a
            value that is not a floating-point scalar.
        ValueError: if the updates change the structure of the state, or are missing.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> def objective(model, state, batch, key, training):
        ...     return fk.Output(jnp.mean(model(batch) ** 2))
        >>> layer = fk.layers.Dense(1, kernel_initializer="ones").build(jax.random.key(0), (None, 2))
        >>> float(call_objective(objective, layer, {}, jnp.ones((3, 2)), None, True)[0])
        4.0
    """
    where = f"Trainer: {label_of(objective)}"
    try:
        out = objective(model, state, batch, key, training)
    except TypeError as error:
        # A traceback without a frame below this one: Python could not bind the arguments. Any
        # other TypeError comes from the user's code and must keep its traceback.
        if error.__traceback__ is None or error.__traceback__.tb_next is not None:
            raise
        raise TypeError(
            f"{where}: expected a function of five arguments by position, but the call failed: "
            f"{error}. Write {_SIGNATURE}."
        ) from None
    if not isinstance(out, Output):
        raise TypeError(
            f"{where}: expected an fk.Output, received {_describe(out)}. End the function with "
            f"{_RETURN}."
        )
    loss = _scalar(where, "value", out.value).astype("float32")
    for number, extra in enumerate(out.losses):
        loss = loss + _scalar(where, f"losses[{number}]", extra).astype("float32")
    if jax.tree.leaves(state) and not out.updates and not out.names_updates:
        _refuse_lost_updates(where, objective, (model, state, batch, key, training))
    return loss, _updates(where, state, out.updates), _metrics(where, out.metrics)


def _refuse_lost_updates(where: str, objective: Objective, arguments: tuple) -> None:
    """Raises if calls of the model change the state, since the objective returns no updates."""
    changes: list[str] = []

    def around(path: str, layer: Layer, context: Context, inputs: tuple, options: Any) -> Output:
        out = context.run(layer, *inputs, **options)
        if out.updates:
            changes.append(
                f"the call of {path!r} changes the state" if path else "the model has state"
            )
        return out

    model, *rest = arguments
    try:
        jax.eval_shape(lambda: objective(intercept(model, around), *rest).value)
    except Exception:
        # The function may depend on the structure, which interception changes: assume changed state.
        changes.append("the model has state")
    if changes:
        raise ValueError(
            f"{where}: {changes[0]}, but the fk.Output has no updates, so that the state would never "
            "change. Return the updates of the calls, fk.Output(loss, updates=out.updates), or updates={} "
            "to keep the state."
        )


def _describe(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)} values"
    if value is None:
        return "None (is the return statement missing?)"
    return "an array" if hasattr(value, "shape") else type(value).__name__


def _scalar(where: str, what: str, value: Any) -> jax.Array:
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        hint = " A Python number does not depend on the weights." * isinstance(value, int | float)
        raise TypeError(
            f"{where}: expected {what} as a scalar array, received {_describe(value)}.{hint} "
            "Compute the value from the model's outputs, such as jnp.mean(losses)."
        )
    if value.shape != ():
        raise TypeError(
            f"{where}: expected {what} as a scalar, received an array of shape {value.shape}. "
            "Reduce the array: jnp.mean(losses)."
        )
    if not jnp.issubdtype(value.dtype, jnp.floating):
        raise TypeError(
            f"{where}: expected {what} of a floating-point dtype, received {value.dtype}, which "
            "has no gradient. Compute the value with floating-point operations; return counts in "
            "Output.metrics."
        )
    return jnp.asarray(value)


def _updates(where: str, state: Mapping[str, Any], updates: object) -> dict[str, Any]:
    """Returns the changed entries of the state; `{}` below a name means no change."""
    # The structure, shapes and dtypes must stay: the state is the carry of a `fori_loop`.
    if not isinstance(updates, Mapping):
        raise TypeError(
            f"{where}: expected updates as a dictionary, received {type(updates).__name__}. Return "
            "the updates of the call: updates=out.updates."
        )
    unknown = next((name for name in updates if name not in state), None)
    if unknown is not None:
        raise ValueError(
            f"{where}: updates has an entry {unknown!r} that the state does not have."
            f"{suggest(str(unknown), state)} The state is {describe_state(state)}. Store the "
            "updates of a layer inside the model under the layer's name: "
            "updates={'encoder': out.updates}."
        )
    checked = {}
    for name, new_value in updates.items():
        old_value = state[name]
        if isinstance(new_value, Mapping) and not new_value:
            continue
        if _form(new_value) != _form(old_value):
            raise ValueError(
                f"{where}: expected updates[{name!r}] like the state, {_shapes(old_value)}, "
                f"received {_shapes(new_value)}. Return the updates of the layer's call."
            )
        # `asarray` with a dtype also removes weak types, which a carry must not gain.
        checked[name] = jax.tree.map(lambda a, b: jnp.asarray(a, b.dtype), new_value, old_value)
    return checked


def _shapes(tree: object) -> Any:
    return jax.tree.map(lambda leaf: f"{jnp.result_type(leaf)}{list(jnp.shape(leaf))}", tree)


def _form(tree: object) -> tuple:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves]


def _metrics(where: str, metrics: object) -> dict[str, Any]:
    if not isinstance(metrics, Mapping):
        raise TypeError(
            f"{where}: expected metrics as a dictionary, received {type(metrics).__name__}. Write "
            'fk.Output(loss, metrics={"accuracy": accuracy}).'
        )
    for name, value in metrics.items():
        if not isinstance(name, str) or name == "loss" or name.startswith("val_"):
            raise ValueError(
                f"{where}: a metric cannot be named {name!r}: names are strings, 'loss' is the "
                "value of the objective, and 'val_' marks the logs of the validation data."
            )
        if not _is_real_scalar(value):
            raise TypeError(
                f"{where}: expected the metric {name!r} as a scalar, received "
                f"{describe_state(value) if hasattr(value, 'shape') else repr(value)}. Reduce the "
                "array: jnp.mean(values)."
            )
    return {name: jnp.asarray(value).astype("float32") for name, value in metrics.items()}


def _is_real_scalar(value: object) -> bool:
    if isinstance(value, bool | int | float):
        return True
    dtype = getattr(value, "dtype", None)
    if dtype is None or getattr(value, "shape", None) != ():
        return False
    return any(jnp.issubdtype(dtype, kind) for kind in (jnp.floating, jnp.integer, jnp.bool_))


def rows_of(batch: object) -> int:
    """Returns the number of rows of a batch: the length of the first array that is no scalar, or 1."""
    return next((jnp.shape(a)[0] for a in jax.tree.leaves(batch) if jnp.ndim(a)), 1)


def metric_names(
    objective: Objective,
    model: Layer,
    state: Mapping[str, Any] | None,
    batch: object,
    training: bool,
) -> tuple[str, ...]:
    """Returns the names of the metrics that an objective reports, by tracing the objective.

    Args:
        batch: arrays, or their specs.

    Raises:
        ValueError: in training, if the value does not depend on a trainable weight.

    Example:
        >>> import jax, jax.numpy as jnp, fkeras as fk
        >>> def objective(model, state, batch, key, training):
        ...     return fk.Output(jnp.mean(model(batch)), metrics={"rows": len(batch)})
        >>> layer = fk.layers.Dense(1).build(jax.random.key(0), (None, 2))
        >>> metric_names(objective, layer, {}, jnp.ones((3, 2)), True)
        ('rows',)
    """

    def compute(weights: Mapping[str, jax.Array], state: Mapping[str, Any], batch: object) -> tuple:
        full_model, key = replace_weights(model, weights), jax.random.key(0)
        loss, _, metrics = call_objective(objective, full_model, state, batch, key, training)
        return loss, metrics

    # A gradient of zero is a common mistake (an objective that uses a model from outside), which
    # JAX accepts silently. The jaxpr shows the dependency without computing.
    weights = trainable_weights(model)
    program, (_, metrics) = jax.make_jaxpr(compute, return_shape=True)(weights, state, batch)
    if training and not depends(program, len(weights)):
        raise ValueError(
            f"Trainer: {label_of(objective)}: the value does not depend on any trainable weight, "
            "so training would change no weight. Compute with the argument `model`, not with a "
            "model from outside of the function, and freeze only a part of the model."
        )
    return tuple(metrics)


def evaluation_key(count: jax.Array) -> jax.Array:
    """Returns the key of an evaluation batch: a function of the number of rows before the batch.

    Equal evaluations draw equal samples, whatever the number of batches per device call.

    Example:
        >>> import jax.numpy as jnp
        >>> evaluation_key(jnp.float32(32)).shape
        ()
    """
    return subkey(jax.random.key(0), count.astype("uint32"))


def refuse_beside(objective: object, **given: object) -> None:
    """Rejects a trainer with an objective and also fields that belong to a loss.

    Raises:
        ValueError: with the name of the field.
    """
    name = next((name for name, value in given.items() if value not in (None, ())), None)
    if objective is None or name is None:
        return
    remedy = {
        "loss": "compute the loss inside the objective, or leave objective out",
        "loss_weights": "weigh the terms inside the objective",
    }.get(name, "return the metrics of a batch in Output.metrics")
    raise ValueError(
        f"Trainer: expected either objective= or {name}=, received both. An objective is the loss "
        f"and its metrics in one function: {remedy}."
    )


def refuse_class_weight() -> None:
    """Rejects `class_weight` for a trainer without a loss."""
    raise ValueError(
        "Trainer.fit: class_weight needs a trainer with a loss, received a trainer without. An "
        "objective receives sample_weight as the third element of the batch, and can look up the "
        "weight of a class: jnp.take(weights, labels)."
    )


def check_model(model: Layer) -> None:
    """Rejects a model of an objective that has layers without weights after `Trainer.init`.

    Raises:
        FKerasError: with the name of the model.

    Example:
        >>> import fkeras as fk
        >>> check_model(fk.layers.Flatten())
    """
    if not model.built:
        raise FKerasError(
            f"{model._where}: has layers without weights. Build the parts before the model: "
            "Pair(encoder.build(key, (None, 8)), critic.build(key, (None, 8)))."
        )
