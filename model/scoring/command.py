"""Score a prediction file against a gold file: the tasks by name."""

from pathlib import Path
from typing import Any

from model.scoring.entity_scores import scores_of_entities
from model.scoring.label_files import GLUE
from model.scoring.label_scores import scores_of_labels
from model.scoring.squad_scores import scores_of_squad
from model.task_files.known_tasks import KNOWN
from pipeline.errors import DataError

ENTITY_TYPES = {
    "conll2003": ("LOC", "MISC", "ORG", "PER"),
    "wnut17": ("corporation", "creative-work", "group", "location", "person", "product"),
    "ner": (),
}
"""Tagging tasks; of `ner`, any CoNLL column file, no types are known."""
TASKS = ("squad1.1", "squad2.0", *GLUE, "swag", *ENTITY_TYPES)
"""What `bert score` takes."""


def score(task: str, gold: Path, predictions: Path, no_answer: Path | None = None) -> dict[str, Any]:
    """The scores of `predictions` against `gold`, as JSON values.

    `task` is one of `TASKS`; `_` may stand for the dot. `no_answer`: {id: probability of no answer}, for squad2.0 only.

    Raises:
        DataError: an unknown task, a file that can't be read, or files that do not belong together.
    """
    name = task.replace("_", ".")
    if name not in TASKS:
        raise DataError(f"there is no task {task!r}", f"Tasks are {', '.join(TASKS)}.")
    if no_answer is not None and name != "squad2.0":
        raise DataError(f"no-answer probabilities change nothing for {name}", "Give them with squad2.0 only.")
    if name in ("squad1.1", "squad2.0"):
        found = scores_of_squad(name.removeprefix("squad"), gold, predictions, no_answer)
    elif name in ENTITY_TYPES:
        found = scores_of_entities(ENTITY_TYPES[name], gold, predictions)
    else:
        found = scores_of_labels(name, gold, predictions)
    found["notes"] += _not_official(name, found["count"], found["unit"])
    return {"task": name, "gold": str(gold), "predictions": str(predictions), **found}


def _not_official(name: str, count: int, unit: str) -> list[str]:
    """A note where no part of the task officially has so many examples: a sub-sample, or another task's file."""
    known = KNOWN.get(name.replace(".", "_"))
    if known is None or count in (sizes := {part: each.count for part, each in known.parts.items()}).values():
        return []
    told = ", ".join(f"{part} {size:,}" for part, size in sizes.items())
    return [f"no official part of {known.title} has {count:,} {unit}: {told}"]
