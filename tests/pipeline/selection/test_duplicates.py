"""MinHash against exact Jaccard similarity and against datasketch; groups against what they must be by hand."""

import random
from pathlib import Path

import numpy as np
import pytest

from pipeline.selection import duplicates
from pipeline.selection.duplicates import (
    PERMUTATIONS,
    band_rows,
    bands,
    estimates,
    first_of_equals,
    near_duplicates,
    ranks,
)
from pipeline.selection.ngrams import words

WORDS = [f"word{number}" for number in range(2000)]


def text(draw: random.Random, length: int = 300) -> list[str]:
    return [draw.choice(WORDS) for _ in range(length)]


def shingles(words: list[str]) -> set[tuple[str, ...]]:
    return {tuple(words[i : i + 5]) for i in range(len(words) - 4)} or {tuple(words)}


def jaccard(one: list[str], other: list[str]) -> float:
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b)


def signed(folder: Path, texts: list[list[str]]) -> tuple[np.ndarray, Path]:
    signatures, _ = duplicates.signatures(*words([" ".join(each) for each in texts]), len(texts))
    path = folder / "signatures"
    path.write_bytes(signatures.astype(np.uint16).tobytes())
    return signatures, path


def grouped(folder: Path, texts: list[list[str]], threshold: float = 0.8, rank: list[int] | None = None) -> list[int]:
    signatures, path = signed(folder, texts)
    rows = band_rows(threshold)
    numbers = bands(signatures, rows)
    order = np.array(rank if rank is not None else range(len(texts)))
    near = near_duplicates(np.arange(len(texts)), order, lambda n: numbers[n], len(numbers), path, threshold)
    assert (near.similarity >= threshold).all()
    return near.kept.tolist()


def varied(draw: random.Random, base: list[str], changes: int) -> list[str]:
    """The text with words changed at places far from each other: each changes five 5-grams."""
    found = list(base)
    for place in draw.sample(range(5, len(base) - 5, 10), changes):
        found[place] = "changed" + str(draw.random())
    return found


def test_estimates_are_the_jaccard_similarity_within_their_error_and_no_worse_than_datasketch(tmp_path: Path) -> None:
    datasketch = pytest.importorskip("datasketch", reason="a development dependency")
    draw = random.Random(1)
    pairs = [(base, varied(draw, base, draw.randint(0, 25))) for base in (text(draw) for _ in range(200))]
    _, path = signed(tmp_path, [each for pair in pairs for each in pair])
    exact = np.array([jaccard(*pair) for pair in pairs])
    ours = estimates(path, np.arange(0, 400, 2), np.arange(1, 400, 2))

    def theirs(words: list[str]) -> "datasketch.MinHash":
        found = datasketch.MinHash(num_perm=PERMUTATIONS)
        found.update_batch([" ".join(each).encode() for each in shingles(words)])
        return found

    other = np.array([theirs(a).jaccard(theirs(b)) for a, b in pairs])
    deviation = np.sqrt(exact * (1 - exact) / PERMUTATIONS) + 1e-9
    assert exact.min() < 0.5 and exact.max() == 1
    assert np.abs((ours - exact) / deviation).max() < 4.5  # of 200 draws of a normal distribution: p < 0.002
    assert np.sqrt(np.mean((ours - exact) ** 2)) < 1.2 * np.sqrt(np.mean((other - exact) ** 2))


def test_documents_under_five_words_are_one_run(tmp_path: Path) -> None:
    signatures, any_word = duplicates.signatures(*words(["one two", "One, two!", "one two three", "", "...", "one"]), 6)
    equal = (signatures[0] == signatures).mean(axis=1)
    assert equal[:3].tolist() == [1, 1, 0] and equal[5] < 0.05
    assert any_word.tolist() == [True, True, True, False, False, True]


def test_bands_are_as_selective_as_the_threshold_allows() -> None:
    """1 − (1 − 0.8⁸)³² = 0.9972 and 1 − (1 − 0.8⁹)²⁸ = 0.982."""
    assert band_rows(0.8) == 8
    for threshold in (0.5, 0.65, 0.9, 0.99):
        rows = band_rows(threshold)
        chances = [1 - (1 - threshold**r) ** (PERMUTATIONS // r) for r in (rows, rows + 1)]
        assert chances[0] >= 0.99 > chances[1]


def test_near_duplicates_are_found_and_others_are_not(tmp_path: Path) -> None:
    """Two changes: J = 286/306 = 0.93; 20 changes: J = 196/396 = 0.49."""
    draw = random.Random(2)
    texts, expected = [], []
    for base in (text(draw) for _ in range(100)):
        expected += [len(texts)] * 2 + [len(texts) + 2]
        texts += [base, varied(draw, base, 2), varied(draw, base, 20)]
    assert grouped(tmp_path, texts) == expected


@pytest.mark.parametrize("seed", range(5))
def test_who_stays_follows_from_the_rank_whatever_the_order(seed: int, tmp_path: Path) -> None:
    draw = random.Random(3)
    texts = [varied(draw, base, draw.randint(0, 4)) for base in (text(draw) for _ in range(20)) for _ in range(6)]
    rank = list(range(len(texts)))
    draw.shuffle(rank)
    expected = {" ".join(texts[i]): " ".join(texts[kept]) for i, kept in enumerate(grouped(tmp_path, texts, rank=rank))}
    order = list(range(len(texts)))
    random.Random(seed).shuffle(order)
    mixed = [texts[i] for i in order]
    kept = grouped(tmp_path, mixed, rank=[rank[i] for i in order])
    assert {" ".join(mixed[i]): " ".join(mixed[k]) for i, k in enumerate(kept)} == expected


def test_a_chain_of_small_steps_does_not_drop_what_differs_from_the_one_that_stays(tmp_path: Path) -> None:
    """Each step changes one word of 300 more: neighbours have J = 0.967, the ends of the chain 0.37."""
    draw = random.Random(4)
    chain = [text(draw)]
    for step in range(27):
        chain.append(list(chain[-1]))
        chain[-1][10 + 10 * step] = f"changed{step}"
    kept = grouped(tmp_path, chain)
    assert 3 <= len(set(kept)) <= 7 and kept[0] == 0
    assert all(jaccard(chain[i], chain[k]) > 0.7 for i, k in enumerate(kept))


def test_very_many_different_documents_in_one_band_take_linear_work(tmp_path: Path) -> None:
    draw = random.Random(5)
    texts = [text(draw, 30) for _ in range(3000)]
    _, path = signed(tmp_path, texts)
    compared = 0

    def counting(*arguments: np.ndarray) -> np.ndarray:
        nonlocal compared
        compared += len(arguments[1])
        return estimates(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duplicates, "estimates", counting)
        same = np.zeros(3000, np.uint32)
        near = near_duplicates(np.arange(3000), np.arange(3000), lambda n: same, 2, path, 0.8)
    assert near.kept.tolist() == list(range(3000))
    assert 0 < compared <= 2 * duplicates.ROUNDS * 3000


def test_the_first_of_equals() -> None:
    rank = ranks(np.array([3, 1, 2, 0, 1]), np.array([0, 2, 0, 0, 1]))
    assert rank.tolist() == [4, 2, 3, 0, 1]
    keys = np.array([7, 7, 8, 7, 8]), np.array([1, 1, 1, 2, 1])
    assert first_of_equals(np.array([0, 1, 2, 3, 4]), rank, *keys).tolist() == [1, 1, 4, 3, 4]
    assert first_of_equals(np.array([0, 2]), rank, *keys).tolist() == [0, 2]
    assert first_of_equals(np.zeros(0, np.int64), rank, *keys).tolist() == []
