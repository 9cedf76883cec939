"""Positions of boxes and arrows in a layered drawing of a graph.

Boxes of one rank stand side by side. An arrow over several ranks passes a point in each rank between
its ends; arrows from one box share these points. The method is that of Sugiyama, Tagawa and Toda, "Methods
for visual understanding of hierarchical system structures", 1981: order each rank by the mean
positions of neighbors, then move the boxes towards their neighbors.
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

Point: TypeAlias = tuple[float, float]
Arrow: TypeAlias = tuple[str, str]
# a box by name, or the point of the arrows from a box in a rank
_Stop: TypeAlias = tuple[str, int]

_SPACE, _GAP, _LANE = 18.0, 26.0, 8.0
_SWEEPS = 12
#: attraction between two points of one arrow; long arrows become straight
_STRAIGHT = 8.0


@dataclasses.dataclass(frozen=True)
class Layout:
    """A drawing: the size, the center of each box, and the arrows as SVG paths.

    Attributes:
        places: center of each box.
        paths: the arrows, with their heads.
        width: width of the drawing.
        height: height of the drawing.
    """

    places: Mapping[str, Point]
    paths: Sequence[str]
    width: float
    height: float


def lay_out(
    sizes: Mapping[str, Point],
    ranks: Mapping[str, int],
    arrows: Iterable[Arrow],
    direction: str = "TB",
) -> Layout:
    """Returns positions of boxes and arrows.

    Args:
        sizes: width and height of each box.
        ranks: the rank of each box, from 0.
        arrows: pairs of boxes, each pair once; an arrow may go back to an earlier rank.
        direction: the direction from rank to rank: "TB" for top to bottom, "LR", "BT" or "RL".
    """
    sideways = direction in ("LR", "RL")
    # `across` a rank and `along` the ranks, instead of x and y
    across = {name: size[sideways] for name, size in sizes.items()}
    along = {name: size[not sideways] for name, size in sizes.items()}
    pairs = list(arrows)
    chains = {(a, b): _chain(a, b, ranks) for a, b in pairs if ranks[a] != ranks[b]}
    rows = _rows(sizes, ranks, chains.values())
    neighbors = _neighbors(chains.values())
    rows = _ordered(rows, neighbors)
    widths = {stop: _LANE if stop[1] >= 0 else across[stop[0]] for row in rows for stop in row}
    us = _positions(rows, neighbors, widths)
    left = min((us[s] - widths[s] / 2 for s in us), default=0.0) - _SPACE / 2
    us = {stop: u - left for stop, u in us.items()}
    breadth = max((us[s] + widths[s] / 2 for s in us), default=0.0) + _SPACE / 2

    heights = [max((along[s[0]] for s in row if s[1] < 0), default=0.0) for row in rows]
    tops = list(itertools.accumulate((h + _GAP for h in heights), initial=_SPACE / 2))
    depth = tops[-1] - _GAP + _SPACE / 2 if rows else 0.0

    def place(u: float, v: float) -> Point:
        v = depth - v if direction in ("BT", "RL") else v
        return (v, u) if sideways else (u, v)

    def middle(rank: int) -> float:
        return tops[rank] + heights[rank] / 2

    def end(name: str, side: int) -> Point:
        """The middle of the side of a box that faces earlier (-1) or later (1) ranks."""
        return us[name, -1], middle(ranks[name]) + side * along[name] / 2

    paths = []
    for a, b in pairs:
        if (a, b) not in chains:
            paths.append(_same_rank(a, b, end, across[a], place))
            continue
        stops = chains[a, b]
        first, last = end(stops[0][0], 1), end(stops[-1][0], -1)
        lanes = [(us[s], tops[s[1]], tops[s[1]] + heights[s[1]]) for s in stops[1:-1]]
        paths.append(_path(first, lanes, last, ranks[a] < ranks[b], place))
    places = {name: place(us[name, -1], middle(ranks[name])) for name in sizes}
    size = (depth, breadth) if sideways else (breadth, depth)
    return Layout(places, paths, *size)


def _chain(a: str, b: str, ranks: Mapping[str, int]) -> list[_Stop]:
    """Returns the stops of an arrow, in the order of their ranks."""
    if ranks[a] > ranks[b]:
        # the points of arrows that go back are those of the box where these arrows end
        a, b = b, a
    return [(a, -1), *((a, rank) for rank in range(ranks[a] + 1, ranks[b])), (b, -1)]


def _rows(
    names: Iterable[str], ranks: Mapping[str, int], chains: Iterable[Sequence[_Stop]]
) -> list[list[_Stop]]:
    """Returns the stops of each rank."""
    rows: list[dict[_Stop, None]] = [{} for _ in range(max(ranks.values(), default=-1) + 1)]
    for name in names:
        rows[ranks[name]][name, -1] = None
    for chain in chains:
        for stop in chain[1:-1]:
            rows[stop[1]][stop] = None
    return [list(row) for row in rows]


def _neighbors(
    chains: Iterable[Sequence[_Stop]],
) -> tuple[dict[_Stop, list[_Stop]], dict[_Stop, list[_Stop]]]:
    """Returns the neighbors of each stop in the earlier rank and in the later rank."""
    earlier: dict[_Stop, list[_Stop]] = {}
    later: dict[_Stop, list[_Stop]] = {}
    links = (link for chain in chains for link in itertools.pairwise(chain))
    for start, end in dict.fromkeys(links):
        later.setdefault(start, []).append(end)
        earlier.setdefault(end, []).append(start)
    return earlier, later


def _ordered(
    rows: list[list[_Stop]], neighbors: tuple[dict[_Stop, list[_Stop]], ...]
) -> list[list[_Stop]]:
    """Returns the rows in an order with few crossings of arrows."""
    best, fewest = rows, _crossings(rows, neighbors[1])
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        index = {stop: float(n) for row in rows for n, stop in enumerate(row)}
        side = sweep % 2
        rows = list(rows)
        for rank in reversed(range(len(rows))) if side else range(len(rows)):
            near = neighbors[side]
            means = {s: _mean([index[n] for n in near.get(s, ())], index[s]) for s in rows[rank]}
            rows[rank] = sorted(rows[rank], key=means.__getitem__)
            index.update((stop, float(n)) for n, stop in enumerate(rows[rank]))
        count = _crossings(rows, neighbors[1])
        if count < fewest:
            best, fewest = rows, count
    return best


def _mean(values: Sequence[float], default: float) -> float:
    return sum(values) / len(values) if values else default


def _crossings(rows: Sequence[Sequence[_Stop]], later: Mapping[_Stop, Sequence[_Stop]]) -> int:
    """Returns the number of crossings between neighboring ranks: inversions of the ends of links."""
    count = 0
    for row, below in itertools.pairwise(rows):
        index = {stop: n for n, stop in enumerate(below)}
        passed: list[int] = []
        for stop in row:
            ends = sorted(index[end] for end in later.get(stop, ()))
            count += sum(len(passed) - bisect.bisect_right(passed, end) for end in ends)
            for end in ends:
                bisect.insort(passed, end)
    return count


def _positions(
    rows: Sequence[Sequence[_Stop]],
    neighbors: tuple[dict[_Stop, list[_Stop]], ...],
    widths: Mapping[_Stop, float],
) -> dict[_Stop, float]:
    """Returns the position of each stop across its rank, near its neighbors, without overlaps."""
    us: dict[_Stop, float] = {}
    shifts: list[list[float]] = []
    for row in rows:
        steps = ((widths[a] + widths[b]) / 2 + _SPACE for a, b in itertools.pairwise(row))
        shift = list(itertools.accumulate(steps, initial=0.0))
        shifts.append(shift)
        us.update((stop, s - shift[-1] / 2) for stop, s in zip(row, shift, strict=False))
    for sweep in range(2 * _SWEEPS):
        for rank in range(len(rows)) if sweep % 2 == 0 else reversed(range(len(rows))):
            row, shift = rows[rank], shifts[rank]
            wishes, weights = [], []
            for stop in row:
                links = [
                    (us[n], _STRAIGHT if stop[1] >= 0 and n[1] >= 0 else 1.0)
                    for side in neighbors
                    for n in side.get(stop, ())
                ]
                weight = sum(w for _, w in links)
                wishes.append(sum(u * w for u, w in links) / weight if links else us[stop])
                weights.append(weight or 0.1)
            apart = [wish - s for wish, s in zip(wishes, shift, strict=False)]
            us.update(
                (stop, u + s)
                for stop, u, s in zip(row, _increasing(apart, weights), shift, strict=False)
            )
    return us


def _increasing(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Returns the nearest values that do not decrease, by least squares."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, number of values
    for mean, weight in zip(values, weights, strict=True):
        block = (mean, weight, 1)
        while blocks and blocks[-1][0] > block[0]:
            (m1, w1, n1), (m2, w2, n2) = blocks.pop(), block
            block = ((m1 * w1 + m2 * w2) / (w1 + w2), w1 + w2, n1 + n2)
        blocks.append(block)
    return [mean for mean, _, count in blocks for _ in range(count)]


def _path(
    first: Point,
    lanes: Iterable[tuple[float, float, float]],
    last: Point,
    forwards: bool,
    place: Callable[[float, float], Point],
) -> str:
    """Returns an arrow: curves between ranks, straight lines beside the boxes of a rank."""
    parts, (u, v) = [f"M{_text(place(*first))}"], first
    for x, top, bottom in (*lanes, (*last, last[1])):
        bend = (top - v) / 2
        points = ((u, v + bend), (x, top - bend), (x, top))
        parts.append("C" + " ".join(_text(place(*point)) for point in points))
        if bottom > top:
            parts.append(f"L{_text(place(x, bottom))}")
        u, v = x, bottom
    tip, side = (last, -1) if forwards else (first, 1)
    return "".join([*parts, _head(tip, side, place)])


def _same_rank(
    a: str,
    b: str,
    end: Callable[[str, int], Point],
    width: float,
    place: Callable[[float, float], Point],
) -> str:
    """Returns an arrow between boxes of one rank, below them, or from a box to itself."""
    (u1, v1), (u2, v2) = end(a, 1), end(b, 1)
    if a == b:
        u1, u2 = u1 + width / 4, u2 - width / 4
    low = max(v1, v2) + 0.8 * _GAP
    points = " ".join(_text(place(*p)) for p in ((u1, low), (u2, low), (u2, v2)))
    return f"M{_text(place(u1, v1))}C{points}" + _head((u2, v2), 1, place)


def _head(tip: Point, side: int, place: Callable[[float, float], Point]) -> str:
    u, v = tip
    left, right = ((u + du, v + side * 6.0) for du in (-4.0, 4.0))
    return f"M{_text(place(*left))}L{_text(place(u, v))}L{_text(place(*right))}"


def _text(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"
