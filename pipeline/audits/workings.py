"""What every artifact of a chain was made with: code, configuration, libraries, machine."""

from typing import Any

from pipeline.attestations.chain import UNKNOWN, Chain, Work
from pipeline.system.atomic import canonical_digest

Plain = dict[str, Any]


def workings(chain: Chain) -> list[Plain]:
    """Of every artifact, inputs first. Where a result is reused, what is told is of the run that made it."""
    return [_working(work) for work in chain.works]


def _working(work: Work) -> Plain:
    body = work.record.body
    ran = work.made.body if work.made else {}
    git = ran.get("git") or {}
    dirty = git.get("dirty")
    return {
        "asset": work.record.asset,
        "recipe": work.record.recipe,
        "stage": work.record.stage,
        "version": work.record.version,
        "record": work.record.digest,
        "code_version": body.get("code_version") or UNKNOWN,
        "commit": git.get("commit") or UNKNOWN,
        "changed_since_commit": UNKNOWN if dirty is None else bool(dirty),
        "config_sha256": canonical_digest(dict(work.config)),
        "asked": dict(body.get("asked") or {}),
        "seed": body.get("seed"),
        "libraries": dict(ran.get("libraries") or {}) or UNKNOWN,
        "host": ran.get("host") or UNKNOWN,
        "user": ran.get("user") or UNKNOWN,
        "started": work.times[0] if work.times else UNKNOWN,
        "finished": work.times[1] if work.times else UNKNOWN,
    }
