"""Entities and their F1: by hand, against conlleval's definition, and numbers that conlleval and seqeval gave."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from model.scoring.column_files import read_tagged
from model.scoring.command import score
from model.scoring.entities import Counts, Entity, added, counts_by_type, entities, entity_f1
from pipeline.errors import DataError
from tests.conftest import shared


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("O O", []),
        ("B-PER I-PER O", [(0, 2, "PER")]),
        ("I-PER I-PER O", [(0, 2, "PER")]),  # IOB1, and what no B- opened
        ("I-PER B-PER I-PER", [(0, 1, "PER"), (1, 3, "PER")]),  # IOB1: two that touch
        ("B-PER B-PER", [(0, 1, "PER"), (1, 2, "PER")]),
        ("I-PER I-LOC", [(0, 1, "PER"), (1, 2, "LOC")]),
        ("B-PER I-LOC I-LOC", [(0, 1, "PER"), (1, 3, "LOC")]),
        ("O I-creative-work I-creative", [(1, 2, "creative-work"), (2, 3, "creative")]),
        ("", []),
    ],
)
def test_entities_of_tags(tags: str, expected: list[tuple[int, int, str]]) -> None:
    assert entities(tags.split()) == [Entity(*each) for each in expected]


def conlleval_starts(tags: list[str]) -> list[int]:
    """Where conlleval's startOfChunk is true, by its table of previous and present tag."""
    starts = []
    for at, (before, tag) in enumerate(pairwise(["O", *tags])):
        (was, _, old), (prefix, _, new) = before.partition("-"), tag.partition("-")
        if (was, prefix) in {("B", "B"), ("I", "B"), ("O", "B"), ("O", "I")} or (prefix != "O" and old != new):
            starts.append(at)
    return starts


def test_entities_begin_and_end_where_conlleval_says() -> None:
    random = np.random.default_rng(1)
    for _ in range(500):
        tags = random.choice(["O", "B-A", "I-A", "B-B", "I-B"], size=random.integers(1, 9)).tolist()
        found = entities(tags)
        assert [entity.start for entity in found] == conlleval_starts(tags)
        for entity in found:
            assert all(tag == f"I-{entity.type}" for tag in tags[entity.start + 1 : entity.end])
            assert entity.end == len(tags) or tags[entity.end] != f"I-{entity.type}"


def test_counts_precision_recall_and_f1() -> None:
    gold = ["B-PER", "I-PER", "O", "B-LOC", "B-ORG", "O", "B-LOC"]
    given = ["B-PER", "I-PER", "O", "B-LOC", "I-ORG", "I-ORG", "B-PER"]  # right: PER, LOC; ORG too long; LOC called PER
    counts = counts_by_type(gold, given)
    assert counts == {"LOC": Counts(2, 1, 1), "ORG": Counts(1, 1, 0), "PER": Counts(1, 2, 1)}
    total = added(counts.values())
    assert (total.precision, total.recall, total.f1) == (2 / 4, 2 / 4, 0.5)
    assert counts["LOC"].f1 == pytest.approx(2 * 1 * 0.5 / 1.5)
    assert entity_f1([gold, ["O"]], [given, ["I-LOC"]]) == pytest.approx(2 * (2 / 5) * (2 / 4) / (2 / 5 + 2 / 4))
    assert (Counts(0, 0, 0).f1, Counts(0, 0, 0).precision, Counts(0, 0, 0).recall) == (0, 0, 0)


GOLD = """-DOCSTART- -X- O O

U.N. NNP B-ORG I-ORG
official NN O O
Ekeus NNP B-PER I-PER

Paris NNP B-LOC I-LOC
"""
PREDICTED = "U.N. B-ORG\nofficial O\nEkeus B-PER\n\nParis\tB-ORG\n"


def files(folder: Path, gold: str, predicted: str) -> tuple[Path, Path]:
    for name, text in (("gold.txt", gold), ("pred.txt", predicted)):
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder / "gold.txt", folder / "pred.txt"


def test_gold_in_iob1_and_predictions_in_iob2(tmp_path: Path) -> None:
    found = score("conll2003", *files(tmp_path, GOLD, PREDICTED))
    points = {(row["part"], row["metric"]): (row["points"], row["count"]) for row in found["scores"]}
    assert points["", "entity_f1"] == (pytest.approx(100 * 2 / 3), 3)
    assert points["ORG", "precision"] == (50, 1) and points["ORG", "recall"] == (100, 1)
    assert points["LOC", "entity_f1"] == (0, 1)
    assert points["", "token_accuracy"] == (25, 4), "tags are compared as they stand"
    assert found["interval"]["unit"] == "sentences", "one document can't be drawn from"


def test_what_is_predicted_beside_the_gold_types(tmp_path: Path) -> None:
    wrong = PREDICTED.replace("Paris\tB-ORG", "Paris\tB-CITY")
    found = score("ner", *files(tmp_path, GOLD, wrong))
    assert found["notes"] == ["types that the gold file never has, counted as wrong: 'CITY'"]
    nothing = "".join(f"{line.split()[0]} O\n" if line else "\n" for line in PREDICTED.splitlines())
    assert score("ner", *files(tmp_path, GOLD, nothing))["notes"] == ["no entity is predicted"]


def test_separators_of_white_space_crlf_and_documents(tmp_path: Path) -> None:
    path, _ = files(tmp_path, "\ufeff\t\r\na\tB-X\r\n \t \r\n\r\n-DOCSTART- O\r\nb\u00a0c  I-X\r\nd O\r\n\r\n", "")
    sentences = read_tagged(path)
    assert [(s.words, s.tags, s.line, s.document) for s in sentences] == [
        (["a"], ["B-X"], 2, 0),
        (["b\u00a0c", "d"], ["I-X", "O"], 6, 1),
    ]


@pytest.mark.parametrize(
    ("predicted", "said"),
    [
        (
            PREDICTED.replace("Ekeus", "Rolf"),
            r"pred\.txt, line 3: the token 'Rolf', but .*gold\.txt, line 5, has 'Ekeus'",
        ),
        (PREDICTED.replace("\n\n", "\n"), r"pred\.txt, line 1: a sentence of 4 tokens, but in .*gold\.txt, line 3"),
        (PREDICTED.partition("\n\n")[0], r"pred\.txt has 1 sentences, .*gold\.txt has 2"),
        (PREDICTED.replace("Ekeus B-PER\n", ""), r"pred\.txt, line 1: a sentence of 2 tokens"),
        (PREDICTED.replace("B-PER", ""), r"pred\.txt, line 3: 1 columns, but the lines before have 2: 'Ekeus'"),
        ("U.N.\nofficial\nEkeus\n\nParis\n", r"pred\.txt, line 1: 'U\.N\.' has no tag"),
        (PREDICTED.replace("B-PER", "S-PER"), r"pred\.txt, line 3: the tag 'S-PER' is not O, B-TYPE or I-TYPE"),
        (PREDICTED.replace("B-PER", "B-"), r"the tag 'B-' is not"),
        (PREDICTED.replace("B-PER", "B-CITY"), r"pred\.txt, line 3: 'CITY' is no type"),
        ("", r"pred\.txt holds no tokens"),
        ("-DOCSTART- O\n", r"pred\.txt holds no tokens"),
    ],
)
def test_predictions_that_are_refused(tmp_path: Path, predicted: str, said: str) -> None:
    with pytest.raises(DataError, match=said) as refused:
        score("conll2003", *files(tmp_path, GOLD, predicted))
    assert refused.value.todo


@pytest.mark.parametrize(
    ("task", "name", "counts", "f1", "drawn", "unit"),
    [
        ("wnut17", "emerging.test.annotated", Counts(1079, 2789, 764), 39.50361944157187, 1287, "sentences"),
        ("ner", "wikigold.conll.txt", Counts(3558, 6178, 2266), 46.548890714872634, 145, "documents"),
    ],
)
def test_real_files_with_broken_tags_score_as_conlleval_and_seqeval_said(
    tmp_path: Path, task: str, name: str, counts: Counts, f1: float, drawn: int, unit: str
) -> None:
    """conlleval 0.2 (a port of the official script) and seqeval 1.2.2 on the same tags: every 7th token is O, every 11th
    begins something.
    """
    gold = shared(f"data/finetune/ner/{name}")
    sentences = read_tagged(gold)
    types = sorted({tag[2:] for sentence in sentences for tag in sentence.tags if tag != "O"})
    number, lines = 0, []
    for sentence in sentences:
        for token, tag in zip(sentence.words, sentence.tags, strict=True):
            number += 1
            broken = "O" if number % 7 == 0 else f"I-{types[number % len(types)]}" if number % 11 == 0 else tag
            lines.append(f"{token}\t{broken}")
        lines.append("")
    _, predictions = files(tmp_path, "", "\n".join(lines))
    found = score(task, gold, predictions)
    rows = {(row["part"], row["metric"]): row for row in found["scores"]}
    assert rows["", "entity_f1"]["points"] == pytest.approx(f1, abs=1e-9)
    assert rows["", "entity_f1"]["count"] == counts.gold
    assert rows["", "precision"]["points"] == pytest.approx(100 * counts.right / counts.predicted)
    assert rows["", "entity_f1"]["low"] < f1 < rows["", "entity_f1"]["high"]
    assert (found["interval"]["drawn"], found["interval"]["unit"]) == (drawn, unit)
