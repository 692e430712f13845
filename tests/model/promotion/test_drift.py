"""The population stability index, against hand calculation."""

import math
from pathlib import Path

import numpy as np
import pytest

from model.promotion import drift
from pipeline.schemas import DOCUMENTS_SCHEMA, write_parts


def document(doc_id: str, source: str, length: int, split: str = "train") -> dict[str, object]:
    return {
        "doc_id": doc_id,
        "source": source,
        "text": "x" * length,
        "split": split,
        "sentence_ends": [length // 2, length] if length > 1 else [length],
        "repeat": 1.0,
    }


def corpus(folder: Path, *documents: dict[str, object]) -> Path:
    folder.mkdir()
    write_parts(documents, DOCUMENTS_SCHEMA, folder)
    return folder


def test_two_bins_by_hand() -> None:
    by_hand = (0.5 - 0.25) * math.log(0.5 / 0.25) + (0.5 - 0.75) * math.log(0.5 / 0.75)
    assert drift.index(np.array([0.5, 0.5]), np.array([0.25, 0.75])) == pytest.approx(by_hand)
    assert drift.index(np.array([1.0, 0.0]), np.array([1.0, 0.0])) == 0


def test_lengths_and_sources_of_the_training_part(tmp_path: Path) -> None:
    some = [document(f"a{n}", "wiki", 100 + n) for n in range(100)]
    old = drift.profile(corpus(tmp_path / "old", *some, document("h", "wiki", 9999, "held_out")))
    assert old.characters == sum(100 + n for n in range(100)) and old.by_source == {"wiki": old.characters}
    assert drift.of_lengths(old, old) == 0 and drift.of_sources(old, old) == 0
    # All in the tenth of the longest: its share goes from 0.1 to 1, that of the nine others from 0.1 to none.
    new = drift.profile(corpus(tmp_path / "new", *[document(f"b{n}", "wiki", 500) for n in range(10)]))
    least = drift.LEAST_SHARE
    by_hand = (1 - 0.1) * math.log(1 / 0.1) + 9 * (least - 0.1) * math.log(least / 0.1)
    assert drift.of_lengths(new, old) == pytest.approx(by_hand)
    half = drift.profile(corpus(tmp_path / "half", document("c", "wiki", 10), document("d", "books", 10)))
    by_hand = (0.5 - 1) * math.log(0.5 / 1) + (0.5 - least) * math.log(0.5 / least)
    assert drift.of_sources(half, old) == pytest.approx(by_hand)


def test_a_corpus_that_did_not_change_stays_below_a_tenth(tmp_path: Path) -> None:
    """Two draws of 2,000 lengths of one distribution. Tolerance 0.1, what the source calls no change; seed 3. Expected: about
    (bins - 1) · (1/n + 1/m) = 0.009."""
    random = np.random.default_rng(3)
    drawn = [drift.Profile(1, np.sort(random.lognormal(6, 1, 2000).astype(np.int64)), {"wiki": 1}) for _ in range(2)]
    assert 0 < drift.of_lengths(*drawn) < 0.1
