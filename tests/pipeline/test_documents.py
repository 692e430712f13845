"""The documents table: every document in is a document out or a counted reason, in an order of its own."""

import hashlib
import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import DocumentsConfig
from pipeline.documents import build_documents, split_of
from pipeline.errors import DataError
from pipeline.schemas import DOCUMENTS_SCHEMA, TEXT_SCHEMA, iter_batches, iter_rows, write_parts

LONG = " It goes on for a while, so that it is long enough to stay. It has three sentences."


def source(folder: Path, name: str, *texts: str, ids: list[str] | None = None) -> Path:
    folder = folder / name
    folder.mkdir(parents=True)
    rows = (
        {"doc_id": ids[i] if ids else f"{name}:{i}", "source": name, "title": f"T{i}", "language": "en", "text": text}
        for i, text in enumerate(texts)
    )
    write_parts(rows, TEXT_SCHEMA, folder)
    return folder


def build(inputs: dict[str, Path], out: Path, **config: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    out.mkdir()
    config = {"min_characters": 50, "near_duplicates": 1, **config}
    statistics = build_documents(inputs, DocumentsConfig.model_validate(config), out)
    return list(iter_rows(out)), statistics


def fraction(doc_id: str) -> int:
    """What decides the split: see DESIGN."""
    return int.from_bytes(hashlib.sha256(b"split\0" + doc_id.encode()).digest()[:8], "big")


def test_every_document_is_accounted_for(tmp_path: Path) -> None:
    inputs = {
        "wiki": source(tmp_path, "wiki", "One." + LONG, "  \n", "Too short.", "Two." + LONG, "one.\n\n " + LONG),
        "books": source(tmp_path, "books", "TWO." + LONG, "Three." + LONG, "Four." + LONG, ids=["b:1", "b:2", "b:2"]),
    }
    rows, statistics = build(inputs, tmp_path / "out")
    assert [row["doc_id"] for row in rows] == ["b:1", "b:2", "wiki:0"]
    assert statistics["dropped"] == {"duplicate_doc_id": 1, "duplicate_text": 2, "empty": 1, "too_short": 1}
    assert statistics["dropped_by_source"]["books"] == {"duplicate_doc_id": 1}
    assert (statistics["read"], statistics["kept"], statistics["row_count"]) == (8, 3, 3)
    assert json.loads((tmp_path / "out" / "dropped.json").read_text()) == {
        "read": 8,
        "kept": 3,
        "dropped": statistics["dropped"],
        "sources": {
            "books": {"read": 3, "kept": 2, "dropped": {"duplicate_doc_id": 1}},
            "wiki": {"read": 5, "kept": 1, "dropped": {"empty": 1, "too_short": 1, "duplicate_text": 2}},
        },
    }
    assert sum(sum(splits.values()) for splits in statistics["documents"].values()) == 3
    assert next(iter_batches(tmp_path / "out")).schema.equals(DOCUMENTS_SCHEMA)


def test_the_order_of_the_inputs_makes_no_difference(tmp_path: Path) -> None:
    first = source(tmp_path, "a", *(f"Number {i}." + LONG for i in range(20)))
    second = source(tmp_path, "b", *(f"Number {i}." + LONG for i in range(10, 30)))
    one, statistics = build({"a": first, "b": second}, tmp_path / "one")
    two, again = build({"b": second, "a": first}, tmp_path / "two")
    assert one == two
    assert statistics == again
    stays = {i: min((fraction(doc_id), doc_id) for doc_id in (f"a:{i}", f"b:{i - 10}"))[1] for i in range(10, 20)}
    expected = [*(f"a:{i}" for i in range(10)), *stays.values(), *(f"b:{i}" for i in range(10, 20))]
    assert [row["doc_id"] for row in one] == sorted(expected, key=lambda doc_id: (doc_id[0], int(doc_id[2:])))
    assert {doc_id[0] for doc_id in stays.values()} == {"a", "b"}
    assert len(statistics["sample"]) == 5


def test_text_is_nfc_and_sentence_ends_point_into_it(tmp_path: Path) -> None:
    decomposed = unicodedata.normalize("NFD", "Ein Café.") + LONG
    (row,), statistics = build({"s": source(tmp_path, "s", decomposed)}, tmp_path / "out")
    assert row["text"] == "Ein Café." + LONG
    assert row["sentence_ends"] == [10, 69, len(row["text"])]
    assert row["repeat"] == 1.0
    assert statistics["sentences"] == 3


def test_the_split_is_a_hash_of_doc_id_alone() -> None:
    digest = hashlib.sha256(b"split\0enwiki:12").digest()
    share = int.from_bytes(digest[:8], "big") / 2**64
    assert split_of("enwiki:12", share + 1e-9) == "held_out"
    assert split_of("enwiki:12", share - 1e-9) == "train"
    chosen = [f"enwiki:{i}" for i in range(10_000) if split_of(f"enwiki:{i}", 0.1) == "held_out"]
    assert 880 < len(chosen) < 1120  # four standard deviations of a binomial(10,000, 0.1)
    assert all(split_of(doc_id, 0.2) == "held_out" for doc_id in chosen)


def test_held_out_documents_are_marked(tmp_path: Path) -> None:
    folder = source(tmp_path, "s", *(f"Number {i}." + LONG for i in range(40)))
    rows, statistics = build({"s": folder}, tmp_path / "out", held_out=0.3)
    held_out = [row["doc_id"] for row in rows if row["split"] == "held_out"]
    assert held_out == [row["doc_id"] for row in rows if split_of(row["doc_id"], 0.3) == "held_out"]
    assert statistics["documents"]["s"] == {"train": 40 - len(held_out), "held_out": len(held_out)}
    assert 0 < len(held_out) < 40


def test_a_folder_of_another_source_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="source 'a', not 'b'"):
        build({"b": source(tmp_path, "a", LONG)}, tmp_path / "out")


def test_golden_rows(tmp_path: Path) -> None:
    inputs = {"s": source(tmp_path, "s", *(f"Dr. Number {i} is here.{LONG}\n\nA second paragraph." for i in range(9)))}
    rows, _ = build(inputs, tmp_path / "out", held_out=0.5)
    # If this changes, raise STAGE.version of pipeline/documents.py
    assert hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16] == "9341e0d68b7fdd01"
