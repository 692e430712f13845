"""Scores in exported folders: those of the report that is of the same model, and of no other."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard

from assets.commands import exporting
from model import report
from pipeline.config import ReportConfig
from pipeline.storage.record import Record
from pipeline.store import open_store
from tests.assets.bertcli import recorded
from tests.model import made_up

CARD = "---\nlibrary_name: transformers\n---\n# mine\n\n## Scores on text that training never saw\n\n## Use\n"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERT_HOME", str(tmp_path / "home"))


def put(stage: str, asset: str, fill: Callable[[Path], object], **inputs: Record) -> Record:
    """A published artifact of recipe `mine`."""
    store = open_store()
    with store.staging() as place:
        fill(place)
        version = store.publish(stage, place)
    return recorded(store, "mine", asset, stage, version, {name: record.digest for name, record in inputs.items()})


def copied(folder: Path) -> Callable[[Path], object]:
    return lambda place: shutil.copytree(folder, place, dirs_exist_ok=True)


def pretrained(content: str = "weights") -> Record:
    return put("pretrained", "pretrained_128", lambda place: (place / "model.safetensors").write_text(content))


def released(encoder: Record) -> Record:
    return put("release", "release", lambda place: (place / "README.md").write_text(CARD), pretrained=encoder)


def tuned(
    base: Path, encoder: Record, right: tuple[float, ...] = (0.8, 0.85, 0.9), task: str = "cola"
) -> tuple[Record, Record]:
    """(finetuned_cola, task_data_cola): pooled by the mean, which is copied as it is."""
    labels = ["unacceptable", "acceptable"]
    folder = made_up.classes(base, task, task, labels, right, {"dev": 200})
    described = {"kind": "classification", "labels": labels, "pooling": "mean"}
    (folder / "config.json").write_text(json.dumps(described))
    data = put("task_data", f"task_data_{task}", copied(base / f"task_data_{task}"))
    return put("finetuned", f"finetuned_{task}", copied(folder), pretrained=encoder, task_data=data), data


def reported(base: Path, encoder: Record, *tasks: Record) -> dict[str, float]:
    """The report's first row. tasks: models and data."""
    store = open_store()
    inputs = {record.asset: record for record in tasks}
    folders = {name: store.folder(record.stage, record.version) for name, record in inputs.items()}
    (base / "out").mkdir()
    named = tuple(name.removeprefix("finetuned_") for name in inputs if name.startswith("finetuned_"))
    report.make_report(folders, ReportConfig(recipe="mine", tasks=named), base / "out")
    put("benchmark_report", "benchmark_report", copied(base / "out"), pretrained=encoder, **inputs)
    row: dict[str, float] = json.loads((base / "out" / "report.json").read_text())["tasks"][0]["rows"][0]
    return row


def test_a_release_is_exported_with_the_reports_scores_and_its_version(tmp_path: Path) -> None:
    encoder = pretrained()
    release = released(encoder)
    model, data = tuned(tmp_path / "made", encoder)
    row = reported(tmp_path, encoder, model, data)
    exporting.export("mine/release", tmp_path / "export")
    (entry,) = yaml.safe_load((tmp_path / "export" / ".eval_results" / "cola.yaml").read_text())
    assert entry["value"] == row["ours"]
    assert entry["dataset"] == {"id": "nyu-mll/glue", "task_id": "cola"}
    assert f"95 % interval {row['low']:.1f}–{row['high']:.1f}; release {release.version}" in entry["notes"]
    card = ModelCard.load(tmp_path / "export" / "README.md")
    assert next(result.metric_value for result in card.data.eval_results or []) == row["ours"]
    assert f"(release `{release.version}`)" in card.text
    assert (
        card.text.index("## Scores on text that training")
        < card.text.index("## Scores after")
        < card.text.index("## Use")
    )
    assert exporting.verify(str(tmp_path / "export"))["problems"] == []
    # the release in the store has held-out scores only
    kept = open_store().folder("release", release.version)
    assert (kept / "README.md").read_text() == CARD and not (kept / ".eval_results").exists()
    (tmp_path / "export" / ".eval_results" / "cola.yaml").write_text("[]")
    (problem,) = exporting.verify(str(tmp_path / "export"))["problems"]
    assert "cola.yaml was changed" in problem["what"]


def test_scores_of_another_model_are_not_taken(tmp_path: Path) -> None:
    encoder = pretrained()
    model, data = tuned(tmp_path / "made", encoder)
    reported(tmp_path, encoder, model, data)
    released(pretrained("trained again"))
    done = exporting.export("mine/release", tmp_path / "export")
    assert "the report is of another encoder than this release: its scores are not in the card" in done["note"]
    assert "bert run mine/benchmark_report" in exporting.export_text(done)
    card = (tmp_path / "export" / "README.md").read_text()
    assert "Scores after" not in card and "model-index" not in card
    assert not (tmp_path / "export" / ".eval_results").exists()


def test_without_a_report_a_release_has_no_scores_but_held_out_ones(tmp_path: Path) -> None:
    released(pretrained())
    exporting.export("mine/release", tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    assert card.startswith(CARD.partition("## Use")[0]) and "Scores after" not in card
    assert not (tmp_path / "export" / ".eval_results").exists()


@pytest.mark.parametrize("with_report", [True, False])
def test_a_fine_tuned_model_gets_a_card(tmp_path: Path, with_report: bool) -> None:
    encoder = pretrained()
    release = released(encoder)
    model, data = tuned(tmp_path / "made", encoder)
    if with_report:
        reported(tmp_path, encoder, model, data)
    done = exporting.export("mine/finetuned_cola", tmp_path / "export")
    assert "transformers has no class for pooling mean" in done["note"]
    assert exporting.verify(str(tmp_path / "export"))["problems"] == []
    card = ModelCard.load(tmp_path / "export" / "README.md")
    scores = json.loads((tmp_path / "export" / "scores.json").read_text())
    results = {result.metric_type: result.metric_value for result in card.data.eval_results or []}
    assert results["accuracy"] == pytest.approx(100 * scores["summary"]["dev"]["accuracy"]["median"], abs=0.01)
    assert f"(release `{release.version}`)" in card.text and "Of 3 seeds" in card.text
    (entry,) = yaml.safe_load((tmp_path / "export" / ".eval_results" / "cola.yaml").read_text())
    assert ("date" in entry) == with_report


def test_a_report_older_than_the_model_gives_no_scores_and_is_said(tmp_path: Path) -> None:
    encoder = pretrained()
    released(encoder)
    model, data = tuned(tmp_path / "made", encoder)
    old = reported(tmp_path, encoder, model, data)
    assert "note" not in exporting.export("mine/release", tmp_path / "before")
    tuned(tmp_path / "again", encoder, (0.6, 0.6, 0.6))
    done = exporting.export("mine/finetuned_cola", tmp_path / "export")
    assert "the report is of another version of finetuned_cola" in done["note"]
    assert "bert run mine/benchmark_report" in exporting.export_text(done)
    card = ModelCard.load(tmp_path / "export" / "README.md")
    scores = json.loads((tmp_path / "export" / "scores.json").read_text())
    (entry,) = yaml.safe_load((tmp_path / "export" / ".eval_results" / "cola.yaml").read_text())
    new = 100 * scores["summary"]["dev"]["accuracy"]["median"]
    assert entry["value"] == pytest.approx(new, abs=0.01) != old["ours"]
    assert "date" not in entry, "it is not of the report"
    assert {r.metric_value for r in card.data.eval_results or [] if r.metric_type == "accuracy"} == {entry["value"]}
    done = exporting.export("mine/release", tmp_path / "release")
    assert "fine-tuned again since the report: cola. The card has no scores of it." in done["note"]
    text = (tmp_path / "release" / "README.md").read_text()
    assert "Scores after" not in text and "model-index" not in text


def test_of_a_release_only_what_was_tuned_again_is_left_out(tmp_path: Path) -> None:
    encoder = pretrained()
    released(encoder)
    cola, rte = tuned(tmp_path / "made", encoder), tuned(tmp_path / "made", encoder, task="rte")
    reported(tmp_path, encoder, *cola, *rte)
    tuned(tmp_path / "again", encoder, (0.6,))
    tuned(tmp_path / "elsewhere", pretrained("trained again"), (0.7,), task="rte")  # none of this release's
    done = exporting.export("mine/release", tmp_path / "export")
    assert "since the report: cola. " in done["note"]
    assert [path.name for path in (tmp_path / "export" / ".eval_results").iterdir()] == ["rte.yaml"]


def test_a_recipe_that_only_fine_tunes_names_its_checkpoint_in_the_card(tmp_path: Path) -> None:
    made = put("imported_checkpoint", "imported_checkpoint", lambda place: (place / "told.json").write_text("{}"))
    encoder = open_store().append({**made.body, "statistics": {"root": {"folder": "minilm"}}})
    tuned(tmp_path / "made", encoder)
    exporting.export("mine/finetuned_cola", tmp_path / "export")
    card = (tmp_path / "export" / "README.md").read_text()
    assert "The checkpoint `minilm`, fine-tuned on cola by the recipe mine." in card
