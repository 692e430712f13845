"""The drawing of a lineage: inputs above what is made of them, no box over another, no line through a box."""

import re

import pytest

from assets.audits.lineage_drawing import HEIGHT, WIDTH, Drawing, draw

CHAIN = {"dump": [], "text": ["dump"], "documents": ["text"], "vocabulary": ["documents"]}


def large(tasks: int) -> dict[str, list[str]]:
    """A recipe with so many tasks."""
    phases = {
        "shards_128": ["documents", "vocabulary"],
        "shards_512": ["documents", "vocabulary"],
        "pretrained_128": ["shards_128", "vocabulary"],
        "pretrained_512": ["shards_512", "vocabulary", "pretrained_128"],
    }
    data: dict[str, list[str]] = {f"data_{n}": [] for n in range(tasks)}
    tuned = {f"tuned_{n}": [f"data_{n}", "pretrained_512", "vocabulary"] for n in range(tasks)}
    overlap = {"contamination": ["documents", *data]}
    return {**CHAIN, **phases, **data, **tuned, **overlap, "report": ["contamination", "pretrained_512", *data, *tuned]}


def points(path: str) -> list[tuple[float, float]]:
    """Places on an SVG path of M, C and V, close together."""
    found: list[tuple[float, float]] = []
    for command, told in re.findall(r"([MCV])([^MCV]+)", path):
        numbers = [float(number) for number in told.split()]
        if command == "M":
            found.append((numbers[0], numbers[1]))
        elif command == "V":
            x, y = found[-1]
            found += [(x, y + (numbers[0] - y) * t / 20) for t in range(1, 21)]
        else:
            (x0, y0), (x1, y1, x2, y2, x3, y3) = found[-1], numbers
            for t in (each / 20 for each in range(1, 21)):
                a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
                found.append((a * x0 + b * x1 + c * x2 + d * x3, a * y0 + b * y1 + c * y2 + d * y3))
    return found


def check(drawn: Drawing, inputs: dict[str, list[str]]) -> None:
    assert set(drawn.boxes) == set(inputs)
    assert {(edge.source, edge.target) for edge in drawn.edges} == {(s, t) for t, of in inputs.items() for s in of}
    boxes = list(drawn.boxes.items())
    for name, box in boxes:
        assert 0 <= box.x <= drawn.width - WIDTH and 0 <= box.y <= drawn.height - HEIGHT, name
    for index, (name, a) in enumerate(boxes):
        for other, b in boxes[index + 1 :]:
            apart = abs(a.x - b.x) >= WIDTH or abs(a.y - b.y) >= HEIGHT
            assert apart, f"{name} lies over {other}"
    for edge in drawn.edges:
        source, target = drawn.boxes[edge.source], drawn.boxes[edge.target]
        assert source.y + HEIGHT < target.y, f"{edge.source} is not above {edge.target}"
        way = points(edge.path)
        assert way[0] == pytest.approx((source.x + WIDTH / 2, source.y + HEIGHT), abs=1)
        assert way[-1] == pytest.approx((target.x + WIDTH / 2, target.y), abs=1)
        for name, box in boxes:
            if name not in (edge.source, edge.target):
                inside = [p for p in way if box.x < p[0] < box.x + WIDTH and box.y < p[1] < box.y + HEIGHT]
                assert not inside, f"the line from {edge.source} to {edge.target} runs through {name}"


@pytest.mark.parametrize("tasks", [1, 2, 9, 40])
def test_nothing_overlaps_in_small_and_large_graphs(tasks: int) -> None:
    check(draw(large(tasks)), large(tasks))


def test_a_single_box_and_none() -> None:
    check(draw({"dump": []}), {"dump": []})
    assert draw({}).boxes == {} and draw({}).edges == []


def test_what_is_reached_by_a_longer_way_too_is_implied() -> None:
    implied = {(edge.source, edge.target): edge.implied for edge in draw(large(1)).edges}
    assert implied["documents", "shards_128"] and implied["vocabulary", "tuned_0"]
    assert not implied["vocabulary", "shards_128"] and not implied["data_0", "tuned_0"]


def test_what_has_no_inputs_stands_right_above_what_is_made_of_it() -> None:
    boxes = draw(large(2)).boxes
    assert boxes["data_0"].y == boxes["documents"].y, "contamination is made of both"
    assert boxes["dump"].y < boxes["text"].y < boxes["documents"].y


def test_inputs_that_are_not_drawn_are_left_out() -> None:
    drawn = draw({"a": ["elsewhere"], "b": ["a", "a"]})
    assert [(edge.source, edge.target) for edge in drawn.edges] == [("a", "b")]
