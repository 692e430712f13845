"""Whether the dumps that the wikis offer now ask for a retrain."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pipeline import wikimedia
from pipeline.config import Retrain
from pipeline.units import size


@dataclass(frozen=True)
class Verdict:
    """What follows from what is offered."""

    does: Literal["request", "wait", "hold", "nothing"]
    dump: str
    """the retrain that it is about: the date of the newest dump, YYYYMMDD"""
    why: str


def judge(
    offered: Mapping[str, Mapping[str, Any]],
    taken: Mapping[str, Mapping[str, Any]],
    last: str,
    seen: Mapping[str, datetime],
    policy: Retrain,
    now: datetime,
) -> Verdict:
    """offered: source → its newest finished dump (as `wikimedia.offered`); taken: that of the last retrain, of the sources that it
    had, whose name is `last` ("": there was none); seen: when a dump's name (`seen_name`) was offered first.

    A retrain is requested once every source has a newer dump, or `policy.wait_days` after the first was seen. It is held
    where a dump is smaller than the one before by more than `policy.shrink`: a broken dump must not replace a good model.
    """
    dump = max(str(each["date"]) for each in offered.values())
    newer = {s: d for s, d in offered.items() if s not in taken or str(d["date"]) > str(taken[s]["date"])}
    if not newer:
        told = ", ".join(f"{d['wiki']} {d['date']}" for d in offered.values())
        return Verdict("nothing", dump, f"nothing new: {told} is in the last retrain")
    if dump <= last:
        told = ", ".join(f"{d['wiki']} {d['date']}" for d in newer.values())
        return Verdict("nothing", dump, f"{told} came after the retrain {last} began; the next one takes it")
    shrunk = [line for s, d in newer.items() if s in taken and (line := _shrunk(d, taken[s], policy.shrink))]
    if shrunk:
        return Verdict("hold", dump, f"held: {'; '.join(shrunk)}")
    late = [str(d["wiki"]) for source, d in offered.items() if source not in newer]
    if not late:
        return Verdict("request", dump, "every wiki has a newer dump")
    until = min(seen[seen_name(d)] for d in newer.values()) + timedelta(days=policy.wait_days)
    told = f"{', '.join(late)} {'has' if len(late) == 1 else 'have'} no newer dump"
    if now < until:
        return Verdict("wait", dump, f"{told} yet; it is waited for until {until:%Y-%m-%d %H:%M}")
    return Verdict("request", dump, f"{told} after {policy.wait_days} days of waiting")


def seen_name(dump: Mapping[str, Any]) -> str:
    """How a dump is called in a list of those that were seen."""
    return f"{dump['wiki']}:{dump['date']}"


def _shrunk(new: Mapping[str, Any], old: Mapping[str, Any], share: float) -> str:
    """What to say of a dump that is too small; "" where it is not, or where the site doesn't say sizes."""
    now, before = wikimedia.size(new), wikimedia.size(old)
    if now is None or before is None or now >= before * (1 - share):
        return ""
    return (
        f"{new['wiki']} {new['date']} has {size(now)}, {1 - now / before:.0%} less than {old['date']} with {size(before)} "
        f"(retrain.shrink: {share:g})"
    )
