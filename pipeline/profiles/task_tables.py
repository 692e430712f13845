"""Metrics of the tables of a task, by its kind (model/task_files/task_kinds.py names their columns)."""

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl

from pipeline.suites import DOES_NOT_APPLY

Parts = Mapping[str, pl.DataFrame]
TEXTS = ("text_a", "question", "context")
SAME = ("text_a", "text_b", "choices", "words", "question", "context")
"""columns that two examples are equal by"""


def of_kind(kind: str, parts: Parts, labels: list[str]) -> dict[str, Any]:
    """What is measured for one kind only; DOES_NOT_APPLY for the others."""
    none: dict[str, Any] = dict.fromkeys(
        ("bad_scores", "bad_choices", "unmatched_tags", "broken_entities", "bad_answers", "unanswered"), DOES_NOT_APPLY
    )
    measure: dict[str, Callable[[Parts, list[str]], dict[str, Any]]] = {
        "regression": _regression,
        "sentence_similarity": _sentences,
        "multiple_choice": _choices,
        "tagging": _tagging,
        "span": _span,
    }
    return none | (measure[kind](parts, labels) if kind in measure else {})


def empty_texts(part: str, frame: pl.DataFrame, kept_whole: bool) -> int:
    """Examples without text; kept_whole: of a test part whose examples all have to stay, as far as they hold none at all."""
    if kept_whole:
        return 0
    texts = [name for name in TEXTS if name in frame.columns]
    without = [pl.col(name).fill_null("").str.strip_chars() == "" for name in texts]
    if "words" in frame.columns:
        without.append(pl.col("words").list.len() == 0)
    return int(frame.select(pl.any_horizontal(without).sum()).item())


def bad_labels(part: str, frame: pl.DataFrame, labels: list[str]) -> int | str:
    """Labels that are none of the task's, or missing outside of test."""
    numbers = range(len(labels))
    if "tags" in frame.columns:
        wrong = ~pl.col("tags").list.eval(pl.element().is_in(numbers)).list.all()
        return int(frame.select(wrong.fill_null(not part.startswith("test")).sum()).item())
    if "label" not in frame.columns:
        return 0
    known = (
        pl.col("label") < pl.col("choices").list.len() if "choices" in frame.columns else pl.col("label") < len(labels)
    )
    known &= pl.col("label") >= 0
    return int(frame.select((~known.fill_null(part.startswith("test"))).sum()).item())


def unseen_labels(frame: pl.DataFrame, labels: list[str]) -> list[str]:
    """Names of labels that no example of train has; an entity need not be longer than a word."""
    if "tags" in frame.columns:
        seen = set(frame["tags"].explode().drop_nulls().to_list())
        return [name for number, name in enumerate(labels) if number not in seen and not name.startswith("I-")]
    seen = set(frame["label"].drop_nulls().to_list()) if labels else set()
    return [name for number, name in enumerate(labels) if number not in seen]


def seen_tests(parts: Parts) -> int:
    """Test examples whose text stands in train or dev."""
    test = parts["test"]
    columns = [name for name in SAME if name in test.columns]
    same = [
        pl.col(name).list.join("\n") if isinstance(test.schema[name], pl.List) else pl.col(name) for name in columns
    ]
    texts = {part: frame.select(same) for part, frame in parts.items()}
    trained = [texts[part] for part in ("train", "dev") if part in texts]
    if not trained:
        return 0
    return len(texts["test"].join(pl.concat(trained).unique(), on=columns, how="semi", nulls_equal=True))


def _regression(parts: Parts, labels: list[str]) -> dict[str, Any]:
    bad = 0
    for part, frame in parts.items():
        bad += frame.select((~pl.col("score").is_finite().fill_null(part.startswith("test"))).sum()).item()
    return {"bad_scores": bad}


def _sentences(parts: Parts, labels: list[str]) -> dict[str, Any]:
    """Pairs of train may be without scores."""
    return _regression({part: frame for part, frame in parts.items() if part != "train"}, labels)


def _choices(parts: Parts, labels: list[str]) -> dict[str, Any]:
    frame = pl.concat([parts[part].select("choices") for part in parts])
    empty = pl.col("choices").list.eval(pl.element().str.strip_chars() == "").list.any()
    return {"bad_choices": int(frame.select(((pl.col("choices").list.len() < 2) | empty).sum()).item())}


def _tagging(parts: Parts, labels: list[str]) -> dict[str, Any]:
    unmatched = broken = 0
    for frame in parts.values():
        tagged = frame.filter(pl.col("tags").is_not_null())
        unmatched += tagged.select((pl.col("words").list.len() != pl.col("tags").list.len()).sum()).item()
        broken += sum(
            _broken([labels[tag] if 0 <= tag < len(labels) else "O" for tag in tags]) for tags in tagged["tags"]
        )
    return {"unmatched_tags": unmatched, "broken_entities": broken}


def _broken(tags: list[str]) -> int:
    """Tags I-TYPE that go on no entity of their type."""
    pairs = zip(["O", *tags], tags, strict=False)
    return sum(tag.startswith("I-") and (before == "O" or before[2:] != tag[2:]) for before, tag in pairs)


def _span(parts: Parts, labels: list[str]) -> dict[str, Any]:
    bad = unanswered = 0
    for part, frame in parts.items():
        for context, answers, impossible in frame.select("context", "answers", "impossible").iter_rows():
            placed = [answer for answer in answers if answer["start"] is not None]
            bad += sum(
                not answer["text"]
                or not answer["start"] >= 0
                or not context.startswith(answer["text"], answer["start"])
                for answer in placed
            )
            if impossible is None:
                unanswered += not part.startswith("test") or bool(answers)
            else:
                wanted = placed if part == "train" else answers
                unanswered += bool(answers) if impossible else not wanted
    return {"bad_answers": bad, "unanswered": unanswered}
