"""One Dagster asset: bring it up to date, say how far it is, show what came out.

The work itself is `pipeline.build.build`; this file only translates between it and Dagster.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
import psutil

from assets.audits import audit_page
from assets.commands.told import failed_lines, on_one_line, rows_line
from assets.curves_to_mlflow import Following
from pipeline import progress, suites
from pipeline.build import REPRODUCIBLE, Node, Outcome, ValidationFailed, build, failed
from pipeline.errors import BertError, ProcessLost, StoreError
from pipeline.settings import settings
from pipeline.store import Record, Store, open_store
from pipeline.system.owners import Owner

OBSERVATIONS = 100  # the UI keeps about this many points of a curve (facts: dagster#14666)
FORCE, RECIPE, PROCESS, DUMP = "bert/force", "bert/recipe", "bert/process", "dump"  # run tags
POLL_SECONDS = 1.0  # between two looks at the process of the run
NO_MORE_TRIES = {"dagster/max_retries": "0"}
WANTED = "bert/content"  # run tag: assets whose content `bert gc` removed and that are made again all the same

Metadata = dict[str, Any]


@dataclass(frozen=True)
class Wiring:
    """How the assets of one stage look in Dagster."""

    description: str
    """first sentence: what the artifact is"""
    kinds: frozenset[str]
    metadata: Callable[[Record, Path], Metadata]
    """what the asset's page shows, from the record and the published folder"""
    pool: str | None = None
    retry: dg.RetryPolicy | None = None
    after: Callable[[Store, Record], str] | None = None
    """what follows once the asset is up to date, made or reused; returns what there is to say of it"""


Settled = Callable[[Callable[[], Mapping[str, str]], Callable[[Mapping[str, str]], None]], Node | None]
"""(reads the tags of the run, adds some) → the node as the retrain has it that this run is; None: it has none"""


def asset_of(node: Node, wiring: Wiring, settled: Settled | None = None, about: str = "") -> dg.AssetsDefinition:
    """The Dagster asset of a node; `settled`: of a recipe that is retrained (assets/retraining.py); `about`: what its recipe says of
    itself."""

    @dg.asset(
        key=key_of(node),
        deps=[key_of(source) for source in node.inputs.values()],
        group_name=safe_name(node.recipe),
        code_version=node.code_version,
        description=f"{wiring.description}\n\nRecipe `{node.recipe}`: {about}" if about else wiring.description,
        metadata={"declared": dg.MetadataValue.json(node.config.asked())},
        kinds=set(wiring.kinds),
        owners=["team:bertworks"],
        check_specs=check_specs(node),
        pool=wiring.pool,
        retry_policy=wiring.retry,
        tags={"bert/stage": node.stage.name},
    )
    def body(context: dg.AssetExecutionContext) -> Iterator[Any]:
        yield from _materialize(context, node, wiring, settled)

    return body


def safe_name(name: str) -> str:
    """A recipe's name as Dagster takes it: that of a rehearsal, or of a file that is none, may hold what it refuses."""
    return "".join(c if c.isalnum() or c == "_" else "_" for c in name.replace("@", "_at_")) or "recipe"


def key_of(node: Node) -> dg.AssetKey:
    """The key of a node's asset."""
    return dg.AssetKey([safe_name(node.recipe), node.name])


def check_specs(node: Node) -> list[dg.AssetCheckSpec]:
    """One Dagster check for each check of the stage's suite."""
    key = key_of(node)
    specs = [
        dg.AssetCheckSpec(check.name, asset=key, description=check.description, blocking=check.severity == "critical")
        for check in suites.SUITES[node.stage.name].checks
    ]
    if node.stage.deterministic:
        told = "A forced run gives the version that was made before."
        specs.append(dg.AssetCheckSpec(REPRODUCIBLE, asset=key, description=told, blocking=True))
    return specs


def _materialize(
    context: dg.AssetExecutionContext, node: Node, wiring: Wiring, settled: Settled | None
) -> Iterator[Any]:
    run = context.instance.get_run_by_id(context.run_id)
    tags = run.tags if run else {}
    forced = is_forced(tags, node.name)
    wanted = is_wanted(tags, node, run.asset_selection if run else None)
    store = open_store()
    try:
        if settled is not None:
            found = settled(lambda: _tags(context), lambda more: context.instance.add_run_tags(context.run_id, more))
            if found is None:
                context.log.info(f"{node.name}: this retrain begins from scratch and needs none")
                yield from _not_needed(node)
                return
            node = found
        ended = partial(_no_more_tries, context.instance, context.run_id)
        with (
            _ends_with_run(_run_process(context, run), ended),
            _told_to(context, node),
            Following(node, settings().mlflow, context.log.warning) as following,
        ):
            outcome = build(store, node, forced, context.retry_number > 0, wanted, following.begin)
            following.version = outcome.record.version
    except dg.DagsterExecutionInterruptedError:
        _no_more_tries(context.instance, context.run_id)
        raise
    except ValidationFailed as failed:
        yield from check_results(node, failed.results, [])
        raise dg.Failure(str(failed), metadata={"checks": results_table(failed.results)}, allow_retries=False) from None
    except BertError as error:
        raise dg.Failure(str(error), allow_retries=isinstance(error, ProcessLost)) from None
    if outcome.failed is not None:  # others go on without it; the run says that it failed
        context.log.error(f"{failure_of(node.name)}{outcome.failed}")
    else:
        context.log.info(says(outcome))
        if wiring.after is not None and (told := wiring.after(store, outcome.record)):
            context.log.info(told)
    yield from results_of(store, node, wiring, outcome.record)


def _no_more_tries(instance: dg.DagsterInstance, run_id: str) -> None:
    """Keep Dagster from starting a run again that a person ended: one that is ended by force may come out as failed."""
    run = instance.get_run_by_id(run_id)
    if run is not None and run.status in (dg.DagsterRunStatus.CANCELING, dg.DagsterRunStatus.CANCELED):
        instance.add_run_tags(run_id, NO_MORE_TRIES)


def _tags(context: dg.AssetExecutionContext) -> Mapping[str, str]:
    """Of the run, as they are now: another step, in another process, may have added some."""
    run = context.instance.get_run_by_id(context.run_id)
    return run.tags if run else {}


def _not_needed(node: Node) -> Iterator[Any]:
    """The events of an asset that this retrain does without: nothing is made, and no check has anything to fail."""
    passed = [
        dg.AssetCheckResult(
            asset_key=spec.asset_key, check_name=spec.name, passed=True, metadata={"observed": "not needed"}
        )
        for spec in check_specs(node)
    ]
    yield dg.MaterializeResult(asset_key=key_of(node), data_version=dg.DataVersion("not needed"), check_results=passed)


def failure_of(asset: str) -> str:
    """How what is said of an asset's failure begins."""
    return f"✗ {asset}\n"


def is_forced(tags: Mapping[str, str], asset: str) -> bool:
    """Whether the run's tag FORCE means this asset: `true` in the UI, names joined by commas from `bert run`."""
    named = tags.get(FORCE, "")
    return named == "true" or asset in named.split(",")


def is_wanted(tags: Mapping[str, str], node: Node, selection: Collection[dg.AssetKey] | None) -> bool:
    """Whether content that `bert gc` removed is asked for: by the run's tag WANTED, or because this asset alone was selected.
    With others, it is settled as it is; what reads it has it made again."""
    alone = selection is not None and list(selection) == [key_of(node)]
    return alone or node.name in tags.get(WANTED, "").split(",")


def process_tag(run_id: str, owner: Owner) -> dict[str, str]:
    """The tag that says which process executes a run. It names the run, because a run that is executed again in the UI
    begins with the tags of the one before."""
    return {PROCESS: f"{run_id} {owner}"}


def process_of(run: dg.DagsterRun) -> Owner | None:
    """The process that executes a run, if a tag of its own names one."""
    run_id, _, owner = run.tags.get(PROCESS, "").partition(" ")
    return Owner.parse(owner) if run_id == run.run_id else None


def _run_process(context: dg.AssetExecutionContext, run: dg.DagsterRun | None) -> Owner:
    """The process that executes this step's run; told to Dagster where nobody has. Raises StoreError if it is dead."""
    known = process_of(run) if run else None
    if known is None:
        known = Owner.of(_run_pid())
        context.instance.add_run_tags(context.run_id, process_tag(context.run_id, known))
    if known.surely_dead():
        raise StoreError(f"the process of run {context.run_id} is dead ({known})", "Run again.")
    return known


def says(outcome: Outcome) -> str:
    """Made, or reused from where; then, on lines of their own, where the rows went and which checks did not pass."""
    record = outcome.record
    did = "made" if outcome.ran else "reused, nothing ran"
    rows = rows_line(record.body["statistics"])
    failed = map(on_one_line, failed_lines(record.body["validation"]["results"]))
    told = [*([rows] if rows else []), *(f"not passed: {line}" for line in failed)]
    return "\n    ".join([f"{record.asset} {did}: version {record.version[:12]}", *told])


def results_of(store: Store, node: Node, wiring: Wiring, record: Record) -> Iterator[Any]:
    """The events that tell Dagster what the asset is now; where it failed, the check that says so is an error."""
    results = record.body["validation"]["results"]
    if failed(record):
        results = [each if each["passed"] else {**each, "severity": "critical"} for each in results]
    yield dg.MaterializeResult(
        asset_key=key_of(node),
        data_version=dg.DataVersion(record.version),
        metadata=metadata_of(store, wiring, record),
        check_results=list(check_results(node, results, record.body["waivers"])),
    )


def metadata_of(store: Store, wiring: Wiring, record: Record) -> Metadata:
    """What the asset's page shows: plots and reports first, then the stage's own numbers, then version, record and size."""
    folder = store.content(record.stage, record.version)
    size = store.size_bytes(record)
    gone = store.removed(record.stage, record.version)
    shown: Metadata = {"content": f"{gone.told}; made again when something needs it"} if gone else {}
    told = {} if gone else wiring.metadata(record, folder)
    drawn = [name for name, value in told.items() if isinstance(value, dg.MarkdownMetadataValue)]
    shown |= {name: told[name] for name in drawn} | told
    shown |= {
        "size_megabytes": round(size / 1e6, 3),
        "seconds": record.seconds,
        "version": record.version,
        "record": record.digest,
        "dagster/uri": str(folder),
        "made_by": f"{record.stage} {record.body['code_version']}",
        "audit": f"bert audit {record.path}",
    }
    if record.stage in audit_page.PAGES:
        with suppress(StoreError):  # a home that can't be written: the command makes the page elsewhere
            shown["audit_page"] = dg.MetadataValue.path(str(audit_page.page_of(store, record)))
    if record.body["reused"]:
        with suppress(StoreError):  # whose work it was is a courtesy: the chain does not need that record
            origin = store.record(record.body["reused"])
            shown["reused_from"] = origin.path
    return shown


def check_results(
    node: Node, results: list[dict[str, Any]], waivers: list[dict[str, Any]]
) -> Iterator[dg.AssetCheckResult]:
    """A Dagster check result for every check of the suite; a waived failure shows as a warning with its reason."""
    waived = {waiver["check"]: waiver for waiver in waivers}
    if node.stage.deterministic and all(result["name"] != REPRODUCIBLE for result in results):
        asked = {"passed": True, "severity": "critical", "observed": "not asked", "expected": "bert run --force"}
        results = [*results, {"name": REPRODUCIBLE, **asked}]
    for result in results:
        waiver = waived.get(result["name"])
        warn = result["severity"] != "critical" or waiver is not None
        yield dg.AssetCheckResult(
            asset_key=key_of(node),
            check_name=result["name"],
            passed=result["passed"],
            severity=dg.AssetCheckSeverity.WARN if warn else dg.AssetCheckSeverity.ERROR,
            metadata={
                "observed": str(result["observed"]),
                "expected": str(result["expected"]),
                **({"waived": f"{waiver['reason']} ({waiver['user']}, {waiver['time']})"} if waiver else {}),
            },
        )


def results_table(results: list[dict[str, Any]]) -> dg.TableMetadataValue:
    """All checks with what was observed and expected."""
    return dg.MetadataValue.table(
        [
            dg.TableRecord({name: str(result[name]) for name in ("name", "passed", "severity", "observed", "expected")})
            for result in results
        ]
    )


def _told_to(context: dg.AssetExecutionContext, node: Node) -> AbstractContextManager[None]:
    """Within the block, what the stage says stands in the run's log."""
    return progress.listen(_Reporter(context, node), lambda line: context.log.info(f"{node.name}: {line}"))


class _Reporter:
    """Puts a stage's progress into the run's log, and its measured values on the asset's plots."""

    def __init__(self, context: dg.AssetExecutionContext, node: Node) -> None:
        self.context, self.node, self.plotted = context, node, -1.0

    def __call__(self, now: progress.Progress) -> None:
        self.context.log.info(f"{self.node.name}: {now}")
        share = now.done / now.total if now.total else 0.0
        if now.measured and share - self.plotted >= 1 / OBSERVATIONS:
            self.plotted = share
            values = {name: float(value) for name, value in now.measured.items()}
            key = key_of(self.node)
            self.context.log_event(
                dg.AssetObservation(key, metadata={now.unit.split()[0].rstrip("s"): now.done, **values})
            )


@contextmanager
def _ends_with_run(run: Owner, ended: Callable[[], None]) -> Iterator[None]:
    """A step whose run was killed would work on as an orphan; interrupt it like a cancel, then end it for good. `ended` is called
    first."""
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_SECONDS):
            if run.surely_dead():
                with suppress(Exception):  # whatever Dagster's database says: this process has to end
                    ended()
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(settings().training.stop_seconds + 10)  # what training needs to save
                if not done.is_set():
                    os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _run_pid() -> int:
    """The process that executes this step's run: its parent or, where that is a fork server, the process above it: a
    fork server lives on as long as one of its children does."""
    parent = os.getppid()
    with suppress(psutil.Error):
        process = psutil.Process(parent)
        if any("forkserver" in word for word in process.cmdline()):
            return process.ppid()
    return parent
