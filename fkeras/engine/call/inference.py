"""Inference: the signature and effects of a call, from specs alone.

Inference runs the layer itself under `jax.eval_shape`, with unknown axes as symbolic dimensions,
so no layer computes output shapes by hand and nothing is compiled.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Sequence
from typing import Any

import jax

from fkeras.engine.call.array_sizes import fixing_reshape, largest_array
from fkeras.engine.call.building import build_shapes
from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.mask_rules import KERAS, AttachedMasks, call_mask, mask_leaves
from fkeras.engine.call.signature import Effects, RecordedCall, Signature
from fkeras.engine.call.strings import probe, sample_shape, takes_part
from fkeras.engine.call.unknown_axes import numbers_in, trials
from fkeras.engine.messages.errors import FKerasError, add_note
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.weights import weight_losses
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Layer, Leaf
from fkeras.engine.values.dimensions import Inconclusive
from fkeras.engine.values.spec import (
    Dimension,
    Spec,
    as_spec,
    as_structs,
    name_axis,
)
from fkeras.engine.values.structure import fill_arrays
from fkeras.nn.numerics.axes import format_shape

Inference = tuple[Signature, Effects]

# two sizes for the unknown axes of a call on strings, which runs on arrays
_PROBES = (32, 48)
# shapes are inferred by tracing, where arrays hold no numbers
_REMEDIES = (
    (
        jax.errors.TracerBoolConversionError,
        "An `if` needs numbers, which a traced call does not have. Write `y = jnp.where(condition, a, "
        "b)`, or `jax.lax.cond`.\n",
    ),
    (
        jax.errors.TracerArrayConversionError,
        "Functions of NumPy need numbers, which a traced call does not have. Write the function of "
        "`jnp` or `fk.ops` of the same name, such as `jnp.log`.\n",
    ),
)
# `jnp.nonzero(x)`, `x[x > 0]`
_UNKNOWN_SIZES = (jax.errors.ConcretizationTypeError, jax.errors.NonConcreteBooleanIndexError)
# `jnp.reshape(x, shape)` with a traced shape: a bare TypeError
_TRACED_SHAPE = "sequences of concrete values of integer type, got "


def infer(
    layer: Layer,
    call: RecordedCall,
    specs: tuple[Spec, ...],
    masks: tuple[Spec | None, ...],
) -> Inference:
    """`(signature, effects)` of a call of `layer` on inputs of these specs and masks.

    Args:
        call: arguments, mode and mask rule, `Ref(i)` for the input of `specs[i]`; a call that does not
            pin the mode is inferred as a training call.
        masks: spec of each input's mask, or None.
    """
    try:
        if takes_part(layer, specs):
            low, high = probe(layer, call.args, specs, _PROBES)
            shapes = [[sample_shape(spec, size) for spec in specs] for size in _PROBES]
            return _describe(call, [(low, (), 0), (high, (), 0)], _Names(specs, shapes))
        weights = tuple(None if w is None else as_spec(w) for w in leaves_of(layer))
        if layer.name is not None:  # layers that differ only in name share one inference
            try:
                nameless = skeleton_of(layer.replace(name=None))
                inference = _infer(nameless, weights, call, specs, masks)
            except Exception:
                inference = None  # raised again below, by the layer with its name
            # names of metrics may contain the layer's name
            if inference is not None and not inference[1].metrics:
                return inference
        return _infer(skeleton_of(layer), weights, call, specs, masks)
    except Exception as error:
        names = [str(s) for s in specs]
        shapes = structure.draw(call.args, lambda i: names[i])
        remedy = next((text for kind, text in _REMEDIES if isinstance(error, kind)), "")
        if not remedy and (isinstance(error, _UNKNOWN_SIZES) or _TRACED_SHAPE in str(error)):
            raise FKerasError(
                f"{layer._where}: the size of a result, or another static argument of JAX, depends on "
                f"the numbers in the inputs {shapes[1:-1]}, which a compiled program does not know. "
                "Keep the shape, `fk.ops.where(condition, x, 0)`, or give the size, "
                "`fk.ops.lift(lambda x: jnp.nonzero(x, size=8))(x)`.",
                layer=layer._where,
            ) from error
        add_note(
            error, f"{remedy}while {layer._where} was called on symbolic inputs {shapes[1:-1]}"
        )
        raise


# A memo of a pure function of hashable values, no mutable state in effect: a deep network repeats the
# same few calls, and each inference traces the layer.
@functools.lru_cache(maxsize=1024)
def _infer(
    skeleton: Skeleton,
    weights: tuple,
    call: RecordedCall,
    specs: tuple[Spec, ...],
    masks: tuple[Spec | None, ...],
) -> Inference:
    call_shapes = structure.fill_specs(call.args, specs)
    layer = skeleton.join(weights)
    if not layer.built:
        # each call is inferred with the weights that it would build; `close` compares shared layers
        weight_structs = tuple(
            None if w is None else jax.ShapeDtypeStruct(w.shape, w.dtype) for w in weights
        )
        layer, _ = build_shapes(skeleton.join(weight_structs), *call_shapes)
        skeleton = skeleton_of(layer)
        weights = tuple(None if w is None else as_spec(w) for w in leaves_of(layer))

    weight_structs = as_structs(weights)

    def evaluate(substitutes: Sequence, unit: int = 1) -> tuple[Output, tuple, int]:
        tensors, tensor_masks = tuple(substitutes[: len(specs)]), tuple(substitutes[len(specs) :])

        def compute(key: Leaf, leaves: Sequence, tensors: tuple, tensor_masks: tuple) -> tuple:
            layer = skeleton.join(leaves)
            out = run_call(layer, call, call_shapes, key, tensors, tensor_masks)
            return out, weight_losses(layer)

        arguments = key_spec(), weight_structs, tensors, tensor_masks
        program, out = jax.make_jaxpr(compute, return_shape=True)(*arguments)
        if out[0].value is None:
            raise FKerasError(
                f"{layer._where}: expected an array, or a structure of arrays, as the result of the call, "
                "received None. Return the result.",
                layer=layer._where,
            )
        return *out, _checked_size(layer, program.jaxpr, unit)

    # First with symbolic sizes. Where JAX cannot compute with symbolic sizes, as in a comparison, the
    # results for concrete sizes show which axes of the outputs vary.
    try:
        out = evaluate(as_structs([*specs, *masks]))
    except FKerasError:
        raise
    except (TypeError, ValueError, NotImplementedError, Inconclusive) as error:
        weight_sizes = [weight.dims for weight in weights if weight is not None]
        numbers = numbers_in(weight_sizes, skeleton.static, call.args, call.options)
        # a network is slow to trace, and its calls were inferred one by one
        network: Any = layer if getattr(layer, "graph", None) is not None else None
        for unit, low, high, small in trials([*specs, *masks], numbers, network is None):
            try:
                results, structs = [evaluate(low, unit), evaluate(high, unit)], [low, high]
            except Exception:
                continue
            # not every layer has a result for an axis of size 1, or a result of the same rank
            with contextlib.suppress(Exception):
                third = evaluate(small)
                if _ranks(third[0]) == _ranks(results[0][0]):
                    results, structs = [*results, third], [low, high, small]
            shapes = [[struct.shape for struct in each[: len(specs)]] for each in structs]
            return _describe(call, results, _Names(specs, shapes))
        if network is not None:
            return network._infer_by_calls(call, specs, masks)
        raise error from None  # the first error shows the shapes that the user wrote
    return _describe(call, [out], _Names((), ()))


def run_call(
    layer: Layer, call: RecordedCall, shapes: tuple, key: Leaf, tensors: tuple, masks: tuple
) -> Output:
    """Computes a recorded call.

    Args:
        masks: array of each input's mask, or None.
    """
    context = Context(
        state=layer.init_state(*shapes),
        # only a training call shows updates, and most losses
        training=True if call.training is None else call.training,
        key=key,
        where=layer._where,
    )
    if call.mask_rule == KERAS:
        context.attached = AttachedMasks(tensors, masks)
    inputs, options = fill_arrays(call.args, tensors), fill_arrays(call.options, tensors)
    context.mask = call_mask(layer, call.mask_rule, call.args, options, masks.__getitem__)
    return context.run(layer, *inputs, **options)


def _describe(
    call: RecordedCall, results: Sequence[tuple[Output, tuple, int]], names: _Names
) -> Inference:
    """Returns the inference of a call from its results for one or several sizes of unknown axes."""
    out, penalties, size = results[0]
    value, _ = structure.number(out.value)
    outputs = zip(*(structure.number(each.value)[1] for each, _, _ in results), strict=True)
    masks = zip(*(mask_leaves(value, each.mask) for each, _, _ in results), strict=True)
    specs = tuple(spec for spec in map(names.spec, outputs) if spec is not None)  # every output
    signature = Signature(*call, value, specs, tuple(map(names.spec, masks)), size)
    return signature, Effects(
        losses=len(out.losses),
        penalties=len(penalties),
        metrics=tuple(out.metrics),
        updates=bool(out.updates),
    )


def _checked_size(layer: Layer, program: Any, unit: int) -> int:
    """Returns the bytes of the largest array in a layer's program; rejects more than 2**63 - 1.

    Also rejects a reshape of an unknown batch to fixed sizes.
    """
    size, shape = largest_array(program, unit)
    if size >= 2**63:
        raise FKerasError(
            f"{layer._where}: expected arrays of less than 2**63 bytes, received a call that "
            f"computes an array of shape {format_shape(shape)}. Reduce the layer's sizes."
        )
    reshape = fixing_reshape(program)
    if reshape is not None:
        old, new = map(format_shape, reshape)
        raise FKerasError(
            f"{layer._where}: reshapes an array of shape {old} to {new}, which fits one size of the "
            "batch only. Keep the batch axis, `jnp.reshape(x, (x.shape[0], 7))`, or give the "
            "input its size, fk.Input(shape, batch_size=32)."
        )
    return size


def _ranks(out: Output) -> tuple:
    leaves, treedef = jax.tree.flatten((out.value, out.mask))
    return treedef, [len(leaf.shape) for leaf in leaves]


class _Names:
    """Names of the axes that differ between several inferences of one call.

    An axis gets the name of the input axis of the same position and sizes. If no input axis, or several
    input axes of different names, have this position and these sizes, the axis gets a new name.

    Args:
        inputs: specs of the inputs.
        shapes: shapes of the inputs in each inference.
    """

    def __init__(self, inputs: Sequence[Spec], shapes: Sequence[Sequence[tuple]]):
        self._names: dict[tuple, set[Dimension]] = {}
        self._used = {word for spec in inputs for word in spec.words}
        for spec, *each in zip(inputs, *shapes, strict=True):
            for axis, (dim, *sizes) in enumerate(zip(spec.dims, *each, strict=True)):
                self._names.setdefault((axis, *sizes), set()).add(dim)

    def spec(self, results: Sequence[Leaf]) -> Spec | None:
        """Returns the spec of an output or mask from its arrays in the inferences."""
        if results[0] is None:
            return None
        first, *others = map(as_spec, results)
        sizes = zip(first.dims, *(other.dims for other in others), strict=True)
        dims = tuple(
            each[0] if len(set(each)) == 1 else self._name(axis, each)
            for axis, each in enumerate(sizes)
        )
        return Spec(dims, first.dtype).shortened()

    def _name(self, axis: int, sizes: Sequence[Dimension]) -> str:
        names = self._names.setdefault((axis, *sizes), set())
        plain_names = [name for name in names if isinstance(name, str) and name.isidentifier()]
        if len(names) != 1 or not plain_names:
            new_names = (f"{name_axis(axis)}_{number}" for number in itertools.count(2))
            plain_names = [next(name for name in new_names if name not in self._used)]
            names.clear()
            names.update(plain_names)
            self._used.update(plain_names)
        return plain_names[0]


def key_spec() -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of a PRNG key."""
    # the dtype of a key depends on JAX's configured PRNG implementation
    return jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), "uint32"))
