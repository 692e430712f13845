"""The graph of a recipe as text: a line per asset, with rails at its left that lead from what is read to who reads it.

    ✓─┐    wikipedia_dump
    ✓─┘    …

Where many read one asset, one rail leads down from it; where one reads many, one rail collects them; and what follows from other
rails is not drawn. Pure functions of names and edges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

Inputs = Mapping[str, Sequence[str]]
"""asset → what it reads, each after what it reads itself"""

_CROSSINGS = {
    # up, down, left, right
    (True, True, False, False): "│",
    (True, True, True, False): "┤",
    (True, True, False, True): "├",
    (True, True, True, True): "┼",
    (True, False, True, False): "┘",
    (True, False, False, True): "└",
    (True, False, True, True): "┴",
    (False, True, True, False): "┐",
    (False, True, False, True): "┌",
    (False, True, True, True): "┬",
}


def drawn(inputs: Inputs) -> list[tuple[str, str]]:
    """(asset, rails with `*` in its place) in an order in which every asset stands after what it reads; the rails are as wide as
    each other."""
    needed = _reduced(inputs)
    order = _order(needed)
    rails = _rails(needed, order)
    lines: list[tuple[str, str]] = []
    columns: list[_Rail | None] = []
    for row, name in enumerate(order):
        lines.append((name, _line(row, name, [rail for rail in rails if name in rail.touched], columns)))
    width = max((len(line) for _, line in lines), default=0)
    return [(name, line.ljust(width)) for name, line in lines]


def _reduced(inputs: Inputs) -> dict[str, list[str]]:
    """The edges that no other path implies."""
    above: dict[str, set[str]] = {}
    for name, reads in inputs.items():
        above[name] = set(reads).union(*(above[source] for source in reads))
    return {
        name: [each for each in dict.fromkeys(reads) if not any(each in above[other] for other in reads)]
        for name, reads in inputs.items()
    }


def _order(needed: Inputs) -> list[str]:
    """Chains stay together: before an asset stands what it reads, the longest chain first."""
    depth: dict[str, int] = {}
    for name, reads in needed.items():
        depth[name] = 1 + max((depth[source] for source in reads), default=0)
    read = {source for reads in needed.values() for source in reads}
    order: dict[str, None] = {}

    def visit(name: str) -> None:
        for source in sorted(needed[name], key=lambda each: -depth[each]):
            if source not in order:
                visit(source)
        order.setdefault(name)

    for name in needed:
        if name not in read:
            visit(name)
    return list(order)


@dataclass
class _Rail:
    """A line from the row `first` to the row `last`; `touched`: the assets that it begins at, passes with a branch, or ends at."""

    first: int
    last: int
    touched: set[str] = field(default_factory=set)


def _rails(needed: Inputs, order: Sequence[str]) -> list[_Rail]:
    """Each edge runs on the rail of whichever of its ends has more edges, so that there are few rails."""
    row = {name: number for number, name in enumerate(order)}
    readers: dict[str, int] = dict.fromkeys(order, 0)
    for reads in needed.values():
        for source in reads:
            readers[source] += 1
    found: dict[tuple[str, str], _Rail] = {}
    for name, reads in needed.items():
        for source in reads:
            end = ("to", name) if len(reads) > readers[source] else ("from", source)
            rail = found.setdefault(end, _Rail(row[source], row[name]))
            rail.first, rail.last = min(rail.first, row[source]), max(rail.last, row[name])
            rail.touched |= {source, name}
    return sorted(found.values(), key=lambda rail: (rail.first, rail.last))


def _line(row: int, name: str, touching: Sequence[_Rail], columns: list[_Rail | None]) -> str:
    """Draw one row, and leave in `columns` the rails that go on below it."""
    above = list(columns)
    ending = [column for column, rail in enumerate(columns) if rail is not None and rail.last == row]
    for column in ending:
        columns[column] = None
    node = ending[0] if ending else _free(columns)
    if node == len(columns):
        columns.append(None)
        above.append(None)
    for rail in touching:
        if rail.first == row:
            free = node if columns[node] is None else _free(columns)
            columns[free : free + 1] = [rail]
            above += [None] * (len(columns) - len(above))
    touched = [
        column
        for column in range(len(columns))
        if any(rail in touching for rail in (above[column], columns[column]) if rail is not None)
    ]
    left, right = min([node, *touched]), max([node, *touched])
    cells = []
    for column in range(len(columns)):
        up, down = above[column] is not None, columns[column] is not None
        on_the_left, on_the_right = left < column <= right, left <= column < right
        if column == node:
            cell = "*"
        elif column in touched:
            cell = _CROSSINGS[up, down, on_the_left, on_the_right]
        elif up and down:
            cell = "│"
        else:
            cell = "─" if left < column < right else " "
        cells.append(cell + ("─" if on_the_right else " "))
    while columns and columns[-1] is None:
        columns.pop()
    return "".join(cells).rstrip()


def _free(columns: Sequence[_Rail | None]) -> int:
    """The first column without a rail; the one behind the last where all have one."""
    return next((column for column, rail in enumerate(columns) if rail is None), len(columns))
