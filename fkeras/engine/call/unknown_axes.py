"""Sizes for the unknown axes of a call whose output shapes JAX cannot infer from symbolic sizes.

An unknown axis fits any axis. Where JAX cannot compare two symbolic sizes, inference runs the call
for pairs of concrete sizes instead. An axis of the output that differs between the two sizes of a pair
is unknown.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax

from fkeras.engine.values.frozen import ArrayConstant
from fkeras.engine.values.spec import Dimension, Spec, evaluate, name_axis
from fkeras.engine.values.structure import Branch

# Pairs of sizes, with the divisors that strides, splits, kernels and five levels of pooling need; the
# small pairs are for calls that admit a largest size, such as padding to a height.
_PAIRS = ((64, 96), (960, 1920), (8, 12), (2, 3))
# limits on the sizes from the call, such as sizes of another input, and on the trials with them
_MOST_SIZES = 8
_MOST_TRIALS = 50

Structs = list[jax.ShapeDtypeStruct | None]


def trials(
    specs: Sequence[Spec | None], numbers: Sequence[int], single: bool = True
) -> Iterator[tuple]:
    """Yields `(unit, low, high, small)`: the size of a word in `low`, and three lists of shapes.

    Unknown axes of `small` have the size 1: a result may take the smaller of two sizes, and known sizes
    may be below those of `low`.

    The order of the trials: one size for each word; one size for all unknown axes, so that "2*d1" fits
    "d1"; then multiples of sizes from the call, such as a number of parts, and the sizes themselves, such
    as a target shape, for one or two axes.

    Args:
        specs: the specs of a call's inputs and masks.
        numbers: sizes from the call, such as sizes in the layer's configuration.
        single: whether sizes from the call are tried.

    Example:
        >>> specs = [Spec(("b", "2*d1")), Spec(("b", "d1")), Spec((5,))]
        >>> [[s.shape for s in low] for _, low, *_ in itertools.islice(trials(specs, []), 5)][::4]
        [[(64, 128), (64, 64), (5,)], [(64, 64), (64, 64), (5,)]]
    """
    places = [(i, axis) for i, s in enumerate(specs) if s is not None for axis in _unknown(s)]
    if not places:
        return
    for pair in _PAIRS:
        yield pair[0], *(_structs(specs, _by_name(specs, size)) for size in (*pair, 1))
    for pair in _PAIRS:
        yield pair[0], *(_structs(specs, dict.fromkeys(places, size)) for size in (*pair, 1))
    sizes_of_call = _of_call(specs, places, numbers) if single else iter(())
    for each in itertools.islice(sizes_of_call, _MOST_TRIALS):
        alike = (dict.fromkeys(places, size) for size in (*_PAIRS[0], 1))
        structs = (_structs(specs, {**a, **b}) for a, b in zip(alike, each, strict=True))
        yield _PAIRS[0][0], *structs


def numbers_in(*trees: Any) -> list[int]:
    """Returns the positive integers in configurations, and the product of each tuple of integers."""
    numbers: dict[int, None] = {}
    for tree in trees:
        _collect(tree, numbers)
    return list(numbers)


def _collect(tree: Any, numbers: dict[int, None]) -> None:
    if isinstance(tree, Spec):
        _collect(tree.dims, numbers)
    elif isinstance(tree, ArrayConstant):
        _collect(tree.shape, numbers)
    elif isinstance(tree, Branch):
        _collect(tree.children, numbers)
    elif isinstance(tree, Mapping):
        _collect(tuple(tree.values()), numbers)
    elif isinstance(tree, tuple | list):
        for part in tree:
            _collect(part, numbers)
        sizes = [part for part in tree if _is_size(part)]
        if len(sizes) > 1:
            numbers[math.prod(sizes)] = None
    elif _is_size(tree):
        numbers[tree] = None


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _unknown(spec: Spec) -> list[int]:
    return [axis for axis, dim in enumerate(spec.dims) if isinstance(dim, str)]


def _by_name(specs: Sequence[Spec | None], size: int) -> dict[tuple[int, int], int]:
    values = {word: size for s in specs if s is not None for word in s.words}
    return {
        (i, axis): evaluate(s.dims[axis], values)
        for i, s in enumerate(specs)
        if s is not None
        for axis in _unknown(s)
    }


def _of_call(
    specs: Sequence[Spec | None], places: list[tuple[int, int]], numbers: Iterable[int]
) -> Iterator[tuple[dict[tuple[int, int], int], ...]]:
    """Yields three sizes for some places: for one place, for all places of a name, for those of two names."""
    known = numbers_in(*(s.dims for s in specs if s is not None))
    sizes = list(dict.fromkeys([*known, *numbers, 1]))[:_MOST_SIZES]
    names: dict[Dimension, list[tuple[int, int]]] = {}
    for i, axis in places:
        spec = specs[i]
        assert spec is not None
        names.setdefault(spec.dims[axis], []).append((i, axis))
    # the batch comes last: a call seldom fixes the number of samples
    ordered = sorted(names, key=lambda name: name == name_axis(0))
    shared = [names[name] for name in ordered]
    single = [[place] for group in shared if len(group) > 1 for place in group]
    # a call that fits multiples, such as a split into 7 parts, does not fix the size
    for group, size in itertools.product(single + shared, sizes):
        if _PAIRS[1][0] % size:
            yield tuple(dict.fromkeys(group, factor * size) for factor in (*_PAIRS[2], 1))
    for group, size in itertools.product(single + shared, sizes):
        yield (dict.fromkeys(group, size),) * 3
    for (one, two), (a, b) in itertools.product(
        itertools.combinations(shared, 2), itertools.product(sizes, repeat=2)
    ):
        yield ({**dict.fromkeys(one, a), **dict.fromkeys(two, b)},) * 3


def _structs(specs: Sequence[Spec | None], sizes: Mapping[tuple[int, int], int]) -> Structs:
    return [
        None
        if s is None
        else jax.ShapeDtypeStruct([sizes.get((i, a), d) for a, d in enumerate(s.dims)], s.dtype)
        for i, s in enumerate(specs)
    ]
