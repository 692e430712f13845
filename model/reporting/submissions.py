"""The report's `leaderboards/`: predictions of the published seeds in the form that the servers of GLUE and SQuAD take."""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model.artifact import read_json, read_table
from model.reporting.leaderboard import GLUE_FILES, glue_submission, squad_file, squad_no_answer_file
from model.task_files.known_tasks import KNOWN

GLUE_ZIP = "leaderboards/glue.zip"
SQUAD = ("squad1_1", "squad2_0")
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""the first time that a zip can hold: equal predictions are equal bytes"""


def write_submissions(tasks: Mapping[str, Path], why_not: Mapping[str, str], out: Path) -> dict[str, Any]:
    """Write what can be handed in; say what is in and what is missing, and why.

    tasks: task → its folder of the finetuned stage; why_not: task of the recipe → why it was not run.
    """
    found: dict[str, Any] = {"glue": None, "squad": {}}
    if set(GLUE_FILES) & {*tasks, *why_not}:
        found["glue"] = _glue(tasks, why_not, out)
    for task in SQUAD:
        if task in tasks and (files := _squad(task, tasks[task], out)):
            found["squad"][task] = files
    return found


def predictions_of(folder: Path, part: str, published_seed: int | None) -> Path | None:
    """The predictions of the published seed; where no seed is named (AX has the model of another task), the only ones."""
    if published_seed is not None:
        path = folder / "predictions" / f"{part}-seed-{published_seed}.parquet"
        return path if path.exists() else None
    return next(iter(sorted((folder / "predictions").glob(f"{part}-seed-*.parquet"))), None)


def _glue(tasks: Mapping[str, Path], why_not: Mapping[str, str], out: Path) -> dict[str, Any]:
    predictions: dict[str, dict[str, list[Any]]] = {}
    present, missing = [], {}
    for task, parts in GLUE_FILES.items():
        for part, name in parts.items():
            reason = why_not.get(task, "" if task in tasks else "the recipe does not list the task")
            values = [] if reason else _test(tasks[task], part)
            official = KNOWN[task].parts[part].count
            if not reason and len(values) != official:
                reason = (
                    f"{len(values):,} of its {official:,} test examples are predicted" if values else "no test file"
                )
            if reason:
                missing[name] = reason
            else:
                predictions.setdefault(task, {})[part] = values
                present.append(name)
    if present:
        _zip(out / GLUE_ZIP, glue_submission(predictions))
    return {"file": GLUE_ZIP if present else None, "files": present, "missing": missing}


def _test(folder: Path, part: str) -> list[Any]:
    """Predictions in the order of the test file, which that of the task's data is."""
    path = predictions_of(folder, part, _published(folder))
    return [] if path is None else read_table(path)["prediction"].to_pylist()


def _published(folder: Path) -> int | None:
    seed: int | None = read_json(folder / "scores.json").get("published_seed")
    return seed


def _zip(path: Path, files: Mapping[str, str]) -> None:
    """A zip of the same bytes for the same files: not compressed, since that depends on the library."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.create_system, entry.external_attr = 3, 0o644 << 16
            archive.writestr(entry, text)


def _squad(task: str, folder: Path, out: Path) -> list[str]:
    """predictions.json of dev and, of 2.0, null_odds.json."""
    path = predictions_of(folder, "dev", _published(folder))
    if path is None:
        return []
    table = read_table(path)
    ids = table["example_id"].to_pylist()
    texts = {"predictions.json": squad_file(dict(zip(ids, table["prediction"].to_pylist(), strict=True)))}
    if "null_odds" in table.column_names:
        odds = dict(zip(ids, table["null_odds"].to_pylist(), strict=True))
        texts["null_odds.json"] = squad_no_answer_file(odds)
    place = out / "leaderboards" / task
    place.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (place / name).write_text(text, encoding="utf-8")
    return [f"leaderboards/{task}/{name}" for name in texts]
