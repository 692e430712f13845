"""Test-set predictions as the leaderboards of GLUE and SQuAD take them. Pure functions: predictions → text of a file.

GLUE (gluebenchmark.com): a zip of one .tsv per task, columns `index` (from 0, in the order of the test file) and
`prediction`; SQuAD (rajpurkar.github.io/SQuAD-explorer): one JSON object, question id → answer.
"""

import json
import math
from collections.abc import Mapping, Sequence

from model.task_files.known_tasks import KNOWN
from pipeline.errors import DataError

GLUE_FILES: Mapping[str, Mapping[str, str]] = {
    "cola": {"test": "CoLA.tsv"},
    "sst2": {"test": "SST-2.tsv"},
    "mrpc": {"test": "MRPC.tsv"},
    "stsb": {"test": "STS-B.tsv"},
    "qqp": {"test": "QQP.tsv"},
    "mnli": {"test": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"},
    "qnli": {"test": "QNLI.tsv"},
    "rte": {"test": "RTE.tsv"},
    "wnli": {"test": "WNLI.tsv"},
    "ax": {"test": "AX.tsv"},
}
"""task → part → name of the file in the zip"""
STSB_RANGE = (0.0, 5.0)


def glue_file(task: str, predictions: Sequence[str] | Sequence[float]) -> str:
    """The text of a task's file. predictions: in the order of the test file, label names as task.json has them, or scores
    (STS-B), which are clipped to 0–5 and written with three decimals.

    Raises:
        DataError: no task of GLUE, a label that the task does not have, a score that is no finite number.
    """
    if task not in GLUE_FILES:
        raise DataError(f"{task} is no task of GLUE", f"GLUE has {', '.join(GLUE_FILES)}.")
    form = KNOWN[task].form
    values = dict(zip(form.label_names or form.labels, form.labels, strict=True))
    rows = ["index\tprediction"]
    for index, prediction in enumerate(predictions):
        if form.kind == "regression":
            rows.append(f"{index}\t{_clipped(task, index, prediction)}")
        elif prediction in values:
            rows.append(f"{index}\t{values[str(prediction)]}")
        else:
            raise DataError(
                f"prediction {index} of {task} is {prediction!r}", f"Its labels are {', '.join(map(repr, values))}."
            )
    return "\n".join(rows) + "\n"


def glue_submission(predictions: Mapping[str, Mapping[str, Sequence[str] | Sequence[float]]]) -> dict[str, str]:
    """File name → text, of predictions task → part → in the order of the test file.

    Raises:
        DataError: as `glue_file`; a part that is none of the test set, or has another number of predictions than the
            official one: the server refuses a zip with an incomplete file.
    """
    files = {}
    for task, parts in predictions.items():
        for part, predicted in parts.items():
            name = GLUE_FILES.get(task, {}).get(part)
            if name is None:
                raise DataError(f"{part} of {task} is no part of GLUE's test set", "Predict the test parts.")
            count = KNOWN[task].parts[part].count
            if len(predicted) != count:
                raise DataError(
                    f"{name}: {len(predicted):,} predictions, but the test set has {count:,}", "Predict all of them."
                )
            files[name] = glue_file(task, predicted)
    return files


def _clipped(task: str, index: int, prediction: object) -> str:
    if isinstance(prediction, bool) or not isinstance(prediction, int | float) or not math.isfinite(prediction):
        raise DataError(f"prediction {index} of {task} is {prediction!r}, which is no number", "Predict a score.")
    least, most = STSB_RANGE
    return f"{min(max(float(prediction), least), most):.3f}"


def squad_file(answers: Mapping[str, str]) -> str:
    """The text of predictions.json: question id → answer, "" for "no answer" (2.0)."""
    return json.dumps(dict(answers), ensure_ascii=False) + "\n"


def squad_no_answer_file(scores: Mapping[str, float]) -> str:
    """The text of na_prob.json (2.0): question id → probability, or any score, that there is no answer.

    Raises:
        DataError: a score that is no finite number.
    """
    for id_, score in scores.items():
        if not math.isfinite(score):
            raise DataError(f"the score of question {id_} is {score}", "Scores must be finite.")
    return json.dumps(dict(scores)) + "\n"
