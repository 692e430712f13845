"""A graph of what came from what, laid out in layers from top to bottom (after Sugiyama, Tagawa and Toda 1981): the layer of a
box is the longest way to it, boxes of a layer are ordered by the mean place of their neighbours, and an edge that crosses layers
gets a place of its own in each, so that it does not run through boxes.

Pure: names and edges in, numbers out; the template of the page draws them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH, HEIGHT = 184, 60
"""of a box, in pixels"""
_APART, _GAP, _LANE, _MARGIN = 46, 18, 8, 12
_SWEEPS = 12

Item = tuple[str, int]
"""a box (name, -1), or the place of an edge in a layer (name of what it comes from, a number)"""


@dataclass(frozen=True)
class Box:
    """Where a box lies: its upper left corner."""

    x: float
    y: float


@dataclass(frozen=True)
class Edge:
    """A line from an input to what was made of it."""

    source: str
    target: str
    path: str
    """`d` of an SVG path"""
    implied: bool
    """whether a longer way leads there too: such lines are drawn light"""


@dataclass(frozen=True)
class Drawing:
    """A graph with its places."""

    width: float
    height: float
    boxes: Mapping[str, Box]
    edges: Sequence[Edge]


def draw(inputs: Mapping[str, Sequence[str]]) -> Drawing:
    """inputs: name → names of what it was made of, without cycles. What is named as an input only is left out."""
    known = {name: [each for each in dict.fromkeys(of) if each in inputs] for name, of in inputs.items()}
    layer = _layers(known)
    routes = {(source, target): _route(source, target, layer) for target, of in known.items() for source in of}
    rows = _rows(layer, routes)
    above = _neighbours(routes)
    _order(rows, above)
    places = _places(rows, above)
    first = min(places.values(), default=0.0)
    x = {item: value - first + _MARGIN for item, value in places.items()}
    y = {number: _MARGIN + number * (HEIGHT + _APART) for number in range(len(rows))}
    boxes = {name: Box(x[name, -1], y[layer[name]]) for name in known}
    edges = [
        Edge(source, target, _path(route, layer, x, y), _implied(known, source, target))
        for (source, target), route in routes.items()
    ]
    width = max((value + _size(item) for item, value in x.items()), default=0) + _MARGIN
    height = max((box.y for box in boxes.values()), default=0) + HEIGHT + _MARGIN
    return Drawing(width, height, boxes, edges)


def _layers(inputs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """The longest way from what has no inputs; that itself stands right before the first thing made of it."""
    layer: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in layer:
            layer[name] = 1 + max((of(each) for each in inputs[name]), default=-1)
        return layer[name]

    for name in inputs:
        of(name)
    for name, made_of in inputs.items():
        children = [layer[child] for child, its in inputs.items() if name in its]
        if not made_of and children:
            layer[name] = min(children) - 1
    return layer


def _route(source: str, target: str, layer: Mapping[str, int]) -> list[Item]:
    """The box that an edge leaves, its lane in each layer between (shared by all edges of that box), and the box it enters."""
    between = [(source, number) for number in range(layer[source] + 1, layer[target])]
    return [(source, -1), *between, (target, -1)]


def _rows(layer: Mapping[str, int], routes: Mapping[tuple[str, str], Sequence[Item]]) -> list[list[Item]]:
    rows: list[list[Item]] = [[] for _ in range(1 + max(layer.values(), default=-1))]
    for name, number in layer.items():
        rows[number].append((name, -1))
    for item in dict.fromkeys(item for route in routes.values() for item in route[1:-1]):
        rows[item[1]].append(item)
    return rows


def _neighbours(routes: Mapping[tuple[str, str], Sequence[Item]]) -> dict[Item, tuple[list[Item], list[Item]]]:
    """item → (those above it, those below it)"""
    found: dict[Item, tuple[list[Item], list[Item]]] = {}
    for upper, lower in dict.fromkeys(pair for route in routes.values() for pair in pairwise(route)):
        found.setdefault(upper, ([], []))[1].append(lower)
        found.setdefault(lower, ([], []))[0].append(upper)
    return found


def _order(rows: Sequence[list[Item]], neighbours: Mapping[Item, tuple[list[Item], list[Item]]]) -> None:
    """Sort every layer by the mean place of the neighbours on one side, then on the other, and so on."""
    for sweep in range(_SWEEPS):
        side = sweep % 2
        for row in rows if side == 0 else reversed(rows):
            place = {item: index / len(each) for each in rows for index, item in enumerate(each)}
            wanted = {
                item: _mean([place[n] for n in neighbours.get(item, ([], []))[side]], place[item]) for item in row
            }
            row.sort(key=wanted.__getitem__)


def _places(
    rows: Sequence[Sequence[Item]], neighbours: Mapping[Item, tuple[list[Item], list[Item]]]
) -> dict[Item, float]:
    """Left edge of every item: near its neighbours, in the order of its layer, without overlap."""
    x: dict[Item, float] = {}
    for row in rows:
        at = -sum(_size(item) + _GAP for item in row) / 2
        for item in row:
            x[item] = at
            at += _size(item) + _GAP
    for sweep in range(_SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wanted = [_beside(item, x, neighbours.get(item, ([], []))) for item in row]
            placed: list[float] = []
            end = 0.0
            for item, at in zip(row, wanted, strict=True):
                placed.append(max(at, end + _GAP) if placed else at)
                end = placed[-1] + _size(item)
            shift = _mean([there - here for there, here in zip(wanted, placed, strict=True)], 0.0)
            x |= {item: at + shift for item, at in zip(row, placed, strict=True)}
    return x


def _beside(item: Item, x: Mapping[Item, float], neighbours: tuple[list[Item], list[Item]]) -> float:
    """The left edge that would put an item right under and above its neighbours."""
    middles = [x[each] + _size(each) / 2 for side in neighbours for each in side]
    return _mean(middles, x[item] + _size(item) / 2) - _size(item) / 2


def _size(item: Item) -> float:
    """How much of its row an item takes."""
    return WIDTH if item[1] < 0 else _LANE


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _path(route: Sequence[Item], layer: Mapping[str, int], x: Mapping[Item, float], y: Mapping[int, float]) -> str:
    """From the lower side of a box, straight through its lanes, to the upper side of another."""
    told, last = "", 0.0
    for item in route:
        number = layer[item[0]] if item[1] < 0 else item[1]
        top, bottom, middle = y[number], y[number] + HEIGHT, x[item] + _size(item) / 2
        if item == route[0]:
            told = f"M{middle:.0f} {bottom:.0f}"
        else:
            half = top - _APART / 2
            told += f"C{last:.0f} {half:.0f} {middle:.0f} {half:.0f} {middle:.0f} {top:.0f}"
            told += f"V{bottom:.0f}" if item[1] >= 0 else ""
        last = middle
    return told


def _implied(inputs: Mapping[str, Sequence[str]], source: str, target: str) -> bool:
    """Whether another way than the edge itself leads from `source` to `target`."""
    waiting, seen = [each for each in inputs[target] if each != source], set()
    while waiting:
        name = waiting.pop()
        if name == source:
            return True
        if name not in seen:
            seen.add(name)
            waiting.extend(inputs[name])
    return False
