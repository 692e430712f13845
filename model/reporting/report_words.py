"""The report's result in plain sentences, good or bad, and its warnings."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from model import metrics
from model.reporting.isolated import isolated
from model.reporting.report_contamination import sentences as with_and_without
from model.reporting.shown_numbers import decimal, interval
from model.task_files.known_tasks import title_of

UNKNOWN = "unknown: the text that this checkpoint was trained on is not here"
"""what there is to say of contamination where a model was made elsewhere"""
PARTS_IN_WORDS = {"test_mismatched": "test (mismatched)", "dev_mismatched": "dev (mismatched)"}


FEW = 30
"""examples, articles or documents below which a score says little"""


def in_words(content: Mapping[str, Any]) -> list[str]:
    """The result in plain sentences."""
    sentences = [*_held_out_words(content["pretraining"])] if content["pretraining"] else []
    ran = [task for task in content["tasks"] if task["ran"] and task["verdict"]]
    judged = [task for task in ran if task["verdict"]["pretraining"] is not None]
    helped = [task for task in judged if task["verdict"]["pretraining"] == "helped"]
    for task in ran:
        sentences += [_task_words(task), *with_and_without(task)]
    for task in content["tasks"]:
        if task["ran"] and not task["rows"]:
            by = f" by the model of {title_of(task['model_of'])}" if task.get("model_of") else ""
            sentences.append(
                f"{isolated(task['title'])}: predicted{by}, but not scored, since the answers are not known."
            )
    if judged and not helped:
        sentences.append(
            "So on none of these tasks did pretraining help measurably. Fine-tuning alone learns what they ask for"
            + (
                "; what shows that pretraining works, and how far it came, is the held-out curve, not these scores."
                if content["pretraining"] and content["pretraining"]["held_out"]
                else "."
            )
        )
    elif judged and len(helped) < len(judged):
        names = ", ".join(isolated(task["title"]) for task in helped)
        sentences.append(f"So pretraining helped measurably on {len(helped)} of {len(judged)} tasks: {names}.")
    for task in content["tasks"]:
        if task.get("failed"):
            sentences.append(f"{task['title']} failed: {task['why'].rstrip('.')}.")
    missing = [task for task in content["tasks"] if not task["ran"] and not task.get("failed")]
    if missing:
        number = "1 task was" if len(missing) == 1 else f"{len(missing)} tasks were"
        sentences.append(f"{number} not run; the last table says why, and which files are wanted.")
    return sentences


def warnings(tasks: Sequence[Mapping[str, Any]], encoder: Mapping[str, Any]) -> list[str]:
    """What would mislead a reader who does not know it."""
    found = []
    reading_cls = [
        isolated(task["title"]) for task in tasks if task["ran"] and task["hyperparameters"].get("pooling") == "cls"
    ]
    if reading_cls and encoder.get("sentence_task") == "none":
        # A checkpoint of somebody else's may have had a sentence task, and left its head out.
        outside = encoder.get("held_out") is None
        trained = "may never have been trained" if outside else "was never trained"
        head = "brings no head of a sentence task" if outside else "had no sentence task"
        found.append(
            f"[CLS] {trained} before fine-tuning: this encoder {head}, and {', '.join(reading_cls)} "
            "read nothing but [CLS] (pooling: cls). What is above it begins from nothing, which costs most where there are few "
            "examples; pooling: mean reads all tokens."
        )
    for task in tasks:
        for row in task["rows"] if task["ran"] else ():
            if row["not_official"]:
                found.append(
                    f"{isolated(task['title'])}: {PARTS_IN_WORDS.get(row['part'], row['part'])} is not the official one "
                    f"({row['not_official']}). No published score is its peer, and it counts in no average."
                )
        if task["ran"] and task["diverged"]:
            named = "; ".join(f"seed {run['seed']}: {run['why']}" for run in task["diverged"])
            found.append(
                f"{isolated(task['title'])}: {len(task['diverged'])} of {len(task['seeds'])} seeds diverged ({named})."
            )
    return found


def _held_out_words(pretraining: Mapping[str, Any]) -> Iterator[str]:
    held_out = pretraining["held_out"]
    if held_out is None:
        yield f"The model was made elsewhere and only fine-tuned here. Contamination is {UNKNOWN}."
        return
    guess, reached = held_out["baselines"]["most_frequent_token_accuracy"], held_out["mlm_accuracy"]
    if reached is None or not guess:
        return
    times = reached / guess
    comparison = f"{times:.1f} times as many as" if times >= 1.05 else "no more than" if times > 0.95 else "fewer than"
    yield (
        f"On text that training never saw, the model guesses {100 * reached:.1f} % of the masked words: {comparison} "
        f"always guessing the most frequent one would ({100 * guess:.1f} %)."
    )
    majority, sentence = held_out["baselines"].get("nsp_majority_accuracy"), held_out.get("nsp_accuracy")
    if sentence is not None and majority is not None:
        bound = metrics.noise(sentence, majority, held_out["sequences"])
        learnt = "more than" if sentence - majority > bound else "not measurably more than"
        yield (
            f"It tells whether a sentence follows another in {100 * sentence:.1f} % of the pairs, {learnt} always "
            f"giving the more frequent answer ({100 * majority:.1f} %)."
        )


def _task_words(task: Mapping[str, Any]) -> str:
    row, found = task["rows"][0], task["verdict"]
    seeds = "" if len(row["seeds"]) == 1 else f", median of {len(row['seeds'])} seeds"
    between = "" if row["low"] is None else f" (95 % interval {interval(row['low'], row['high'])})"
    part = PARTS_IN_WORDS.get(row["part"], row["part"])
    text = (
        f"{isolated(task['title'])}: {decimal(row['ours'])} points of {task['metric_title']} on {part}{between}{seeds}."
    )
    if row["untouched"] is not None:
        text += f" The checkpoint before any step of fine-tuning gets {decimal(row['untouched'])}."
    drawn = f"{row['drawn'] or row['examples']:,} {row['drawn_unit'] if row['drawn'] else task['unit']}"
    if (row["drawn"] or row["examples"]) < FEW:
        text += f" It is the score of {drawn} only, which says little."
    if task["diverged"]:
        text += f" {len(task['diverged'])} of {len(task['seeds'])} trainings diverged: see the notes."
    if found["pretraining"] is not None:
        difference = row["ours"] - row["untrained"]
        text += {
            "helped": f" Pretraining helped: the same network without it gets {decimal(row['untrained'])}.",
            "hurt": f" Pretraining did not help: the same network without it gets more, {decimal(row['untrained'])}.",
            "same": f" Pretraining made no measurable difference: the same network without it gets "
            f"{decimal(row['untrained'])}, and with {drawn} a difference of {abs(difference):.1f} is within "
            f"chance (up to {found['noise']:.1f}).",
        }[found["pretraining"]]
    if found["tfidf"] is not None:
        text += {
            "helped": f" It is above TF-IDF with logistic regression ({decimal(row['tfidf'])}).",
            "hurt": f" TF-IDF with logistic regression, which knows no word order, gets more: {decimal(row['tfidf'])}.",
            "same": f" TF-IDF with logistic regression gets as much, within chance: {decimal(row['tfidf'])}.",
        }[found["tfidf"]]
    return text
