"""Which checks ran on every artifact of a chain, at which thresholds, with which results, and who waived what."""

from collections.abc import Mapping
from typing import Any

from pipeline.attestations.chain import UNKNOWN, Chain, Work
from pipeline.suites import DOES_NOT_APPLY

Plain = dict[str, Any]
_NOTHING_TO_ASK = (DOES_NOT_APPLY, "no data", "not asked", "not needed")
"""what stands as observed where a check had nothing to look at: nothing failed, but nothing passed either"""


def checked(chain: Chain) -> list[Plain]:
    """Of every artifact, inputs first."""
    return [_checked(work) for work in chain.works]


def _checked(work: Work) -> Plain:
    body = work.record.body
    waived = {str(waiver["check"]) for waiver in body.get("waivers") or ()}
    return {
        "asset": work.record.asset,
        "recipe": work.record.recipe,
        "version": work.record.version,
        "suite_digest": (body.get("validation") or {}).get("suite_digest") or UNKNOWN,
        "checks": [
            {
                "check": result["name"],
                "says": result.get("description") or "",
                "threshold": str(result["expected"]),
                "observed": str(result["observed"]),
                "severity": result["severity"],
                "result": _outcome(result, result["name"] in waived),
            }
            for result in work.results
        ],
        "waivers": [
            {
                "check": str(waiver["check"]),
                "reason": str(waiver["reason"]),
                "by": str(waiver["user"]),
                "time": str(waiver["time"]),
                "recorded_in": f"records/{work.record.digest}.json",
            }
            for waiver in body.get("waivers") or ()
        ],
    }


def _outcome(result: Mapping[str, Any], waived: bool) -> str:
    """passed, failed, waived (it failed, and somebody accepted that), or `not asked`."""
    observed = str(result["observed"])
    if result["passed"]:
        return "not asked" if observed in _NOTHING_TO_ASK or observed.startswith("it failed: ") else "passed"
    return "waived" if waived else "failed"
