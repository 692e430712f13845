"""leaderboards/: what is in, what is missing and why, the same bytes again."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.reporting.submissions import write_submissions
from model.task_files.known_tasks import KNOWN


def folder(base: Path, task: str, seed: int | None, **parts: list[Any]) -> Path:
    place = base / task
    (place / "predictions").mkdir(parents=True)
    (place / "scores.json").write_text(json.dumps({"published_seed": seed}))
    for part, predictions in parts.items():
        ids = [f"{part}:{number}" for number in range(len(predictions))]
        for each in (seed or 7, 99):
            given = predictions if each != 99 else list(reversed(predictions))
            table = pa.table({"example_id": ids, "prediction": given})
            pq.write_table(table, place / "predictions" / f"{part}-seed-{each}.parquet")
    return place


def test_glue_is_zipped_as_the_server_takes_it(tmp_path: Path) -> None:
    half = ["acceptable"] * 1000 + ["unacceptable"] * 63
    m, mm = (["neutral"] * KNOWN["mnli"].parts[part].count for part in ("test", "test_mismatched"))
    tasks = {
        "cola": folder(tmp_path, "cola", 43, dev=["acceptable"], test=half),
        "stsb": folder(tmp_path, "stsb", 42, test=[5.25] * 1379),
        "mnli": folder(tmp_path, "mnli", 42, test=m, test_mismatched=mm[:-1]),
        "ax": folder(tmp_path, "ax", None, test=["entailment"] * 1104),
        "rte": folder(tmp_path, "rte", 42, dev=["entailment"]),
        "mine": folder(tmp_path, "mine", 42, test=["x"]),
    }
    found = write_submissions(tasks, {"wnli": "not run: no files"}, tmp_path)
    assert found["squad"] == {}
    assert found["glue"] == {
        "file": "leaderboards/glue.zip",
        "files": ["CoLA.tsv", "STS-B.tsv", "MNLI-m.tsv", "AX.tsv"],
        "missing": {
            "SST-2.tsv": "the recipe does not list the task",
            "MRPC.tsv": "the recipe does not list the task",
            "QQP.tsv": "the recipe does not list the task",
            "MNLI-mm.tsv": "9,846 of its 9,847 test examples are predicted",
            "QNLI.tsv": "the recipe does not list the task",
            "RTE.tsv": "no test file",
            "WNLI.tsv": "not run: no files",
        },
    }
    first = (tmp_path / "leaderboards" / "glue.zip").read_bytes()
    with zipfile.ZipFile(tmp_path / "leaderboards" / "glue.zip") as archive:
        assert archive.namelist() == ["AX.tsv", "CoLA.tsv", "MNLI-m.tsv", "STS-B.tsv"]
        lines = archive.read("CoLA.tsv").decode().splitlines()
        assert archive.read("STS-B.tsv").decode().splitlines()[1] == "0\t5.000"
    # the published seed's: seed 99 says the reverse
    assert (lines[0], lines[1], lines[1063], len(lines)) == ("index\tprediction", "0\t1", "1062\t0", 1064)
    assert write_submissions(tasks, {}, tmp_path / "again")["glue"]["file"] == "leaderboards/glue.zip"
    assert (tmp_path / "again" / "leaderboards" / "glue.zip").read_bytes() == first


def test_without_glue_there_is_nothing(tmp_path: Path) -> None:
    assert write_submissions({}, {"swag": "not run: no files"}, tmp_path) == {"glue": None, "squad": {}}
    nothing = write_submissions({}, {"cola": "not run: no files"}, tmp_path)["glue"]
    assert (nothing["file"], nothing["files"], nothing["missing"]["CoLA.tsv"]) == (None, [], "not run: no files")
    assert not (tmp_path / "leaderboards").exists()


def test_squad_has_the_published_seeds_answers_of_dev(tmp_path: Path) -> None:
    one, two = (folder(tmp_path, task, 42) for task in ("squad1_1", "squad2_0"))
    columns: dict[str, Any] = {"example_id": ["a", "b"], "prediction": ["Zürich", ""]}
    pq.write_table(pa.table(columns), one / "predictions" / "dev-seed-42.parquet")
    pq.write_table(pa.table({**columns, "null_odds": [-2.5, 3.0]}), two / "predictions" / "dev-seed-42.parquet")
    found = write_submissions({"squad1_1": one, "squad2_0": two}, {}, tmp_path)
    assert found["squad"] == {
        "squad1_1": ["leaderboards/squad1_1/predictions.json"],
        "squad2_0": ["leaderboards/squad2_0/predictions.json", "leaderboards/squad2_0/null_odds.json"],
    }
    read = [json.loads((tmp_path / file).read_text()) for files in found["squad"].values() for file in files]
    assert read == [{"a": "Zürich", "b": ""}, {"a": "Zürich", "b": ""}, {"a": -2.5, "b": 3.0}]
