"""Scores of tasks, and what of their test text stands in the corpus, against the champion's."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from model.artifact import read_json
from model.promotion import gates
from model.promotion.gates import POINTS, Gate
from model.promotion.in_use import Champion
from model.reporting.predicted import Predicted, read_predicted, resampled
from model.reporting.report_task import PARTS, counted
from model.task_files.known_tasks import title_of
from model.tasks import NOT_RUN
from pipeline.config import DecisionConfig
from pipeline.errors import StoreError


def tasks_in(inputs: Mapping[str, Path]) -> dict[str, Path]:
    """Task → its fine-tuned model, run or not."""
    return {n.removeprefix("finetuned_"): folder for n, folder in inputs.items() if n.startswith("finetuned_")}


def scores_of(folder: Path | None) -> dict[str, Any] | None:
    """scores.json of a task; None where it was not run, or failed."""
    if folder is None or (folder / NOT_RUN).exists():
        return None
    return dict(read_json(folder / "scores.json"))


def part_of(scores: Mapping[str, Any]) -> str | None:
    """The part that is spoken of: the first with scores, as in the report."""
    return next((part for part in PARTS if scores["summary"].get(part)), None)


def compare(champion: Champion, inputs: Mapping[str, Path], config: DecisionConfig) -> Iterator[Gate]:
    """Every task that the champion has a score of: whether it has been scored, and is not worse. Raises DataError for a broken file."""
    if champion.report is None:
        if tasks_in(inputs):
            yield gates.without(
                "tasks", "no benchmark report of the champion is known: bert promote by hand, or floors"
            )
        return
    had = [name.removeprefix("finetuned_") for name in champion.report.inputs if name.startswith("finetuned_")]
    missing, compared = [], []
    for task in had:
        try:
            theirs = champion.input(f"finetuned_{task}")
        except StoreError as error:
            yield gates.unknown(task, f"the champion's predictions are gone: {error}")
            continue
        if not (old := scores_of(theirs)) or not (part := part_of(old)):
            continue
        ours = inputs.get(f"finetuned_{task}")
        new = scores_of(ours)
        if not new or part not in new["summary"] or not new["summary"][part]:
            missing.append(title_of(task))
            continue
        assert ours is not None and theirs is not None
        compared.append(_task(task, part, (ours, new), (theirs, old), inputs.get(f"task_data_{task}"), config))
    yield gates.complete(missing, len(compared))
    yield from compared


def _task(
    task: str,
    part: str,
    ours: tuple[Path, dict[str, Any]],
    theirs: tuple[Path, dict[str, Any]],
    data: Path | None,
    config: DecisionConfig,
) -> Gate:
    new, old = (_predicted(folder, scores, part, data) for folder, scores in (ours, theirs))
    metric = ours[1]["metric"]
    if theirs[1]["metric"] != metric or new.example_ids != old.example_ids:
        return gates.unknown(
            f"{task}.{metric}", "its examples or its metric are not the champion's: nothing to compare with"
        )
    found = [resampled(each, [metric]).get(metric) for each in (new, old)]
    if found[0] is None or found[1] is None:
        return gates.unknown(f"{task}.{metric}", "this metric is no function of the published predictions")
    medians = [POINTS * scores["summary"][part][metric]["median"] for _, scores in (ours, theirs)]
    both = (POINTS * found[0].values, POINTS * found[1].values)
    compared = gates.difference(medians[0], medians[1], both, found[0].drawn)
    return gates.task(task, metric, part, compared, new.unit, config.gates)


def _predicted(folder: Path, scores: Mapping[str, Any], part: str, data: Path | None) -> Predicted:
    runs = counted(scores, part, scores["summary"][part][scores["metric"]]["count"])
    return read_predicted(folder, part, [run["seed"] for run in runs], scores["kind"], scores["labels"], data)


def contamination(champion: Champion, inputs: Mapping[str, Path], config: DecisionConfig) -> Iterator[Gate]:
    """Every task whose test texts were looked for in both corpora."""
    try:
        folder = champion.input("contamination")
    except StoreError:
        folder = None
    if folder is None:
        yield gates.without("contamination", "the champion's is not known")
        return
    ours, theirs = (read_json(each / "contamination.json")["tasks"] for each in (inputs["contamination"], folder))
    for task, entry in ours.items():
        old = theirs.get(task) or {}
        if entry["share"] is not None and old.get("share") is not None:
            yield gates.contamination(task, entry["share"], old["share"], config.gates.contaminated)
