"""The WordPiece vocabulary: trained on the documents, or taken from elsewhere, and measured on held-out text."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline import progress
from pipeline.config import LEAST_SIZE, PathFrom, VocabularyConfig
from pipeline.errors import DataError
from pipeline.settings import settings
from pipeline.stage import Stage
from pipeline.system.disk import check_room, scratch_folder
from pipeline.tokenizer import (
    SPECIAL_TOKENS,
    Tokenizer,
    load,
    make,
    out_of_reach,
    read_vocabulary,
    stand_for_text,
    tokenizer_json,
)
from pipeline.words import alphabet
from pipeline.words.merges import merged
from pipeline.words.word_counts import Words, count_words, text_bytes

STAGE = Stage(
    name="wordpiece_vocab",
    function="pipeline.vocabulary:train_vocabulary",
    version="1",
    libraries=("tokenizers",),
    sources=(
        "pipeline/vocabulary.py",
        "pipeline/words/word_counts.py",
        "pipeline/words/alphabet.py",
        "pipeline/words/merges.py",
        "pipeline/tokenizer.py",
    ),
)

COUNTS_BYTES = 0.2
"""On disk on the way, for each byte of text; measured 0.03 on English. Text in which no word stands twice needs about 3."""
BATCH_WORDS = 50_000
"""Words that are tokenised at a time to measure."""
CAPITALS = 0.01
"""Of the tokens of a vocabulary: with a larger share of capital letters it is a cased one."""
LONGEST = 20
NOTHING = "nothing"
"""`measured_on` of a vocabulary without documents."""
PIECES = ("[UNK]", "1", "2", "3", "4", "5 or more")


def train_vocabulary(inputs: Mapping[str, Path], config: VocabularyConfig, out: Path) -> dict[str, Any]:
    """Write vocab.txt and tokenizer.json, trained on the train documents of `inputs["documents"]`, or taken from where
    the configuration says.

    With `imported_checkpoint`, it is that model's vocabulary, and texts are normalised as it was trained.

    The statistics are measured on the held-out documents, and so is the vocabulary that `config.compare` names. A model that is
    only fine-tuned comes without documents: then nothing is measured.

    Raises:
        DataError: the text has no train documents, or gives fewer tokens than `config.size`, or its characters alone are more; a
            vocabulary that is named is broken, not there, or cased where the recipe is not.
        StoreError: the disk can't hold what is forecast.
    """
    imported = load(inputs["imported_checkpoint"]) if config.imported else None
    if imported is not None:
        said = {"lowercase": imported.lowercase, "strip_accents": imported.strip_accents}
        config = config.model_copy(update=said)
    options = {"lowercase": config.lowercase, "strip_accents": config.strip_accents}
    given = None if imported is None else list(imported.vocabulary)
    if not config.trained and imported is None:
        given = _named("from", config.file or config.from_, config)
    if given is not None and "documents" not in inputs:
        _write(given, options, out)
        reach = out_of_reach(given, **options)
        return {**_described(given), "tokens_out_of_reach": reach, "measured_on": NOTHING, **options}
    compared = _named("compare", config.compared, config) if config.compared else None
    documents = inputs["documents"]
    with scratch_folder(out) as scratch:
        check_room(out, COUNTS_BYTES * text_bytes(documents), "counts of the words", "Free space, or move the store.")
        words = count_words(documents, scratch, **options, worker_count=settings().beam.workers)
    train, held_out = words["train"], words["held_out"]
    if not train.total:
        raise DataError(f"{documents} has no words in its train part", "Check the sources of the recipe.")
    vocabulary = learn(train, config) if given is None else given
    _write(vocabulary, options, out)
    measured_on = "held_out" if held_out.total else "train"
    found = {
        **_described(vocabulary),
        "train_words_millions": round(train.total / 1e6, 6),
        "train_words_distinct": len(train.words),
        "train_words_too_long": train.long,
        "tokens_out_of_reach": out_of_reach(vocabulary, **options),
        "measured_on": measured_on,
        **(options if imported is not None else {}),
        **coverage(words[measured_on], make(vocabulary, **options)),
    }
    if compared is not None:
        measured = coverage(words[measured_on], make(compared, **options))
        found["compared"] = {"size": len(compared), **measured}
    return found


def _write(vocabulary: Sequence[str], options: Mapping[str, bool], out: Path) -> None:
    (out / "vocab.txt").write_bytes("".join(f"{token}\n" for token in vocabulary).encode())
    (out / "tokenizer.json").write_bytes(tokenizer_json(vocabulary, **options).encode())


def _described(vocabulary: Sequence[str]) -> dict[str, int]:
    return {"size": len(vocabulary), "characters": sum(len(token) == 1 for token in vocabulary)}


def learn(words: Words, config: VocabularyConfig) -> list[str]:
    """The vocabulary of counted words, in the order of the ids.

    First the special tokens in the configured layout, then every character of the alphabet and, as `##c`, every one
    that continues a word, then longer pieces in the order in which they were merged: the most frequent neighbours (as for
    BPE), until the vocabulary has `config.size` tokens. DataError where the words give fewer, unless `config.at_most`.
    """
    vocabulary = grown(words, config)
    if len(vocabulary) < config.size and not config.at_most:
        raise DataError(
            f"this text gives a vocabulary of at most {len(vocabulary)} tokens (pairs that occur "
            f"{config.min_frequency} times or more), but the recipe asks for {config.size}",
            _smaller(len(vocabulary), config.min_frequency),
        )
    return vocabulary


def grown(words: Words, config: VocabularyConfig) -> list[str]:
    """As `learn`, but with fewer tokens than `config.size` where the words give no more. DataError where characters alone are more."""
    head = layout(config)
    characters = alphabet.most_frequent(words, config.alphabet_limit)
    symbols, weights, continued = alphabet.spelled(words, characters, len(head))
    pinned = [*head, *characters, *(f"##{character}" for character in continued)]
    room = config.size - len(pinned)
    if room < 0 or (room == 0 and continued):  # of Chinese alone every character is a word, and nothing is merged
        raise DataError(
            f"vocabulary.size {config.size} leaves no room for words: special tokens and single characters, alone and "
            f"inside words, are already {len(pinned)}",
            "Raise vocabulary.size or lower vocabulary.alphabet_limit.",
        )
    return merged(
        symbols,
        weights,
        pinned,
        config.size,
        config.min_frequency,
        lambda done: progress.report(done, config.size, "tokens"),
    )


def _smaller(ceiling: int, min_frequency: int) -> str:
    """What to do about a text that gives `ceiling` tokens; only what a recipe may say."""
    ways = [f"set vocabulary.size to {ceiling} or less"] if ceiling >= LEAST_SIZE else []
    ways += ["lower vocabulary.min_frequency"] if min_frequency > 1 else []
    told = ", or ".join([*ways, "add text"])
    return f"{told[0].upper()}{told[1:]}."


def layout(config: VocabularyConfig) -> list[str]:
    """The special tokens at the head: 0–4, or [PAD] at 0 and the others at 100–103 behind [unused0] … [unused98]."""
    if config.layout == "compact":
        return list(SPECIAL_TOKENS)
    return ["[PAD]", *(f"[unused{number}]" for number in range(99)), *SPECIAL_TOKENS[1:]]


# ── a vocabulary made elsewhere ──────────────────────────────────────────────────────────────────────────────────────


def _named(key: str, named: PathFrom | str, config: VocabularyConfig) -> list[str]:
    """The tokens of the vocab.txt or the version of the store that vocabulary.`key` names."""
    vocabulary = read_vocabulary(Path(named.path) if isinstance(named, PathFrom) else _version(named))
    name = f"the vocabulary that vocabulary.{key} names"
    words = stand_for_text(vocabulary)
    capitals = sum(token.lower() != token for token in words)
    if config.lowercase and capitals > CAPITALS * len(words):
        raise DataError(
            f"{name} is cased: {capitals:,} of its {len(vocabulary):,} tokens have capital letters, which "
            "vocabulary.lowercase: true takes from every text",
            "Write lowercase: false and strip_accents: false, or name an uncased vocabulary.",
        )
    if not config.lowercase and not capitals and any("a" <= token <= "z" for token in words):
        raise DataError(
            f"{name} is uncased: none of its {len(vocabulary):,} tokens has a capital letter, so that every word with one "
            "would be [UNK]",
            "Write lowercase: true, or name a cased vocabulary.",
        )
    return list(vocabulary)


def _version(version: str) -> Path:
    """vocab.txt of a version in the store."""
    from pipeline.store import open_store

    store = open_store()
    if not store.content(STAGE.name, version).exists():
        raise DataError(
            f"the store holds no vocabulary of version {version}",
            "`bert audit RECIPE/wordpiece_vocab` names the version of a recipe's; a path names a file.",
        )
    return store.folder(STAGE.name, version) / "vocab.txt"


# ── how well it fits ─────────────────────────────────────────────────────────────────────────────────────────────────


def coverage(words: Words, tokenizer: Tokenizer) -> dict[str, Any]:
    """How a vocabulary fits counted words.

    Shares of the words that are [UNK] and that are one token, pieces per word, share of the pieces that begin with ##, how many
    tokens occur at all, words by their number of pieces, and the longest tokens with how often they occur.
    """
    uses = np.zeros(len(tokenizer.vocabulary), np.int64)
    by_pieces = np.zeros(6, np.int64)  # 0: [UNK]
    uses[tokenizer.unk_id] = by_pieces[0] = words.long
    for start in range(0, len(words.words), BATCH_WORDS):
        counts = words.counts[start : start + BATCH_WORDS]
        ids = tokenizer.encode_ids(words.words[start : start + BATCH_WORDS].to_pylist())
        lengths = np.array([len(each) for each in ids])
        known = np.array([tokenizer.unk_id not in each for each in ids])
        np.add.at(uses, np.concatenate(ids), np.repeat(counts, lengths))
        np.add.at(by_pieces, known * np.minimum(lengths, 5), counts)
        progress.report(start + len(counts), len(words.words), "words measured")
    total, pieces = words.total, int(uses.sum())
    continued = int(uses[[token.startswith("##") for token in tokenizer.vocabulary]].sum())
    used = dict(zip(tokenizer.vocabulary, uses.tolist(), strict=True))
    tokens = stand_for_text(tokenizer.vocabulary)
    longest = sorted(tokens, key=lambda token: (-len(token.removeprefix("##")), token))[:LONGEST]
    return {
        "words_millions": round(total / 1e6, 6),
        "unknown_rate": round(int(by_pieces[0]) / total, 8) if total else 0.0,
        "whole_word_share": round(int(by_pieces[1]) / total, 6) if total else 0.0,
        "pieces_per_word": round(pieces / total, 6) if total else 0.0,
        "continued_share": round(continued / pieces, 6) if pieces else 0.0,
        "tokens_used": sum(used[token] > 0 for token in tokens),
        "words_by_pieces": dict(zip(PIECES, by_pieces.tolist(), strict=True)),
        "longest_tokens": {token: used[token] for token in longest},
    }
