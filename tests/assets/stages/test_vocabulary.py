"""What the asset's page shows of a vocabulary, alone and beside another one."""

from pathlib import Path
from typing import Any

import dagster as dg

from assets.stages.vocabulary import metadata
from pipeline.store import Record

PIECES = {"[UNK]": 1, "1": 6, "2": 3, "3": 0, "4": 0, "5 or more": 0}
MEASURED: dict[str, Any] = {
    "size": 7,
    "tokens_used": 2,
    "unknown_rate": 0.1,
    "whole_word_share": 0.6,
    "pieces_per_word": 1.3,
    "continued_share": 0.25,
    "words_by_pieces": PIECES,
    "longest_tokens": {"hug": 6, "##ug": 3},
}


def record(statistics: dict[str, Any]) -> Record:
    return Record(digest="0" * 64, body={"statistics": statistics})


def test_two_vocabularies_stand_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhug\n##ug\n")
    alone = metadata(record(MEASURED), tmp_path)
    assert "comparison" not in alone
    other = {**MEASURED, "size": 30522, "pieces_per_word": 1.2}
    shown = metadata(record({**MEASURED, "compared": other}), tmp_path)
    table = shown["comparison"]
    assert isinstance(table, dg.TableMetadataValue)
    rows = [each.data for each in table.records]
    assert {"measure": "tokens", "this": 7, "compared": 30522} in rows
    assert {"measure": "pieces per word", "this": 1.3, "compared": 1.2} in rows
    assert [list(row) for row in rows] == [["measure", "this", "compared"]] * 6
    assert shown["longest_tokens"].records[0].data == {"token": "hug", "times on this text": 6}
    assert shown["words_by_pieces"].value != alone["words_by_pieces"].value


def test_records_of_before_are_shown(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    assert metadata(record({"size": 1, "longest_tokens": ["a"]}), tmp_path)["size"] == 1
