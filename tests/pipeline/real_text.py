"""Real text for the stage of shards: some documents of the corpus that the original's statistics were made on."""

import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import tokenizers

from pipeline.config import ShardsConfig
from pipeline.schemas import DOCUMENTS_SCHEMA, write_parts
from pipeline.shards import build_shards
from pipeline.suites import INPUTS, SUITES, validate
from pipeline.tokenizer import read_vocabulary, tokenizer_json
from tests.conftest import shared

CLS, SEP, MASK = 101, 102, 103


@dataclass(frozen=True)
class Corpus:
    """Documents, where they and the vocabulary lie, and what a tokenizer of other hands makes of them."""

    inputs: dict[str, Path]
    held_out: frozenset[str]
    sentences: dict[str, list[list[int]]]
    """doc_id → the ids of its sentences, by tokenizers.BertWordPieceTokenizer"""
    vocabulary: tuple[str, ...]

    def tokens(self, doc_id: str) -> list[int]:
        """All ids of a document."""
        return [token for sentence in self.sentences[doc_id] for token in sentence]


def write_inputs(folder: Path, documents: dict[str, list[str]], held_out: Iterable[str]) -> dict[str, Path]:
    """The stage's inputs: documents out of sentences, and BERT's vocabulary."""
    held = set(held_out)
    rows = [
        {
            "doc_id": doc_id,
            "source": "real",
            "text": "".join(sentence + " " for sentence in sentences),
            "split": "held_out" if doc_id in held else "train",
            "sentence_ends": np.cumsum([len(sentence) + 1 for sentence in sentences]).tolist(),
            "repeat": 1.0,
        }
        for doc_id, sentences in documents.items()
    ]
    inputs = {"documents": folder / "documents", "wordpiece_vocab": folder / "vocabulary"}
    for each in inputs.values():
        each.mkdir(parents=True)
    write_parts(rows, DOCUMENTS_SCHEMA, inputs["documents"])
    entries = read_vocabulary(shared("data/reference/vocab-bert-base-uncased.txt"))
    (inputs["wordpiece_vocab"] / "vocab.txt").write_text("\n".join(entries) + "\n", encoding="utf-8")
    text = tokenizer_json(entries, lowercase=True, strip_accents=True)
    (inputs["wordpiece_vocab"] / "tokenizer.json").write_text(text, encoding="utf-8")
    return inputs


def texts(number: int) -> dict[str, list[str]]:
    """So many real documents: doc_id → sentences."""
    packed = shared("data/reference/pairs_corpus.txt.xz").read_bytes()
    found = [part.splitlines() for part in lzma.decompress(packed).decode().split("\n\n") if part.strip()]
    return {f"real:{i}": document for i, document in enumerate(found[:number])}


def corpus(folder: Path, number: int = 120) -> Corpus:
    """So many documents, every eighth held out."""
    documents = texts(number)
    held_out = frozenset(f"real:{i}" for i in range(3, number, 8))
    path = shared("data/reference/vocab-bert-base-uncased.txt")
    other = tokenizers.BertWordPieceTokenizer(str(path), lowercase=True)
    sentences = {
        doc_id: [ids for s in text if (ids := other.encode(s, add_special_tokens=False).ids)]
        for doc_id, text in documents.items()
    }
    return Corpus(write_inputs(folder, documents, held_out), held_out, sentences, read_vocabulary(path))


def build(inputs: dict[str, Path], config: ShardsConfig, out: Path) -> dict[str, Any]:
    """The stage in this process; its statistics."""
    from pipeline.beam import shards_beam

    out.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipeline.beam.beam_process.run", lambda _, plan, scratch, poll: shards_beam.run(plan))
        return build_shards(inputs, config, out)


def rows(out: Path, part: str = "train") -> list[dict[str, Any]]:
    """All rows of a part, in order."""
    return [row for path in sorted((out / part).glob("*")) for row in pq.read_table(path).to_pylist()]


def unmasked(row: dict[str, Any]) -> list[int]:
    """The ids of a row as they were before masking."""
    ids = list(row["input_ids"])
    for position, original in zip(row.get("masked_lm_positions", ()), row.get("masked_lm_ids", ()), strict=True):
        ids[position] = original
    return ids


def failures(
    out: Path, config: ShardsConfig, statistics: dict[str, Any], inputs: dict[str, Path]
) -> dict[str, tuple[str, str]]:
    """Name → (severity, observed) of the checks of the real suite that failed."""
    results = validate("pretraining_shards", out, config, {**statistics, INPUTS: inputs})
    assert len(results) == len(SUITES["pretraining_shards"].checks)
    return {r.name: (r.severity, r.observed) for r in results if not r.passed}
