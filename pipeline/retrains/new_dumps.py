"""Whether the dumps that the wikis offer now ask for a retrain."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from pipeline.config import Retrain
from pipeline.origins import wikimedia
from pipeline.retrain import Moment
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
    last: Moment | None,
    seen: Mapping[str, datetime],
    policy: Retrain,
    now: datetime,
) -> Verdict:
    """offered: source → its newest finished dump (as `wikimedia.offered`); last: the last retrain; seen: when a dump's name
    (`seen_name`) was offered first.

    A retrain is requested once every source has a newer dump, or `policy.wait_days` after the first was seen. It is held
    where a dump is smaller than the one before by more than `policy.shrink`: a broken dump must not replace a good model.
    """
    dump = max(str(each["date"]) for each in offered.values())
    taken = last.dumps if last else {}
    newer = {source: each for source, each in offered.items() if str(each["date"]) > taken.get(source, "")}
    if not newer:
        told = ", ".join(f"{each['wiki']} {each['date']}" for each in offered.values())
        return Verdict("nothing", dump, f"nothing new: {told} is in the last retrain")
    if last and dump <= last.dump:
        told = ", ".join(f"{each['wiki']} {each['date']}" for each in newer.values())
        return Verdict("nothing", dump, f"{told} came after the retrain {last.dump} began; the next one takes it")
    shrunk = [line for source, each in newer.items() if (line := _shrunk(each, source, last, policy.shrink))]
    if shrunk:
        return Verdict("hold", dump, f"held: {'; '.join(shrunk)}")
    late = [str(each["wiki"]) for source, each in offered.items() if source not in newer]
    if not late:
        return Verdict("request", dump, "every wiki has a newer dump")
    until = min(seen[seen_name(each)] for each in newer.values()) + timedelta(days=policy.wait_days)
    told = f"{', '.join(late)} {'has' if len(late) == 1 else 'have'} no newer dump"
    if now < until:
        return Verdict("wait", dump, f"{told} yet; it is waited for until {until:%Y-%m-%d %H:%M}")
    return Verdict("request", dump, f"{told} after {policy.wait_days} days of waiting")


def seen_name(dump: Mapping[str, Any]) -> str:
    """How a dump is called in a list of those that were seen."""
    return f"{dump['wiki']}:{dump['date']}"


def _shrunk(new: Mapping[str, Any], source: str, last: Moment | None, share: float) -> str:
    """What to say of a dump that is too small; "" where it is not, or where the site doesn't say sizes."""
    now, before = wikimedia.size(new), last.sizes.get(source) if last else None
    if last is None or now is None or before is None or now >= before * (1 - share):
        return ""
    return (
        f"{new['wiki']} {new['date']} has {size(now)}, {1 - now / before:.0%} less than {last.dumps[source]} with {size(before)} "
        f"(retrain.shrink: {share:g})"
    )
