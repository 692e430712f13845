"""Runs of thirteen words that documents share with benchmarks."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import Benchmark
from pipeline.errors import DataError, SourceError
from pipeline.selection.decontamination import read_benchmark, touched
from pipeline.selection.ngrams import words

ANIMALS = "ant bear cat dog eel fox goat hare ibex jay kite lark mole newt owl"  # fifteen words: three runs


def benchmark(path: Path, *columns: str) -> Benchmark:
    return Benchmark.model_validate({"from": {"path": str(path)}, "columns": columns})


def test_a_document_is_touched_by_thirteen_words_in_a_row(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text(f"{ANIMALS}\nshort\n", encoding="utf-8")
    runs = read_benchmark("b", benchmark(tmp_path / "b.txt"), tmp_path)
    assert (len(runs.hashes), runs.texts, runs.measurable) == (3, 2, 1)
    thirteen = "He saw: BEAR, cat dog eel fox goat hare ibex jay kite lark mole newt!"
    twelve = "bear cat dog eel fox goat hare ibex jay kite lark mole and newt"
    found = touched(*words([twelve, thirteen, "", ANIMALS]), {"b": runs.hashes, "a": np.array([5], np.uint64)})
    assert found == {1: ["b"], 3: ["b"]}


def test_every_kind_of_file(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    texts = [" ".join(f"{kind}{number}" for number in range(13)) for kind in "abcdef"]
    (folder / "a.jsonl").write_text(f'{{"q": "{texts[0]}", "n": 3}}\n\n{{"q": ["{texts[1]}", 2]}}\n')
    (folder / "b.csv").write_text(f'n,q\n1,"{texts[2]}"\n')
    (folder / "c.tsv").write_text(f"q\tn\n{texts[3]}\t1\n")
    (folder / "d.txt").write_text(texts[4])
    (folder / "README.md").write_text("no text of the benchmark")
    pq.write_table(pa.table({"q": [texts[5], None], "n": [1, 2]}), folder / "e.parquet")
    runs = read_benchmark("b", benchmark(folder, "q"), tmp_path)
    assert runs.measurable == runs.texts == len(runs.hashes) == 6
    assert set(touched(*words(texts), {"b": runs.hashes})) == set(range(6))


def test_without_columns_tables_are_read_by_line(tmp_path: Path) -> None:
    (tmp_path / "b.tsv").write_text(f"id\ttext\n7\t{ANIMALS}\n", encoding="utf-8")
    runs = read_benchmark("b", benchmark(tmp_path / "b.tsv"), tmp_path)
    assert runs.texts == 2 and touched(*words([ANIMALS]), {"b": runs.hashes}) == {0: ["b"]}


@pytest.mark.parametrize(
    ("name", "content", "columns", "said"),
    [
        ("b.txt", b"too short\n", (), "none of its 1 texts has 13 words"),
        ("b.md", b"text", (), "holds no .tsv"),
        ("b.jsonl", b'{"q": "x"}\n{"q": \n', ("q",), r"b\.jsonl, line 2: no JSON"),
        ("b.jsonl", b'{"p": "x"}\n', ("q",), r"b\.jsonl, line 1: no key 'q'"),
        ("b.csv", b"p\nx\n", ("q",), "has no column 'q'"),
        ("b.txt", b"fine\n\xff\n", (), r"b\.txt, line 2: not UTF-8"),
        ("b.parquet", b"PAR1", ("q",), r"b\.parquet can't be read"),
    ],
)
def test_what_cannot_be_used_is_named(
    name: str, content: bytes, columns: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_benchmark("b", benchmark(tmp_path / name, *columns), tmp_path)


def test_a_parquet_file_needs_columns_and_a_file_must_be_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"q": [ANIMALS]}), tmp_path / "b.parquet")
    with pytest.raises(DataError, match="no columns are named; it has q"):
        read_benchmark("b", benchmark(tmp_path / "b.parquet"), tmp_path)
    with pytest.raises(SourceError, match="does not exist"):
        read_benchmark("b", benchmark(tmp_path / "none.txt"), tmp_path)
