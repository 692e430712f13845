"""What is said of a run that did nothing: since when everything is published, and what would make it do something."""

from collections.abc import Sequence
from contextlib import suppress

from pipeline import retrain
from pipeline.errors import StoreError
from pipeline.lineage import reuses
from pipeline.store import Record, Store

SHOWN_BEFORE_OTHERS = ("release", "benchmark_report")


def nothing_to_do(store: Store, recipe: str, records: Sequence[Record], dump: str | None) -> str:
    """One line; records: of what the assets are now, the last one made last; dump: the retrain that it is."""
    by_name = {record.asset: record for record in records}
    main = next((by_name[name] for name in SHOWN_BEFORE_OTHERS if name in by_name), records[-1])
    made = max(_made(store, record) for record in records)
    count = "its asset is" if len(records) == 1 else f"all {len(records)} assets are"
    line = (
        f"{recipe}: nothing to do: {count} published as of {made[:16].replace('T', ' ')} UTC, "
        f"{main.asset} is version {main.version[:12]}."
    )
    return f"{line} {_if_expected(store, recipe, dump)}"


def made_anew(records: Sequence[Record], since: str) -> list[Record]:
    """The records of what was made, not reused, since then."""
    return [record for record in records if record.body["reused"] is None and record.body["finished"] >= since]


def _made(store: Store, record: Record) -> str:
    """When content was made; what is reused was made before."""
    made = ""
    with suppress(StoreError):  # `bert verify` tells of it
        for each in reuses(store, record):
            made = str(each.body["finished"])
    return made


def _if_expected(store: Store, recipe: str, dump: str | None) -> str:
    moment = next((each for each in retrain.known(store, recipe) if each.dump == dump), None)
    if moment is not None and moment.dumps:
        dumps = ", ".join(f"{source} {date}" for source, date in moment.dumps.items())
        return f"No newer dump than {dumps} is in this retrain ({moment.dump}); a later one is a retrain of its own."
    return (
        "Something was expected? It runs when the recipe, a file that it reads or the code changes, "
        f"or anew: bert run {recipe} --force"
    )
