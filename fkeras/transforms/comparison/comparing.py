"""Compares the static halves and the weights of two models, layer by layer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from fkeras.engine import Layer, Network
from fkeras.engine.graph.graph import Graph
from fkeras.engine.tree.skeleton import leaves_of, same_leaf, skeleton_of
from fkeras.engine.tree.skeleton_difference import first_difference
from fkeras.engine.tree.walk import join_path
from fkeras.engine.values import structure
from fkeras.engine.values.annotations import Leaf, Template
from fkeras.engine.values.structure import Ref
from fkeras.transforms.comparison.changes import (
    KINDS,
    CallChange,
    Change,
    ConfigChange,
    LayerChange,
    WeightChange,
)
from fkeras.transforms.comparison.fingerprinting import kind_of, weight_digests
from fkeras.transforms.comparison.matching import Part, match_layers


@dataclasses.dataclass
class Comparison:
    """The differences of two models that were found so far.

    Attributes:
        first: the leaves of the first model by path.
        second: the leaves of the second model by path.
        changes: the differences.
        carried: paths of weights of the first model by the path in the second model, where the bytes
            are equal.
        paths: paths of layers in the second model by their path in the first.
    """

    first: Mapping[str, Leaf]
    second: Mapping[str, Leaf]
    changes: list[Change] = dataclasses.field(default_factory=list)
    carried: dict[str, str] = dataclasses.field(default_factory=dict)
    paths: dict[str, str] = dataclasses.field(default_factory=dict)

    def compare(self, one: Part, two: Part, old_path: str, path: str) -> None:
        """Compares two matched layers, and all layers inside."""
        self.paths[old_path] = path
        if one.cls is not two.cls:
            old_text, text = _describe(one), _describe(two)
            self.changes.append(LayerChange(path, "replaced", old_text, text))
            return
        self._compare_fields(one, two, old_path, path)
        self._compare_weights(one, two, old_path, path)
        old, new = one.skeleton.static.get("graph"), two.skeleton.static.get("graph")
        names = self._compare_children(one, two, old_path, path, [old, new])
        if old is not None and new is not None and old != new:
            self._compare_graphs(old, new, names, old_path, path)

    def _compare_fields(self, one: Part, two: Part, old_path: str, path: str) -> None:
        old, new = one.skeleton.static, two.skeleton.static
        same_key = old_path.rpartition("/")[2] == path.rpartition("/")[2]
        for field in dict.fromkeys((*old, *new)):
            if field in ("_built", "graph") or (field == "name" and not same_key):
                continue
            if old.get(field) != new.get(field):
                self.changes.append(ConfigChange(path, field, old.get(field), new.get(field)))

    def _compare_weights(self, one: Part, two: Part, old_path: str, path: str) -> None:
        digests = [dict(zip(p.skeleton.weights, p.digests, strict=False)) for p in (one, two)]
        for name in dict.fromkeys((*one.skeleton.weights, *two.skeleton.weights)):
            places = join_path(old_path, name), join_path(path, name)
            pair = self.first.get(places[0]), self.second.get(places[1])
            if pair[0] is not None and digests[0].get(name) == digests[1].get(name):
                self.carried[places[1]] = places[0]
            elif not same_leaf(*pair):
                known_path = places[0] if pair[1] is None else places[1]
                self.changes.append(weight_change(known_path, *pair))

    def _compare_children(
        self, one: Part, two: Part, old_path: str, path: str, graphs: list[Any]
    ) -> dict[str, str]:
        if issubclass(one.cls, Network):
            names = match_layers(one.children, two.children, *map(_producers, graphs))
        else:  # children in fields: their paths are names that the class chose
            names = {name: name for name in one.children if name in two.children}
        added = [name for name in two.children if name not in names.values()]
        for name, child in one.children.items():
            if name not in names:
                text = _describe(child)
                self.changes.append(LayerChange(join_path(old_path, name), "removed", text, None))
        for name in added:
            text = _describe(two.children[name])
            self.changes.append(LayerChange(join_path(path, name), "added", None, text))
        for name, new_name in names.items():
            places = join_path(old_path, name), join_path(path, new_name)
            if name != new_name:
                self.changes.append(LayerChange(places[1], "renamed", *places))
            self.compare(one.children[name], two.children[new_name], *places)
        return names

    def _compare_graphs(
        self, old: Graph, new: Graph, names: Mapping[str, str], old_path: str, path: str
    ) -> None:
        slots = _slot_numbers(old, new, names)
        old_calls = {key: number for number, key in enumerate(zip(*_call_keys(old), strict=True))}
        new_calls = {key: number for number, key in enumerate(zip(*_call_keys(new), strict=True))}
        seen = set()
        for (layer, node), number in old_calls.items():
            key = (names.get(layer, ""), node)
            seen.add(key)
            text = _call_text(old, number)
            if key not in new_calls:
                place = join_path(old_path, old.node_key(number))
                self.changes.append(CallChange(place, "removed", text, None))
            elif _call_differs(old, number, new, new_calls[key], slots):
                place = join_path(path, new.node_key(new_calls[key]))
                texts = text, _call_text(new, new_calls[key])
                self.changes.append(CallChange(place, "changed", *texts))
        for key, number in new_calls.items():
            if key not in seen:
                place = join_path(path, new.node_key(number))
                self.changes.append(CallChange(place, "added", None, _call_text(new, number)))
        for field in ("inputs", "outputs"):
            pair = getattr(old, field), getattr(new, field)
            if _renumber(pair[0], slots) != pair[1]:
                texts = [_draw(g, t) for g, t in zip((old, new), pair, strict=True)]
                self.changes.append(CallChange(join_path(path, field), "changed", *texts))
        if old.depth != new.depth:
            self.changes.append(ConfigChange(path, "depth", old.depth, new.depth))


def compare_models(first: Layer, second: Layer, where: str) -> tuple[Comparison, Part, Part]:
    """Returns the comparison of two models, and both models without arrays."""
    pairs = [
        (skeleton_of(m), leaves_of(m), Part(skeleton_of(m), tuple(weight_digests(m, where))))
        for m in (first, second)
    ]
    named = [dict(zip(skeleton.names, leaves, strict=True)) for skeleton, leaves, _ in pairs]
    return compare_parts(pairs[0][2], pairs[1][2], *named), pairs[0][2], pairs[1][2]


def compare_parts(
    one: Part, two: Part, first: Mapping[str, Leaf], second: Mapping[str, Leaf]
) -> Comparison:
    """Returns the comparison of two models without arrays, whose leaves are given by path."""
    comparison = Comparison(first, second)
    comparison.compare(one, two, "", "")
    if not comparison.changes and one.skeleton != two.skeleton:
        # such as the order of independent calls, which the layers and the wiring do not show
        texts = (
            first_difference(one.skeleton, two.skeleton),
            first_difference(two.skeleton, one.skeleton),
        )
        comparison.changes.append(ConfigChange("", "structure", *texts))
    # by kind: the order of the text; sorting keeps the order within a kind
    comparison.changes.sort(key=lambda change: KINDS.index(type(change)))
    return comparison


def weight_change(path: str, old: Leaf, new: Leaf) -> WeightChange:
    """Returns the record of a weight with other values; None stands for a missing weight."""
    before, after = (None if leaf is None else kind_of(leaf) for leaf in (old, new))
    if before is None or before != after:
        return WeightChange(path, before, after)
    is_complex = np.dtype(old.dtype).kind == "c"
    x, y = (
        np.asarray(leaf).astype("complex128" if is_complex else "float64") for leaf in (old, new)
    )
    differs = ~((x == y) | ((x != x) & (y != y)))
    with np.errstate(invalid="ignore", over="ignore"):
        delta = np.abs(np.where(differs, y - x, 0))
        norm, distance = (float(np.sqrt(np.sum(np.abs(v) ** 2))) for v in (x, delta))
    largest, count = float(delta.max()), int(differs.sum())
    return WeightChange(path, before, after, norm, distance, largest, count)


def _describe(part: Part) -> str:
    if issubclass(part.cls, Network):
        return f"{part.cls.__name__} of {len(part.children)} layers"
    return repr(part.unnamed.join((None,) * len(part.digests)))


def _producers(graph: Graph | None) -> dict[str, tuple[str, ...]]:
    if graph is None:
        return {}
    return {
        name: tuple(graph.coords[slot].layer for n in numbers for slot in graph.calls[n].inputs)
        for name, numbers in graph.calls_of.items()
    }


def _call_keys(graph: Graph) -> tuple[list[str], tuple[int, ...]]:
    return [call.layer for call in graph.calls], graph.node_indices


def _slot_numbers(old: Graph, new: Graph, names: Mapping[str, str]) -> dict[int, int]:
    """Returns slots of the new graph by slots of the old; negative numbers for tensors that are gone."""
    new_slots = {coord: slot for slot, coord in enumerate(new.coords)}
    return {
        slot: new_slots.get(coord._replace(layer=names.get(coord.layer, "")), -1 - slot)
        for slot, coord in enumerate(old.coords)
    }


def _renumber(template: Template, slots: Mapping[int, int]) -> Template:
    return structure.map_leaves(
        template, lambda leaf: Ref(slots[leaf.index]) if isinstance(leaf, Ref) else leaf
    )


def _call_differs(
    old: Graph, number: int, new: Graph, new_number: int, slots: Mapping[int, int]
) -> bool:
    one, two = old.calls[number], new.calls[new_number]
    if _renumber(one.args, slots) != two.args or _renumber(one.options, slots) != two.options:
        return True
    # shapes of outputs follow from layers and inputs
    return (one.training, one.mask_rule, one.value) != (two.training, two.mask_rule, two.value)


def _draw(graph: Graph, template: Template) -> str:
    def name(slot: int) -> str:
        layer, node, tensor = graph.coords[slot]
        return layer if node == tensor == 0 else f"{layer}[{node}][{tensor}]"

    return structure.draw(template, name)


def _call_text(graph: Graph, number: int) -> str:
    call = graph.calls[number]
    if call.is_input:
        return f"{call.layer} {call.outputs[0]}"
    options = zip(call.options.keys, call.options.children, strict=True)
    texts = [f"{key}={_draw(graph, value)}" for key, value in options]
    if call.training is not None:
        texts.append(f"training={call.training}")
    if call.mask_rule != "strict":
        texts.append(f"mask rule {call.mask_rule!r}")
    return call.layer + _draw(graph, call.args) + "".join(f", {text}" for text in texts)
