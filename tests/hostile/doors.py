"""The doors that text, models and recipes from outside come in by, as functions of a folder, and what each says of what it got.

    folder/in       what came from outside
    folder/out      what the stage writes
    folder/home     where downloads are kept

A door gives {"refused": KIND: WHAT → TODO} or {"kept": texts, "dropped": reason → count, "told": what else is said}.
"""

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pipeline.errors import BertError
from pipeline.schemas import iter_rows

Outcome = dict[str, Any]
SHOWN = 400
"""characters of a text that an outcome holds"""
VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij")


def through(door: str, folder: Path) -> Outcome:
    """What a door says of folder/in. An error that is none of bertworks' own goes on: it is a fault."""
    (folder / "out").mkdir()
    os.environ["BERT_SETTINGS"] = str(_settings(folder, {}))
    try:
        return DOORS[door](folder)
    except BertError as error:
        return {"refused": f"{type(error).__name__}: {error.what} → {error.todo}"}


def _settings(folder: Path, more: Mapping[str, Any]) -> Path:
    file = Path(tempfile.mkstemp(suffix=".yaml", dir=folder, prefix="settings-")[1])
    file.write_text(json.dumps({"home": str(folder / "home"), "beam": {"workers": 1}, **more}), encoding="utf-8")
    return file


def _rows(folder: Path, statistics: Mapping[str, Any], **told: Any) -> Outcome:
    rows = list(iter_rows(folder / "out"))
    assert statistics["read"] == statistics["kept"] + sum(statistics["dropped"].values()), "every loss is counted"
    kept = [
        {
            name: str(value)[:SHOWN]
            for name, value in row.items()
            if value and name in ("doc_id", "title", "url", "text")
        }
        for row in rows
    ]
    return {"kept": kept[:20], "dropped": dict(statistics["dropped"]), "told": told}


# ── Wikipedia's dumps ────────────────────────────────────────────────────────────────────────────────────────────────


def dump(folder: Path) -> Outcome:
    """Stage `wikipedia_text`; its Beam pipeline in a process of its own, as always."""
    from pipeline.config import WikipediaTextConfig
    from pipeline.extraction import extract_text

    statistics = extract_text({"dump": folder / "in"}, WikipediaTextConfig(source="wiki"), folder / "out")
    return _rows(folder, statistics)


def dump_here(folder: Path) -> Outcome:
    """The same with the pipeline in this process, which saves the seconds that another needs to start."""
    from pipeline import errors
    from pipeline.beam import beam_process, extraction_beam

    def here(_: str, plan: str, scratch: Path, poll: Callable[[], None]) -> None:
        try:
            extraction_beam.run(plan)
        except Exception:
            note = scratch / beam_process.NOTE  # Beam passes only the text of an error on
            if note.exists():
                raise errors.retold(json.loads(note.read_bytes())) from None
            raise
        poll()

    before = beam_process.run
    beam_process.run = here
    try:
        return dump(folder)
    finally:
        beam_process.run = before


def site(folder: Path) -> Outcome:
    """A dump of Wikimedia's site, which serves in/; in/redirects.json says which paths lead elsewhere."""
    from pydantic import TypeAdapter

    from pipeline import sources
    from pipeline.config import FilesConfig, From
    from pipeline.origins import transfer
    from tests.pipeline.badserver import redirect, serving

    transfer.PATIENCE = transfer.Patience(attempts=2, page_attempts=2, pause_seconds=0.01)
    with serving() as server:
        for path in (folder / "in").rglob("*"):
            if path.is_file():
                server.files[f"/{path.relative_to(folder / 'in').as_posix()}"] = path.read_bytes()
        for path, to in json.loads(server.files.pop("/redirects.json", b"{}")).items():
            server.always[path] = redirect(to)
        downloads = {"site": server.url, "hosts": ["127.0.0.1"]}
        os.environ["BERT_SETTINGS"] = str(_settings(folder, {"downloads": downloads}))
        origin = TypeAdapter(From).validate_python({"wiki": "tlwiki", "dump": "20260101"})
        sources.resolve(origin)
        config = FilesConfig.model_validate({"from": {"wiki": "tlwiki", "dump": "20260101"}})
        statistics = sources.fetch_files({}, config, folder / "out")
    return {"kept": sorted(each.name for each in (folder / "out").iterdir()), "dropped": {}, "told": statistics}


# ── books and own text ───────────────────────────────────────────────────────────────────────────────────────────────


def books(folder: Path) -> Outcome:
    """Stage `books_text`, with in/manifest.json as the shelf's own manifest where there is a folder `manifest` beside."""
    import pyarrow.parquet as pq

    from pipeline import books
    from pipeline.config import BooksTextConfig

    manifest = next(iter((folder / "manifest").glob("*")), None) if (folder / "manifest").exists() else None
    told = {"manifest": {"path": str(manifest)}} if manifest else {}
    config = BooksTextConfig.model_validate({"source": "shelf", **told})
    statistics = books.extract_text({"files": folder / "in"}, config, folder / "out")
    shelf = pq.read_table(folder / "out" / books.BOOKS).to_pylist()
    names = ("path", "dropped", "unread", "left_out", "title", "encoding")
    return _rows(
        folder,
        statistics,
        books=[{name: str(row[name])[:2000] for name in names if row[name]} for row in shelf[:20]],
    )


def own_text(kind: str) -> Callable[[Path], Outcome]:
    """Stage `own_text` of a kind of files."""

    def door(folder: Path) -> Outcome:
        from pipeline.config import OwnTextConfig
        from pipeline.own_text import extract_text

        columns = {"id": "id", "title": "title"} if kind == "jsonl" else {}
        config = OwnTextConfig.model_validate({"source": "mine", "kind": kind, "columns": columns})
        statistics = extract_text({"files": folder / "in"}, config, folder / "out")
        return _rows(folder, statistics, first_dropped=statistics["first_dropped"])

    return door


# ── models, vocabularies, shards, recipes ────────────────────────────────────────────────────────────────────────────


def checkpoint(folder: Path) -> Outcome:
    """Stage `imported_checkpoint` and its checks, as a run makes them: what fails one is not published."""
    from model.imported import import_checkpoint
    from pipeline.config import ImportedConfig
    from pipeline.suites import validate

    asked = {"folder": {"path": str(folder / "in")}, "longest": 16, "lowercase": True}
    if (folder / "in" / "optimizer.json").exists():
        asked |= {"mode": "continue", "optimizer": "adamw"}
    config = ImportedConfig.model_validate(asked)
    statistics = import_checkpoint({}, config, folder / "out")
    failed = [r for r in validate("imported_checkpoint", folder / "out", config, statistics) if not r.passed]
    if any(result.severity == "critical" for result in failed):
        return {"refused": "; ".join(f"check {r.name}: {r.observed} (expected {r.expected})" for r in failed)}
    return {"kept": sorted(p.name for p in (folder / "out").iterdir()), "dropped": {}, "told": statistics}


def vocabulary(folder: Path) -> Outcome:
    """Stage `wordpiece_vocab` of a recipe that names a vocab.txt."""
    from pipeline.config import PathFrom, VocabularyConfig
    from pipeline.vocabulary import train_vocabulary

    config = VocabularyConfig(file=PathFrom(path=str(folder / "in" / "vocab.txt")))
    statistics = train_vocabulary({}, config, folder / "out")
    return {"kept": [f"{statistics['size']} tokens"], "dropped": {}, "told": {}}


def tfrecord(folder: Path) -> Outcome:
    """`bert import-tfrecord` itself."""
    words = folder / "vocab.txt"
    words.write_text("".join(f"{token}\n" for token in VOCABULARY), encoding="utf-8")
    return command("import-tfrecord", str(folder / "in"), str(folder / "out" / "shards"), "--vocabulary", str(words))


def command(*arguments: str) -> Outcome:
    """The `bert` command in this process: its exit code, and all that it prints."""
    from assets import cli

    said, before = io.StringIO(), sys.argv
    sys.argv = ["bert", *arguments]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            cli.main()
    except SystemExit as end:
        if end.code:
            return {"refused": f"exit code {end.code}: {said.getvalue()}"}
    finally:
        sys.argv = before
    return {"kept": [said.getvalue()], "dropped": {}, "told": {}}


def shards(folder: Path) -> Outcome:
    """Reading shards, as training does."""
    import numpy as np

    from pipeline.sharding.shard_reader import ShardReader

    reader = ShardReader(folder / "in")
    reader.take(np.arange(len(reader)))
    return {"kept": [f"{len(reader)} rows"], "dropped": {}, "told": {}}


def recipes(folder: Path) -> Outcome:
    """Loading a folder of recipes; each that can't be used stands under `errors`."""
    from pipeline.recipe import load_recipes

    loaded = load_recipes(folder / "in")
    if loaded.errors:
        return {"refused": "; ".join(f"{type(e).__name__}: {e.what} → {e.todo}" for e in loaded.errors.values())}
    return {"kept": sorted(loaded.recipes), "dropped": {}, "told": {}}


DOORS: Mapping[str, Callable[[Path], Outcome]] = {
    "dump": dump,
    "dump_here": dump_here,
    "site": site,
    "books": books,
    "text": own_text("text"),
    "jsonl": own_text("jsonl"),
    "csv": own_text("csv"),
    "parquet": own_text("parquet"),
    "checkpoint": checkpoint,
    "vocabulary": vocabulary,
    "tfrecord": tfrecord,
    "shards": shards,
    "recipes": recipes,
}
