"""One cell: let it go wrong, and look whether what is promised after a crash holds.

    outcome = run(cell, made, folder)      raises AssertionError, which says what is not as promised

After every cell: what was published verifies and is what it was; nothing unpublished is visible; an error is one line with a
file in it and one with the next step; the same work again gives what an undisturbed one gives; nothing is left on the disk and
no process.
"""

import json
import os
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pipeline.store import Store
from tests.crash import shim
from tests.crash.cells import KILLED, Cell, Input, Point
from tests.crash.world import ASSETS, LEASE_SECONDS, WORKS, Made, Place, Process, work_of

DAY = 86_400
PATIENCE = 60.0
"""seconds for orphans to end and for a process to stop"""
CLOCKS = {"clock back": -DAY, "clock ahead": 365 * DAY}


@dataclass(frozen=True)
class Outcome:
    """What became of a cell that is as promised."""

    what: str
    """killed, told (an error that a person can act on), went on, mended (damage was found and made anew)"""
    said: str = ""
    """the error's first line"""
    where: str = ""
    """the path that the fault happened at"""


def run(cell: Cell, made: Made, folder: Path) -> Outcome:
    """Do it. Raises AssertionError where something is not as promised."""
    place = made.before[cell.work].copy(folder)
    if isinstance(cell.point, Point):
        return _at_a_point(cell, cell.point, made, place)
    if isinstance(cell.point, Input):
        return _damaged(cell, cell.point, made, place)
    return _all_along(cell, made, place)


def _at_a_point(cell: Cell, point: Point, made: Made, place: Place) -> Outcome:
    kind = {"clock": "kill", "far": "stop"}.get(cell.fault, cell.fault)
    fault = shim.Fault(place.folder, place.home, point.operation, f"{place.home}/{point.pattern}", point.number, kind)
    before, work = place.state(), work_of(cell.work, place)
    process = place.start(work, fault.environment)
    beside = None
    if kind == "stop":
        beside = _beside(cell, place, process, fault, work)
    code = process.ended(PATIENCE * 2)
    fired = fault.fired
    assert code is not None, f"it hangs\n{process.said}"
    assert fired.pid, f"the fault never happened ({fired.count} calls seen); code {code}\n{process.said}"
    outcome = _judged(cell, code, process.said, place, fired.path)
    _visible(before, made.after[cell.work], place)
    shift = {"CRASH_CLOCK": str(-DAY)} if cell.fault == "clock" else {}
    _again(cell.work, work, place, made, shift, exact=beside is None)
    _no_process_left(str(fault.environment["CRASH_STATE"]))
    return outcome


def _beside(cell: Cell, place: Place, process: Process, fault: shim.Fault, work: str) -> Process:
    """While the process stands still, the same is done by another; then it goes on."""
    end = time.monotonic() + PATIENCE
    while not fault.fired.pid:
        assert time.monotonic() < end, f"the fault never happened\n{process.said}"
        time.sleep(0.01)
    stopped = fault.fired.pid
    try:
        while _status(stopped) not in ("stopped", "tracing-stop"):
            assert time.monotonic() < end, f"it never stood still\n{process.said}"
            time.sleep(0.01)
        if cell.fault == "far":
            for claim in (place.home / "leases").glob("[!.]*"):
                host, rest = claim.read_text(encoding="utf-8").split(" ", 1)
                claim.write_text(f"elsewhere-{host} {rest}", encoding="utf-8")
        time.sleep(LEASE_SECONDS + 0.3)
        place.do("sweep")
        other = place.start(work)
        other.ended(4)  # it may have to wait for a lock that the first one holds
    finally:
        with suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
    code = other.ended(PATIENCE)
    assert code == 0, f"beside it: {code}\n{other.said}"
    return other


def _status(pid: int) -> str:
    try:
        return str(psutil.Process(pid).status())
    except psutil.Error:
        return "gone"


def _damaged(cell: Cell, damaged: Input, made: Made, place: Place) -> Outcome:
    work = work_of(cell.work, place)
    if damaged.name == "a partial download":
        point = f"{place.home}/downloads/*/notes.txt"
        killed = place.start(work, shim.Fault(place.folder, place.home, "rename", point, 1, "kill").environment)
        assert killed.ended() == -signal.SIGKILL
    path = min(place.folder.glob(damaged.pattern))
    kept = path.read_bytes()
    put_back = damage(path, cell.fault)
    before = _pointers(place)
    process = place.start(work)
    code = process.ended(PATIENCE * 2)
    assert code is not None, f"it hangs\n{process.said}"
    outcome = _judged(cell, code, process.said, place, str(path))
    for name, version in _pointers(place).items():
        assert version in (before.get(name), made.after[cell.work].get(name)), f"{name} is {version}"
    if damaged.outside:
        put_back()
        path.write_bytes(kept)
    place.store.verify()  # as the message asks for: it sets aside what is damaged
    _chain(cell.work, work, place, made)
    return outcome


def damage(path: Path, kind: str) -> Any:
    """Damage a file; returns what takes away what was added beside it."""
    data = path.read_bytes()
    beside = path.with_name(f"more-{path.name}")

    def put_back() -> None:
        beside.unlink(missing_ok=True)
        if path.is_symlink():
            path.unlink()

    if kind in ("truncated", "empty"):
        with path.open("r+b") as file:
            file.truncate(len(data) // 2 if kind == "truncated" else 0)
    elif kind == "flipped":
        at = len(data) // 2
        with path.open("r+b") as file:
            file.seek(at)
            file.write(bytes([data[at] ^ 4]))
    elif kind in ("missing", "link"):
        path.unlink()
        if kind == "link":
            path.symlink_to(path.with_name("nowhere"))
    elif kind == "extra":
        beside.write_bytes(b"More than there should be.\n")
    else:
        beside.write_bytes(data)
    return put_back


def _all_along(cell: Cell, made: Made, place: Place) -> Outcome:
    before, work = place.state(), work_of(cell.work, place)
    if cell.fault == "two runs":
        processes = [place.start(work) for _ in range(2)]
        codes = [process.ended(PATIENCE * 2) for process in processes]
        assert codes == [0, 0], "\n".join(process.said for process in processes)
        _again(cell.work, work, place, made, {}, exact=False)
        return Outcome("went on")
    if cell.fault == "read-only home":
        fault = shim.Fault(place.folder, place.home, "create", f"{place.home}/*", 1, "EROFS")
        process = place.start(work, fault.environment)
        code = process.ended(PATIENCE)
        outcome = _judged(cell, code or 0, process.said, place, fault.fired.path)
        assert outcome.what == "told", process.said
        _visible(before, made.after[cell.work], place)
        _again(cell.work, work, place, made, {})
        return outcome
    place.do(work, {"CRASH_CLOCK": str(CLOCKS[cell.fault])})
    _again(cell.work, work, place, made, {}, exact=False)
    return Outcome("went on")


# ── what is promised ─────────────────────────────────────────────────────────────────────────────────────────────────


def _judged(cell: Cell, code: int, said: str, place: Place, path: str) -> Outcome:
    """How it ended, and whether that is right for what happened."""
    if code == 0:
        assert "Traceback" not in said, said
        return Outcome("went on", where=path)
    if code < 0:
        assert cell.fault in KILLED and code == -signal.SIGKILL, f"it was ended by signal {-code}\n{said}"
        return Outcome("killed", where=path)
    if code == 143:
        assert cell.fault == "term", said
        return Outcome("canceled", where=path)
    assert code == 1, f"exit code {code}\n{said}"
    first = error_told(said, "error: ")
    told = said.partition("error: ")[2]
    killed = cell.fault in (*KILLED, "term")  # of a worker: there is no file to name
    names = Path(path).name.strip(".").split(".")[0]
    assert killed or str(place.folder) in told or names[:12] in told, f"no file is named ({path})\n{said}"
    return Outcome("told", first, path)


def error_told(said: str, begin: str) -> str:
    """The first line of the one error that is told from `begin` on, with one next step and no stack."""
    assert "Traceback" not in said, f"a traceback\n{said}"
    first, *others = f"\n{said}".split(f"\n{begin}")[1:] or [""]
    assert first and not others, f"{len(others) + bool(first)} errors\n{said}"
    told = first
    assert told.partition("\n\n")[0].count("→") == 1, f"{told.count('→')} next steps\n{said}"
    return told.partition("\n")[0].strip()


def _pointers(place: Place) -> dict[str, Any]:
    found = {}
    for path in (place.home / "assets" / "tiny").glob("[!.]*.json"):
        record = place.store.pointer("tiny", path.stem)
        name = str(path.relative_to(place.home))
        if path.name == "champion.json":
            continue
        found[name] = [record.version] if record else None
    return found


def _visible(before: Mapping[str, Any], after: Mapping[str, Any], place: Place) -> None:
    """What was there verifies and is what it was; what is new is what it should become."""
    problems = place.store.verify()
    assert not problems, f"after it: {problems}"
    for name, value in place.state().items():
        if name.startswith("assets/"):
            known = {*before.get(name, ()), *after.get(name, ())}
            assert set(value) <= known, f"{name} is {value}"
        elif name.startswith("store/"):
            assert value in (before.get(name), after.get(name)), f"{name} is visible, and is not what it should be"


def _again(name: str, work: str, place: Place, made: Made, more: Mapping[str, str], exact: bool = True) -> None:
    """The same work again, undisturbed, gives what it should, and nothing is left."""
    place.do("sweep", more)
    if not (name == "restore" and not place.store.trashed()):
        place.do(work, more)
    if more:  # what is left is found whatever the clock says
        place.do("sweep 0", more)
    same_as(made.after[name], place, exact)


def _chain(name: str, work: str, place: Place, made: Made) -> None:
    """All that comes before, and the work itself, as `bert run` would do it."""
    place.do("sweep")
    last = ASSETS.index(name) if name in ASSETS else len(ASSETS) - 1
    for asset in ASSETS[: last + 1]:
        place.do(WORKS[asset])
    if name not in ASSETS:
        place.do(work)
    problems = place.store.verify()
    assert not problems, f"after it was made again: {problems}"
    expected, found = made.after[name], place.state()
    for path, value in expected.items():
        if path.startswith("assets/"):
            assert found.get(path, [None])[0] == value[0], f"{path} is {found.get(path)} and not {value}"
        elif path.startswith("store/"):
            assert found.get(path) == value, f"{path} is not as it should be"
    extra = [path for path in found if path.startswith("store/") and path not in expected]
    assert not extra, extra
    nothing_left(place)


def same_as(expected: Mapping[str, Any], place: Place, exact: bool = True) -> None:
    """The home holds what it should hold, and no more; `exact`: it was done once."""
    problems = place.store.verify()
    assert not problems, f"after it was done again: {problems}"
    Store(place.home, lease_seconds=0).sweep()
    found, expected = place.state(), dict(expected)
    if not exact:  # two did it, and each may have recorded it
        for path in (path for path in found if path.startswith("assets/") and isinstance(found[path], list)):
            found[path], expected[path] = set(found[path]), set(expected[path])
    differing = {k: (expected.get(k), found.get(k)) for k in {*expected, *found} if expected.get(k) != found.get(k)}
    assert not differing, f"expected and found: {json.dumps(differing, indent=1, default=sorted)}"
    count = len(list((place.home / "records").glob("*.json")))
    assert count <= len(found["records"]) + (1 if exact else 3), f"{count} records of {len(found['records'])} results"
    nothing_left(place)


def nothing_left(place: Place) -> None:
    """No temporary file, no staging, no lease, nothing of a training that is published."""
    Store(place.home, lease_seconds=0).sweep()
    left = [path for path in place.home.rglob(".*") if path.name != ".lock" and "dagster" not in path.parts]
    left += [path for pattern in ("staging/*", "leases/*") for path in place.home.glob(pattern)]
    patterns = ("tmp.*", "partial*", "result", "checkpoints", "weights", "launcher", "cancel", "error.json")
    left += [
        path
        for pattern in patterns
        for path in (*place.home.glob(f"runs/*/*/{pattern}"), *place.home.glob(f"downloads/*/{pattern}"))
    ]
    assert not left, f"left on the disk: {[str(path.relative_to(place.home)) for path in left]}"
    scratch = [str(path.relative_to(place.folder)) for path in (place.folder / "tmp").iterdir()]
    assert not scratch, f"left in TMPDIR: {scratch}"


def _no_process_left(mark: str) -> None:
    """Every process of the cell ends, also where the one that started it was killed."""
    end = time.monotonic() + PATIENCE
    while left := [process for process in psutil.process_iter() if _marked(process, mark)]:
        assert time.monotonic() < end, f"processes that do not end: {[(p.pid, p.cmdline()) for p in left]}"
        time.sleep(0.1)


def _marked(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get("CRASH_STATE") == mark and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, OSError):
        return False
