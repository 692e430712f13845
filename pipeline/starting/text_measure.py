"""How much text there is and what it is like, measured by the stages that a recipe runs, on all of it or on a sample."""

import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc

from pipeline import books, own_text
from pipeline.config import LEAST_SIZE, BooksTextConfig, Columns, DocumentsConfig, OwnTextConfig, VocabularyConfig
from pipeline.documents import build_documents
from pipeline.errors import DataError
from pipeline.schemas import iter_batches
from pipeline.selection.document_passes import identity_digest
from pipeline.starting.recipe_sizes import (
    BY_CHANCE,
    LEAST_DOCUMENTS,
    TOLD_ALPHABET,
    Casing,
    Text,
    held_out_shares,
    rounded_down,
    wanted_vocabulary,
)
from pipeline.starting.text_sample import sample, unpacked_bytes
from pipeline.starting.text_survey import Found
from pipeline.suites import LEAST_HELD_OUT_TOKENS
from pipeline.tokenizer import SPECIAL_TOKENS, make
from pipeline.vocabulary import coverage, grown
from pipeline.words.word_counts import Words, count_words

SAMPLE_BYTES = 16 << 20
"""Of text; what has no more is read whole."""
COVERED = 0.9999
"""Share of the characters, by how often they stand in the text, that the vocabulary should know."""

SAFE = 0.8
"""Of the tokens that a small text gives: the last of them are of pairs that stand there twice."""


@dataclass(frozen=True)
class Source:
    """A source of the recipe to be."""

    name: str
    found: Found
    columns: Columns | None


def measure(sources: Sequence[Source], language: str, casing: Casing, say: Callable[[str], None]) -> Text:
    """Read the sources as the stages of a recipe read them, in a folder that is gone afterwards.

    Where they hold more than SAMPLE_BYTES, a part is read, and every count is multiplied by the share of bytes that it is.

    Raises:
        DataError: what the stages raise; text that none of them could go on with: too few documents, single sentences,
            more files of another kind than documents.
    """
    whole = sum(unpacked_bytes(source.found.files) for source in sources)
    with tempfile.TemporaryDirectory(prefix="bert-new-") as scratch:
        folder = Path(scratch)
        texts: dict[str, Path] = {}
        shares: dict[str, float] = {}
        dropped: Counter[str] = Counter()
        for source in sources:
            budget = SAMPLE_BYTES * unpacked_bytes(source.found.files) / max(1.0, whole)
            say(f"reading {source.name}: {source.found.why}")
            part = sample(source.found, int(max(budget, SAMPLE_BYTES / 16)), _made(folder / "files" / source.name))
            texts[source.name] = _made(folder / "texts" / source.name)
            found = _extract(source, language, part.folder, texts[source.name])
            dropped.update(found["dropped"])
            _check_foreign(source, found["kept"], part.share)
            shares[source.name] = part.share
        return _measured(texts, shares, dropped, casing, folder)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _extract(source: Source, language: str, files: Path, out: Path) -> dict[str, Any]:
    """Run the stage of the source's text; what it says of it."""
    inputs = {"files": files}
    if source.found.kind == "books":
        return books.extract_text(inputs, BooksTextConfig(source=source.name, language=language), out)
    config = OwnTextConfig.model_validate(
        {
            "source": source.name,
            "kind": source.found.kind,
            "language": language,
            "columns": source.columns or Columns(),
            "sentence_per_line": source.found.sentence_per_line,
        }
    )
    return own_text.extract_text(inputs, config, out)


def _check_foreign(source: Source, kept: int, share: float) -> None:
    """DataError where a source of this folder would not be published, because most of its files are of another kind."""
    foreign, documents = source.found.foreign, kept / share
    if foreign > documents:
        raise DataError(
            f"{source.found.path} holds {foreign:,} files beside the {len(source.found.files):,} of kind {source.found.kind}: a "
            "source of which more than half is dropped is not published",
            "Put the text into a folder of its own, and name that one.",
        )


def _measured(
    texts: Mapping[str, Path], shares: Mapping[str, float], dropped: Counter[str], casing: Casing, scratch: Path
) -> Text:
    """Counts of the documents that the stage `documents` makes of these texts; `dropped`: before, by the sources."""
    whole = min(shares.values()) == 1
    for attempt, share in enumerate(_held_out(texts, shares, dropped)):
        out = _made(scratch / f"documents-{attempt}")
        found = build_documents(texts, DocumentsConfig(held_out=share), out)
        table = _table(out, shares)
        if not whole or (LEAST_DOCUMENTS <= table.held_out <= table.documents - LEAST_DOCUMENTS):
            break
    else:
        raise _too_few(found["kept"], dropped + Counter(found["dropped"]))
    if 2 * table.single_sentences > table.documents:
        raise DataError(
            f"{table.single_sentences:,} of {table.documents:,} documents are a single sentence: nothing follows it that a model "
            "could learn, and such text is not published",
            "Put the sentences of a text into one document: into one row, or into one file without blank lines between them.",
        )
    words = count_words(out, _made(scratch / "words"), **casing.options, worker_count=1)
    train, held_out = words["train"], words["held_out"]
    known = _alphabet(train)
    vocabulary = _vocabulary(train, table.scale, known, casing)
    pieces = float(coverage(train, make(vocabulary, **casing.options))["pieces_per_word"])
    tokens = table.scale * held_out.total * pieces
    if tokens < LEAST_HELD_OUT_TOKENS:
        raise DataError(
            f"the text that is held out to judge the model by, {share:.0%} of the documents, has about {tokens:,.0f} tokens, and "
            f"what has fewer than {LEAST_HELD_OUT_TOKENS:,} is not published",
            "Add text.",
        )
    return Text(
        share_read=1.0 if whole else 1 / table.scale,
        documents=round(table.weighed),
        characters=round(table.scale * table.characters),
        train_words=round(table.scale * train.total),
        held_out_words=round(table.scale * held_out.total),
        held_out_documents=round(table.held_out * table.weighed / table.documents),
        held_out=share,
        pieces_per_word=pieces,
        vocabulary=len(vocabulary),
        alphabet=known,
        dropped=dict(dropped + Counter(found["dropped"])),
        read=found["read"] + dropped.total(),
        detected=_detected(found["languages"]["table"]),
        language_share=found["languages"]["agreed"] / max(1, found["languages"]["judged"]),
    )


@dataclass(frozen=True)
class _Table:
    """What the table of documents holds, as far as it was read."""

    documents: int
    held_out: int
    single_sentences: int
    characters: int
    weighed: float
    """documents that there are in all files, about"""
    scale: float
    """characters in all files for each that was read"""


def _table(folder: Path, shares: Mapping[str, float]) -> _Table:
    documents = held_out = single = characters = 0
    weighed = scaled = 0.0
    for batch in iter_batches(folder, ["source", "split", "text", "sentence_ends"]):
        factors = np.array([1 / shares[source] for source in batch["source"].to_pylist()])
        lengths = pc.utf8_length(batch["text"]).to_numpy(zero_copy_only=False)
        documents += batch.num_rows
        held_out += pc.sum(pc.equal(batch["split"], "held_out")).as_py() or 0
        single += pc.sum(pc.less_equal(pc.list_value_length(batch["sentence_ends"]), 1)).as_py() or 0
        characters += int(lengths.sum())
        weighed += float(factors.sum())
        scaled += float((factors * lengths).sum())
    return _Table(documents, held_out, single, characters, weighed, scaled / max(1, characters))


def _held_out(texts: Mapping[str, Path], shares: Mapping[str, float], dropped: Counter[str]) -> list[float]:
    """Shares of documents that may be held out, the best first. DataError where there are too few documents."""
    fractions: list[float] = []
    lengths: list[float] = []
    weights: list[float] = []
    for name, folder in texts.items():
        for batch in iter_batches(folder, ["doc_id", "text"]):
            digests = (identity_digest(doc_id) for doc_id in batch["doc_id"].to_pylist())
            fractions += [int.from_bytes(digest[:8], "big") / 2**64 for digest in digests]
            lengths += pc.utf8_length(batch["text"]).to_pylist()
            weights += [1 / shares[name]] * batch.num_rows
    part, sizes, many = np.array(fractions), np.array(lengths, np.float64), np.array(weights)
    if min(shares.values()) < 1:
        chosen = held_out_shares(
            lambda share: (share * many.sum(), share * (many * sizes).sum()), many.sum(), BY_CHANCE
        )
    else:
        chosen = held_out_shares(
            lambda share: ((part < share).sum(), sizes[part < share].sum()), len(part), LEAST_DOCUMENTS
        )
    if not chosen:
        raise _too_few(len(fractions), dropped)
    return chosen


def _detected(table: Sequence[Mapping[str, Any]]) -> str:
    """The language of most documents, by the detector; "" where it says none."""
    return next((row["detected"] for row in table if row["detected"]), "")


def _too_few(documents: int, dropped: Mapping[str, int]) -> DataError:
    left = ", ".join(f"{reason} {count:,}" for reason, count in dropped.items() if count)
    return DataError(
        f"there {'is' if documents == 1 else 'are'} {documents:,} document{'s' * (documents != 1)}"
        f"{f' (dropped: {left})' if left else ''}: two to train on and two that are held out are the least",
        "Add text, or split it: a file or a row for each document; or write a sentence a line and blank lines between "
        "documents (docs/own-text.md).",
    )


def _alphabet(words: Words) -> int:
    """How many characters, the most frequent first, make up COVERED of the text; more than TOLD_ALPHABET in hundreds."""
    counts: Counter[str] = Counter(words.long_characters)
    for word, count in zip(words.words.to_pylist(), words.counts.tolist(), strict=True):
        for character in word:
            counts[character] += count
    sums = np.cumsum(sorted(counts.values(), reverse=True))
    enough = int(np.searchsorted(sums, COVERED * sums[-1])) + 1 if len(sums) else 0
    return enough if enough <= TOLD_ALPHABET else -(-enough // 100) * 100


def _vocabulary(words: Words, scale: float, known: int, casing: Casing) -> list[str]:
    """As many tokens as a recipe for this text should ask for, made of the words that were read. DataError where they are too few."""
    wanted = wanted_vocabulary(round(scale * words.total), known)
    config = VocabularyConfig(
        size=wanted,
        alphabet_limit=max(TOLD_ALPHABET, known),
        lowercase=casing.lowercase,
        strip_accents=casing.strip_accents,
    )
    vocabulary = grown(words, config)
    if len(vocabulary) == wanted:
        return vocabulary
    single = sum(token in SPECIAL_TOKENS or len(token.removeprefix("##")) == 1 for token in vocabulary)
    size = single + int(SAFE * (len(vocabulary) - single))
    least = single + any(token.startswith("##") for token in vocabulary)  # of Chinese alone no word has two characters
    size = max(least, rounded_down(size))
    if size < LEAST_SIZE or size > len(vocabulary):
        raise DataError(
            f"the text to train on has {words.total:,} words, too few for a vocabulary: they give {len(vocabulary):,} tokens, of which "
            f"{single:,} are single characters",
            "Add text.",
        )
    return vocabulary[:size]  # merging goes on from there, so this is the smaller one
