"""Bring one asset up to date: know its key, reuse what the store remembers, or run the stage, validate and publish.

    need = needed(store, node)             what would happen, and why
    settle(store, need)                    answer from memory, without running anything
    build(store, node)                     settle, or run the stage

A `Node` is an asset as the store sees it; the graph of a recipe (assets/graph.py) is made of nodes. Nothing here knows
Dagster, and every decision is made from records, manifests and pointers.
"""

import platform
import re
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.metadata import version as library_version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipeline import lineage, progress, sources, suites
from pipeline.config import Frozen, PathFrom, TaskDataConfig, UrlFrom, WheelFrom, WikimediaFrom
from pipeline.errors import BertError, ChainError, DataError, ProcessLost, SourceError, StoreError, TrainingError
from pipeline.settings import settings
from pipeline.stage import ROOT, Stage
from pipeline.storage import failures
from pipeline.storage.content import key_of
from pipeline.storage.record import utc_now
from pipeline.storage.tombstones import Tombstone
from pipeline.store import Record, Store
from pipeline.system import places
from pipeline.system.owners import user

SCHEMA = "1"
FOLLOW_SECONDS = 2.0
"""between two looks at a training run that another process works on"""
RECORDED_LIBRARIES = (
    "torch",
    "numpy",
    "pyarrow",
    "polars",
    "tokenizers",
    "apache-beam",
    "dagster",
    "great-expectations",
)


def critical_failures(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The results that keep content from being published unless somebody waives them."""
    return [r for r in results if not r["passed"] and r["severity"] == "critical"]


class ValidationFailed(BertError):
    """Critical checks failed: nothing was published, what failed lies under `rejected/`."""

    def __init__(self, node: "Node", results: list[dict[str, Any]], rejected: str) -> None:
        failed = critical_failures(results)
        table = "\n".join(
            f"    {r['name']}: {r['observed']} (expected {r['expected']}). {r['description']}".rstrip(". ")
            for r in failed
        )
        super().__init__(
            f"{node.path}: {len(failed)} critical check(s) failed, nothing was published\n{table}",
            f"Look at rejected/{rejected}. {way_out(node, [result['name'] for result in failed])}",
        )
        self.results = results

    @property
    def line(self) -> str:
        """The checks that failed, in one line."""
        failed = (f"{r['name']}: {r['observed']} (expected {r['expected']})" for r in critical_failures(self.results))
        return f"it failed {'; '.join(failed)}"


@dataclass(frozen=True)
class Node:
    """One asset of a recipe."""

    recipe: str
    name: str
    stage: Stage
    config: Frozen
    declared: str
    """digest of the config as it stands in the recipe, without paths: part of Dagster's code version"""
    inputs: Mapping[str, "Node"] = field(default_factory=dict)
    """the stage's input name → the asset that it reads"""
    gathers: bool = False
    """a comparison: it reads what assets of other recipes have now. Those that were never made are left out, and the others
    need not be of one chain"""

    @property
    def path(self) -> str:
        """`recipe/asset`, as people write it."""
        return f"{self.recipe}/{self.name}"

    @property
    def code_version(self) -> str:
        """What Dagster compares: code, configuration and suite."""
        return f"{self.stage.code_version} {self.declared[:12]} {suites.suite_digest(self.stage.name)[:12]}"


def way_out(node: Node, failed: Sequence[str], change: str = "Change what it is made of") -> str:
    """What to do about checks that failed: change, or accept, where that can help."""
    for name in failed:
        if not suites.waivable(node.stage.name, name):
            return f"{change}; {name} can't be accepted, since nothing can be made of it."
    return f'{change}, or accept it: bert run {node.path} --accept {failed[0]} --reason "…"'


@dataclass(frozen=True)
class Need:
    """What an asset needs now. `why` is empty when it is up to date."""

    node: Node
    inputs: Mapping[str, Record]
    """records of the inputs; not all of them when some were never made"""
    key: str | None
    """None while an input is missing"""
    asked: Mapping[str, Any]
    """the configuration as it enters the key: origins replaced by what they hold"""
    answer: Record | None
    """a record that answers this key: its content is intact, or see `gone`"""
    why: str = ""
    gone: Tombstone | None = None
    """`bert gc` removed the content of the answer, or of what has to run for that reason"""
    comes_back: bool = False
    """that content is in the trash, and has to be there"""

    @property
    def up_to_date(self) -> bool:
        """The pointer's record is the answer, for these very inputs."""
        return not self.why

    @property
    def must_run(self) -> bool:
        """No record answers: the stage has to run."""
        return self.answer is None


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────────────


ABSENT = "absent"  # stands in a key for data that a recipe has never had


def asked_for(node: Node, before: Record | None, network: bool = False) -> dict[str, Any]:
    """The configuration as it enters the key: what stands at its default is left out, every origin of files is replaced
    by the content that it holds now.

    A task's files that were never there count as `absent`. Raises SourceError where a source's files are missing, where
    a task's files were there `before` and are gone, or where `network` is needed and fails.
    """
    asked: dict[str, Any] = _resolve(node.config, defaults=False, network=network)
    gone = _gone(asked)
    if gone and before is not None and not _gone(before.body["asked"]):
        raise SourceError(
            f"{node.path}: its files were there and are gone",
            "Put them back, or name their new place in the recipe; what depends on them keeps what it has.",
        )
    return asked


def _gone(asked: Any) -> bool:
    if isinstance(asked, Mapping):
        return any(_gone(value) for value in asked.values())
    return bool(asked == ABSENT)


def _resolve(value: Any, defaults: bool, network: bool = False, optional: bool = False) -> Any:
    """`value` as JSON, with every origin replaced by its content; `optional`: by ABSENT where there is nothing."""
    if isinstance(value, PathFrom | UrlFrom | WheelFrom | WikimediaFrom):
        return ABSENT if optional and not sources.present(value) else sources.resolve(value, network)
    if isinstance(value, Frozen):
        optional = optional or isinstance(value, TaskDataConfig)
        fields = type(value).model_fields
        return {
            fields[name].alias or name: _resolve(part, defaults, network, optional)
            for name, part in value
            if defaults or part != fields[name].get_default(call_default_factory=True)
        }
    if isinstance(value, dict):
        return {name: _resolve(part, defaults, network, optional) for name, part in value.items()}
    if isinstance(value, tuple | list):
        return [_resolve(part, defaults, network, optional) for part in value]
    return value


def needed(
    store: Store,
    node: Node,
    forced: bool = False,
    network: bool = False,
    known: Mapping[str, Record] | None = None,
    wanted: bool = False,
) -> Need:
    """What `node` needs, given the records that its inputs have now, or those of `known` by asset name. Runs nothing;
    without `network`, "latest" means the newest dump that is known here.

    Content that a rule of `bert gc` took settles the asset as if it were there, unless it is `wanted`.

    Raises SourceError when a file that the recipe names is gone.
    """
    known = known or {}
    pointers = {
        name: known.get(source.name) or store.pointer(source.recipe, source.name)
        for name, source in node.inputs.items()
    }
    inputs = {name: record for name, record in pointers.items() if record is not None}
    missing = [node.inputs[name] for name, r in pointers.items() if r is None and not node.gathers]
    before = store.pointer(node.recipe, node.name)
    asked = asked_for(node, before, network)
    if missing:
        lost = [told for source in missing if (told := store.lost(source.recipe, source.name))]
        why = f"needs {', '.join(source.name for source in missing)} first"
        return Need(node, inputs, None, asked, None, f"{why}: {'; '.join(lost)}" if lost else why)
    key = key_of(node.stage.name, node.stage.code_version, asked, {n: r.version for n, r in inputs.items()})
    if forced:
        return Need(node, inputs, key, asked, None, "forced")
    answer = _answer(store, key, before)
    if answer is None:
        if (removed := _removed(store, key, before)) is not None:
            return _without_content(store, node, inputs, key, asked, before, removed, wanted)
        return Need(node, inputs, key, asked, None, _why(store, node, before, inputs, asked, key))
    if answer is before and dict(before.inputs) == _digests(inputs):
        current = before.body["validation"]["suite_digest"] == suites.suite_digest(node.stage.name)
        return Need(node, inputs, key, asked, answer, "" if current else "its validation suite changed")
    return Need(node, inputs, key, asked, answer, _reuse(node, before, answer))


def _answer(store: Store, key: str, before: Record | None) -> Record | None:
    """The pointer's record if it answers, else the oldest valid one that the memory holds."""
    if before is not None and before.key == key and store.intact(before.stage, before.version):
        return before
    remembered = store.remembered(key)
    return remembered[0] if remembered else None


def _removed(store: Store, key: str, before: Record | None) -> Record | None:
    """A record that answers although its content was removed: by a rule, or it is in the trash still. The pointer's, else the
    oldest."""
    mine = [before] if before is not None and before.key == key else []
    for record in [*mine, *store.removed_answers(key)]:
        stone = store.removed(record.stage, record.version)
        if stone is not None and (stone.again or store.in_trash(record.stage, record.version)):
            return record
    return None


def _without_content(
    store: Store,
    node: Node,
    inputs: Mapping[str, Record],
    key: str,
    asked: Mapping[str, Any],
    before: Record | None,
    answer: Record,
    wanted: bool,
) -> Need:
    """What an asset needs whose answer has no content: nothing while nobody wants it; else the trash, or to be made again."""
    stone = store.removed(answer.stage, answer.version)
    in_trash = store.in_trash(answer.stage, answer.version)
    if stone is None:  # it came back meanwhile
        return Need(node, inputs, key, asked, answer, _reuse(node, before, answer))
    if in_trash and (wanted or not stone.again):
        return Need(node, inputs, key, asked, answer, f"{stone.told}; it comes back from the trash", stone, True)
    if wanted or not stone.again:
        return Need(node, inputs, key, asked, None, stone.told, stone)
    same = answer is before and dict(before.inputs) == _digests(inputs)
    return Need(node, inputs, key, asked, answer, "" if same else _reuse(node, before, answer), stone)


def _digests(inputs: Mapping[str, Record]) -> dict[str, str]:
    return {name: record.digest for name, record in inputs.items()}


def _reuse(node: Node, before: Record | None, answer: Record) -> str:
    if before is not None and before.version == answer.version:
        return "its inputs were made again and came out equal"
    return f"known: reused from {answer.path}" if answer.recipe != node.recipe else "known from before"


def _why(
    store: Store, node: Node, before: Record | None, inputs: Mapping[str, Record], asked: Mapping[str, Any], key: str
) -> str:
    """Why nothing answers: compared with what the asset has now."""
    if before is None:
        return store.lost(node.recipe, node.name) or "never made"
    if before.key == key:
        stone = store.removed(before.stage, before.version)
        return stone.told if stone else "its content is missing or broken"
    reasons = ["it failed"] if failed(before) else []
    if before.body["code_version"] != node.stage.code_version:
        reasons.append(f"code version {before.body['code_version']} → {node.stage.code_version}")
    changed = _changed(before.body["asked"], asked)
    if changed:
        reasons.append("recipe: " + ", ".join(changed))
    for name, record in inputs.items():
        old = before.inputs.get(name)
        if old is None or _version_in(store, old) != record.version:
            reasons.append(f"{node.inputs[name].path if node.gathers else node.inputs[name].name} is new")
    return "; ".join(reasons) or "its inputs changed"


def _version_in(store: Store, digest: str) -> str | None:
    try:
        return store.record(digest).version
    except StoreError:
        return None


def _changed(old: Mapping[str, Any], new: Mapping[str, Any], at: str = "") -> list[str]:
    """Keys whose value differs, written `a.b old → new`; what stands at its default is called so."""
    lines = []
    for name in sorted({*old, *new}):
        left, right = old.get(name, "default"), new.get(name, "default")
        if isinstance(left, dict) and isinstance(right, dict):
            lines += _changed(left, right, f"{at}{name}.")
        elif left != right:
            lines.append(f"{at}{name} {_short(left)} → {_short(right)}")
    return lines


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"


# ── answers and runs ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Outcome:
    """What an asset is now."""

    record: Record
    ran: bool
    """False: the store's memory answered"""
    failed: BertError | None = None
    """why it failed: the record is of what was published in its place"""


def failed(record: Record) -> bool:
    """Whether a record says that something failed; it answers no key, so that the next run tries again."""
    return suites.FAILED in record.body["statistics"]


def usable(record: Record) -> list[str]:
    """Names of critical checks that failed and that nobody waived; empty: what this record names may be used."""
    waived = {waiver["check"] for waiver in record.body["waivers"]}
    failed = critical_failures(record.body["validation"]["results"])
    return [r["name"] for r in failed if r["name"] not in waived]


def settle(store: Store, need: Need) -> Record:
    """Make the answer of the memory the asset's own: a record with today's inputs, and the pointer on it.

    Validates again where the suite has changed since and the content is there; brings back from the trash what has to be there.
    Appends nothing when the asset is up to date already.
    """
    node, answer = need.node, need.answer
    if answer is None or need.key is None:
        raise StoreError(f"{node.path}: nothing answers its key", f"Run it: bert run {node.path}")
    if need.up_to_date:
        failures.forget(store.home, node.recipe, node.name)  # of a recipe that was edited back
        return answer
    if need.comes_back:
        store.bring_back(answer.stage, answer.version)
        return settle(store, needed(store, node, wanted=True))
    _check_inputs(store, node, need.inputs)
    body = dict(answer.body)
    if need.gone is None and body["validation"]["suite_digest"] != suites.suite_digest(node.stage.name):
        folder = store.folder(node.stage.name, answer.version, references=references_of(node))
        body["validation"] = _validate(store, node, folder, body["statistics"], need.inputs, answer.version)
    now = utc_now()
    same_asset = answer.recipe == node.recipe and answer.asset == node.name
    body |= {
        "recipe": node.recipe,
        "asset": node.name,
        "config": _resolve(node.config, defaults=True),
        "inputs": _digests(need.inputs),
        "waivers": body["waivers"] if same_asset else [],
        "reused": answer.digest,
        "forced": False,
        "started": now,
        "finished": now,
        "host": platform.node(),
        "user": user(),
    }
    return _become(store, node, body)


def _become(store: Store, node: Node, body: Mapping[str, Any]) -> Record:
    """Write the record and make it what the asset is now."""
    record = store.append(body)
    store.point(node.recipe, node.name, record)
    if not failed(record):
        failures.forget(store.home, node.recipe, node.name)
    return record


Began = Callable[[Path], None]
"""hears the run folder of a training that begins, or goes on, there"""


def build(
    store: Store,
    node: Node,
    forced: bool = False,
    again: bool = False,
    wanted: bool = False,
    began: Began = lambda folder: None,
) -> Outcome:
    """Bring `node` up to date. `forced`: whatever is known; a training begins anew then, but not where it is tried
    `again` after it was lost. `wanted`: also where it is settled, and `bert gc` removed its content. What the stage reads and
    was removed comes first. What failed is noted (`pipeline.storage.failures`) until it is made well.

    A stage whose failure must not stop others publishes that it failed, and why: the outcome has the error. Raises
    ValidationFailed, ChainError, SourceError, StoreError or what the stage raises else; in every such case the asset keeps what
    it had."""
    try:
        outcome = _build(store, node, forced, again, wanted, began)
    except Exception as error:
        failures.note(store.home, node.recipe, node.name, error)
        raise
    if outcome.failed is not None:
        failures.note(store.home, node.recipe, node.name, outcome.failed)
    return outcome


def _build(store: Store, node: Node, forced: bool, again: bool, wanted: bool, began: Began) -> Outcome:
    need = needed(store, node, forced, network=True, wanted=wanted)
    if need.key is None:
        missing = [source for name, source in node.inputs.items() if name not in need.inputs]
        raise ChainError(f"{node.path} {need.why}", f"Make it with what it needs: bert run {missing[0].recipe}")
    _check_inputs(store, node, need.inputs)
    if not need.must_run:
        record = settle(store, need)
        refuse_red(node, record)
        return Outcome(record, ran=False)
    if _supply(store, need):
        return _build(store, node, forced, again, wanted, began)
    if not node.stage.resumable:
        return _made(store, need, forced)
    with ExitStack() as held:
        run, waited = _run_folder(store, need, forced and not again, held)
        store.note_inputs(need.key, _digests(need.inputs))
        if waited and not forced:  # what it waited for may be what it needs
            now = needed(store, node, network=True)
            need = now if now.key == need.key else need
        if need.must_run:
            began(run)
        outcome = _made(store, need, forced, run) if need.must_run else Outcome(settle(store, need), ran=False)
    store.clear_runs(lambda _, folder: node.stage.clear(folder), need.key)
    refuse_red(node, outcome.record)
    return outcome


def _made(store: Store, need: Need, forced: bool, run: Path | None = None) -> Outcome:
    """What the stage makes or, where it fails and stands alone, what says so."""
    try:
        return Outcome(_run(store, need, forced, run), ran=True)
    except BertError as error:
        if not _stands_alone(store, need, error):
            raise
        return Outcome(_say_failed(store, need, error, forced), ran=True, failed=error)


def _stands_alone(store: Store, need: Need, error: BertError) -> bool:
    """Whether to publish that it failed. Not where the store or a lost process is to blame, or nothing was wrong with what a
    forced run repeats; and of what can't be had now, those who read it keep what they have."""
    node = need.node
    if not node.stage.failure or isinstance(error, ProcessLost) or store.remembered(need.key or ""):
        return False
    if isinstance(error, SourceError):
        before = store.pointer(node.recipe, node.name)
        return before is None or "not_run" in before.body["statistics"]
    return isinstance(error, DataError | TrainingError | ValidationFailed)


_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s:]+/)+")


def _say_failed(store: Store, need: Need, error: BertError, forced: bool) -> Record:
    """Publish that it failed and why, under a key that nobody asks for: what stands there is no answer."""
    node, started = need.node, utc_now()
    why = _FOLDERS.sub("", error.line)  # content names no places
    folders = {name: store.folder(record.stage, record.version) for name, record in need.inputs.items()}
    with store.staging() as staged:
        statistics = {**node.stage.say_failed(folders, node.config, staged, why), suites.FAILED: why}
        body = _body(need, statistics, started, forced)
        body["key"] = key_of(f"{node.stage.name} {suites.FAILED}", node.stage.code_version, need.asked, body["inputs"])
        body["validation"] = _validate(store, node, staged, statistics, need.inputs)
        return _become(store, node, body | {"version": store.publish(node.stage.name, staged), "finished": utc_now()})


def _supply(store: Store, need: Need) -> bool:
    """Have the content there that the stage reads and that `bert gc` removed. Whether any was missing."""
    missing = False
    for name, record in need.inputs.items():
        stone = store.removed(record.stage, record.version)
        if stone is not None and (stone.again or store.in_trash(record.stage, record.version)):
            source = need.node.inputs[name]
            progress.tell(f"{source.path}: {stone.told}. {need.node.name} reads it: it is brought back, or made again")
            build(store, source, wanted=True)
            missing = True
    return missing


class _Busy(Exception):
    """Another process trains there."""


def _run_folder(store: Store, need: Need, fresh: bool, held: ExitStack) -> tuple[Path, bool]:
    """The folder of a training run, and whether another process had to be waited for; how far that one is, is reported
    meanwhile."""
    assert need.key is not None

    def refuse(waiting: str) -> None:
        raise _Busy(waiting.removeprefix("waiting for "))

    waited = False
    while True:
        try:
            return held.enter_context(store.run_folder(need.key, fresh, waiting=refuse)), waited
        except _Busy as busy:
            waited = True
            theirs = store.attempt(need.key)
            if theirs is not None:
                need.node.stage.follow(theirs, f"{busy}, which this one waits for")
            time.sleep(FOLLOW_SECONDS)


def refuse_red(node: Node, record: Record) -> None:
    """Published content whose changed suite now fails stays published, but the asset is red until someone waives: then
    DataError, which says how."""
    failed = usable(record)
    if failed:
        raise DataError(
            f"{node.path}: the published version {record.version[:12]} fails {', '.join(failed)} of the changed suite",
            way_out(node, failed, "Change the recipe"),
        )


def _check_inputs(store: Store, node: Node, inputs: Mapping[str, Record]) -> None:
    for name, record in inputs.items():
        failed = usable(record)
        if failed:
            raise ChainError(
                f"{node.path}: its input {node.inputs[name].name} failed {', '.join(failed)}",
                way_out(node.inputs[name], failed, f"Mend {node.inputs[name].name}"),
            )
    if not node.gathers:
        lineage.check_one_chain(store, node.recipe, node.name, inputs)


def _run(store: Store, need: Need, forced: bool, run: Path | None = None) -> Record:
    node = need.node
    assert need.key is not None
    started = utc_now()
    store.check_writable()
    with ExitStack() as held:
        folders = {}
        for name, record in need.inputs.items():
            held.enter_context(store.lease(record.stage, record.version))
            folders[name] = store.folder(record.stage, record.version, references=references_of(node.inputs[name]))
        if run is not None:
            folders["run"] = run
        staged = held.enter_context(store.staging())
        upload = None
        if settings().beam_by_url:
            upload = held.enter_context(store.upload(node.stage.name))
            read = {
                folders[name].resolve(): partial(store.url_of, r.stage, r.version) for name, r in need.inputs.items()
            }
            held.enter_context(places.sharing({**read, staged.resolve(): upload.url}))
        statistics = node.stage.load()(folders, _pinned(node.config, need.asked), staged)
        validation = _validate(store, node, staged, statistics, need.inputs, folders=folders)
        body = _body(need, statistics, started, forced) | {"validation": validation, "finished": utc_now()}
        if (forced or need.gone) and node.stage.deterministic:
            body["validation"]["results"].append(_reproducible(store, need, staged))
        if critical_failures(body["validation"]["results"]):
            rejected = store.reject(staged, body)
            raise ValidationFailed(node, body["validation"]["results"], rejected)
        version = store.publish(node.stage.name, staged, upload)
        if need.gone is None:
            return _become(store, node, body | {"version": version})
        store.append(body | {"version": version})
    return settle(store, needed(store, node))  # what the asset had names its content again: nothing below it changes


def _body(need: Need, statistics: Mapping[str, Any], started: str, forced: bool) -> dict[str, Any]:
    """A record of what was made now, but for its validation, version and end."""
    node = need.node
    return {
        "schema": SCHEMA,
        "recipe": node.recipe,
        "asset": node.name,
        "stage": node.stage.name,
        "key": need.key,
        "code_version": node.stage.code_version,
        "config": _resolve(node.config, defaults=True),
        "asked": dict(need.asked),
        "inputs": _digests(need.inputs),
        "statistics": statistics,
        "waivers": [],
        "reused": None,
        "forced": forced,
        "seed": getattr(node.config, "seed", None),
        "libraries": {name: library_version(name) for name in (*RECORDED_LIBRARIES, *node.stage.libraries)},
        "git": dict(git_state()),
        "settings": settings().plain(),
        "host": platform.node(),
        "user": user(),
        "started": started,
    }


def _pinned(config: Frozen, asked: Mapping[str, Any]) -> Frozen:
    """The config whose origin is what the key says, also where another process has resolved `latest` anew meanwhile."""
    origin = getattr(config, "from_", None)
    if not isinstance(origin, WikimediaFrom):
        return config
    return config.model_copy(update={"from_": origin.model_copy(update={"dump": asked["from"]["date"]})})


REPRODUCIBLE = "reproducible"  # the check that a forced run of a deterministic stage adds


def _reproducible(store: Store, need: Need, staged: Path) -> dict[str, Any]:
    """A forced run of a deterministic stage, or one for content that was removed, has to give what the store remembers for this
    key."""
    known = store.remembered(need.key or "") or store.removed_answers(need.key or "")
    version = store.version_of(staged)
    expected = known[0].version if known else version
    return {
        "name": REPRODUCIBLE,
        "passed": version == expected,
        "severity": "critical",
        "observed": version[:12],
        "expected": f"= {expected[:12]}",
        "description": "What is made again is the version that was made before.",
    }


def _validate(
    store: Store,
    node: Node,
    folder: Path,
    statistics: Mapping[str, Any],
    inputs: Mapping[str, Record],
    version: str | None = None,
    folders: Mapping[str, Path] = MappingProxyType({}),
) -> dict[str, Any]:
    """version: of what is published already; folders: of the inputs, where they are at hand."""
    date = _dump_date(statistics, inputs)
    older = (
        _older(store, node, date) if date or node.stage.name not in UNDATED else _before(store, node, inputs, version)
    )
    told = {**statistics, **older, suites.INPUTS: folders}
    results = suites.validate(node.stage.name, folder, node.config, told)
    return {"suite_digest": suites.suite_digest(node.stage.name), "results": [r.plain() for r in results]}


_DATED = re.compile(r"-(\d{4}-?\d{2}-?\d{2})[-.]")


def _dump_date(statistics: Mapping[str, Any], inputs: Mapping[str, Record]) -> str:
    """The date of the dump that something is made of, YYYYMMDD: told by the site, or by its first file's name; else ""."""
    for told in (statistics, *(record.body["statistics"] for record in inputs.values())):
        files = told.get("files")
        first = files[0]["name"] if isinstance(files, list) and files else ""  # of a text: how many there were
        named = _DATED.search(first)
        date = told.get("dump_date") or (named and named[1])
        if date:
            return str(date).replace("-", "")
    return ""


def _older(store: Store, node: Node, date: str) -> dict[str, Any]:
    """What this asset was, of the same configuration, for the newest dump before this date: "smaller than before" means
    that one, and not what was made last, so that an old dump is not measured against a new one."""
    config = _resolve(node.config, defaults=True)
    found = []
    for digest in store.history(node.recipe, node.name) if date else ():
        try:
            body = store.record(digest).body
            inputs = {name: store.record(each) for name, each in body["inputs"].items()}
        except StoreError:
            continue  # a record that was lost can't be compared with; `bert verify` tells of it
        before = _dump_date(body["statistics"], inputs)
        if before and before < date and _but_origin(body["config"]) == _but_origin(config):
            found.append({**body["statistics"], "date": before})
    return {suites.OLDER: max(found, key=lambda each: str(each["date"]))} if found else {}


UNDATED = frozenset({"books_text", "own_text", "documents"})
"""Stages that are compared with what was there before where no dump tells a date."""


def _before(store: Store, node: Node, inputs: Mapping[str, Record], version: str | None) -> dict[str, Any]:
    """What this asset was last: another version, of the same configuration, made of sources of the same names."""
    config = _but_origin(_resolve(node.config, defaults=True))
    for digest in store.history(node.recipe, node.name):
        try:
            body = store.record(digest).body
        except StoreError:
            continue
        if body["version"] != version and _but_origin(body["config"]) == config and set(body["inputs"]) == set(inputs):
            named = f"{body['version'][:12]} of {body['finished'][:10]}"
            return {suites.OLDER: {**body["statistics"], "date": named}}
    return {}


def _but_origin(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without where its files come from: that holds the dump itself."""
    return {name: value for name, value in config.items() if name != "from"}


def references_of(node: Node) -> Path | None:
    """Where files lie that the manifest only references: looked up in the reader's own recipe, never in a record."""
    origin = getattr(node.config, "from_", None)
    return Path(origin.path) if isinstance(origin, PathFrom) else None


def accept(store: Store, node: Node, check: str, reason: str) -> Record:
    """Publish what failed `check`, or waive it on what is published; the waiver stands in the record.

    Raises DataError when nothing failed this check, when other critical checks failed too, and for a check that no reason waives.
    """
    if not suites.waivable(node.stage.name, check):
        raise DataError(
            f"{node.path}: {check} can't be accepted, since nothing can be made of it", "Change what it is made of."
        )
    need = needed(store, node)
    waiver = {"check": check, "reason": reason, "user": user(), "time": utc_now()}
    record = store.pointer(node.recipe, node.name)
    if record is not None and record.key == need.key and check in usable(record):
        return _become(
            store, node, {**record.body, "waivers": [*record.body["waivers"], waiver], "finished": utc_now()}
        )
    for rejected in store.rejections(node.stage.name):
        body = dict(rejected.body)
        if body["key"] == need.key:
            body = {
                **body,
                "waivers": [*body["waivers"], waiver],
                "recipe": node.recipe,
                "asset": node.name,
                "inputs": _digests(need.inputs),
            }
            left = usable(Record("", body))
            if left == [] and any(r["name"] == check and not r["passed"] for r in body["validation"]["results"]):
                version = store.accept(rejected)
                return _become(store, node, {**body, "version": version, "finished": utc_now()})
            if left:
                store.note_waiver(rejected, body)
                raise DataError(
                    f"{node.path}: {check} is waived, but {', '.join(left)} failed too", way_out(node, left)
                )
    raise DataError(
        f"{node.path}: nothing that it asks for now failed {check}", f"See what failed: bert status {node.recipe}"
    )


# ── circumstances that records hold ──────────────────────────────────────────────────────────────────────────────────


CODE = ("assets", "model", "pipeline", "pyproject.toml", "requirements.lock", "setup.py")
"""What is code; recipes stand in their records themselves, and other files beside it change nothing."""


@cache
def git_state() -> Mapping[str, Any]:
    """Commit of the code and whether it was changed since; `None` outside a checkout."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    status = git("status", "--porcelain", "--", *CODE)
    return {"commit": git("rev-parse", "HEAD"), "dirty": None if status is None else bool(status)}
