"""`bert diff A B`: what differs between two artifacts and all that they were made of."""

from collections.abc import Mapping, Sequence
from typing import Any

from assets.commands.named import named
from assets.commands.told import on_one_line
from pipeline import lineage
from pipeline.storage import differences
from pipeline.store import open_store

SHOWN_PAIRS = 12
"""differences of one kind that a terminal shows for an asset"""


def diff(first: str, second: str) -> dict[str, Any]:
    """What differs between the chains behind two artifacts, each named as for `audit`. Raises as `audit` does."""
    store = open_store()
    a, b = (named(store, target) for target in (first, second))
    found = differences.compare(*(list(lineage.ancestors(store, each)) for each in (a, b)))
    return {
        "a": {"asset": a.path, "version": a.version, "record": a.digest, "finished": a.body["finished"]},
        "b": {"asset": b.path, "version": b.version, "record": b.digest, "finished": b.body["finished"]},
        "same": list(found.same),
        "differ": [each.plain() for each in found.differ],
    }


def diff_text(found: dict[str, Any]) -> str:
    """A block per asset that differs."""
    lines = [
        f"{name}: {each['asset']}  version {each['version'][:12]}  {each['finished'][:16].replace('T', ' ')}"
        for name, each in (("a", found["a"]), ("b", found["b"]))
    ]
    for each in found["differ"]:
        lines += ["", f"■ {each['asset']}"]
        old, new = each["versions"]
        if old is None or new is None:
            lines.append(f"    only in {'b' if old is None else 'a'}: version {(old or new)[:12]}")
            continue
        lines.append(f"    version  {old[:12]} → {new[:12]}")
        for name in ("code", "commits"):
            lines += [f"    {name.removesuffix('s'):8} {each[name][0]} → {each[name][1]}"] if each[name] else []
        for name in ("config", "libraries", "numbers"):
            lines += _pairs_text(name, each[name])
        if not any(each[name] for name in ("code", "commits", "config", "libraries", "numbers")):
            lines.append("    made of other inputs")
    told = f"the same: {', '.join(found['same'])}" if found["same"] else "nothing is the same"
    return "\n".join([*lines, "", told if found["differ"] else f"nothing differs: {', '.join(found['same'])}"])


def _pairs_text(name: str, pairs: Mapping[str, Sequence[Any]]) -> list[str]:
    shown = [
        f"    {name:8} {key} {_value(old)} → {_value(new)}" for key, (old, new) in list(pairs.items())[:SHOWN_PAIRS]
    ]
    more = len(pairs) - SHOWN_PAIRS
    return [*map(on_one_line, shown), *([f"    {name:8} and {more} more (--json has them)"] if more > 0 else [])]


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return (
        f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else "–" if value is None else str(value)
    )
