"""The documents table: every document in is a document out or a counted reason, in an order of its own."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest

from pipeline import documents
from pipeline.config import DocumentsConfig
from pipeline.documents import build_documents, split_of
from pipeline.errors import DataError
from pipeline.schemas import (
    DOCUMENTS_SCHEMA,
    TEXT_SCHEMA,
    iter_batches,
    iter_rows,
    write_dropped,
    write_parts,
    write_sentence_lines,
)
from pipeline.selection.document_passes import text_digest
from tests import tiny
from tests.conftest import ROOT

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


# ── texts of their own ───────────────────────────────────────────────────────────────────────────────────────────────


def prose(seed: int) -> str:
    """Three paragraphs that share hardly a run of five words with those of another seed."""
    draw = random.Random(seed)
    return "\n\n".join(
        " ".join(f"The {draw.choice(WORDS)} {draw.choice(WORDS)} sees the {draw.choice(WORDS)} of {draw.randint(1, 9999)}."
                 for _ in range(8)) for _ in range(3)
    )  # fmt: skip


WORDS = [*tiny.NOUNS, *tiny.ADJECTIVES, *tiny.PLACES]


def table(folder: Path, name: str, *rows: dict[str, Any]) -> Path:
    """A source of rows that say only what matters."""
    folder = folder / name
    folder.mkdir(parents=True)
    common = {"source": name, "language": "en"}
    write_parts(({**common, "doc_id": f"{name}:{i}", **row} for i, row in enumerate(rows)), TEXT_SCHEMA, folder)
    return folder


def dropped(out: Path) -> dict[str, tuple[str, str | None, str | None]]:
    """doc_id → (reason, kept, detail)."""
    return {row["doc_id"]: (row["reason"], row["kept"], row["detail"]) for row in iter_rows_of(out / "dropped.parquet")}


def iter_rows_of(path: Path) -> list[dict[str, Any]]:
    return list(pq.read_table(path).to_pylist())


def digests(out: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(out.iterdir())}


def test_of_near_duplicates_the_held_out_one_stays(tmp_path: Path) -> None:
    """One word of each text differs: 5 of about 165 runs of five words, so J = 0.94."""
    texts = [prose(n) for n in range(30)]
    one = table(tmp_path, "one", *({"text": text} for text in texts))
    two = table(tmp_path, "two", *({"text": text.replace("The ", f"A{n} ", 1)} for n, text in enumerate(texts)))
    rows, statistics = build({"one": one, "two": two}, tmp_path / "out", near_duplicates=0.8, held_out=0.2)
    stays = [min((f"one:{n}", f"two:{n}"), key=fraction) for n in range(30)]
    assert sorted(row["doc_id"] for row in rows) == sorted(stays)
    held_out = {n for n in range(30) for name in ("one", "two") if split_of(f"{name}:{n}", 0.2) == "held_out"}
    assert {int(row["doc_id"][4:]) for row in rows if row["split"] == "held_out"} == held_out
    assert statistics["dropped"] == {"near_duplicate": 30}
    assert statistics["duplicate_groups"] == 30 and statistics["documents_in_duplicate_groups"] == 60
    assert statistics["held_out_expected"] == pytest.approx(30 * (1 - 0.8**2))
    assert statistics["held_out_variance"] == pytest.approx(30 * 0.36 * 0.64)
    for doc_id, (reason, kept, detail) in dropped(tmp_path / "out").items():
        assert (reason, kept) == ("near_duplicate", stays[int(doc_id[4:])])
        assert detail is not None and 0.85 < float(detail.removeprefix("similarity ")) <= 1
    both, _ = build({"one": one, "two": two}, tmp_path / "both", near_duplicates=1)
    assert len(both) == 60


def test_withdrawn_documents_go_with_their_copies(tmp_path: Path) -> None:
    texts = [prose(n) for n in range(6)]
    source = table(
        tmp_path,
        "s",
        {"text": texts[0]},
        {"text": texts[1], "url": "https://a.test/1"},
        {"text": texts[2], "title": "A title"},
        {"text": texts[3]},
        {"text": texts[0].upper()},
        {"text": texts[1].replace("The ", "Any ", 1)},
        {"text": "short"},
        {"text": texts[4]},
    )
    path = tmp_path / "withdrawn.csv"
    path.write_text(
        "doc_id,url,title,reason\ns:0,,,the author asked\n,https://a.test/1,,court order\n,,A title,spam\n"
        "s:6,,,too short to stay anyway\ns:99,,,never seen\n"
    )
    rows, statistics = build({"s": source}, tmp_path / "out", near_duplicates=0.8, exclude={"path": str(path)})
    assert [row["doc_id"] for row in rows] == ["s:3", "s:7"]
    assert statistics["dropped"] == {"withdrawn": 6}
    found = dropped(tmp_path / "out")
    assert found["s:0"] == ("withdrawn", None, "the author asked")
    assert found["s:1"] == ("withdrawn", None, "court order")
    assert found["s:2"] == ("withdrawn", None, "spam")
    assert found["s:4"] == ("withdrawn", "s:0", "copy of a withdrawn document")
    assert found["s:5"][:2] == ("withdrawn", "s:1") and "similarity 0.9" in str(found["s:5"][2])
    assert statistics["withdrawals"] == {
        "lines": 5,
        "documents": 4,
        "unmatched": 1,
        "unmatched_lines": ["line 6: doc_id s:99"],
    }


def test_a_list_of_withdrawals_that_is_wrong_stops_everything(tmp_path: Path) -> None:
    path = tmp_path / "withdrawn.csv"
    path.write_text("doc_id,reason\ns:0,\n")
    with pytest.raises(DataError, match="withdrawn.csv, line 2: no reason"):
        build({"s": table(tmp_path, "s", {"text": prose(1)})}, tmp_path / "out", exclude={"path": str(path)})
    assert list((tmp_path / "out").iterdir()) == []


def test_each_filter_counts_what_it_drops(tmp_path: Path) -> None:
    german = "Der Hafen liegt an der Nordküste der Insel, und viele Schiffe bringen Holz und Eisen dorthin. "
    inputs = {
        "s": table(
            tmp_path,
            "s",
            {"text": prose(1)},
            {"text": "Home\nAbout us\nContact\n" * 5},
            {"text": "It is said so often that it is said again.\n" * 5},
            {"text": german},
            {"text": german + "Nicht alle.", "language": "de"},
            {"text": " ".join(chr(0x10330 + n) * (1 + n % 9) for n in range(27)), "language": "got"},
        )
    }
    rows, _ = build(inputs, tmp_path / "all")
    assert len(rows) == 6
    filters = {"boilerplate": 0.5, "repetition": 0.3, "language": 0.5}
    rows, statistics = build(inputs, tmp_path / "out", filters={**filters, "repetition": 0.9})
    assert [row["doc_id"] for row in rows] == ["s:0", "s:4", "s:5"], "no detector knows Gothic"
    assert statistics["dropped"] == {"boilerplate": 1, "repetition": 1, "other_language": 1}
    assert dropped(tmp_path / "out") == {
        "s:1": ("boilerplate", None, "1.000"),
        "s:2": ("repetition", None, "1.000"),
        "s:3": ("other_language", None, "0.00 en; de"),
    }


def test_documents_that_hold_a_benchmark_are_dropped_held_out_or_not(tmp_path: Path) -> None:
    secret = "what is the name of the river that flows past the old castle of the north"
    (tmp_path / "quiz.txt").write_text(f"{secret}\n")
    texts = [prose(n) + (f"\n\nThey ask: {secret.title()}?" if n % 3 == 0 else "") for n in range(9)]
    source = table(tmp_path, "s", *({"text": text} for text in texts))
    quiz = {"quiz": {"from": {"path": str(tmp_path / "quiz.txt")}}}
    rows, statistics = build({"s": source}, tmp_path / "out", decontaminate=quiz, held_out=0.5)
    assert [row["doc_id"] for row in rows] == [f"s:{n}" for n in range(9) if n % 3]
    assert statistics["benchmarks"] == {"quiz": {"texts": 1, "measurable": 1, "documents": 3}}
    assert dropped(tmp_path / "out")["s:3"] == ("contaminated", None, "quiz")


def test_the_language_is_the_declared_one_else_the_detected_one(tmp_path: Path) -> None:
    german = "Der Hafen liegt an der Nordküste der Insel, und viele Schiffe bringen Holz und Eisen dorthin."
    source = table(
        tmp_path,
        "s",
        {"text": german, "language": None},
        {"text": german + " Nein."},
        {"text": prose(1), "language": "en-GB"},
        {"text": "1 2 3 4 5 6 7 8 9 " * 9},
    )
    rows, statistics = build({"s": source}, tmp_path / "out")
    assert [row["language"] for row in rows] == ["de", "en", "en-GB", "en"]
    said = statistics["languages"]
    assert (said["judged"], said["agreed"]) == (2, 1)
    assert {(row["declared"], row["detected"]) for row in said["table"]} == {
        ("", "de"), ("en", "de"), ("en-GB", "en"), ("en", ""),
    }  # fmt: skip


def test_weights_are_for_training_only(tmp_path: Path) -> None:
    one = table(tmp_path, "one", *({"text": prose(n)} for n in range(20)))
    two = table(tmp_path, "two", *({"text": prose(100 + n)} for n in range(20)))
    rows, _ = build({"one": one, "two": two}, tmp_path / "out", held_out=0.5, weights={"two": 2.5})
    repeats = Counter((row["source"], row["split"], row["repeat"]) for row in rows)
    assert set(repeats) == {
        ("one", "train", 1.0), ("one", "held_out", 1.0), ("two", "train", 2.5), ("two", "held_out", 1.0),
    }  # fmt: skip


def test_a_corpus_with_a_sentence_a_line_keeps_them(tmp_path: Path) -> None:
    text = "Mr. A. came in the year 1848. He stayed here\nand left again. It was so in those days"
    source = table(tmp_path, "s", {"text": text}, {"text": text + "."})
    write_sentence_lines(source, ["s:0"])
    rows, _ = build({"s": source}, tmp_path / "out")
    assert rows[0]["sentence_ends"] == [text.index("and"), len(text)]
    assert len(rows[1]["sentence_ends"]) == 3


def test_abbreviations_of_the_recipe(tmp_path: Path) -> None:
    text = "They met at the Xqz. Street of the old town and went on. " + LONG
    source = table(tmp_path, "s", {"text": text})
    plain, _ = build({"s": source}, tmp_path / "plain")
    (tmp_path / "en.txt").write_text("Xqz.\n")
    named, _ = build({"s": source}, tmp_path / "out", abbreviations={"en": {"path": str(tmp_path / "en.txt")}})
    assert len(named[0]["sentence_ends"]) == len(plain[0]["sentence_ends"]) - 1
    (tmp_path / "en.txt").write_bytes(b"Xqz.\n\xff\n")
    with pytest.raises(DataError, match=r"en\.txt, line 2: not UTF-8"):
        build({"s": source}, tmp_path / "wrong", abbreviations={"en": {"path": str(tmp_path / "en.txt")}})


def mixed(folder: Path) -> dict[str, Path]:
    """Three sources that share texts and doc_ids, with copies, near copies and short ones."""
    draw = random.Random(9)
    inputs = {}
    for name in ("a", "b", "c"):
        rows = []
        for n in range(60):
            text = prose(draw.randrange(90))
            change = draw.randrange(4)
            text = text.replace("The ", f"A{n} ", 1) if change == 0 else text.upper() if change == 1 else text
            rows.append({"text": "short" if n % 20 == 0 else text, "doc_id": f"{name if n % 15 else 'x'}:{n}"})
        inputs[name] = table(folder, name, *rows)
    return inputs


def test_the_output_is_the_same_bytes_for_any_number_of_workers_and_any_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("pipeline.schemas.GROUP_ROWS", 7)
        inputs = mixed(tmp_path)
    monkeypatch.setattr(documents, "TASK_BYTES", 1 << 14)
    monkeypatch.setattr(documents, "WORK_PER_WORKER", 1)
    found = []
    for workers, order in ((1, 1), (3, -1)):
        settings = tmp_path / f"settings{workers}.yaml"
        settings.write_text(f"beam: {{workers: {workers}}}\n")
        monkeypatch.setenv("BERT_SETTINGS", str(settings))
        out = tmp_path / f"out{workers}{order}"
        _, statistics = build(dict([*inputs.items()][::order]), out, near_duplicates=0.8, held_out=0.1)
        found.append((digests(out), json.dumps(statistics)))
    assert found[0] == found[1]
    assert len(list(out.glob("part-*.parquet"))) > 5
    counts = Counter(reason for reason, _, _ in dropped(out).values())
    assert set(counts) == {"too_short", "duplicate_doc_id", "duplicate_text", "near_duplicate"}


def test_who_stays_does_not_depend_on_the_order_of_the_rows(tmp_path: Path) -> None:
    inputs = mixed(tmp_path)
    rows = [row for folder in inputs.values() for row in iter_rows(folder)]
    expected, statistics = build(inputs, tmp_path / "out", near_duplicates=0.8)
    random.Random(1).shuffle(rows)
    shuffled = {name: table(tmp_path / "shuffled", name, *(r for r in rows if r["source"] == name)) for name in inputs}
    again, same = build(shuffled, tmp_path / "again", near_duplicates=0.8)
    assert sorted(row["doc_id"] for row in again) == sorted(row["doc_id"] for row in expected)
    assert same["dropped"] == statistics["dropped"]


def test_everything_adds_up_from_the_pages_to_the_documents(tmp_path: Path) -> None:
    inputs = mixed(tmp_path)
    write_dropped(inputs["a"], 75, 60, {"redirect": 12, "no_prose": 3, "talk": 0})
    _, statistics = build(inputs, tmp_path / "out", near_duplicates=0.8)
    for name, steps in statistics["waterfall"].items():
        *before, (last, documents_out) = steps
        assert last == "documents" and sum(count for _, count in before) == documents_out
        assert documents_out == sum(statistics["documents"][name].values())
    assert statistics["waterfall"]["a"][:3] == [["read", 75], ["a_text: no_prose", -3], ["a_text: redirect", -12]]
    listed = Counter((row["source"], row["reason"]) for row in iter_rows_of(tmp_path / "out" / "dropped.parquet"))
    counted = {(s, r): n for s, reasons in statistics["dropped_by_source"].items() for r, n in reasons.items()}
    assert dict(listed) == counted and sum(listed.values()) == 180 - statistics["kept"]
    kept = {row["doc_id"] for row in iter_rows(tmp_path / "out")}
    named = {k for reason, k, _ in dropped(tmp_path / "out").values() if "duplicate" in reason}
    assert named and named <= kept
    for shown in ("sample", "longest", "shortest", "largest_duplicate_groups"):
        assert len(statistics[shown]) == 5 and {row["doc_id"] for row in statistics[shown]} <= kept
    lengths = sorted(len(row["text"]) for row in iter_rows(tmp_path / "out"))
    assert [row["characters"] for row in statistics["shortest"]] == lengths[:5]
    assert [row["characters"] for row in statistics["longest"]] == lengths[:-6:-1]


def test_a_source_whose_account_speaks_of_other_rows_is_refused(tmp_path: Path) -> None:
    inputs = mixed(tmp_path)
    write_dropped(inputs["b"], 61, 61, {})
    with pytest.raises(DataError, match="61 documents were kept, but 60 are there"):
        build(inputs, tmp_path / "out")


def test_sources_without_documents(tmp_path: Path) -> None:
    rows, statistics = build({"a": table(tmp_path, "a"), "b": table(tmp_path, "b", {"text": "x"})}, tmp_path / "out")
    assert rows == [] and statistics["dropped"] == {"too_short": 1} and statistics["sample"] == []
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "dropped.json", "dropped.parquet", "part-00000.parquet",
    ]  # fmt: skip
    rows, _ = build({"a": tmp_path / "a"}, tmp_path / "none")
    assert rows == []


@pytest.mark.parametrize("text", ["a  B\tc\n\n", " a b\x1cC", "A\u00a0b\u2003c", "a B\u0085\x0bc"])
def test_the_digest_of_a_text_ignores_case_and_the_amount_of_white_space(text: str) -> None:
    assert text_digest(text) == hashlib.sha256(b"a b c").digest()[:16]
    assert text_digest(f"é{text}") == text_digest(" ".join(f"É{text}".split()))
    assert text_digest("Stra\u00dfe e\u0301") == hashlib.sha256("strasse é".encode()).digest()[:16]


KILLED = """
import os, pathlib, sys
from unittest.mock import patch
from pipeline import documents
from pipeline.config import DocumentsConfig
folder, out = map(pathlib.Path, sys.argv[1:])
with patch.multiple(documents, TASK_BYTES=1, WORK_PER_WORKER=1):
    documents.build_documents({"s": folder}, DocumentsConfig(), out)
"""


def test_a_worker_that_dies_is_an_error_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.schemas.GROUP_ROWS", 50)  # so that there are 80 tasks
    folder = table(tmp_path, "s", *({"text": prose(n)} for n in range(4000)))
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-c", KILLED, str(folder), str(out)]
    environment = {**os.environ, "BERT_SETTINGS": str(tmp_path / "settings.yaml")}
    (tmp_path / "settings.yaml").write_text("beam: {workers: 2}\n")
    child = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)
    workers: list[psutil.Process] = []
    while child.poll() is None and not (workers and list(out.glob(".scratch-*/notes-*"))):
        workers = psutil.Process(child.pid).children()
        time.sleep(0.005)
    os.kill(workers[0].pid, signal.SIGKILL)
    _, error = child.communicate(timeout=60)
    assert child.returncode == 1 and "A worker process died (signal 9)" in error
    assert list(out.iterdir()) == []
    assert psutil.wait_procs(workers, timeout=5)[1] == []


def test_the_digest_knows_all_white_space() -> None:
    for space in filter(str.isspace, map(chr, range(0x10000))):
        assert text_digest(f"é{space}{space}b") == text_digest("é b")
    for other in "\u200b\u2010\u2013\u00ad":
        assert text_digest(f"é{other}b") != text_digest("é b")


def test_the_digest_folds_all_cases() -> None:
    for letter in map(chr, range(0x80, 0x20000)):
        if letter.casefold() != letter and letter.isalpha():
            one, other = f"A few Words {letter} of Plain text", f"a few words {letter.casefold()} of plain text"
            assert (text_digest(one) == text_digest(other)) == (
                unicodedata.normalize("NFC", one).casefold() == unicodedata.normalize("NFC", other).casefold()
            )
    assert text_digest("ΣΊΣΥΦΟΣ ÄRGER") == text_digest("σίσυφος ärger")
