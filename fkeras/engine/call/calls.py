"""Calls on arrays: the checks around a layer's `forward`, and one compiled program per call.

A call on concrete arrays runs through `jax.jit` as a whole, so `model(images)` is one program. A call
on traced arrays, inside the caller's jit, grad or vmap, runs in place and becomes a part of the
caller's program.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from fkeras.engine.call.caches import KeepsTokens
from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.input_spec import check_inputs
from fkeras.engine.call.mask_rules import check_support, with_output_masks
from fkeras.engine.call.strings import has_strings
from fkeras.engine.config.policy import cast_floats
from fkeras.engine.messages.errors import FKerasError, add_note
from fkeras.engine.migration_hints.keras_objects import check_not_keras
from fkeras.engine.tree import donated
from fkeras.engine.tree.skeleton import leaves_of, skeleton_of
from fkeras.engine.tree.weights import weight_losses
from fkeras.engine.values.annotations import Layer, Leaf, Network, Option, SomeLayer, Tree
from fkeras.engine.values.arrays import TAKEN, as_array, conversion, is_array_like, is_sparse
from fkeras.engine.values.frozen import is_array
from fkeras.engine.values.random import check_key
from fkeras.engine.values.spec import argument_specs, as_spec


def run(layer: Layer, context: Context, /, *inputs: Tree, **options: Option) -> Output:
    """One call of a built layer on arrays: checks and casts the inputs, checks the output.

    `Context.run` calls this function as a method of the layer.
    """
    if not layer.built:
        if getattr(layer, "graph", None) is not None:
            remedy = "`model = model.build(jax.random.key(0))`."
        else:
            remedy = (
                "`layer = layer.build(jax.random.key(0), x)`. To compose layers inside a layer, "
                "subclass fk.Model: its `call` receives symbolic tensors."
            )
        raise FKerasError(
            f"{layer._where}: has no weights yet, and was called on arrays. Build it first: {remedy}",
            layer=layer._where,
        )
    layer, inputs, options, keeps_mask = prepare(layer, context, inputs, options)
    with jax.named_scope(layer.name or type(layer).__name__):
        try:
            out = layer.forward(context, *inputs, **options)
        # checked after a failure only: a valid call pays nothing for these messages
        except (AttributeError, TypeError, ValueError) as error:
            _check_optional(layer, inputs, error)
            _check_state_names(layer, context, inputs)
            _explain_tracer(layer, error)
            raise
        except KeyError:
            _check_state_keys(layer, context, inputs)
            raise
    if not isinstance(out, Output):
        raise TypeError(
            f"{layer._where}: forward returned {type(out).__name__}. Return fk.Output(value), or "
            "write `call` for a layer that only computes a value."
        )
    if out.updates and out.updates.keys() != context.state.keys():
        raise _incomplete_updates(layer, context.state, out.updates)
    regularizer = getattr(layer, "activity_regularizer", None)
    if regularizer is not None:
        # the sum of the penalties over the batch divided by the batch size, as in Keras
        losses = tuple(_activity_loss(regularizer, y) for y in jax.tree.leaves(out.value))
        out = dataclasses.replace(out, losses=(*out.losses, *losses))
    return with_masks(layer, context, out, keeps_mask)


def prepare(
    layer: SomeLayer,
    context: Context,
    inputs: tuple,
    options: dict[str, Any],
    cast: Callable[[Any, str], Any] = cast_floats,
) -> tuple[SomeLayer, tuple, dict[str, Any], bool]:
    """Checks a call of a built layer and casts its floats to the compute dtype of the layer.

    Args:
        cast: casts the floats of a tree; other values than arrays need their own function.

    Returns:
        `(layer, inputs, options, keeps_mask)`; `keeps_mask` is an argument of `with_masks`.
    """
    check_inputs(layer, inputs)
    attached, keeps_mask = context.attached, True
    if attached is None:
        check_support(layer, context.mask)
    else:
        keeps_mask = attached.receive(layer, context, inputs, options)
    if context.state == {} and layer.stateful:
        require_state(layer, inputs)
    policy = layer.policy
    if layer._autocast:
        uncast = inputs
        inputs, options = cast((inputs, options), policy.compute_dtype)
        if attached is not None:
            attached.follow(uncast, inputs)
        if policy.variable_dtype != policy.compute_dtype:
            layer = cast_own_weights(layer, policy.compute_dtype)
    return layer, inputs, options, keeps_mask


def with_masks(layer: Layer, context: Context, out: Output, keeps_mask: bool) -> Output:
    """Returns the output of a call with its masks by the rule of the layer and of the graph."""
    out = with_output_masks(layer, out)
    if context.attached is None:
        return out
    mask = context.attached.complete(out.value, out.mask if keeps_mask else None)
    return dataclasses.replace(out, mask=mask)


def _incomplete_updates(
    layer: Layer, state: Mapping[str, Any], updates: Mapping[str, Any]
) -> FKerasError:
    missing = [name for name in state if name not in updates]
    unknown = [name for name in updates if name not in state]
    difference = [
        *([f"without {', '.join(map(repr, missing))}"] if missing else ()),
        *([f"with {', '.join(map(repr, unknown))}, which the state lacks"] if unknown else ()),
    ]
    return FKerasError(
        f"{layer._where}: expected the complete new state in `updates`, received updates "
        f"{' and '.join(difference)}. Return the entries of init_state, changed or not: "
        "fk.Output(value, updates={**context.state, ...}).",
        layer=layer._where,
    )


def _activity_loss(regularizer: Callable[[jax.Array], jax.Array], y: jax.Array) -> jax.Array:
    loss = regularizer(y)
    if y.ndim == 0:
        return loss
    return loss / jnp.asarray(y.shape[0]).astype(loss.dtype)


def cast_own_weights(layer: SomeLayer, dtype: str) -> SomeLayer:
    """The layer with its own weights in `dtype`, except weights with a declared dtype and those of `_uncast_names`."""
    skeleton, leaves = skeleton_of(layer), leaves_of(layer)
    kept = (*layer._weight_roles.fixed_dtype, *_uncast_names(type(layer)))
    own_weights = [
        w if w is None or name in kept else jnp.asarray(w, dtype)
        for name, w in zip(skeleton.weights, leaves, strict=False)
    ]
    return skeleton.join((*own_weights, *leaves[skeleton.own :]))


def _uncast_names(cls: type) -> tuple[str, ...]:
    """The names `_uncast` of the class that has the computation: a subclass may compute with all weights."""
    for base in cls.__mro__:
        if not vars(base).keys().isdisjoint(("_uncast", "call", "forward")):
            return vars(base).get("_uncast", ())
    return ()


def require_state(layer: Layer, inputs: tuple) -> None:
    """Raises FKerasError for a layer with state that was called without its state."""
    expected = layer.state_spec(*map(argument_specs, inputs))
    if not expected:
        return
    raise FKerasError(
        f"{layer._where}: has state and was called without it. It needs state="
        f"{describe_state(expected)}. Make it with `state = layer.init_state(x)` (a model: "
        "`model.init_state()`), pass state=state, and continue with `state | out.updates`.",
        layer=layer._where,
    )


def _check_state_names(layer: Layer, context: Context, inputs: tuple) -> None:
    """Raises if a network's state lacks the state of a layer; called after an error.

    A part of a model may receive the state of the whole model: additional entries are not an error.
    """
    layers = {} if getattr(layer, "graph", None) is None else cast("Network", layer).layers
    lacking = [name for name in layers if layers[name].stateful and name not in context.state]
    if not context.state or not lacking:
        return
    expected = layer.state_spec(*map(argument_specs, inputs))
    if not expected.keys() <= context.state.keys():
        needed, received = (", ".join(map(repr, state)) for state in (expected, context.state))
        raise FKerasError(
            f"{layer._where}: expected the state of the layers {needed}, received entries for {received}. "
            "Pass the state from init_state, or `state | out.updates` of a later call.",
            layer=layer._where,
        ) from None


def _check_state_keys(layer: Layer, context: Context, inputs: tuple) -> None:
    """Raises for a state with missing or unexpected entries; called after a KeyError."""
    if not layer.stateful:
        return
    expected = layer.state_spec(*map(argument_specs, inputs))
    if jax.tree.structure(expected) != jax.tree.structure(dict(context.state)):
        raise FKerasError(
            f"{layer._where}: expected the state {describe_state(expected)}, received "
            f"{describe_state(context.state)}. Pass the state from init_state, or a later "
            "`state | out.updates`.",
            layer=layer._where,
        ) from None


def _explain_tracer(layer: Layer, error: Exception) -> None:
    """Adds the layer and the code to write to JAX's errors of Python code on traced arrays."""
    if isinstance(error, jax.errors.TracerBoolConversionError):
        text = (
            "an `if`, `while`, `and` or `or` needs a number, and the call is compiled without numbers. "
            "Write jnp.where(condition, a, b), or jax.lax.cond"
        )
    elif isinstance(error, jax.errors.TracerArrayConversionError):
        text = (
            "a function of NumPy received an array of the call, which is compiled. Write jnp for np"
        )
    else:
        return
    if not getattr(error, "__notes__", None):  # of the innermost layer
        add_note(error, f"{layer._where}: {text}.")


def _check_optional(layer: Layer, inputs: tuple, error: Exception) -> None:
    """Raises if a call may have failed because an optional input of the model was None."""
    missing = any(x is None for x in jax.tree.leaves(inputs, is_leaf=lambda x: x is None))
    # None is a valid argument of operations, such as a missing bound of a slice
    if missing and not hasattr(layer, "op") and not isinstance(error, FKerasError):
        raise FKerasError(
            f"{layer._where}: expected an array for each of its inputs, received None, and the layer "
            "cannot compute without the value. Pass an array for the optional input, or connect the "
            "input to an argument that may be None, such as attention_mask.",
            layer=layer._where,
        ) from error


def describe_state(state: Tree, limit: int = 6) -> str:
    """The keys and shapes of a nested state as text, at most `limit` entries per level."""
    if not isinstance(state, Mapping):
        return str(as_spec(state))
    entries = [f"{k!r}: {describe_state(v, limit)}" for k, v in list(state.items())[:limit]]
    omitted = [f"... {len(state) - limit} more"] if len(state) > limit else []
    return "{" + ", ".join(entries + omitted) + "}"


def is_plain(
    layer: Layer,
    inputs: tuple,
    state: Mapping[str, Any] | None,
    key: Leaf,
    mask: Tree,
    options: Mapping[str, Any],
) -> bool:
    """Whether a call needs no check or conversion of its arguments before it is compiled.

    True where a built layer is called on concrete arrays that JAX takes unchanged. Such a call must
    cost little more than a jitted function, so this test reads types and attributes only.

    Args:
        state: its state, or None.
        key: a PRNG key, or None.
        mask: the mask of the inputs; a mask or an option makes the answer False.
    """
    if options or mask is not None:
        return False
    # the arguments first: symbolic tensors need no answer about the layer
    if state is not None or key is not None or len(inputs) != 1 or not _is_concrete(inputs[0]):
        leaves = jax.tree.leaves((state, key))
        leaves += jax.tree.leaves(inputs, is_leaf=is_sparse)
        if not leaves or not all(map(_is_concrete, leaves)):
            return False
    if "_plain" not in layer.__dict__:
        # one answer for each object: weights and configuration of a layer never change
        layer.__dict__["_plain"] = _holds_arrays(layer)
    return layer.__dict__["_plain"]


def _is_concrete(value: object) -> bool:
    if type(value) is np.ndarray:
        return value.dtype in TAKEN
    return isinstance(value, jax.Array) and not isinstance(value, Tracer)


def _holds_arrays(layer: Layer) -> bool:
    leaves = [leaf for leaf in leaves_of(layer) if leaf is not None]
    concrete = all(is_array(leaf) and not isinstance(leaf, Tracer) for leaf in leaves)
    return concrete and layer.built and not has_strings(layer)


def apply(
    layer: Layer,
    inputs: tuple,
    state: Mapping[str, Any] | None,
    training: bool,
    key: jax.Array | None,
    mask: Tree,
    options: dict[str, Any],
    plain: bool,
) -> Output:
    """`Layer.apply`: compiled where every argument is concrete, in place where one is traced.

    Args:
        state: the state, or None.
        training: whether this is a training call.
        key: a PRNG key, or None.
        plain: the answer of `is_plain` on these arguments.
    """
    if not plain:
        inputs = _as_arrays(layer, inputs)
    if options or mask is not None:
        options, mask = _as_options(layer, (options, mask))
    _check_call(layer, state, training, key)
    if state and isinstance(layer, KeepsTokens):
        layer._check_capacity(state, inputs, mask)
    arguments = (layer, inputs, state, key, mask, options)
    if plain:
        return _compiled((training, None, ()), arguments)
    leaves, treedef = jax.tree.flatten(arguments)
    if any(isinstance(leaf, Tracer) for leaf in leaves):
        return _apply(layer, inputs, state, training, key, mask, options)
    if not layer.built:
        run(layer, Context())  # raises: it says how to build
    arrays = tuple(leaf for leaf in leaves if is_array(leaf))
    static = tuple(_ARRAY if is_array(leaf) else leaf for leaf in leaves)
    return _compiled((training, treedef, static), arrays)


_ARRAY = "<array>"


@functools.partial(jax.jit, static_argnums=0)
def _compiled(static: tuple, arguments: tuple) -> Output:
    """`_apply` as one program.

    Args:
        static: the mode; the structure of the arguments and their leaves that are no arrays, such as
            a number among the options, or None where all leaves are arrays.
        arguments: those of `_apply` but for the mode, or only their arrays.
    """
    training, treedef, static_leaves = static
    if treedef is not None:
        remaining = iter(arguments)
        leaves = [next(remaining) if leaf is _ARRAY else leaf for leaf in static_leaves]
        arguments = jax.tree.unflatten(treedef, leaves)
    layer, inputs, state, key, mask, options = arguments
    return _apply(layer, inputs, state, training, key, mask, options)


def value_and_updates(layer: Layer, inputs: tuple, training: bool) -> tuple[Any, Any]:
    """Value and updates of a plain call without state and key.

    The call of a layer needs no more of the `Output`, and JAX takes 4 microseconds of a dispatch to
    put an `Output` together.
    """
    try:
        return _compiled_value(training, layer, *inputs)
    except (RuntimeError, ValueError) as error:  # JAX raises either for a donated array
        donated.check_layer(layer, error, inputs)
        raise


@functools.partial(jax.jit, static_argnums=0)
def _compiled_value(training: bool, layer: Layer, *inputs: Tree) -> tuple[Any, Any]:
    out = _apply(layer, inputs, None, training, None, None, {})
    return out.value, out.updates


def lost_updates(layer: Layer, updates: Mapping[str, Any]) -> ValueError:
    """The error of a call that returns a value alone although the state changed."""
    return ValueError(
        f"{layer._where}: this call changes state ({describe_state(updates)}), and the layer's value "
        "alone would lose it. Write `out = layer.apply(x, state=state, training=..., key=key)`; "
        "`out.value` is the value, `state | out.updates` the next state."
    )


def _apply(
    layer: Layer,
    inputs: tuple,
    state: Mapping[str, Any] | None,
    training: bool,
    key: jax.Array | None,
    mask: Tree,
    options: dict,
) -> Output:
    if mask is not None and not layer._masks_inputs(mask):
        options, mask = {**options, "mask": mask}, None
    context = Context(state=state, training=training, key=key, mask=mask, where=layer._where)
    out = run(layer, context, *inputs, **options)
    regularization = weight_losses(layer)
    if regularization:
        out = dataclasses.replace(out, losses=(*out.losses, *regularization))
    return out


def _as_arrays(layer: Layer, tree: Tree) -> Tree:
    """The inputs as arrays that JAX accepts; complex numbers are valid for single layers."""

    def convert(value: object) -> Leaf:
        if is_array(value) or is_array_like(value):
            return as_array(value, layer._where, complex_numbers=True)
        check_not_keras(value, layer._where)
        if any(isinstance(part, Mapping) and "params" in part for part in tree):
            raise TypeError(
                f"{layer._where}: expected inputs, received a dictionary of parameters. The model holds the "
                "weights: `model.apply(x, state=state)`."
            )
        raise TypeError(
            f"{layer._where}: expected arrays or symbolic tensors, received "
            f"{type(value).__name__}. Convert it: {conversion(value)}. Pass options of the call by name."
        )

    return jax.tree.map(convert, tree, is_leaf=is_sparse)


def _as_options(layer: Layer, tree: Tree) -> Tree:
    """Options or masks with arrays that JAX accepts; other values stay unchanged."""

    def convert(value: object) -> Leaf:
        return as_array(value, layer._where) if is_array_like(value) else value

    return jax.tree.map(convert, tree)


def _check_call(
    layer: Layer, state: Mapping[str, Any] | None, training: object, key: jax.Array | None
) -> None:
    if state is not None and not isinstance(state, Mapping):
        raise TypeError(
            f"{layer._where}: expected state as a dictionary, received {type(state).__name__}. "
            "Pass the state from init_state: `layer.apply(x, state=state)`."
        )
    if not isinstance(training, bool):
        raise TypeError(
            f"{layer._where}: expected training=True or False, received "
            f"{type(training).__name__}. The mode selects the program, so it cannot be an array."
        )
    if key is not None:
        check_key(key, f"{layer._where}: the call")
