"""What `bert gc` and `bert restore` answer, as plain values and as text."""

from pathlib import Path
from typing import Any

from assets.commands.told import on_one_line
from pipeline import units
from pipeline.settings import settings
from pipeline.storage import garbage, restoring, retention
from pipeline.storage.garbage import Found, Trashed
from pipeline.storage.retention import Going
from pipeline.store import open_store

Plain = dict[str, Any]


def gc(dry_run: bool) -> Plain:
    """What may go, what stays and why in sums, the trash, and the bytes; unless `dry_run`, it was done."""
    store, chosen = open_store(), settings().retention
    if dry_run:
        found = garbage.look(store, chosen)
        refused = garbage.refusal(store, chosen, found.verdict)
        goes, busy, removed, returned = found.verdict.goes, [], found.due, [t for t in found.trash if t.comes_back]
    else:
        refused = None
        found, done = garbage.collect(store, chosen)
        goes, busy, removed, returned = done.moved, list(done.busy), list(done.removed), list(done.returned)
    gone = {each.version for each in [*removed, *returned]}
    left = [each for each in found.trash if each.version not in gone]
    return {
        "dry_run": dry_run,
        "goes": [_going(found, each) for each in goes],
        "goes_bytes": sum(found.sizes[each.version] for each in goes),
        "read_now": [_going(found, each) for each in busy],
        "stays": [
            {"why": why, "versions": count, "size_bytes": size}
            for why, count, size in retention.sums(found.there, found.verdict.stays)
        ],
        "brought_back": [_trashed(found, each) for each in returned],
        "removed_for_good": [_trashed(found, each) for each in removed],
        "removed_for_good_bytes": sum(found.sizes.get(each.version, 0) for each in removed),
        "trash": [_trashed(found, each) for each in left],
        "trash_bytes": sum(found.sizes.get(each.version, 0) for each in left)
        + (0 if dry_run else sum(found.sizes[each.version] for each in goes)),
        "grace_days": chosen.grace_days,
        "refused": {"what": refused.what, "todo": refused.todo} if refused else None,
        "missing_records": list(found.verdict.lost),
        "notes": [*found.verdict.notes, *(f"left alone: {each}" for each in found.broken)],
    }


def _going(found: Found, going: Going) -> Plain:
    stage, version = going.version
    return {
        "stage": stage,
        "version": version,
        "size_bytes": found.sizes[going.version],
        "assets": list(going.assets),
        "why": going.why,
        "made_again_when_needed": going.again,
    }


def _trashed(found: Found, each: Trashed) -> Plain:
    stage, version = each.version
    return {
        "stage": stage,
        "version": version,
        "size_bytes": found.sizes.get(each.version),
        "why": each.stone.reason if each.stone else "its tombstone was lost",
        "since": each.stone.time if each.stone else None,
        "until": each.expires.isoformat() if each.expires else None,
    }


def gc_text(found: Plain) -> str:
    """A line for each version that goes, then the sums."""
    would = "would go" if found["dry_run"] else "went"
    lines = [_line(each) for each in found["goes"]]
    count, size = len(found["goes"]), units.size(found["goes_bytes"])
    lines += [*([""] if lines else []), f"{count} version(s), {size}, {would} into the trash"]
    lines += [f"  left, somebody reads it now: {_line(each)}" for each in found["read_now"]]
    lines += ["stays:"] if found["stays"] else []
    lines += [f"  {each['versions']:5} {units.size(each['size_bytes']):>10}  {each['why']}" for each in found["stays"]]
    would = "would be" if found["dry_run"] else "was"
    if found["brought_back"]:
        lines.append(f"{len(found['brought_back'])} version(s) {would} brought back from the trash: they are needed")
    if found["removed_for_good"]:
        number, size = len(found["removed_for_good"]), units.size(found["removed_for_good_bytes"])
        lines.append(f"{number} version(s), {size}, {would} removed from the trash for good")
    now = len(found["trash"]) + (0 if found["dry_run"] else count)
    lines.append(
        f"trash: {now} version(s), {units.size(found['trash_bytes'])}; each for {found['grace_days']:g} days from when it went"
        " there, then the next bert gc removes it for good"
    )
    lines += [f"! {each}" for each in found["notes"]]
    if refused := found["refused"]:
        lines.append(f"Nothing was touched, and bert gc would refuse: {refused['what']}\n  → {refused['todo']}")
    elif found["dry_run"]:
        lines.append(f"Nothing was touched.{'  Next: bert gc' if found['goes'] or found['removed_for_good'] else ''}")
    elif now:
        lines.append("To bring one back: bert gc --restore VERSION")
    return "\n".join(lines)


def _line(each: Plain) -> str:
    named = ", ".join(each["assets"][:2]) + (f" and {len(each['assets']) - 2} more" if len(each["assets"]) > 2 else "")
    of = f"  {on_one_line(named)}" if named else ""
    again = "; made again when something needs it" if each["made_again_when_needed"] else ""
    size = units.size(each["size_bytes"])
    return f"{each['stage']:20} {each['version'][:12]}  {size:>10}{of}  {each['why']}{again}"


def bring_back(prefix: str) -> Plain:
    """Bring a version back from the trash, named by its beginning."""
    stage, version = garbage.restore(open_store(), prefix)
    return {"stage": stage, "version": version, "stays_for_days": settings().retention.grace_days}


def bring_back_text(found: Plain) -> str:
    """What is there again, and for how long."""
    return (
        f"{found['stage']} {found['version']} is there again, whole; bert gc leaves it alone for "
        f"{found['stays_for_days']:g} days"
    )


def restore(file: Path) -> Plain:
    """Write the records of an audit that the store lacks."""
    return restoring.restore(open_store(), file)


def restore_text(found: Plain) -> str:
    """What was written."""
    lines = [f"written: {each['asset']}, record {each['record'][:12]}" for each in found["written"]]
    lines.append(f"{len(found['written'])} of {found['records']} records were missing and are there again")
    if found["without_content"]:
        lines.append(
            f"{found['without_content']} of them name content that is not in the store: `bert run` makes it anew"
        )
    return "\n".join(lines)
