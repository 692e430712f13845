"""The WordPiece vocabulary of a corpus, by the trainer of `tokenizers`, with the same bytes on every run."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pipeline import progress
from pipeline.config import VocabularyConfig
from pipeline.errors import DataError
from pipeline.schemas import count_rows, iter_batches
from pipeline.stage import Stage
from pipeline.tokenizer import (
    MAX_WORD_CHARACTERS,
    SPECIAL_TOKENS,
    Tokenizer,
    bert_words,
    make,
    read_vocabulary,
    tokenizer_json,
)

STAGE = Stage(
    name="wordpiece_vocab",
    function="pipeline.vocabulary:train_vocabulary",
    version="1",
    libraries=("tokenizers",),
    sources=("pipeline/vocabulary.py", "pipeline/tokenizer.py"),
)

LINE_WORDS = 4096
"""How many words the trainer is fed at a time."""


def train_vocabulary(inputs: Mapping[str, Path], config: VocabularyConfig, out: Path) -> dict[str, Any]:
    """Write vocab.txt and tokenizer.json, trained on the train documents of `inputs["documents"]`, or taken from where
    the configuration says.

    The statistics are measured on the held-out documents. DataError where the text has no train documents, or gives
    fewer tokens than `config.size`, or its characters alone are more; where a vocabulary that is named is broken or not
    there.
    """
    chunks = _count_chunks(inputs["documents"])
    words = count_words(chunks["train"], config)
    if not words:
        raise DataError(f"{inputs['documents']} has no words in its train part", "Check the sources of the recipe.")
    vocabulary = learn(words, config) if config.trained else list(read_vocabulary(_named(config)))
    options = {"lowercase": config.lowercase, "strip_accents": config.strip_accents}
    (out / "vocab.txt").write_bytes("".join(f"{token}\n" for token in vocabulary).encode())
    (out / "tokenizer.json").write_bytes(tokenizer_json(vocabulary, **options).encode())
    measured_on = "held_out" if chunks["held_out"] else "train"
    tokenizer = make(vocabulary, **options)
    return {
        "size": len(vocabulary),
        "characters": sum(len(token) == 1 for token in vocabulary),
        "train_words_millions": round(sum(words.values()) / 1e6, 6),
        "train_words_distinct": len(words),
        "measured_on": measured_on,
        **coverage(count_words(chunks[measured_on], config), tokenizer),
        "longest_tokens": sorted(vocabulary, key=lambda token: (-len(token.removeprefix("##")), token))[:20],
    }


def _named(config: VocabularyConfig) -> Path:
    """The vocab.txt that the configuration names."""
    if config.file is not None:
        return Path(config.file.path)
    from pipeline.build import open_store

    store = open_store()
    if not store.content(STAGE.name, config.from_).exists():
        raise DataError(
            f"the store holds no vocabulary of version {config.from_}",
            "`bert audit RECIPE/wordpiece_vocab` names the version of a recipe's; a path names a file.",
        )
    return store.folder(STAGE.name, config.from_) / "vocab.txt"


def _count_chunks(folder: Path) -> dict[str, Counter[str]]:
    """How often each stretch of text between spaces stands in each split; memory grows with their variety only."""
    counts: dict[str, Counter[str]] = {"train": Counter(), "held_out": Counter()}
    total, done = count_rows(folder), 0
    # Only characters that the normaliser too makes a space: others (U+001C, U+0085) it deletes, which joins words.
    space = re.compile(r"[ \t\r\n]+")
    for batch in iter_batches(folder, ["split", "text"]):
        for split, text in zip(batch["split"].to_pylist(), batch["text"].to_pylist(), strict=True):
            counts[split].update(space.split(text))
            done += 1
            progress.report(done, total, "documents")
    for counter in counts.values():
        del counter[""]
    return counts


def count_words(chunks: Mapping[str, int], config: VocabularyConfig) -> Counter[str]:
    """Counts of the words that BERT's normaliser and pre-tokeniser make of counted stretches of text."""
    words: Counter[str] = Counter()
    split = bert_words(lowercase=config.lowercase, strip_accents=config.strip_accents)
    for chunk, count in chunks.items():
        for word in split(chunk):
            words[word] += count
    return words


def learn(words: Mapping[str, int], config: VocabularyConfig) -> list[str]:
    """The vocabulary of counted words, in the order of the ids.

    First the special tokens in the configured layout, then every character of the alphabet and, as `##c`, every one
    that continues a word, then longer pieces in the order in which they were merged. The trainer merges the most
    frequent neighbours (as for BPE) until the vocabulary has `config.size` tokens.
    """
    from tokenizers import Tokenizer as Library
    from tokenizers import models, pre_tokenizers, trainers

    head = layout(config)
    characters = _alphabet(words, config.alphabet_limit)
    known = set(characters)
    usable = {word: n for word, n in words.items() if len(word) <= MAX_WORD_CHARACTERS and known.issuperset(word)}
    continued = sorted({character for word in usable for character in word[1:]})
    # The trainer numbers characters inside words in the order in which a hash map yields them, another one in every
    # run, and breaks ties between merges by these numbers. As "special tokens" they have their numbers beforehand.
    pinned = [*head, *characters, *(f"##{character}" for character in continued)]
    if len(pinned) >= config.size:
        raise DataError(
            f"vocabulary.size {config.size} leaves no room for words: special tokens and single characters, alone and "
            f"inside words, are already {len(pinned)}",
            "Raise vocabulary.size or lower vocabulary.alphabet_limit.",
        )
    trainer = trainers.WordPieceTrainer(
        vocab_size=config.size,
        min_frequency=config.min_frequency,
        show_progress=False,
        special_tokens=pinned,
        limit_alphabet=len(known) + 1,
        continuing_subword_prefix="##",
    )
    library = Library(models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.train_from_iterator(_lines(usable), trainer)
    numbers = library.get_vocab(with_added_tokens=False)
    vocabulary = sorted(numbers, key=numbers.__getitem__)
    if len(vocabulary) < config.size:
        raise DataError(
            f"this text gives a vocabulary of at most {len(vocabulary)} tokens (pairs that occur "
            f"{config.min_frequency} times or more), but the recipe asks for {config.size}",
            f"Set vocabulary.size to {len(vocabulary)} or less, lower vocabulary.min_frequency, or add text.",
        )
    if len(vocabulary) != config.size or vocabulary[: len(pinned)] != pinned:
        raise DataError("the trainer of `tokenizers` returned another vocabulary than it was asked for")
    return vocabulary


def layout(config: VocabularyConfig) -> list[str]:
    """The special tokens at the head: 0–4, or [PAD] at 0 and the others at 100–103 behind [unused0] … [unused98]."""
    if config.layout == "compact":
        return list(SPECIAL_TOKENS)
    return ["[PAD]", *(f"[unused{number}]" for number in range(99)), *SPECIAL_TOKENS[1:]]


def _alphabet(words: Mapping[str, int], limit: int) -> list[str]:
    """The most frequent characters, of equally frequent ones those with the lower code point, sorted."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return sorted(sorted(counts, key=lambda character: (-counts[character], character))[:limit])


def _lines(words: Mapping[str, int]) -> Iterator[str]:
    """Every word as often as it was counted: the library takes no counts."""
    for word in sorted(words):
        count = words[word]
        while count > 0:
            yield " ".join([word] * min(count, LINE_WORDS))
            count -= LINE_WORDS


def coverage(words: Mapping[str, int], tokenizer: Tokenizer) -> dict[str, float]:
    """How a vocabulary fits counted words: share of words that are [UNK], pieces per word, share of ## pieces."""
    total = sum(words.values())
    unknown = pieces = continued = 0
    listed = list(words)
    for word, ids in zip(listed, tokenizer.encode_ids(listed), strict=True):
        count = words[word]
        unknown += count * (tokenizer.unk_id in ids)
        pieces += count * len(ids)
        continued += count * sum(token.startswith("##") for token in tokenizer.tokens(ids))
    return {
        "words_millions": round(total / 1e6, 6),
        "unknown_rate": round(unknown / total, 8) if total else 0.0,
        "pieces_per_word": round(pieces / total, 6) if total else 0.0,
        "continued_share": round(continued / pieces, 6) if pieces else 0.0,
    }
