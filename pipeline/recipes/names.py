"""What names in a recipe stand for: the tasks that are known by name, versions of the store, the champion, files."""

import re
from collections.abc import Mapping

from pipeline.config import TaskKind

BUILT_IN_TASKS: Mapping[str, TaskKind] = {
    "cola": "classification",
    "sst2": "classification",
    "mrpc": "pair_classification",
    "stsb": "regression",
    **dict.fromkeys(("qqp", "mnli", "qnli", "rte", "wnli", "ax"), "pair_classification"),
    "squad1_1": "span",
    "squad2_0": "span",
    "swag": "multiple_choice",
    "conll2003": "tagging",
    "wnut17": "tagging",
    "stsb_vectors": "sentence_similarity",
}
"""Tasks that model/task_files/known_tasks.py knows by name, and their kinds."""
ANSWERED_BY: Mapping[str, str] = {"ax": "mnli"}
"""Tasks that are a test set only → the task whose model answers them."""
VERSION = re.compile(r"[0-9a-f]{64}")
STORED = re.compile(r"champion|[0-9a-f]{64}(/stable)?")
CHAMPION = "champion"
"""in the place of a version: what a retrain finds in use when it begins (pipeline/retrain.py)"""


def is_file(vocabulary: str) -> bool:
    """Whether `vocabulary.from` names a file, and not a version."""
    return bool(vocabulary) and vocabulary != CHAMPION and not VERSION.fullmatch(vocabulary)
