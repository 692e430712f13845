#!/usr/bin/env python3
"""`make audit-deps`: what is known to be unsafe of the packages in the lock files, by pip-audit, which asks PyPI's advisories.

    python .ci/audit_deps.py LOCK…

Exit code 0: nothing is known. 1: something is, and it is listed. 2: PyPI could not be asked about every package, which proves
nothing; so it is no part of CI, which may have no network.
"""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

ACCEPTED: Mapping[tuple[str, str], str] = {
    (
        "torch",
        "CVE-2026-24747",
    ): "torch-xla works beside torch 2.9 only; there model/foreign/pickled.py refuses pickled weights, which the bug needs",
}
"""(package, advisory) → why it is lived with"""
Dependency = Mapping[str, Any]


def asked(lock: str) -> list[Dependency]:
    """What pip-audit says of each package of a lock file. Raises RuntimeError, with its words, where it says nothing."""
    command = [sys.executable, "-m", "pip_audit", "-r", lock, "--no-deps", "--disable-pip", "-f", "json"]
    done = subprocess.run([*command, "--progress-spinner", "off"], capture_output=True, text=True)
    try:
        found: list[Dependency] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError):
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise RuntimeError(f"{lock}: pip-audit failed: {last}") from None
    return found


def unsafe(found: Sequence[Dependency]) -> Iterator[str]:
    """A line for each advisory that is not accepted."""
    for each in found:
        for advisory in each.get("vulns", ()):
            names = {advisory["id"], *advisory.get("aliases", ())}
            if not any((each["name"].lower(), name) in ACCEPTED for name in names):
                mended = ", ".join(advisory.get("fix_versions") or ()) or "no version yet"
                yield f"{each['name']} {each['version']}: {' '.join(sorted(names))}, mended in {mended}"


def unknown(found: Sequence[Dependency]) -> list[str]:
    """Packages that could not be asked about."""
    return sorted(str(each["name"]) for each in found if "skip_reason" in each)


def verdict(lock: str, found: Sequence[Dependency]) -> tuple[int, list[str]]:
    """(exit code, what to say) of the answers about a lock file."""
    bad, open_ = sorted(set(unsafe(found))), unknown(found)
    said = [f"{lock}: {line}" for line in bad]
    if open_:
        shown = ", ".join(open_[:3]) + (" …" if len(open_) > 3 else "")
        said.append(f"{lock}: PyPI could not be asked about {len(open_)} of {len(found)} packages ({shown}): no result")
    elif not bad:
        said.append(f"{lock}: nothing is known against its {len(found)} packages")
    return (2 if open_ else 1 if bad else 0), said


def main(locks: Sequence[str]) -> int:
    """Ask about every lock; the exit code."""
    worst = 0
    for lock in locks:
        try:
            code, said = verdict(lock, asked(lock))
        except RuntimeError as error:
            code, said = 2, [str(error)]
        print(*said, sep="\n", flush=True)
        worst = max(worst, code)
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
