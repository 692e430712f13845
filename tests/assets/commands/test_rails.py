"""The graph of a recipe as text: drawings checked by eye, and what holds of every graph."""

from hypothesis import given
from hypothesis import strategies as st

from assets.commands.rails import drawn


def picture(inputs: dict[str, list[str]]) -> list[str]:
    return [f"{rails} {name}".rstrip() for name, rails in drawn(inputs)]


def test_a_chain_and_what_stands_alone() -> None:
    assert picture({}) == []
    assert picture({"a": []}) == ["* a"]
    assert picture({"a": [], "b": ["a"], "c": ["b"], "alone": []}) == ["* a", "* b", "* c", "* alone"]


def test_an_edge_that_others_imply_is_not_drawn() -> None:
    assert picture({"a": [], "b": ["a"], "c": ["a", "b"]}) == ["* a", "* b", "* c"]


def test_two_that_one_reads_and_one_that_two_read() -> None:
    assert picture({"a": [], "b": [], "c": ["a", "b"]}) == [
        "*   a",
        "├─* b",
        "*   c",
    ]
    assert picture({"a": [], "b": ["a"], "c": ["a"]}) == [
        "*   a",
        "├─* b",
        "*   c",
    ]


def test_a_recipe_with_two_tasks() -> None:
    recipe = {
        "dump": [],
        "documents": ["dump"],
        "vocab": ["documents"],
        "shards": ["vocab", "documents"],
        "pretrained": ["shards", "vocab"],
        "release": ["pretrained", "vocab"],
        "task_a": [],
        "task_b": [],
        "tuned_a": ["task_a", "pretrained", "vocab"],
        "tuned_b": ["task_b", "pretrained", "vocab"],
        "overlap": ["documents", "task_a", "task_b"],
        "report": ["pretrained", "overlap", "tuned_a", "tuned_b", "task_a", "task_b"],
    }
    assert picture(recipe) == [
        "*       dump",
        "*─┐     documents",
        "* │     vocab",
        "* │     shards",
        "* │     pretrained",
        "├─│─*   release",
        "│ ├─*   task_a",
        "├─│─*   tuned_a",
        "│ ├─│─* task_b",
        "*─│─┼─┘ tuned_b",
        "  *─┤   overlap",
        "    *   report",
    ]


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, list[str]]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 12)))]
    return {
        name: draw(st.lists(st.sampled_from(names[:at]), unique=True)) if at else [] for at, name in enumerate(names)
    }


@given(graphs())
def test_of_any_graph(inputs: dict[str, list[str]]) -> None:
    lines = drawn(inputs)
    order = [name for name, _ in lines]
    assert sorted(order) == sorted(inputs)
    assert all(order.index(source) < order.index(name) for name, reads in inputs.items() for source in reads)
    assert len({len(rails) for _, rails in lines}) == 1, "names stand below each other"
    assert all(rails.count("*") == 1 for _, rails in lines)
    read = {source for reads in inputs.values() for source in reads}
    for name, rails in lines:
        alone = not inputs[name] and name not in read
        assert not alone or not set(rails) & set("─┤├┼┘└┴┐┌┬"), "what stands alone touches nothing"
