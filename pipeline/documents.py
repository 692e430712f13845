"""One table of documents from every source: each text once, split into train and held-out, with sentence ends."""

import hashlib
import heapq
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import progress
from pipeline.config import DocumentsConfig
from pipeline.errors import DataError
from pipeline.schemas import (
    DOCUMENTS_SCHEMA,
    TEXT_SCHEMA,
    count_rows,
    describe_lengths,
    iter_rows,
    write_dropped,
    write_parts,
)
from pipeline.sentences import sentence_ends
from pipeline.stage import Stage

STAGE = Stage(
    name="documents",
    function="pipeline.documents:build_documents",
    version="1",
    libraries=("sentencex",),
    sources=("pipeline/documents.py", "pipeline/sentences.py", "pipeline/schemas.py"),
)


def build_documents(inputs: Mapping[str, Path], config: DocumentsConfig, out: Path) -> dict[str, Any]:
    """Write the documents of all sources (source name → folder of its text), by source name, then as in the source.

    A document is dropped and counted as `empty`, `too_short` (under `min_characters`), `duplicate_doc_id`, or
    `duplicate_text`; of equal texts the first in this order stays, whatever the order of `inputs`. Also written:
    dropped.json. DataError for a row that names another source.
    """
    builder = _Builder(inputs, config)
    kept = write_parts(builder.documents(), DOCUMENTS_SCHEMA, out)
    count = write_dropped(out, builder.read, kept, builder.dropped)
    return {
        **describe_lengths(builder.lengths),
        **count,
        "documents": {name: dict(builder.splits[name]) for name in sorted(inputs)},
        "dropped_by_source": {name: dict(sorted(builder.dropped_by[name].items())) for name in sorted(inputs)},
        "sentences": builder.sentences,
        "one_sentence_documents": builder.one_sentence,
        "sample": builder.sample(),
    }


def split_of(doc_id: str, held_out: float) -> str:
    """Say "train" or "held_out", from doc_id alone.

    The first eight bytes of SHA-256 of `split` NUL doc_id, read as a big-endian fraction of 2^64, are compared with the
    share. So a document stays where it is when others come or go, and a larger share only adds to the held-out ones.
    """
    return "held_out" if _fraction(doc_id) < held_out else "train"


def _fraction(doc_id: str) -> float:
    return int.from_bytes(hashlib.sha256(b"split\0" + doc_id.encode()).digest()[:8], "big") / 2**64


def text_digest(text: str) -> bytes:
    """What two documents share if they count as equal: case and the amount of whitespace make no difference."""
    return hashlib.sha256(" ".join(unicodedata.normalize("NFC", text).casefold().split()).encode()).digest()[:16]


class _Builder:
    """Iterates the documents and counts on the way."""

    def __init__(self, inputs: Mapping[str, Path], config: DocumentsConfig) -> None:
        self.inputs = inputs
        self.config = config
        self.read = 0
        self.sentences = 0
        self.one_sentence = 0
        self.lengths = array("q")
        self.dropped_by: dict[str, Counter[str]] = {name: Counter() for name in inputs}
        self.splits = {name: Counter(train=0, held_out=0) for name in inputs}
        self._sample: list[tuple[float, str, str]] = []

    @property
    def dropped(self) -> Counter[str]:
        return sum(self.dropped_by.values(), Counter[str]())

    def sample(self) -> list[str]:
        """Titles of five documents, drawn by hash."""
        return [title for _, _, title in sorted(self._sample, reverse=True)]

    def documents(self) -> Iterator[dict[str, Any]]:
        total = sum(count_rows(folder) for folder in self.inputs.values())
        doc_ids: set[str] = set()
        texts: set[bytes] = set()
        for name in sorted(self.inputs):
            for row in iter_rows(self.inputs[name], TEXT_SCHEMA.names):
                self.read += 1
                progress.report(self.read, total, "documents")
                if row["source"] != name:
                    raise DataError(
                        f"{self.inputs[name]}: {row['doc_id']} is of source {row['source']!r}, not {name!r}",
                        f"Materialize {name}_text again.",
                    )
                text = unicodedata.normalize("NFC", row["text"]).strip()
                if reason := self._why_not(text, row["doc_id"], doc_ids, texts):
                    self.dropped_by[name][reason] += 1
                    continue
                yield self._document(name, row, text)

    def _why_not(self, text: str, doc_id: str, doc_ids: set[str], texts: set[bytes]) -> str:
        """The reason to drop a document, "" to keep it; those that are kept are remembered."""
        if not text:
            return "empty"
        if len(text) < self.config.min_characters:
            return "too_short"
        if doc_id in doc_ids:
            return "duplicate_doc_id"
        digest = text_digest(text)
        if digest in texts:
            return "duplicate_text"
        doc_ids.add(doc_id)
        texts.add(digest)
        return ""

    def _document(self, source: str, row: dict[str, Any], text: str) -> dict[str, Any]:
        split = split_of(row["doc_id"], self.config.held_out)
        ends = sentence_ends(text, row["language"] or "en")
        self.splits[source][split] += 1
        self.sentences += len(ends)
        self.one_sentence += len(ends) == 1
        self.lengths.append(len(text))
        heapq.heappush(self._sample, (-_fraction(row["doc_id"]), row["doc_id"], row["title"] or row["doc_id"]))
        if len(self._sample) > 5:
            heapq.heappop(self._sample)
        return {**row, "text": text, "split": split, "sentence_ends": ends, "repeat": 1.0}
