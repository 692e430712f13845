"""The `bert` command. Each command is a few lines here; reading commands need neither Dagster nor torch to start."""

import importlib.metadata
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from assets import graph
from assets.audits import auditing
from assets.audits.approved import APPROVED
from assets.commands import promoting, reading, rehearsing
from assets.commands.plan import ERROR, SETTLED
from pipeline import progress
from pipeline.build import Node
from pipeline.build import accept as accept_check
from pipeline.errors import BertError, RecipeError
from pipeline.recipe import RESERVED
from pipeline.recipes import rehearsal
from pipeline.store import open_store
from pipeline.system.terminal import steady

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
Json = Annotated[bool, typer.Option("--json", help="print JSON for programs")]


def _told_version(asked: bool) -> None:
    if asked:
        print(f"bertworks {importlib.metadata.version('bertworks')}")
        raise typer.Exit


@app.callback()
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_told_version, is_eager=True, help="say which bertworks this is")
    ] = False,
) -> None:
    """Recipes to benchmarked BERTs, with proof of how. Start with:  bert run demo"""


def main() -> NoReturn:
    """Run the command; an error that a person can act on is printed without a traceback, with exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal of ASCII shows ? for what it can't
            stream.reconfigure(errors="replace")
    try:
        code = app(standalone_mode=False)  # what typer.Exit carries
    except BertError as error:
        if "--json" in sys.argv:
            print(json.dumps({"error": error.what, "todo": error.todo}))
        else:
            print(steady(f"error: {error}"), file=sys.stderr)
        sys.exit(1)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if hasattr(error, "exit_code") and hasattr(error, "show"):  # a usage error of click
            if "--json" in sys.argv:
                said = getattr(error, "format_message", error.__str__)()
                print(json.dumps({"error": said, "todo": "bert --help"}))
            else:
                error.show()
            sys.exit(error.exit_code)
        raise
    sys.exit(code if isinstance(code, int) else 0)


def echo(text: str) -> None:
    """Print a text; its colours only in a terminal that wants them (no-color.org)."""
    typer.echo(text, color=False if os.environ.get("NO_COLOR") else None)


def show(value: Any, as_json: bool, text: Callable[[Any], str], coloured: bool = False) -> None:
    """Print a value for a program or for a person; `coloured`: the text has colours of ours, and no other word that steers."""
    told = json.dumps(value, indent=2, ensure_ascii=False) if as_json else text(value)
    echo(told if as_json or coloured else steady(told))


def show_status(found: reading.Plain, as_json: bool) -> None:
    """Print what each asset is; exit code 1 where one of them can't be read or made."""
    show(found, as_json, reading.status_text, coloured=True)
    if _has_error(found):
        raise typer.Exit(1)


def _has_error(found: reading.Plain) -> bool:
    return any(row["state"] == ERROR for row in found["assets"])


def _told_broken(target: str) -> bool:
    """Whether `comparisons`, all of them, leaves out files that can't be used; each is told on stderr."""
    if target.rstrip("/") != RESERVED:
        return False
    errors = graph.load_compared(graph.load()).errors
    for name, error in sorted(errors.items()):
        print(steady(f"error: {RESERVED}/{name} is left out: {error}"), file=sys.stderr)
    return bool(errors)


def told_progress() -> AbstractContextManager[None]:
    """Within the block, what takes long says on stderr how far it is."""

    def say(said: object) -> None:
        print(steady(str(said)), file=sys.stderr, flush=True)

    return progress.listen(say, say)


@app.command()
def run(
    target: Annotated[str, typer.Argument(metavar="RECIPE[/ASSET]", help="a whole recipe, or up to one asset")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would run, why, and how long it would train; run nothing")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="run the named asset (or all) anew and compare")] = False,
    accept: Annotated[str, typer.Option(metavar="CHECK", help="publish the asset although this check failed")] = "",
    reason: Annotated[str, typer.Option(help="why; stands in the record")] = "",
    device: Annotated[
        str | None,
        typer.Option(metavar="CARD", help='of --dry-run: time on this card ("NVIDIA H200"), not measured here'),
    ] = None,
    mfu: Annotated[
        float | None, typer.Option(min=0.01, max=1, help="of --device: share of its peak that training reaches; 0.4")
    ] = None,
    dump: Annotated[
        str | None,
        typer.Option(metavar="YYYYMMDD", help="of a recipe that is retrained: which retrain; the newest if left out"),
    ] = None,
    sample: Annotated[
        float | None,
        typer.Option(
            metavar="SHARE", help="rehearse: run RECIPE@sample, with this share of its text, steps and examples; 0.001"
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Bring a recipe, or one of its assets, up to date; what is up to date costs nothing."""
    asked = target
    if sample is not None:
        asked, target = f"{target} --sample {sample:g}", rehearsing.target(target, sample, dump)
    settled = dump if dry_run or accept else graph.settled(target, dump)
    nodes, asset = graph.find(target, settled, sample)
    recipe = target.partition("/")[0]
    if sample is not None and not dry_run:
        rehearsing.remember(recipe, sample)
    wanted = graph.upstream(asset) if asset else nodes
    if accept:
        _accept(target, asset, accept, reason, as_json)
        return
    broken = _told_broken(target)
    named = [asset.name] if asset else []
    forced = (named or list(nodes)) if force else []
    if dry_run:
        _dry_run(reading.status(wanted, forced, asked, named), wanted, device, mfu, as_json)
        if broken:
            raise typer.Exit(1)
        return
    if device is not None or mfu is not None:
        raise RecipeError("--device and --mfu are for --dry-run", "Where a run trains stands in settings.yaml.")
    from rich.console import Console

    from assets.commands.live import view
    from assets.run import run as run_assets

    with view(Console(stderr=as_json)) as drawn:
        succeeded = run_assets(recipe, wanted, forced, lambda line: drawn(steady(line)), named, settled)
    state = reading.status(wanted, wanted=named)
    if as_json:
        print(json.dumps({"succeeded": succeeded, **state}, indent=2))
    elif succeeded:
        if rehearsal.is_rehearsal(recipe):
            print(rehearsing.whole_text(rehearsing.whole(open_store(), wanted), recipe))
        print(_up_to_date(target, asset, nodes))
    if not succeeded:
        print(_not_up_to_date(target, state), file=sys.stderr)
    if broken or not succeeded:
        raise typer.Exit(1)


def _accept(target: str, asset: Node | None, check: str, reason: str, as_json: bool) -> None:
    """Publish an asset although this check failed."""
    if asset is None or not reason:
        raise RecipeError(
            "--accept needs RECIPE/ASSET and --reason TEXT",
            f'bert run {target.partition("/")[0]}/ASSET --accept {check} --reason "…"',
        )
    record = accept_check(open_store(), asset, check, reason)
    told = {"record": record.digest, "version": record.version}
    show(told, as_json, lambda v: f"accepted: {target} is version {v['version']}")


def _up_to_date(target: str, asset: Node | None, nodes: Mapping[str, Node]) -> str:
    """What a run says at its end, and the commands that may follow."""
    recipe = target.partition("/")[0]
    following = f"bert compare {asset.name if asset else 'NAME'}" if recipe == RESERVED else f"bert report {recipe}"
    last = "NAME" if recipe == RESERVED else "release" if "release" in nodes else "benchmark_report"
    audited = asset.path if asset else f"{recipe}/{last}"
    return f"\n{target} is up to date.  Next: {following} · bert audit {audited} · make ui"


def _not_up_to_date(target: str, state: reading.Plain) -> str:
    """The same where something is left; a report names what failed, where there is one."""
    rows = [row for row in state["assets"] if row["state"] not in SETTLED]
    left = [f"{row['asset']} (failed)" if row["failure"] else row["asset"] for row in rows]
    if not left:
        return f"\n{target} is up to date: the run was ended when all was made.  Next: bert status {target}"
    reported = any(row["asset"] == "benchmark_report" and row["version"] for row in state["assets"])
    report_of = f" · bert report {target.partition('/')[0]}" if reported else ""
    return (
        f"\n{target} is not up to date. Left: {', '.join(left)}; what happened stands above.\n"
        f"Next: bert status {target} · bert run {target}{report_of}"
    )


def _dry_run(state: Any, wanted: Mapping[str, Node], device: str | None, mfu: float | None, as_json: bool) -> None:
    """What would run, and how long its pretraining would take, be its sources at hand or not; exit code as of `show_status`."""
    from assets.commands import cost

    if mfu is not None and device is None:
        raise RecipeError("--mfu is the share of a stated device's peak", 'Name one: --device "NVIDIA H200".')
    if not as_json:
        echo(reading.status_text(state))
    left = [row["asset"] for row in state["assets"] if row["state"] not in SETTLED]
    told = cost.estimate(wanted, left, device, cost.MFU if mfu is None else mfu)
    if as_json:
        print(json.dumps({**state, "training": told}, indent=2, ensure_ascii=False))
    elif told is not None:
        print(cost.estimate_text(told))
    elif any(wanted[name].stage.name == "finetuned" for name in left):
        print("\nNo estimate: only pretraining is estimated, and none of it would run.")
    if _has_error(state):
        raise typer.Exit(1)


@app.command()
def status(
    target: Annotated[str, typer.Argument(metavar="[RECIPE]", help="all recipes if left out")] = "",
    as_json: Json = False,
) -> None:
    """What each asset is now, what will rerun and why, and what may."""
    if not target:
        show(reading.overview(), as_json, reading.overview_text)
        return
    nodes, asset = graph.find(target)
    wanted = graph.upstream(asset) if asset else nodes
    broken = _told_broken(target)
    show_status(reading.status(wanted, target=target), as_json)
    if broken:
        raise typer.Exit(1)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of the recipe; letters, digits and _")],
    text: Annotated[
        str, typer.Option(metavar="FOLDER", help="or a file: .txt, .epub, .jsonl, .parquet, .csv, also compressed")
    ],
    language: Annotated[str, typer.Option(metavar="CODE", help="the text's: de, en, zh …")],
    as_json: Json = False,
) -> None:
    """Write a recipe with comments, sized to somebody's own text: nothing runs yet."""
    from assets.commands import starting

    if not text:
        raise RecipeError("--text names nothing", "Name a folder or a file; a variable may not be set.")
    show(starting.start(name, Path(text), language), as_json, starting.new_text)


@app.command()
def audit(
    target: Annotated[str, typer.Argument(metavar="RECIPE/ASSET", help="or the digest of a record")],
    document: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ID", help="is this document in it, in which shards, seen at which steps, what depends on it"
        ),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="write a page with the lineage drawn, for a browser")
    ] = None,
    as_json: Json = False,
) -> None:
    """The exact chain behind an artifact, down to the bytes of the dump, and what was removed, checked, waived, trained and is
    unknown; from the store's records alone."""
    if document and html:
        raise RecipeError("--html is of a whole audit, without --document", f"bert audit {target} --html {html}")
    if document:
        from assets.audits.traced import traced_text

        show(auditing.trace(target, document), as_json, traced_text)
        return
    from assets.audits.audit_text import audit_text

    found = auditing.audit(target)
    if html is not None:
        from assets.audits.audit_page import write_page

        write_page(found, html)
        show({"asset": found["asset"], "version": found["version"], "page": str(html)}, as_json, lambda v: v["page"])
        return
    show(found, as_json, audit_text)


@app.command()
def diff(
    first: Annotated[
        str,
        typer.Argument(
            metavar="A", help="RECIPE/ASSET, RECIPE/ASSET~1 (what it was before), or the digest of a record"
        ),
    ],
    second: Annotated[str, typer.Argument(metavar="B", help="likewise")],
    as_json: Json = False,
) -> None:
    """What differs between two artifacts and all that they were made of: sources, counts, code, configuration, scores."""
    from assets.audits import differing

    show(differing.diff(first, second), as_json, differing.diff_text)


@app.command()
def verify(
    target: Annotated[str, typer.Argument(metavar="[RECIPE/ASSET | FOLDER]", help="everything if left out")] = "",
    approved: Annotated[
        bool, typer.Option("--approved", help="of a folder with a release: it has to be the champion of this home, too")
    ] = False,
    as_json: Json = False,
) -> None:
    """Hash every file and record again; what is broken is set aside, and the next run makes it anew. Exit code 1 where anything is
    not as it should be."""
    from assets.commands import exporting

    found = exporting.verify(target)
    show(found, as_json, exporting.verify_text)
    if approved and "approval" not in found:
        raise RecipeError("--approved is for a folder with a release", "bert export RECIPE/release DIR writes one.")
    if found["problems"] or (approved and found["approval"]["state"] != APPROVED):
        raise typer.Exit(1)


@app.command()
def rebuild(
    target: Annotated[str, typer.Argument(metavar="RECIPE/ASSET", help="or RECIPE/ASSET~1, or the digest of a record")],
    check: Annotated[bool, typer.Option("--check", help="compare what comes out with what is published")] = False,
    scratch: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="make it below this folder; below the store's staging if left out"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an artifact again from its record and compare; nothing is published, and the scratch folder is removed.

    Exit code 0: identical, or within the tolerance that is told; 1: different; 2: it can't be made again.
    """
    if not check:
        raise typer.BadParameter(
            f"rebuild only checks; to make it anew: bert run {target} --force", param_hint="--check"
        )
    from assets.audits import rebuilding

    with told_progress():
        found = rebuilding.check(target, scratch)
    show(found, as_json, rebuilding.check_text)
    raise typer.Exit(rebuilding.EXIT_CODES[found["verdict"]])


@app.command(name="fill-mask")
def fill_mask(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE")],
    text: Annotated[str, typer.Argument(help='words with [MASK], as "The capital of France is [MASK]."')],
    top: Annotated[int, typer.Option(min=1, help="guesses per mask")] = 5,
    as_json: Json = False,
) -> None:
    """What the released model puts in place of [MASK]."""
    from model.fill_mask import fill_mask as guess

    folder = reading.published(recipe, "release")
    guesses = [[{"token": token, "probability": share} for token, share in mask] for mask in guess(folder, text, top)]
    show({"text": text, "masks": guesses}, as_json, reading.fill_mask_text)


@app.command()
def report(recipe: Annotated[str, typer.Argument(metavar="RECIPE")], as_json: Json = False) -> None:
    """The benchmark report of a recipe."""
    folder = reading.published(recipe, "benchmark_report")
    if as_json:
        print((folder / "report.json").read_text(encoding="utf-8"))
        return
    print(steady((folder / "report.md").read_text(encoding="utf-8")))
    print(f"With plots: {folder / 'report.html'}")


@app.command()
def compare(
    name: Annotated[str, typer.Argument(metavar="NAME", help="of recipes/comparisons/NAME.yaml")], as_json: Json = False
) -> None:
    """Several recipes side by side, from what they have now; cells that were not run say so."""
    from assets.commands.comparing import compare as made
    from assets.commands.comparing import compare_text

    show(made(name.removeprefix("comparisons/")), as_json, compare_text)


@app.command()
def score(
    task: Annotated[
        str,
        typer.Argument(
            metavar="TASK",
            help="squad1.1, squad2.0, cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, ax, swag, conll2003, wnut17, or ner (any CoNLL column file)",
        ),
    ],
    gold: Annotated[Path, typer.Option(metavar="FILE", help="the task's official file, with labels")],
    predictions: Annotated[
        Path, typer.Option(metavar="FILE", help="what a system predicted for it, in the form above")
    ],
    na_probabilities: Annotated[
        Path | None, typer.Option(metavar="FILE", help="squad2.0 only: {id: probability of no answer}")
    ] = None,
    as_json: Json = False,
) -> None:
    """Score a prediction file as the task's official script does, with 95 % bootstrap intervals.

    SQuAD: predictions are JSON {id: text}; questions without one are named and score 0.

    GLUE: as its leaderboard takes them, index<TAB>prediction; the index is the number of the gold file's row, from 0.

    SWAG: one label (0 to 3) a line, without a header.

    CoNLL: the gold file's tokens and blank lines, with the predicted tag as the last column.

    More in docs/scoring.md.
    """
    from model.scoring.command import score as scored
    from model.scoring.result import text

    show(scored(task, gold, predictions, na_probabilities), as_json, text)


@app.command()
def export(
    target: Annotated[str, typer.Argument(metavar="RECIPE/ASSET")],
    folder: Annotated[Path, typer.Argument(help="a folder that does not exist yet")],
    tfrecord: Annotated[
        bool, typer.Option("--tfrecord", help="shards as TFRecord files of google-research/bert")
    ] = False,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="of a release or a fine-tuned model: model.onnx beside it")
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option("--sign", metavar="KEY", help="sign the folder with this private key (PEM): model.sig"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Copy a published artifact into a folder, verified, with its lineage beside it; a release with its attestations."""
    from assets.commands import exporting

    with told_progress():
        done = exporting.export(target, folder, tfrecord, key, onnx)
    show(done, as_json, exporting.export_text)


@app.command(name="import-tfrecord")
def import_tfrecord(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE | FOLDER…", help="TFRecord files of google-research/bert")
    ],
    folder: Annotated[Path, typer.Argument(help="for the shards; a folder that does not exist yet")],
    vocabulary: Annotated[Path, typer.Option(metavar="VOCAB.TXT", help="that the files were made with")],
    as_json: Json = False,
) -> None:
    """Make shards of TFRecord files that another program has written; every record is checked."""
    from pipeline.sharding.tfrecord_import import import_tfrecords

    with told_progress():
        done = import_tfrecords(files, vocabulary, folder)
    show(done, as_json, lambda v: f"{v['rows']:,} rows from {len(v['files'])} files in {folder}")


@app.command()
def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would go, and why; touch nothing")] = False,
    restore: Annotated[
        str | None,
        typer.Option(metavar="VERSION", help="bring this version back from the trash; its beginning will do"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Put away content that nothing needs any more: what assets have now and had lately, champions, what somebody reads, and all
    that these were made of, stay. Records always stay.

    It lies in the trash first, and goes for good by a later bert gc. How much stays, and for how long: retention in
    settings.yaml, docs/retention.md.
    """
    from assets.commands import retained

    if restore is not None:
        if dry_run:
            raise RecipeError("--restore and --dry-run don't go together", f"bert gc --restore {restore}")
        show(retained.bring_back(restore), as_json, retained.bring_back_text)
        return
    with told_progress():
        found = retained.gc(dry_run)
    show(found, as_json, retained.gc_text)
    if found["refused"]:
        raise typer.Exit(1)


@app.command()
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="of bert audit --json, or an export's lineage.json")],
    as_json: Json = False,
) -> None:
    """Bring deleted records back from an audit; each is checked against its digest, and only what is missing is written."""
    from assets.commands import retained

    show(retained.restore(file), as_json, retained.restore_text)


@app.command()
def promote(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE")],
    reason: Annotated[str, typer.Option(help="why; stands in the history")] = "",
    as_json: Json = False,
) -> None:
    """Make the recipe's release the champion: what its retrains begin from and are compared with."""
    show(promoting.promote(recipe, reason), as_json, promoting.changed_text)


@app.command()
def rollback(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE")],
    reason: Annotated[str, typer.Option(help="why; stands in the history")] = "",
    to: Annotated[
        str | None, typer.Option(metavar="VERSION", help="an earlier champion; the one before if left out")
    ] = None,
    as_json: Json = False,
) -> None:
    """Go back to the champion before; the one that goes is barred."""
    show(promoting.rollback(recipe, reason, to), as_json, promoting.changed_text)


@app.command()
def bar(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="of a release; its beginning will do")],
    reason: Annotated[str, typer.Option(help="why; stands in the list")] = "",
    lift: Annotated[bool, typer.Option("--lift", help="allow it again")] = False,
    as_json: Json = False,
) -> None:
    """Never promote a version of a release again."""
    show(promoting.bar(version, reason, lift), as_json, promoting.bar_text)


@app.command()
def metrics() -> None:
    """How retrains go, in the OpenMetrics text format: as in the file that `metrics` in settings.yaml names."""
    from assets.monitoring import metrics as told

    print(told(), end="")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Check versions, settings, disk, recipes, the store and Dagster, and say what to do."""
    from assets.commands.doctor import checks, text

    found = checks()
    show(found, as_json, text)
    if any(check["state"] == "error" for check in found):
        raise typer.Exit(1)


@app.command()
def ui(
    port: int = 3000,
    host: str = "127.0.0.1",
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="a host name by which browsers reach it, through a proxy (docs/security.md)"),
    ] = None,
) -> None:
    """Dagster's UI with every recipe loaded; it has no login, so it listens on this machine only."""
    import socket

    from assets.dagster_home import prepare
    from assets.page.guard import NAMES, is_host
    from pipeline.stage import ROOT

    if wrong := [each for each in name or [] if not is_host(each)]:
        raise BertError(f"--name {wrong[0]} is no host", "Write the host alone: --name bert.example.com")
    if host not in ("127.0.0.1", "localhost", "::1"):
        print(
            f"warning: Dagster has no login: whoever reaches {host}:{port} can start runs; how to put one before it: docs/security.md",
            file=sys.stderr,
        )
    with socket.socket() as probe:
        if probe.connect_ex((host, port)) == 0:
            raise BertError(
                f"something listens on {host}:{port} already", f"Stop it, or take another: bert ui --port {port + 1}"
            )
    prepare()
    names = [*(name or []), *([] if host in ("0.0.0.0", "::") else [host])]  # every address is no name
    # A shell that starts us in the background makes us ignore Ctrl-C, and so would the server: it could not be stopped.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    command = [sys.executable, "-m", "assets.page.develop", "-w", "workspace.yaml", "-h", host, "-p", str(port)]
    server = subprocess.Popen(command, cwd=ROOT, env={**os.environ, NAMES: " ".join(names)})
    signal.signal(signal.SIGTERM, lambda *_: server.terminate())
    try:
        raise typer.Exit(server.wait())
    except KeyboardInterrupt:
        server.wait()


if __name__ == "__main__":
    main()
