"""The examples of a task's files: one reader per kind, from records, column files or SQuAD's JSON to `Example`.

What can't be an example is dropped and counted under a reason; what is broken is an error that names file and line.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.task_files import conll, squad
from model.task_files.task_kinds import Example, squeezed
from model.task_files.task_records import MALFORMED, SUFFIXES, is_table, read_records
from pipeline.config import TaskForm
from pipeline.errors import DataError
from pipeline.formats.kinds import plain_name

EMPTY_TEXT, EMPTY_LABEL, NO_ANSWER = "empty text", "empty label", "no answer that stands in the context"
SHOWN = 3
"""ids, and places of each, that a message names"""
OWN_NEGATIVE = "the negative is a text of the pair"


@dataclass
class Counted:
    """What happened on the way from the files to the tables."""

    read: Counter[str] = field(default_factory=Counter)
    """records, by part of the files"""
    dropped: Counter[str] = field(default_factory=Counter)
    """`part: reason` → records"""
    answers: Counter[str] = field(default_factory=Counter)
    """of span: right, repaired, unplaced → answers"""
    places: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    """of span: (part, id of a question) → where the file has it"""
    leaked_texts: int = 0
    """different texts of test (or dev) that train held too"""
    notes: list[str] = field(default_factory=list)
    """what a person should know"""

    def drop(self, part: str, reason: str, count: int = 1) -> None:
        """Count what is left out."""
        self.dropped[f"{part}: {reason}"] += count


@dataclass(frozen=True)
class File:
    """One file of a task."""

    part: str
    """of the files: train, dev, test, …"""
    path: Path
    form: TaskForm
    header: tuple[str, ...] = ()
    official: bool = False
    """of a public task: a malformed line is counted, and a test example never dropped, since its place counts"""

    @property
    def is_test(self) -> bool:
        """Whether answers may be missing."""
        return self.part.startswith("test")

    @property
    def unscored(self) -> bool:
        """Whether these are pairs that mean the same, without a score."""
        return self.form.kind == "sentence_similarity" and self.part == "train" and self.form.positive_score is None


def read_examples(file: File, counted: Counted) -> Iterator[Example]:
    """The examples of one file, those without text or label left out.

    Raises:
        DataError: a file that can't be read, a column that is missing, a value that can't be what its column holds, an id
            that two questions have.
    """
    if file.form.kind == "span" and plain_name(file.path.name).endswith(".json"):
        yield from _questions(file, counted)
    elif file.form.kind == "tagging" and not is_table(file.path.name):
        yield from _sentences(file, counted)
    elif is_table(file.path.name) or not file.form.quotes:
        yield from _from_records(file, counted)
    else:
        raise DataError(
            f"{file.path} is not a table that can be read", f"Files of a task end in {', '.join(SUFFIXES)}."
        )
    _refuse_repeated_ids(file, counted)


def _refuse_repeated_ids(file: File, counted: Counted) -> None:
    """Raises DataError where questions have the same id: predictions are told apart by it."""
    repeated = {id_: at for (part, id_), at in counted.places.items() if part == file.part and len(at) > 1}
    if repeated:
        named = [f"{id_!r} ({', '.join(at[:SHOWN])})" for id_, at in list(repeated.items())[:SHOWN]]
        more = f" and {len(repeated) - SHOWN:,} more" if len(repeated) > SHOWN else ""
        raise DataError(
            f"{file.path}: {len(repeated):,} id{'s are' if len(repeated) > 1 else ' is'} not of one question only: "
            f"{', '.join(named)}{more}",
            "Give every question an id of its own. In a table, `id` names their column; without one they are numbered.",
        )


def _from_records(file: File, counted: Counted) -> Iterator[Example]:
    records = read_records(file.path, file.form, file.header or file.form.header)
    build = _BUILD[file.form.kind]
    columns, answer = _columns(file.form)
    if file.part == "train" and file.form.negative:
        columns.append(file.form.negative)
    may_lack = file.unscored or (file.is_test and answer not in (records.columns or ()))
    records.require(columns if may_lack else [*columns, answer])
    for number, (line, row) in enumerate(_without_names(file, records.rows, counted), 1):
        counted.read[file.part] += 1
        if row is None and (file.is_test or not file.official):
            raise DataError(
                f"{file.path}, line {line}: not {len(records.columns or ())} values as the columns are",
                "A tab inside a value makes two of it; correct the line.",
            )
        place = _Place(file.path, line)
        made = MALFORMED if row is None else build(file, f"{file.part}:{number}", row, place, counted)
        if isinstance(made, str):
            counted.drop(file.part, made)
        else:
            yield made


def _without_names(
    file: File, rows: Iterator[tuple[int, dict[str, Any] | None]], counted: Counted
) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The records; where `header` names the columns, without a first line that is itself the names."""
    for line, row in rows:
        if file.form.header and row is not None and _is_names(file, line, list(row.values()), list(row), counted):
            break
        yield line, row
        break
    yield from rows


def _is_names(file: File, line: int, values: Sequence[Any], names: Sequence[str], counted: Counted) -> bool:
    """Whether the first line of a file, for which `header` has names, is these names; then it is noted.

    Raises DataError where it has them in another order, so that one of the two must be wrong.
    """
    found = [value.strip().casefold() if isinstance(value, str) else "" for value in values]
    wanted = [name.strip().casefold() for name in names]
    if sorted(found) != sorted(wanted):
        return False
    if found != wanted:
        raise DataError(
            f"{file.path}, line {line}: a line of names, {', '.join(map(repr, values))}, in another order than `header` "
            f"has them: {', '.join(map(repr, names))}",
            "Remove `header`: it is for files without a line of names.",
        )
    counted.notes.append(f"line {line} of {file.part} names the columns as `header` does: it is no example")
    return True


# ── values ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class _Place:
    path: Path
    line: int

    def wrong(self, what: str) -> DataError:
        return DataError(f"{self.path}, line {self.line}: {what}", "Correct the value, or name another column.")

    def text(self, row: dict[str, Any], column: str) -> str:
        """A text; "" where there is none."""
        self.named(row, column, optional=False)
        value = row.get(column)
        return "" if value is None else self.checked(value, column)

    def named(self, row: dict[str, Any], column: str, optional: bool) -> None:
        """DataError where a record has not even the name of what it must have: a wrong name would look like many empty values."""
        if column not in row and not optional:
            raise self.wrong(f"no {column!r}; there is {', '.join(map(repr, row))}")

    def checked(self, value: Any, column: str) -> str:
        if not isinstance(value, str):
            raise self.wrong(f"{column} is no text but {type(value).__name__} {value!r}"[:300])
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self.wrong(f"{column} holds half of a surrogate pair, which is no character") from None
        return value

    def texts(self, row: dict[str, Any], column: str) -> list[str]:
        value = row.get(column)
        if not isinstance(value, list):
            raise self.wrong(f"{column} is no list of texts: {value!r}"[:300])
        return [self.checked(each, column) for each in value]

    def label(self, row: dict[str, Any], column: str, optional: bool) -> str | None:
        """A label as text, "" for an empty one; None where it is not there and need not be."""
        self.named(row, column, optional)
        value = row.get(column)
        if value is None:
            return None if optional else ""
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        return str(value) if isinstance(value, int | float) else self.checked(value, column).strip()

    def number(self, label: str, column: str) -> float:
        """A score."""
        try:
            value = float(label)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise self.wrong(f"{column} is {label!r}, which is no number")
        if abs(value) > LARGEST_SCORE:
            raise self.wrong(f"{column} is {label!r}; training can't tell scores above {LARGEST_SCORE:g} apart")
        return value

    def tag(self, value: Any, form: TaskForm) -> str:
        """A tag; a number is the place of one in `labels`."""
        if isinstance(value, int) and not isinstance(value, bool) and form.labels:
            if not 0 <= value < len(form.labels):
                raise self.wrong(f"{form.tags} holds {value}, but there are {len(form.labels)} labels")
            return form.labels[value]
        return str(value) if isinstance(value, int) else self.checked(value, form.tags).strip()

    def answers(self, row: dict[str, Any], form: TaskForm, optional: bool) -> list[tuple[str, int | None]]:
        """(text, start or None) of every answer."""
        self.named(row, form.answers, optional)
        value = row.get(form.answers)
        if value is None or value == "":
            return []
        if isinstance(value, str):
            start = row.get(form.answer_start) if form.answer_start else None
            return [(self.checked(value, form.answers), self.start(start))]
        if isinstance(value, dict) and isinstance(value.get("text"), list):
            starts = value.get("answer_start") or [None] * len(value["text"])
            if not isinstance(starts, list) or len(starts) != len(value["text"]):
                raise self.wrong(
                    f"{form.answers} has {len(value['text'])} texts, but not as many places: {value!r}"[:300]
                )
            value = [{"text": t, "start": s} for t, s in zip(value["text"], starts, strict=True)]
        if not isinstance(value, list) or not all(isinstance(each, dict) and "text" in each for each in value):
            raise self.wrong(f"{form.answers} holds no answers: {value!r}"[:300])
        return [
            (self.checked(each["text"], form.answers), self.start(each.get("start", each.get("answer_start"))))
            for each in value
        ]

    def start(self, value: Any) -> int | None:
        """Where an answer begins; None: not said."""
        if value is None or value == "":
            return None
        try:
            return int(value)
        except (TypeError, ValueError):
            raise self.wrong(f"an answer begins at {value!r}, which is no number") from None


# ── one kind each ────────────────────────────────────────────────────────────────────────────────────────────────────

LARGEST_SCORE = 1e6
"""its square, and sums of squares, keep their digits in fp32"""
Made = Example | str
"""An example, or why the record is none."""


def _columns(form: TaskForm) -> tuple[list[str], str]:
    """(the columns that every file of records has, that of the answer)."""
    if form.kind == "multiple_choice":
        return [form.text, *form.choices, *([form.choice_start] if form.choice_start else [])], form.label
    if form.kind == "tagging":
        return [form.words], form.tags
    if form.kind == "span":
        return [form.question, form.context], form.answers
    second = form.text_b or ("text_b" if form.kind in ("pair_classification", "sentence_similarity") else "")
    return [form.text, *([second] if second else [])], form.label


def _of_texts(file: File, example_id: str, row: dict[str, Any], place: _Place, counted: Counted) -> Made:
    """classification, pair_classification, regression"""
    columns, label_column = _columns(file.form)
    texts = [place.text(row, column) for column in columns]
    label = _label(file, row, place, label_column)
    if not all(text.strip() for text in texts) and not _kept_whole(file):
        return EMPTY_TEXT
    if label == "":
        return EMPTY_LABEL
    values = {"text_a": texts[0], "text_b": texts[1] if len(texts) > 1 else None}
    same = squeezed(*texts)
    answer = place.number(label, label_column) if file.form.kind == "regression" and label is not None else label
    return Example(example_id, values, answer, same, same)


def _of_sentences(file: File, example_id: str, row: dict[str, Any], place: _Place, counted: Counted) -> Made:
    """sentence_similarity"""
    form = file.form
    columns, score_column = _columns(form)
    texts = [place.text(row, column) for column in columns]
    negative = place.text(row, form.negative).strip() if form.negative and file.part == "train" else ""
    score = None if file.unscored else _label(file, row, place, score_column)
    if not all(text.strip() for text in texts) and not _kept_whole(file):
        return EMPTY_TEXT
    if score == "":
        return EMPTY_LABEL
    if negative and squeezed(negative) in map(squeezed, texts):
        return OWN_NEGATIVE
    values = {"text_a": texts[0], "text_b": texts[1], "negative": negative or None}
    same = squeezed(*texts)
    return Example(example_id, values, None if score is None else place.number(score, score_column), same, same)


def _of_choices(file: File, example_id: str, row: dict[str, Any], place: _Place, counted: Counted) -> Made:
    form = file.form
    text = place.text(row, form.text)
    if len(form.choices) == 1:
        choices = place.texts(row, form.choices[0])
    else:
        choices = [place.text(row, column) for column in form.choices]
    label = _label(file, row, place, form.label)
    if not all(each.strip() for each in (text, *choices)) and not _kept_whole(file):
        return EMPTY_TEXT
    if label == "":
        return EMPTY_LABEL
    if len(choices) < 2:
        raise place.wrong(f"{len(choices)} choices; there must be two at least")
    if label is not None and label not in map(str, range(len(choices))):
        raise place.wrong(
            f"{form.label} is {label!r}; it must be the number of the right choice, 0 to {len(choices) - 1}"
        )
    if form.choice_start:
        start = place.text(row, form.choice_start)
        choices = [f"{start} {choice}" if start else choice for choice in choices]
    same = squeezed(text, *choices)
    return Example(
        example_id, {"text_a": text, "choices": choices}, None if label is None else int(label), same, squeezed(text)
    )


def _of_words(file: File, example_id: str, row: dict[str, Any], place: _Place, counted: Counted) -> Made:
    """tagging, from records: two columns of lists"""
    form = file.form
    words = place.texts(row, form.words)
    place.named(row, form.tags, optional=file.is_test)
    tags = row.get(form.tags)
    if tags is None and not file.is_test:
        return EMPTY_LABEL
    if not words:
        return EMPTY_TEXT
    if tags is not None:
        if not isinstance(tags, list) or len(tags) != len(words):
            raise place.wrong(f"{form.tags} is no list of {len(words)} tags, one for each word")
        tags = [place.tag(tag, form) for tag in tags]
    return _tagged(example_id, words, tags, None)


def _of_question(file: File, example_id: str, row: dict[str, Any], place: _Place, counted: Counted) -> Made:
    """span, from records: answers as SQuAD's {text: […], answer_start: […]}, as a list of {text, start}, or as one text"""
    form = file.form
    title = row.get(form.document)
    found = squad.Question(
        place=f"line {place.line}",
        id=place.label(row, form.id, optional=True) or example_id,
        question=place.text(row, form.question),
        context=place.text(row, form.context),
        title=None if title is None else place.checked(title, form.document),
        answers=place.answers(row, form, optional=file.is_test),
        impossible=None,
    )
    known = row.get(form.answers) is not None or not file.is_test
    return _placed(file, found, not found.answers if known else None, counted)


_BUILD = {
    "classification": _of_texts,
    "pair_classification": _of_texts,
    "regression": _of_texts,
    "sentence_similarity": _of_sentences,
    "multiple_choice": _of_choices,
    "tagging": _of_words,
    "span": _of_question,
}


def _label(file: File, row: dict[str, Any], place: _Place, column: str) -> str | None:
    label = place.label(row, column, optional=file.is_test)
    return None if label == "" and file.is_test else label


def with_answers(part: str, examples: list[Example], answer: str, counted: Counted) -> list[Example]:
    """A user's test part: where some answers are known, the examples without one are dropped, since they can't be scored; where
    none is, all stay, to be answered, and that is noted."""
    known = [each for each in examples if each.label is not None or each.values.get("impossible") is not None]
    if not known and examples:
        counted.notes.append(f"no example of {part} has an answer in {answer!r}: they are answered, and not scored")
    if not known or len(known) == len(examples):
        return examples
    counted.drop(part, EMPTY_LABEL, len(examples) - len(known))
    return known


def answer_column(form: TaskForm) -> str:
    """The column that holds the answers."""
    return _columns(form)[1]


def _kept_whole(file: File) -> bool:
    """Whether every record has to stay: predictions of an official test set are told apart by their place."""
    return file.official and file.is_test


def _tagged(example_id: str, words: list[str], tags: list[str] | None, document: str | None) -> Example:
    same = squeezed(" ".join(words))
    return Example(example_id, {"words": words, "document_id": document}, tags, same, document or same)


# ── files that are not made of records ───────────────────────────────────────────────────────────────────────────────


def _sentences(file: File, counted: Counted) -> Iterator[Example]:
    names = file.header or file.form.header
    word, tag = 0, -1
    if names:
        places = {name: number for number, name in enumerate(names)}
        missing = [name for name in (file.form.words, file.form.tags) if name not in places]
        if missing:
            raise DataError(
                f"`header` of {file.path.name} names no column {missing[0]!r}; it has {', '.join(names)}",
                "Name the columns of words and tags as `words` and `tags`.",
            )
        word, tag = places[file.form.words], places[file.form.tags]
    for number, sentence in enumerate(_sentences_without_names(file, word, tag, counted), 1):
        counted.read[file.part] += 1
        if sentence.tags is None and not file.is_test:
            raise DataError(f"{file.path}, line {sentence.line}: words without tags", "Only a test part may lack them.")
        document = f"{file.part}:{sentence.document}" if sentence.document else None
        yield _tagged(f"{file.part}:{number}", sentence.words, sentence.tags, document)


def _sentences_without_names(file: File, word: int, tag: int, counted: Counted) -> Iterator[conll.Sentence]:
    """The sentences; where `header` names the columns, without a first line that is itself the names."""
    sentences = conll.read_sentences(file.path, word, tag)
    names = (file.form.words, file.form.tags)
    for first in sentences if file.form.header else ():
        if first.tags and _is_names(file, first.line, (first.words[0], first.tags[0]), names, counted):
            first = conll.Sentence(first.line + 1, first.document, first.words[1:], first.tags[1:])
        if first.words:
            yield first
        break
    yield from sentences


def _questions(file: File, counted: Counted) -> Iterator[Example]:
    for found in squad.read_squad(file.path):
        counted.read[file.part] += 1
        made = _placed(file, found, found.impossible, counted)
        if isinstance(made, str):
            counted.drop(file.part, made)
        else:
            yield made


def _placed(file: File, found: squad.Question, impossible: bool | None, counted: Counted) -> Made:
    """A question with its answers where they stand. In train, an answer that stands nowhere is no answer."""
    if not found.question.strip() or not found.context.strip():
        return EMPTY_TEXT
    answers = []
    for text, said in found.answers:
        start, how = squad.place(found.context, text, said)
        counted.answers[how] += 1
        if start is not None or file.part != "train":
            answers.append({"text": text, "start": start})
    if impossible is None and not file.is_test:
        return NO_ANSWER  # neither an answer, nor said to have none
    if impossible is False and not answers and not file.is_test:
        return NO_ANSWER
    values = {"question": found.question, "context": found.context, "title": found.title}
    same = squeezed(found.question, found.context)
    group = found.title or squeezed(found.context)
    counted.places.setdefault((file.part, found.id), []).append(found.place)
    return Example(found.id, values | {"answers": answers, "impossible": impossible}, None, same, group)
