"""Splits of arrays over devices: how operations pass the splits of their inputs on.

A split has, for each axis of an array, the names of the mesh axes that divide this axis. The rules go
from the arguments to the results: an operation keeps the splits of its inputs where it can. An operation that
sums over a split axis has a partial sum on each device, which an all-reduce completes. If one mesh axis would
split two axes, then the later input is gathered. XLA's partitioner also uses information from results to
arguments; the rules here leave this out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

#: the names of the mesh axes that divide each axis of an array
Split = tuple[tuple[str, ...], ...]
Shape = Sequence[int]


class Mesh(NamedTuple):
    """Devices that share the arrays of a program.

    Attributes:
        sizes: number of devices along each mesh axis.
        rows: number of rows of the batch.
        batch: the mesh axes that divide the rows.
    """

    sizes: Mapping[str, int]
    rows: int
    batch: tuple[str, ...]


class Decision(NamedTuple):
    """How an operation runs on split arrays.

    Attributes:
        inputs: the split with which the operation reads each input.
        outputs: the split of each output.
        partial: the mesh axes over which the outputs are partial sums.
    """

    inputs: tuple[Split, ...]
    outputs: tuple[Split, ...]
    partial: tuple[str, ...] = ()


def whole(shape: Shape) -> Split:
    """Returns the split of an array that every device holds completely."""
    return ((),) * len(shape)


def local_shape(shape: Shape, split: Split, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Returns the shape of the part of an array on one device.

    Example:
        >>> local_shape((8, 6), (("data",), ()), {"data": 4})
        (2, 6)
    """
    return tuple(
        -(-size // math.prod(sizes[name] for name in names))
        for size, names in zip(shape, split, strict=True)
    )


def decide(equation: Any, splits: Sequence[Split]) -> Decision:
    """Returns how an equation of a jaxpr runs on split inputs."""
    shapes = [tuple(variable.aval.shape) for variable in equation.invars]
    results = [tuple(variable.aval.shape) for variable in equation.outvars]
    if not any(any(split) for split in splits):
        return Decision(tuple(splits), tuple(whole(shape) for shape in results))
    rule = _RULES.get(equation.primitive.name, _same_axes)
    return rule(equation.params, shapes, results, splits)


def _merged(candidates: Sequence[tuple[str, ...]], used: set[str]) -> tuple[str, ...]:
    for names in candidates:
        if names and not used.intersection(names):
            used.update(names)
            return names
    return ()


def _same_axes(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    """Axes of equal sizes keep their splits, except those along which an operation works."""
    out = results[0]
    blocked = _axes_of(params)
    inputs = [
        index
        for index, shape in enumerate(shapes)
        if len(shape) == len(out) and shape and any(splits[index])
    ]
    used: set[str] = set()
    made = []
    for axis, size in enumerate(out):
        same = [splits[i][axis] for i in inputs if shapes[i][axis] == size > 1]
        free = axis not in blocked and all(
            shapes[i][axis] in (1, size) for i in range(len(shapes)) if len(shapes[i]) == len(out)
        )
        made.append(_merged(same, used) if free else ())
    split = tuple(made)
    needed = tuple(
        tuple(split[a] if size == out[a] and size > 1 else () for a, size in enumerate(shape))
        if len(shape) == len(out)
        else whole(shape)
        for shape in shapes
    )
    outputs = tuple(split if shape == out else whole(shape) for shape in results)
    return Decision(needed, outputs)


def _axes_of(params: Mapping[str, Any]) -> set[int]:
    axes: set[int] = set()
    for name in ("dimension", "axis", "axes", "dimensions"):
        value = params.get(name)
        if isinstance(value, int):
            axes.add(value)
        elif isinstance(value, tuple | list):
            axes.update(each for each in value if isinstance(each, int))
    for name in ("window_dimensions", "window_strides"):
        axes.update(axis for axis, size in enumerate(params.get(name, ())) if size != 1)
    return axes


def _broadcast(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    out, needed = list(whole(results[0])), list(whole(shapes[0]))
    for axis, place in enumerate(params["broadcast_dimensions"]):
        if shapes[0][axis] == results[0][place]:
            out[place] = needed[axis] = splits[0][axis]
    return Decision((tuple(needed), *splits[1:]), (tuple(out),))


def _transpose(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    return Decision(tuple(splits), (tuple(splits[0][a] for a in params["permutation"]),))


def _reshape(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    """A split passes on if the split axis is the first of the axes that are merged or divided."""
    old, new, split = shapes[0], results[0], splits[0]
    needed, out = list(whole(old)), list(whole(new))
    starts = {math.prod(new[:axis]): axis for axis in reversed(range(len(new))) if new[axis] != 1}
    for axis, names in enumerate(split):
        place = starts.get(math.prod(old[:axis])) if names and old[axis] != 1 else None
        # the parts of both axes are the same stretches of memory, if one size divides the other
        if place is not None and not max(old[axis], new[place]) % min(old[axis], new[place]):
            needed[axis] = out[place] = names
    return Decision((tuple(needed), *splits[1:]), (tuple(out),))


def _stack(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    used: set[str] = set()
    split = [_merged(names, used) for names in zip(*splits, strict=True)]
    out = (*split[: params["axis"]], (), *split[params["axis"] :])
    return Decision(tuple(tuple(split) for _ in shapes), (out,))


def _reduce(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    axes = params["axes"]
    out = tuple(names for axis, names in enumerate(splits[0]) if axis not in axes)
    partial = tuple(name for axis in axes for name in splits[0][axis])
    return Decision(tuple(splits), tuple(out for _ in results), partial)


def _product(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    (lhs_sum, rhs_sum), (lhs_batch, rhs_batch) = params["dimension_numbers"]
    lhs_free = [a for a in range(len(shapes[0])) if a not in (*lhs_sum, *lhs_batch)]
    rhs_free = [a for a in range(len(shapes[1])) if a not in (*rhs_sum, *rhs_batch)]
    pairs = [*zip(lhs_batch, rhs_batch, strict=True)]
    pairs += [(axis, None) for axis in lhs_free] + [(None, axis) for axis in rhs_free]
    return _contraction(shapes, splits, pairs, [*zip(lhs_sum, rhs_sum, strict=True)])


def _contraction(
    shapes: list,
    splits: Sequence[Split],
    pairs: Sequence[tuple[int | None, int | None]],
    sums: Sequence[tuple[int, int]],
) -> Decision:
    """Decides for a product of two arrays."""
    needed = [list(whole(shape)) for shape in shapes]
    used: set[str] = set()
    partial: list[str] = []

    def names_of(pair: tuple[int | None, int | None]) -> tuple[str, ...]:
        sides = [splits[i][axis] for i, axis in enumerate(pair) if axis is not None]
        names = _merged(sides, used)
        for i, axis in enumerate(pair):
            if axis is not None:
                needed[i][axis] = names
        return names

    # sums over axes that both arrays split come first: to gather both would cost most
    both = [
        pair for pair in sums if splits[0][pair[0]] and splits[0][pair[0]] == splits[1][pair[1]]
    ]
    for pair in both:
        partial += names_of(pair)
    out = tuple(names_of(pair) for pair in pairs)
    for pair in sums:
        if pair not in both:
            partial += names_of(pair)
    return Decision(tuple(map(tuple, needed)), (out,), tuple(partial))


def _convolution(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    numbers = params["dimension_numbers"]
    lhs, rhs, out = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    if params["feature_group_count"] != 1 or params["batch_group_count"] != 1:
        pairs: list[tuple[int | None, int | None]] = [(lhs[0], None)]
        decision = _contraction(shapes, splits, pairs, [])
    else:
        decision = _contraction(
            shapes, splits, [(lhs[0], None), (None, rhs[0])], [(lhs[1], rhs[1])]
        )
    made = list(whole(results[0]))
    for axis, names in zip(out, decision.outputs[0], strict=False):
        made[axis] = names
    return decision._replace(outputs=(tuple(made),))


def _gather(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    numbers, (array, indices) = params["dimension_numbers"], splits[:2]
    kept = [axis for axis in range(len(shapes[0])) if axis not in numbers.collapsed_slice_dims]
    if getattr(numbers, "operand_batching_dims", ()):
        return Decision(tuple(whole(s) for s in shapes), tuple(whole(s) for s in results))
    needed, out = list(whole(shapes[0])), list(whole(results[0]))
    used: set[str] = set()
    rows = [axis for axis in range(len(results[0])) if axis not in numbers.offset_dims]
    wanted = list(whole(shapes[1]))
    for place, axis in enumerate(rows):
        out[axis] = wanted[place] = _merged([indices[place]], used)
    for axis, place in zip(kept, numbers.offset_dims, strict=True):
        if shapes[0][axis] == results[0][place]:
            out[place] = needed[axis] = _merged([array[axis]], used)
    partial: list[str] = []
    for axis in numbers.collapsed_slice_dims:
        needed[axis] = _merged([array[axis]], used)
        partial += needed[axis]
    return Decision((tuple(needed), tuple(wanted)), (tuple(out),), tuple(partial))


def _scatter(params: Any, shapes: list, results: list, splits: Sequence[Split]) -> Decision:
    numbers, (_, indices, updates) = params["dimension_numbers"], splits
    if getattr(numbers, "operand_batching_dims", ()):
        return Decision(tuple(whole(s) for s in shapes), tuple(whole(s) for s in results))
    kept = [axis for axis in range(len(shapes[0])) if axis not in numbers.inserted_window_dims]
    out, given = list(whole(shapes[0])), list(whole(shapes[2]))
    used: set[str] = set()
    partial: list[str] = []
    rows = [axis for axis in range(len(shapes[2])) if axis not in numbers.update_window_dims]
    wanted = list(whole(shapes[1]))
    for place, axis in enumerate(rows):
        given[axis] = wanted[place] = _merged([updates[axis], indices[place]], used)
        partial += given[axis]
    for axis, place in zip(kept, numbers.update_window_dims, strict=True):
        if shapes[0][axis] == shapes[2][place]:
            out[axis] = given[place] = _merged([updates[place]], used)
    return Decision((tuple(out), tuple(wanted), tuple(given)), (tuple(out),), tuple(partial))


_RULES: Mapping[str, Callable[[Any, list, list, Sequence[Split]], Decision]] = MappingProxyType(
    {
        "broadcast_in_dim": _broadcast,
        "transpose": _transpose,
        "stack": _stack,
        **dict.fromkeys(("reshape", "squeeze", "expand_dims"), _reshape),
        **dict.fromkeys(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"), _reduce),
        **dict.fromkeys(("reduce_and", "reduce_or", "argmax", "argmin"), _reduce),
        "dot_general": _product,
        "conv_general_dilated": _convolution,
        "gather": _gather,
        **dict.fromkeys(("scatter-add", "scatter_add"), _scatter),
    }
)
