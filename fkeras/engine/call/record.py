"""Recording: a call on symbolic tensors becomes a Node, and the shapes of its outputs are inferred.

Inference runs the layer itself under `jax.eval_shape`, with unknown axes as symbolic dimensions,
so no layer computes output shapes by hand and nothing is compiled.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import os
import sys
from collections.abc import Iterator
from typing import Any

import jax

from fkeras.engine.call.call_arguments import fill_arrays
from fkeras.engine.call.context import Context, Output
from fkeras.engine.call.mask_rules import DROP, KERAS, STRICT, AttachedMasks, loses, take_mask
from fkeras.engine.call.node import Node, is_symbolic
from fkeras.engine.call.string_probes import probe
from fkeras.engine.messages.errors import FKerasError
from fkeras.engine.tree.shapes import build_shapes
from fkeras.engine.tree.skeleton import Skeleton, leaves_of, skeleton_of
from fkeras.engine.tree.weights import weight_losses
from fkeras.engine.values import structure
from fkeras.engine.values.frozen import ArrayConstant, freeze_value, is_array
from fkeras.engine.values.spec import STRING, Spec, as_probes, as_spec, as_structs, name_axis
from fkeras.engine.values.structure import Branch, Ref

_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# two sizes that the usual kernels, strides and splits divide; axes that follow them are unknown
_PROBES = (32, 48)
# it moved between the versions of jax that are supported
if hasattr(jax.errors, "InconclusiveDimensionOperation"):
    _Inconclusive = jax.errors.InconclusiveDimensionOperation
else:
    _Inconclusive = jax.core.InconclusiveDimensionOperation


@dataclasses.dataclass(frozen=True)
class Inference:
    """What a call will return: the tree of its outputs and their specs."""

    value: Any
    outputs: tuple[Spec, ...]
    masks: tuple[Spec | None, ...]
    losses: int
    penalties: int
    metrics: tuple[str, ...]
    updates: bool


def record(
    layer: Any,
    args: tuple,
    options: dict,
    training: bool | None = None,
    mask_rule: str = STRICT,
    kind: type | None = None,
) -> Any:
    """Records one call of `layer` and returns its symbolic outputs; nothing that exists is changed.

    Args:
        layer: the layer.
        args: the positional arguments, symbolic tensors and arrays in any nesting.
        options: the arguments by name.
        training: True or False where the call pins it.
        mask_rule: how masks reach the call; see `mask_rules`.
        kind: the class of the outputs; that of the inputs, unless the call has only constants.
    """
    tensors: list[Any] = []

    def place(value: Any) -> Any:
        if is_symbolic(value):
            tensors.append(value)
            return Ref(len(tensors) - 1)
        if isinstance(value, jax.core.Tracer):
            raise FKerasError(
                f"{layer.where}: expected symbolic tensors and constants, received a traced array "
                "beside them. A graph holds no traced values: make it an fk.Input of the graph.",
                layer=layer.where,
            )
        return ArrayConstant(value) if is_array(value) else freeze_value(value)

    template = structure.freeze(args, place)
    frozen_options = structure.freeze(options, place)
    specs = tuple(t.spec for t in tensors)
    masks = tuple(t.node.masks[t.index] for t in tensors)
    first_args = structure.fill(template, specs)
    resolved = layer.resolve(*first_args)
    found = infer(resolved, template, frozen_options, specs, masks, training, mask_rule)
    node = Node(
        layer,
        resolved=resolved,
        inputs=tuple(tensors),
        args=template,
        options=frozen_options,
        training=training,
        value=found.value,
        outputs=found.outputs,
        masks=found.masks,
        losses=found.losses,
        penalties=found.penalties,
        metrics=found.metrics,
        updates=found.updates,
        mask_rule=mask_rule,
        location=_user_line(),
    )
    kind = type(tensors[0]) if kind is None else kind
    return structure.fill(found.value, [kind(node, i) for i in range(len(found.outputs))])


def infer(
    layer: Any,
    args: Branch,
    options: Branch,
    specs: tuple[Spec, ...],
    masks: tuple[Spec | None, ...],
    training: bool | None,
    mask_rule: str = STRICT,
) -> Inference:
    """What a call of `layer` returns for inputs of these specs."""
    if layer.makes_strings or any(spec.dtype == STRING for spec in specs):
        with _noting(layer, args, specs):
            low, high = probe(layer, args, specs, _PROBES)
            return _describe((low, ()), (high, ()), specs)
    weights = tuple(None if w is None else as_spec(w) for w in leaves_of(layer))
    given = (weights, args, options, specs, masks, training, mask_rule)
    if layer.name is not None:  # layers that differ by name alone share an inference
        try:
            found = _infer(skeleton_of(layer.replace(name=None)), *given)
        except Exception:
            found = None  # told below, with the name
        if found is not None and not found.metrics:  # their names may hold the layer's
            return found
    with _noting(layer, args, specs):
        return _infer(skeleton_of(layer), *given)


@contextlib.contextmanager
def _noting(layer: Any, args: Branch, specs: tuple[Spec, ...]) -> Iterator[None]:
    """Notes on an exception which call it comes from."""
    try:
        yield
    except Exception as error:
        names = [str(s) for s in specs]
        shapes = structure.draw(args, lambda i: names[i])
        error.add_note(f"while {layer.where} was called on symbolic inputs {shapes[1:-1]}")
        raise


# A memo of a pure function of hashable values: a deep network repeats the same few calls.
@functools.lru_cache(maxsize=1024)
def _infer(
    skeleton: Skeleton,
    weights: tuple,
    args: Branch,
    options: Branch,
    specs: tuple[Spec, ...],
    masks: tuple[Spec | None, ...],
    training: bool | None,
    mask_rule: str,
) -> Inference:
    shapes = structure.fill(args, specs)
    layer = skeleton.join(weights)
    if not layer.built:
        bare = tuple(None if w is None else jax.ShapeDtypeStruct(w.shape, w.dtype) for w in weights)
        layer, _ = build_shapes(skeleton.join(bare), *shapes)
        skeleton = skeleton_of(layer)
        weights = tuple(None if w is None else as_spec(w) for w in leaves_of(layer))

    def compute(key: Any, leaves: tuple, tensors: tuple, tensor_masks: tuple) -> tuple:
        layer = skeleton.join(leaves)
        inputs = fill_arrays(args, tensors)
        context = Context(
            state=layer.init_state(*shapes),
            training=True if training is None else training,
            key=key,
            where=layer.where,
        )
        call_options = fill_arrays(options, tensors)
        if mask_rule == KERAS:
            context.attached = AttachedMasks()
            for tensor, mask in zip(tensors, tensor_masks, strict=True):
                context.attached.attach(tensor, mask)
        explicit, context.mask = take_mask(layer, call_options)
        if not explicit and mask_rule != KERAS:
            context.mask = masks_of(args, tensor_masks)
        if mask_rule == DROP and loses(layer, context.mask):
            context.mask = None
        return layer.run(context, *inputs, **call_options), weight_losses(layer)

    def evaluate(make: Any) -> tuple[Output, tuple]:
        made = make([*weights, *specs, *masks])
        n, m = len(weights), len(specs)
        parts = tuple(made[:n]), tuple(made[n : n + m]), tuple(made[n + m :])
        return jax.eval_shape(compute, _key_spec(), *parts)

    unknown = any(isinstance(d, str) for s in specs for d in s.dims)
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
            raise error from None
        return _describe(low, high, specs)
    return _describe(out, out, specs)


def _describe(
    first: tuple[Output, tuple], second: tuple[Output, tuple], inputs: tuple[Spec, ...]
) -> Inference:
    (low, penalties), (high, _) = first, second
    value, outputs = structure.number(low.value)
    _, others = structure.number(high.value)
    masks = mask_leaves(value, low.mask)
    other_masks = mask_leaves(value, high.mask)
    return Inference(
        value=value,
        outputs=tuple(_common(a, b, inputs) for a, b in zip(outputs, others, strict=True)),
        masks=tuple(_common(a, b, inputs) for a, b in zip(masks, other_masks, strict=True)),
        losses=len(low.losses),
        penalties=len(penalties),
        metrics=tuple(low.metrics),
        updates=bool(low.updates),
    )


def _common(a: Any, b: Any, inputs: tuple[Spec, ...]) -> Spec | None:
    """The spec of an output that was inferred for two sizes of the unknown axes."""
    if a is None:
        return None
    one, two = as_spec(a), as_spec(b)
    if one == two:
        return one
    pairs = enumerate(zip(one.dims, two.dims, strict=True))
    return Spec(
        tuple(x if x == y else _word(axis, (x, y), inputs) for axis, (x, y) in pairs), one.dtype
    )


def _word(axis: int, sizes: tuple, inputs: tuple[Spec, ...]) -> str:
    """The word of an output's unknown axis: an input's where it kept its size, else a new one."""
    here = [s.dims[axis] for s in inputs if s.ndim > axis and isinstance(s.dims[axis], str)]
    kept = [word for word in here if word.isidentifier()]
    if sizes == _PROBES and kept:
        return str(kept[0])
    taken = {word for s in inputs for word in s.words}
    names = (f"{name_axis(axis)}_{number}" for number in itertools.count(2))
    return next(name for name in names if name not in taken)


def _key_spec() -> jax.ShapeDtypeStruct:
    return jax.eval_shape(jax.random.key, jax.ShapeDtypeStruct((), "uint32"))


def masks_of(args: Branch, masks: Any) -> Any:
    """`Context.mask` for a call: the inputs' masks in the tree of the positional arguments."""
    refs = [leaf for leaf in structure.leaves(args) if isinstance(leaf, Ref)]
    if all(masks[r.index] is None for r in refs):
        return None
    trees = structure.thaw(args, lambda v: masks[v.index] if isinstance(v, Ref) else None)
    return trees[0] if len(trees) == 1 else trees


def mask_leaves(value: Any, mask: Any) -> list[Any]:
    """One mask (or None) for each output of the frozen tree `value`; a single mask serves all."""
    count = sum(isinstance(leaf, Ref) for leaf in structure.leaves(value))
    if mask is None:
        return [None] * count
    if is_array(mask) or hasattr(mask, "shape"):
        return [mask] * count
    found = structure.match(value, mask) if isinstance(value, Branch) else None
    if found is None:
        given = len(mask) if isinstance(mask, list | tuple | dict) else 1
        raise FKerasError(
            f"expected a mask for each of the {count} outputs, received {given} masks. Return one "
            "mask (or None) an output in Output.mask, in the structure of the value."
        )
    return found


def _user_line() -> str:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
