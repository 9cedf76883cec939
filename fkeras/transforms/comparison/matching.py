"""Matches the layers of two networks: by name where names are the user's, otherwise by structure.

The rules run from strong to weak evidence; each rule matches layers that earlier rules left. Within a
rule, matches keep the order of the layers: the longest common subsequence of both lists.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from fkeras.engine.tree.skeleton import Skeleton
from fkeras.engine.tree.walk import layers_in
from fkeras.engine.values.naming import snake_case

#: the names of the layers that make the inputs of a layer's calls
Producers = Mapping[str, tuple[str, ...]]


@dataclasses.dataclass(frozen=True, eq=False)
class Part:
    """A layer inside a model, without arrays.

    Attributes:
        skeleton: the static half.
        digests: a digest for each leaf, None for a weight that does not exist.
    """

    skeleton: Skeleton
    digests: tuple[str | None, ...]

    @functools.cached_property
    def children(self) -> dict[str, Part]:
        """The layers inside, by path."""
        skeleton, parts = self.skeleton, {}
        for field, tree in skeleton.children.items():
            start = skeleton.spans[field][0]
            for path, child in layers_in(
                tree, "" if field == skeleton._transparent_field else field
            ):
                stop = start + len(child.names)
                parts[path] = Part(child, self.digests[start:stop])
                start = stop
        return parts

    @functools.cached_property
    def layer(self) -> Any:
        """The layer without weights."""
        return self.skeleton.join((None,) * len(self.skeleton.names))

    @property
    def cls(self) -> type:
        return self.skeleton.cls

    @functools.cached_property
    def user_name(self) -> str | None:
        """The name, or None for a name that a graph may have given, such as "dense_1"."""
        name = self.skeleton.static.get("name")
        base = getattr(self.layer, "_default_name", None) or snake_case(self.cls.__name__)
        automatic = name is None or re.fullmatch(rf"{re.escape(base)}(_\d+)?", name)
        return None if automatic else name

    @functools.cached_property
    def unnamed(self) -> Skeleton:
        """The static half without the name."""
        static = {**self.skeleton.static, "name": None, "_built": None}
        return Skeleton(self.cls, static, self.skeleton.weights, self.skeleton.children)


def match_layers(
    first: Mapping[str, Part], second: Mapping[str, Part], before: Producers, after: Producers
) -> dict[str, str]:
    """Returns the names of layers of the second network by names of the first network.

    Args:
        before: producers of the first network.
        after: producers of the second network.
    """
    matched: dict[str, str] = {}
    taken: set[str] = set()

    def left() -> tuple[list[str], list[str]]:
        return [n for n in first if n not in matched], [n for n in second if n not in taken]

    def add(one: str, two: str) -> None:
        matched[one] = two
        taken.add(two)

    def by_name(test: Callable[[Part, Part], bool]) -> None:
        for name in left()[0]:
            if name in second and name not in taken and test(first[name], second[name]):
                add(name, name)

    def by_token(
        token: Callable[[str, Part, bool], Hashable], test: Callable[[Part], bool] = lambda p: True
    ) -> None:
        ones, twos = left()
        ones, twos = [n for n in ones if test(first[n])], [n for n in twos if test(second[n])]
        pairs = _common(
            [token(n, first[n], True) for n in ones], [token(n, second[n], False) for n in twos]
        )
        for i, j in pairs:
            add(ones[i], twos[j])

    def inputs(name: str, is_first: bool) -> Hashable:
        if is_first:
            return tuple(matched.get(n, ("only", n)) for n in before.get(name, ()))
        return after.get(name, ())

    by_token(lambda n, p, _: (p.user_name, p.unnamed, p.digests))
    by_name(lambda p, q: p.cls is q.cls and p.user_name is not None)
    by_token(lambda n, p, _: (p.unnamed, p.digests))
    by_token(lambda n, p, is_first: (p.unnamed, inputs(n, is_first)))
    by_token(lambda n, p, _: p.unnamed, lambda p: p.user_name is None)
    by_name(lambda p, q: p.cls is q.cls)
    by_token(lambda n, p, is_first: (p.cls, inputs(n, is_first)))
    by_name(lambda p, q: True)
    return {name: matched[name] for name in first if name in matched}


def _common(first: list[Hashable], second: list[Hashable]) -> list[tuple[int, int]]:
    """Returns the pairs of positions of a common subsequence."""
    shortest = min(len(first), len(second))
    head = 0
    while head < shortest and first[head] == second[head]:
        head += 1
    tail = 0
    while tail < shortest - head and first[-1 - tail] == second[-1 - tail]:
        tail += 1
    pairs = [(i, i) for i in range(head)]
    middle = first[head : len(first) - tail], second[head : len(second) - tail]
    # without junk: frequent layers count like others
    for block in difflib.SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
        pairs += [(head + block.a + i, head + block.b + i) for i in range(block.size)]
    return pairs + [(len(first) - i, len(second) - i) for i in range(tail, 0, -1)]
