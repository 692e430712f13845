"""Words are counted as BERT's own normaliser and pre-tokeniser make them of the whole text, whatever the parts and the workers."""

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import normalizers, pre_tokenizers

from pipeline.errors import DataError
from pipeline.schemas import DOCUMENTS_SCHEMA
from pipeline.stage import ROOT
from pipeline.words import word_counts
from pipeline.words.word_counts import Words, count_words
from tests.conftest import shared

ODD = "Ångström,\x1cde\u0301ja\u0301\x85vu\u00a0x\u2028y\u3000z 漢字kanji\t[MASK]##a don't\r\n\u200bEnd\ufffd. İI ß a\x00b.c\x01"
CASES = [(True, True), (True, False), (False, True), (False, False)]


def of_library(texts: Sequence[str], lowercase: bool, strip_accents: bool) -> Counter[str]:
    """Of every text as a whole."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip_accents)
    splitter = pre_tokenizers.BertPreTokenizer()
    return Counter(word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))


def documents(folder: Path, parts: Sequence[Sequence[tuple[str, str]]], group_rows: int = 1000) -> Path:
    """(split, text) of the documents of every file."""
    folder.mkdir(parents=True)
    for number, part in enumerate(parts):
        rows: list[dict[str, Any]] = [
            {
                "doc_id": f"s:{number}:{i}",
                "source": "s",
                "text": text,
                "split": split,
                "sentence_ends": [],
                "repeat": 1.0,
            }
            for i, (split, text) in enumerate(part)
        ]
        table = pa.Table.from_pylist(rows, DOCUMENTS_SCHEMA)
        pq.write_table(table, folder / f"part-{number:05d}.parquet", row_group_size=group_rows)
    return folder


def counts(words: Words) -> dict[str, int]:
    listed = words.words.to_pylist()
    assert len(set(listed)) == len(listed)
    return dict(zip(listed, words.counts.tolist(), strict=True))


def count(folder: Path, scratch: Path, workers: int = 1, case: tuple[bool, bool] = (True, True)) -> dict[str, Words]:
    scratch.mkdir()
    return count_words(folder, scratch, lowercase=case[0], strip_accents=case[1], worker_count=workers)


@pytest.mark.parametrize("case", CASES)
def test_odd_characters(tmp_path: Path, case: tuple[bool, bool]) -> None:
    texts = [ODD, ODD[::-1], "", " \n", "".join(chr(n) + " " * (n % 50 == 0) for n in range(0x2600))]
    found = count(documents(tmp_path / "d", [[("train", text) for text in texts]]), tmp_path / "s", case=case)
    assert counts(found["train"]) == of_library(texts, *case)
    assert counts(found["held_out"]) == {}


@given(
    st.lists(
        st.text(st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("aZ .-\u0301İΣ\x00漢"))), max_size=8
    )
)
@settings(max_examples=300, deadline=None)
@pytest.mark.parametrize("case", CASES)
def test_any_text(case: tuple[bool, bool], texts: list[str]) -> None:
    maker = word_counts._Maker(lowercase=case[0], strip_accents=case[1])
    table, long = maker.words(pa.array(texts, pa.large_string()))
    assert dict(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True)) == of_library(texts, *case)
    assert not long


def test_real_text_in_files_row_groups_and_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shared("data/books/novels/Doyle_Hound_1902.txt").read_text(encoding="utf-8-sig")
    rows = [("held_out" if n % 7 == 0 else "train", part) for n, part in enumerate(re.split(r"\n\n+", text))]
    wanted = {
        split: of_library([text for each, text in rows if each == split], True, True) for split in ("train", "held_out")
    }
    monkeypatch.setattr(word_counts, "WORK_PER_WORKER", 1)
    monkeypatch.setattr(word_counts, "FILES_PER_WORKER", 4)
    monkeypatch.setattr(word_counts, "TASK_BYTES", 50_000)
    for number, (files, workers) in enumerate([(1, 1), (2, 2), (5, 8)]):
        random.Random(number).shuffle(rows)
        folder = documents(tmp_path / f"d{number}", [rows[i::files] for i in range(files)], group_rows=100 + number)
        assert len(word_counts._tasks(folder, tmp_path, {})) > files
        found = count(folder, tmp_path / f"s{number}", workers)
        assert {split: counts(words) for split, words in found.items()} == wanted


def test_words_that_are_too_long_are_counted_with_their_characters(tmp_path: Path) -> None:
    texts = ["x" * 200 + " " + "yz" * 101, "yz" * 101 + " é" + "w" * 200, "漢" * 300]
    found = count(documents(tmp_path / "d", [[("train", text)] for text in texts]), tmp_path / "s")["train"]
    assert counts(found) == {"x" * 200: 1, "漢": 300}
    assert (found.long, found.total) == (3, 304)
    assert found.long_characters == {"y": 202, "z": 202, "w": 200, "e": 1}


def test_a_broken_file_and_a_split_that_is_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"part-00000.parquet: 1 documents of row group 0 are of no split"):
        count(documents(tmp_path / "d", [[("dev", "a"), ("train", "b")]]), tmp_path / "s")
    folder = documents(tmp_path / "e", [[("train", "b")]])
    (folder / "part-00000.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"part-00000.parquet can't be read"):
        count(folder, tmp_path / "t")


PEAK = """
import sys; from pathlib import Path; from pipeline.words.word_counts import count_words
def peak():
    return int(next(line for line in open('/proc/self/status') if line.startswith('VmHWM')).split()[1])
small, large, scratch = map(Path, sys.argv[1:])
peaks = []
for folder in (small, large):
    (scratch / folder.name).mkdir(parents=True)
    count_words(folder, scratch / folder.name, lowercase=True, strip_accents=True, worker_count=1)
    peaks.append(peak())
print(*peaks)
"""


def test_memory_does_not_follow_the_text(tmp_path: Path) -> None:
    """Twelve times the text, the same words: 10 MB against 120 MB. What is added is less than a fifth of what is read more."""
    draw = random.Random(1)
    stems = ["".join(draw.choices("abcdefghij", k=8)) for _ in range(2000)]
    text: Mapping[int, str] = {i: " ".join(draw.choices(stems, k=1_000_000 // 9)) for i in range(2)}
    small = documents(tmp_path / "small", [[("train", text[i % 2]) for i in range(10)]], group_rows=4)
    large = documents(tmp_path / "large", [[("train", text[i % 2]) for i in range(120)]], group_rows=4)
    command = [sys.executable, "-c", PEAK, str(small), str(large), str(tmp_path / "scratch")]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    first, second = map(int, done.stdout.split())
    assert second - first < 22_000, f"{first} kB, then {second} kB"
