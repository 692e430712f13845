"""What was read, what was removed and why, and what is left: accounts whose numbers come to zero, or say by how much they do not.

An account is in − removed by reason − out = 0, and what it takes in is what the stage before gave out. Every number is a record's
own: none is calculated from the others, else an account could not fail.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from pipeline.attestations.chain import DOCUMENTS, SHARDS, TEXTS, UNKNOWN, Chain, Work

Plain = dict[str, Any]
TASK_DATA = "task_data"
_READ = {"wikipedia_text": "pages", "books_text": "documents", "own_text": "documents"}


def accounts(chain: Chain) -> list[Plain]:
    """Of every artifact that leaves something out, inputs first; of documents one for each source."""
    return [account for work in chain.works for account in _of(work)]


def _of(work: Work) -> Iterator[Plain]:
    told = work.statistics
    if work.record.stage in TEXTS:
        yield _account(work, "", _READ[work.record.stage], told.get("read"), told.get("dropped"), told.get("row_count"))
    elif work.record.stage == DOCUMENTS:
        yield from _of_documents(work)
    elif work.record.stage == SHARDS:
        yield from _of_shards(work)
    elif work.record.stage == TASK_DATA and "not_run" not in told:
        read = told.get("read")
        taken = sum(read.values()) if isinstance(read, Mapping) else None
        yield _account(work, "", "examples", taken, told.get("dropped"), told.get("examples"))


def _of_documents(work: Work) -> Iterator[Plain]:
    """From what each source's text gave to what stands in the table, in both parts."""
    told = work.statistics
    dropped = told.get("dropped_by_source")
    for name, source in work.inputs.items():
        given = source.statistics.get("row_count")
        parts = (told.get("documents") or {}).get(name)
        left = sum(parts.values()) if isinstance(parts, Mapping) else None
        reasons = dropped.get(name) if isinstance(dropped, Mapping) else None
        taken = _read_by(told, name)
        yield _account(work, name, "documents", taken, reasons, left, (source, given))


def _read_by(told: Mapping[str, Any], source: str) -> int | None:
    """Documents that the table took from a source: what its own part of the waterfall begins with, less what the text dropped."""
    steps = (told.get("waterfall") or {}).get(source)
    if not steps:
        return None
    before = [count for name, count in steps if name == "read" or str(name).startswith(f"{source}_text: ")]
    return int(sum(before))


def _of_shards(work: Work) -> Iterator[Plain]:
    """Documents that no instance can be made of, in both parts."""
    told = work.statistics
    source = work.inputs.get("documents")
    taken = told.get("documents")
    given = (source.statistics.get("row_count") if source else None) if source else None
    yield _account(
        work,
        "",
        "documents",
        sum(taken.values()) if isinstance(taken, Mapping) else None,
        told.get("dropped"),
        told.get("documents_in_pools"),
        (source, given) if source else None,
    )


def _account(
    work: Work,
    source: str,
    unit: str,
    taken: int | None,
    removed: Mapping[str, int] | None,
    left: int | None,
    given: tuple[Work, int | None] | None = None,
) -> Plain:
    """given: the input, and how much it gave out."""
    reasons = None if removed is None else {name: int(count) for name, count in sorted(removed.items()) if count}
    difference = None
    if taken is not None and left is not None and reasons is not None:
        difference = int(taken) - sum(reasons.values()) - int(left)
    lost = None
    if given is not None and taken is not None and given[1] is not None:
        lost = int(given[1]) - int(taken)
    return {
        "asset": work.record.asset,
        "recipe": work.record.recipe,
        "source": source,
        "unit": unit,
        "in": _number(taken),
        "removed": UNKNOWN if reasons is None else reasons,
        "out": _number(left),
        "difference": _number(difference),
        "adds_up": UNKNOWN if difference is None else difference == 0,
        "given_by": None if given is None else given[0].record.asset,
        "given": None if given is None else _number(given[1]),
        "lost_in_between": None if given is None else _number(lost),
    }


def _number(count: int | None) -> int | str:
    return UNKNOWN if count is None else int(count)


def sound(account: Mapping[str, Any]) -> bool | str:
    """Whether an account comes to zero and takes in all that was given; UNKNOWN where a number is."""
    if account["adds_up"] is False or account["lost_in_between"] not in (None, 0, UNKNOWN):
        return False
    return UNKNOWN if UNKNOWN in (account["adds_up"], account["lost_in_between"]) else True


def verdict(account: Mapping[str, Any]) -> str:
    """What the check of an account says."""
    what = []
    if account["adds_up"] is False:
        what.append(f"DOES NOT ADD UP: {account['difference']:+,} {account['unit']}")
    if account["lost_in_between"] not in (None, 0, UNKNOWN):
        what.append(
            f"DOES NOT ADD UP: {account['given_by']} gave {account['given']:,}, {account['in']:,} were taken in"
        )
    if what:
        return "; ".join(what)
    named = {"in": "how many were read", "removed": "what was removed", "out": "how many were left"}
    missing = [words for name, words in named.items() if account[name] == UNKNOWN]
    missing += [f"how many {account['given_by']} gave"] if account["given"] == UNKNOWN else []
    return f"unknown: no record tells {', '.join(missing)}" if missing else "comes to 0"
