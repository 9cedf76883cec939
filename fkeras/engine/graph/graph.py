"""`Graph`: the closed form of recorded calls, and the queries on the graph.

Queries read only the table of calls and the layers' shapes.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from fkeras.engine.call.signature import Effects
from fkeras.engine.graph.call_table import CallTable
from fkeras.engine.graph.effects import effects_of
from fkeras.engine.graph.listing import Lines, lines_html, lines_text, listing
from fkeras.engine.graph.views import LayerView
from fkeras.engine.values import structure


class Graph(CallTable):
    """Calls by depth, the slots of inputs and outputs, and queries about their connections.

    The fields are those of `CallTable`.

    Example:
        >>> import fkeras as fk
        >>> x = fk.Input((4,), name="x")
        >>> graph = fk.Model(x, fk.layers.Dense(2)(x)).graph
        >>> graph.layers, graph.layer("dense").input.coord
        (('x', 'dense'), Coord(layer='x', node=0, tensor=0))
    """

    def __repr__(self) -> str:
        return lines_text(self._lines())

    def _repr_html_(self) -> str:
        """Returns the calls as HTML, which notebooks show."""
        return lines_html(self._lines())

    def _lines(self) -> Lines:
        return [("Graph:", list(listing(self, lambda name, again: (name, "", ()))))]

    @functools.cached_property
    def calls_by_depth(self) -> Mapping[int, tuple[int, ...]]:
        """The numbers of the calls at each depth; outputs have depth 0."""
        by_depth: dict[int, list[int]] = {}
        for number, depth in enumerate(self.depths):
            by_depth.setdefault(depth, []).append(number)
        return {depth: tuple(by_depth[depth]) for depth in sorted(by_depth)}

    @property
    def nodes_by_depth(self) -> dict[int, tuple[str, ...]]:
        """The keys of the calls at each depth, such as "dense_ib-0"."""
        return {
            depth: tuple(self.node_key(n) for n in numbers)
            for depth, numbers in self.calls_by_depth.items()
        }

    @functools.cached_property
    def layers_by_depth(self) -> dict[int, tuple[str, ...]]:
        """The names of the layers at each depth, that of their deepest call."""
        deepest = {
            name: max(self.depths[n] for n in numbers)
            for name, numbers in self.calls_of.items()
            if numbers
        }
        by_depth: dict[int, list[str]] = {}
        for name in self.layers:
            if name in deepest:
                by_depth.setdefault(deepest[name], []).append(name)
        return {depth: tuple(by_depth[depth]) for depth in sorted(by_depth)}

    @functools.cached_property
    def chain(self) -> tuple[str, ...] | None:
        """The layers in the order of their calls, if each call takes the output of the call before.

        None for any other graph, and for calls with options or a mode: a `Sequential` has neither.
        """
        last, names = structure.Ref(self.input_slots[0]), []
        for number in self.run_order:
            call = self.calls[number]
            plain = not call.options.children and call.training is None
            if not plain or call.args != structure.Branch("tuple", (), (last,)):
                return None
            if call.value != structure.Ref(0):
                return None
            last = structure.Ref(self.first_slots[number])
            names.append(call.layer)
        is_chain = names and len(self.input_slots) == 1 and self.outputs == last
        return tuple(names) if is_chain else None

    @functools.cached_property
    def nodes(self) -> frozenset[str]:
        """The keys of all calls."""
        return frozenset(self.node_key(n) for n in range(len(self.calls)))

    def consumers(self, layer: str, node: int = 0, tensor: int = 0) -> tuple[str, ...]:
        """Returns the keys of the calls that take a tensor, with one entry for each use."""
        slot = self.slot(layer, node, tensor)
        return tuple(
            self.node_key(n) for n, call in enumerate(self.calls) for s in call.inputs if s == slot
        )

    def ancestors(self, layer: str, node: int = 0) -> tuple[str, ...]:
        """Returns the keys of all calls that a call depends on, in running order."""
        # an explicit stack: graphs can be deeper than Python's recursion limit
        pending, seen = [self.call_number(layer, node)], set()
        while pending:
            for slot in self.calls[pending.pop()].inputs:
                number = self.producer(slot)[0]
                if number not in seen:
                    seen.add(number)
                    pending.append(number)
        return tuple(self.node_key(n) for n in sorted(seen))

    def descendants(self, layer: str, node: int = 0) -> tuple[str, ...]:
        """Returns the keys of all calls that depend on a call, in running order."""
        # one pass is enough, since producers come before consumers
        seen = {self.call_number(layer, node)}
        for number, call in enumerate(self.calls):
            if any(self.producer(slot)[0] in seen for slot in call.inputs):
                seen.add(number)
        seen.discard(self.call_number(layer, node))
        return tuple(self.node_key(n) for n in sorted(seen))

    def path(self, start: str, end: str) -> tuple[str, ...]:
        """Returns the keys of a shortest chain of calls between two layers; () if unconnected."""
        targets = set(self.calls_of[self.layer(end).name])
        chains: dict[int, tuple[int, ...]] = {
            n: (n,) for n in self.calls_of[self.layer(start).name]
        }
        # producers come before consumers, so each chain is final when a consumer reads it
        for number, call in enumerate(self.calls):
            input_chains = [chains[p] for s in call.inputs if (p := self.producer(s)[0]) in chains]
            if input_chains and number not in chains:
                chains[number] = (*min(input_chains, key=len), number)
        paths = [chains[n] for n in targets if n in chains]
        return tuple(self.node_key(n) for n in min(paths, key=len)) if paths else ()

    @functools.cached_property
    def effects(self) -> tuple[Effects, ...]:
        """Losses, penalties, metrics and updates of each call in training, inferred when needed."""
        return effects_of(self)

    @property
    def losses(self) -> tuple[str, ...]:
        """Sources of losses, one entry for each loss: layers with penalties, then keys of calls."""
        views = [self.layer(name) for name in self.layers]
        fixed = [key for view in views for key in view.get_losses_for(None)]
        calls = [self.node_key(n) for n, e in enumerate(self.effects) for _ in range(e.losses)]
        return (*fixed, *calls)

    @property
    def updates(self) -> tuple[str, ...]:
        """The keys of the calls that change state in training."""
        return tuple(self.node_key(n) for n, effects in enumerate(self.effects) if effects.updates)

    def layer(self, name: str) -> LayerView:
        """Returns a view of a layer's calls; see `LayerView`."""
        self.call_number(name)  # raises for an unknown layer
        return LayerView(self, name)
