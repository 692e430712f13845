"""What a run would do, asset by asset, without running or writing anything and without asking the network."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipeline.build import Need, Node, critical_failures, needed, refuse_red, way_out
from pipeline.errors import BertError, DataError
from pipeline.store import Record, Store

UP_TO_DATE, KNOWN, CLEARED, WILL_RUN, MAY_RUN, ERROR = "up to date", "known", "cleared", "will run", "may run", "error"
SETTLED = (UP_TO_DATE, KNOWN, CLEARED)
"""states of assets that nothing has to be made for"""


@dataclass(frozen=True)
class Planned:
    """One asset of a plan."""

    node: Node
    state: str
    """`up to date`; `known`: the memory answers without a step; `cleared`: the same, its content was removed by a rule of
    `bert gc`; `will run`; `may run`: if something above it, which runs first, comes out new; `error`: it can't run"""
    why: str = ""
    todo: str = ""
    wanted: bool = False
    """its content was removed and has to be there: something that runs reads it, or it was asked for by name"""

    @property
    def needs_step(self) -> bool:
        """Whether a run gives it a step."""
        return self.state in (WILL_RUN, MAY_RUN, ERROR)


def plan(
    store: Store, nodes: Mapping[str, Node], forced: Sequence[str] = (), wanted: Sequence[str] = ()
) -> list[Planned]:
    """Go through `nodes` (inputs first), as if what is known had been settled. `wanted`: asked for by name."""
    planned: dict[str, Planned] = {}
    answers: dict[str, Record] = {}
    for name, node in nodes.items():
        above = [] if node.gathers else [s.name for s in node.inputs.values() if planned[s.name].needs_step]
        if above:
            planned[name] = Planned(node, MAY_RUN, f"after {few(above)}")
            continue
        try:
            need = needed(store, node, forced=name in forced, known=answers)
        except BertError as error:
            planned[name] = Planned(node, ERROR, error.what, error.todo)
            continue
        planned[name] = _planned(store, node, need)
        if need.answer is not None and not planned[name].needs_step:
            answers[name] = need.answer
    # What is made again comes out as it was, so that nothing below it changes; what it is made of in turn comes later here.
    read_by = dict.fromkeys(wanted, "it is asked for")
    for name, node in reversed(list(nodes.items())):
        if planned[name].state == CLEARED and name in read_by:
            again = _planned(store, node, needed(store, node, known=answers, wanted=True))
            planned[name] = replace(again, why=f"{again.why}; {read_by[name]}")
        if planned[name].state == WILL_RUN and not node.gathers:
            read_by |= {source.name: f"{name} reads it" for source in node.inputs.values()}
    return list(planned.values())


def few(names: Sequence[str]) -> str:
    """The first names and how many more there are, which the lines of these say."""
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _planned(store: Store, node: Node, need: Need) -> Planned:
    if need.answer is None:
        failed = next((r for r in store.rejections(node.stage.name) if need.key and r.body["key"] == need.key), None)
        if failed is None:
            return Planned(node, WILL_RUN, need.why, wanted=need.gone is not None)
        names = [result["name"] for result in critical_failures(failed.body["validation"]["results"])]
        return Planned(
            node,
            WILL_RUN,
            f"{need.why}; the last time it failed {', '.join(names)}, what came out is {failed.folder / 'content'}",
            way_out(node, names),
            need.gone is not None,
        )
    try:
        refuse_red(node, need.answer)
    except DataError as error:
        return Planned(node, ERROR, error.what, error.todo)
    if need.gone is not None and not need.comes_back:
        return Planned(node, CLEARED, f"{need.gone.told}; made again when something needs it")
    return Planned(node, UP_TO_DATE if need.up_to_date else KNOWN, need.why, wanted=need.comes_back)
