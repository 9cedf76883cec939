"""Inference: the signature and effects of a call, from specs alone.

Inference runs the layer itself under `jax.eval_shape`, with unknown axes as symbolic dimensions,
so no layer computes output shapes by hand and nothing is compiled.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence
from typing import Any, cast

import jax
import numpy as np
from jax import core, errors

from fkeras.engine.call.array_sizes import fixing_reshape, largest_array
from fkeras.engine.call.building import build_shapes
from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.mask_rules import KERAS, AttachedMasks, call_mask, mask_leaves
from fkeras.engine.call.network_inputs import check_shape, match_inputs
from fkeras.engine.call.signature import Effects, RecordedCall, Signature
from fkeras.engine.messages.errors import FKerasError, add_note
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.weights import weight_losses
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Layer, Leaf, Network, Tree
from fkeras.engine.values.spec import STRING, Spec, as_probes, as_spec, as_structs, name_axis
from fkeras.engine.values.structure import fill_arrays, fill_tensors
from fkeras.nn.numerics.axes import format_shape


def probe(
    layer: Layer, args: Tree, specs: tuple[Spec, ...], sizes: tuple[int, int]
) -> list[Output]:
    """The outputs of a layer that reads or makes strings, for two sizes of the unknown axes.

    Raises:
        FKerasError: for strings at a layer that reads no strings.
    """
    if any(spec.dtype == STRING for spec in specs) and not layer._reads_strings:
        raise FKerasError(
            f"{layer._where}: expected numbers, received strings. Convert them with "
            "TextVectorization, StringLookup, Hashing or HashedCrossing.",
            layer=layer._where,
        )
    if getattr(layer, "graph", None) is not None:
        return [_output_specs(cast("Network", layer), structure.fill(args, specs))] * 2
    outputs = []
    for size, text in zip(sizes, layer._sample_texts, strict=True):
        arrays = [_array(spec, size, text) for spec in specs]
        outputs.append(layer.apply(*fill_tensors(args, arrays)))
    return outputs


def _array(spec: Spec, size: int, text: str) -> np.ndarray:
    shape = [size if isinstance(dim, str) else dim for dim in spec.dims]
    return np.full(shape, text if spec.dtype == STRING else np.zeros((), spec.dtype))


def _output_specs(network: Network, args: tuple) -> Output:
    """The `Output` of a network as specs, with the sizes of these inputs."""
    graph = network.graph
    for slot, spec in zip(graph.input_slots, match_inputs(network, args), strict=True):
        check_shape(network, slot, spec)
    slots = network._bound_specs(args)
    masks = [graph.masks[slot] for slot in graph.output_slots]
    metrics = {name: None for effects in graph.effects for name in effects.metrics}
    return Output(
        structure.fill(graph.outputs, slots),
        updates={"some": None} if any(effects.updates for effects in graph.effects) else {},
        losses=tuple(None for effects in graph.effects for _ in range(effects.losses)),
        metrics=metrics,
        mask=structure.fill(graph.outputs, graph.masks) if any(masks) else None,
    )


Inference = tuple[Signature, Effects]

# Two sizes for unknown axes where JAX cannot compute with symbolic sizes. Common kernels, strides and
# splits divide both; an axis of the output that differs between the two is unknown too. A third size is
# below known sizes, for operations that take the smaller of two; not every layer has a result for it.
_PROBES = (32, 48)
_SMALL_PROBE = 1
# the class moved to jax.errors between the versions of JAX that are supported
_home = errors if hasattr(errors, "InconclusiveDimensionOperation") else core
_Inconclusive: type[Exception] = getattr(_home, "InconclusiveDimensionOperation")  # noqa: B009
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
        if layer._makes_strings or any(spec.dtype == STRING for spec in specs):
            low, high = probe(layer, call.args, specs, _PROBES)
            return _describe(call, (low, (), 0), (high, (), 0), specs)
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
    shapes = structure.fill(call.args, specs)
    layer = skeleton.join(weights)
    if not layer.built:
        # each call is inferred with the weights that it would build; `close` compares shared layers
        weight_structs = tuple(
            None if w is None else jax.ShapeDtypeStruct(w.shape, w.dtype) for w in weights
        )
        layer, _ = build_shapes(skeleton.join(weight_structs), *shapes)
        skeleton = skeleton_of(layer)
        weights = tuple(None if w is None else as_spec(w) for w in leaves_of(layer))

    def compute(key: Leaf, leaves: tuple, tensors: tuple, tensor_masks: tuple) -> tuple:
        layer = skeleton.join(leaves)
        return run_call(layer, call, shapes, key, tensors, tensor_masks), weight_losses(layer)

    def evaluate(substitute: Callable[[list[Spec | None]], Sequence]) -> tuple[Output, tuple, int]:
        substitutes = substitute([*weights, *specs, *masks])
        num_weights, num_tensors = len(weights), len(specs)
        arguments = (
            tuple(substitutes[:num_weights]),
            tuple(substitutes[num_weights : num_weights + num_tensors]),
            tuple(substitutes[num_weights + num_tensors :]),
        )
        program, out = jax.make_jaxpr(compute, return_shape=True)(key_spec(), *arguments)
        if out[0].value is None:
            raise FKerasError(
                f"{layer._where}: expected an array, or a structure of arrays, as the result of the call, "
                "received None. Return the result.",
                layer=layer._where,
            )
        return *out, _checked_size(layer, program.jaxpr)

    unknown = any(isinstance(d, str) for s in specs for d in s.dims)
    # First with symbolic sizes. Some operations, such as a comparison of two sizes, have no answer for
    # them; then the results for two sizes show which axes of the outputs vary.
    try:
        out = evaluate(as_structs)
    except FKerasError:
        raise
    except (TypeError, _Inconclusive) as error:
        if not unknown:
            raise
        try:
            low, high = (evaluate(lambda s, fill=fill: as_probes(s, fill)) for fill in _PROBES)
        except Exception:
            raise error from None  # the first error shows the shapes that the user wrote
        try:
            small = evaluate(lambda s: as_probes(s, _SMALL_PROBE))
        except Exception:
            small = low
        return _describe(call, low, high, specs, small)
    return _describe(call, out, out, specs)


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
    call: RecordedCall,
    first: tuple[Output, tuple, int],
    second: tuple[Output, tuple, int],
    inputs: tuple[Spec, ...],
    third: tuple[Output, tuple, int] | None = None,
) -> Inference:
    """The inference of a call from its results for several sizes of the unknown axes."""
    (low, penalties, size), (high, _, _) = first, second
    value, outputs = structure.number(low.value)
    _, other_outputs = structure.number(high.value)
    small = low if third is None else third[0]
    if _ranks(small.value) != _ranks(low.value) or _ranks(small.mask) != _ranks(low.mask):
        small = low
    masks = mask_leaves(value, low.mask)
    all_outputs = zip(outputs, other_outputs, structure.number(small.value)[1], strict=True)
    all_masks = zip(
        masks, mask_leaves(value, high.mask), mask_leaves(value, small.mask), strict=True
    )
    common_specs = (_common(inputs, *each) for each in all_outputs)
    specs = tuple(spec for spec in common_specs if spec is not None)  # every output has a spec
    mask_specs = tuple(_common(inputs, *each) for each in all_masks)
    signature = Signature(*call, value, specs, mask_specs, size)
    return signature, Effects(
        losses=len(low.losses),
        penalties=len(penalties),
        metrics=tuple(low.metrics),
        updates=bool(low.updates),
    )


def _checked_size(layer: Layer, program: Any) -> int:
    """Returns the bytes of the largest array in a layer's program; rejects more than 2**63 - 1.

    Also rejects a reshape from an unknown size to fixed sizes.
    """
    size, shape = largest_array(program)
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
            "unknown axes only. Keep the batch axis, `jnp.reshape(x, (x.shape[0], 7))`, or give the "
            "input its size, fk.Input(shape, batch_size=32)."
        )
    return size


def _ranks(tree: Tree) -> tuple:
    leaves, treedef = jax.tree.flatten(tree)
    return treedef, [len(leaf.shape) for leaf in leaves]


def _common(inputs: tuple[Spec, ...], a: Tree, b: Tree, c: Tree) -> Spec | None:
    """The spec of an output or mask that was inferred for several sizes of the unknown axes."""
    if a is None:
        return None
    first, second, third = as_spec(a), as_spec(b), as_spec(c)
    if first == second == third:
        return first.shortened()
    dims = []
    for axis, (x, y, z) in enumerate(zip(first.dims, second.dims, third.dims, strict=True)):
        dims.append(x if x == y == z else _axis_name(axis, (x, y if x != y else z), inputs))
    return Spec(tuple(dims), first.dtype)


def _axis_name(axis: int, sizes: tuple, inputs: tuple[Spec, ...]) -> str:
    """The name of an output's unknown axis: that of an input axis with the same size, or a new name."""
    names = [s.dims[axis] for s in inputs if s.ndim > axis]
    plain_names = [name for name in names if isinstance(name, str) and name.isidentifier()]
    if sizes == _PROBES and plain_names:
        return plain_names[0]
    used_names = {name_part for s in inputs for name_part in s.words}
    new_names = (f"{name_axis(axis)}_{number}" for number in itertools.count(2))
    return next(name for name in new_names if name not in used_names)


def key_spec() -> jax.ShapeDtypeStruct:
    """Returns the shape and dtype of a PRNG key."""
    # the dtype of a key depends on JAX's configured PRNG implementation
    return jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), "uint32"))
