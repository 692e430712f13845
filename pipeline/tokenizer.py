"""BERT's tokenizer over a vocabulary folder (vocab.txt, tokenizer.json), by the `tokenizers` library.

Text is normalised and split as in google-research/bert tokenization.py: clean, space around CJK characters, lowercase
and strip accents (each if asked), split at whitespace and punctuation, greedy longest match with `##`; a word of more
than 200 characters is [UNK]. The one difference: a final capital Σ is lowercased to σ, not ς, as the library does it.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipeline.config import LARGEST_SIZE
from pipeline.errors import DataError
from pipeline.formats.foreign_json import parsed
from pipeline.ragged import ranges
from pipeline.words import fast_tokens

if TYPE_CHECKING:
    import tokenizers

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MAX_WORD_CHARACTERS = 200
"""of google-research/bert; the library's own default is 100"""
MAX_BYTES = 64 << 20
"""Of a vocab.txt; a million tokens of 64 bytes."""


_WHOLE = "The number of a line is the id of its token, so no line may go or come: take the model's own vocab.txt."
_CONTROL = re.compile(r"\[(PAD|UNK|CLS|SEP|MASK|unused\d+)\]")


@dataclass(frozen=True)
class Located:
    """A text in pieces. Piece i stands for `text[starts[i] : ends[i]]`: never nothing, and neither end ever falls.

    What normalisation drops lies between pieces, or inside one (a control character in a word). Pieces can share a
    character: a Korean syllable without accents is several. A piece takes in the marks that stand behind it.
    """

    text: str
    ids: npt.NDArray[np.int32]
    """[pieces]"""
    starts: npt.NDArray[np.int64]
    """[pieces] characters of `text`"""
    ends: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Tokenizer:
    """A vocabulary and the way from text to its ids.

    No control token comes out of running text: "[MASK]" in an article is the words `[`, `mask`, `]`, as originally.
    """

    vocabulary: tuple[str, ...]
    lowercase: bool
    strip_accents: bool
    pad_id: int
    unk_id: int
    cls_id: int
    sep_id: int
    mask_id: int
    _plain: "tokenizers.Tokenizer"
    _words: "_KnownWords" = field(default_factory=lambda: _KnownWords(), repr=False, compare=False)

    @property
    def special_ids(self) -> tuple[int, int, int, int, int]:
        """Ids of [PAD], [UNK], [CLS], [SEP], [MASK]."""
        return self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id

    def encode_ids(self, texts: Sequence[str]) -> list[np.ndarray]:
        """Ids (int32 [pieces]) of each text, without [CLS] and [SEP]; the only special id that can occur is [UNK]."""
        encoded = self._plain.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(encoding.ids, dtype=np.int32) for encoding in encoded]

    def encode_located(self, texts: Sequence[str]) -> Iterator["Located"]:
        """The ids of each text, as those of `encode_ids`, with the characters of the text that each piece stands for."""
        for start in range(0, len(texts), _LOCATED_AT_ONCE):
            some = list(texts[start : start + _LOCATED_AT_ONCE])
            for text, encoding in zip(some, self._plain.encode_batch(some, add_special_tokens=False), strict=True):
                yield _located(text, encoding.ids, encoding.offsets)

    def encode_flat(self, texts: Sequence[str]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Ids of all texts, one after the other, and where each begins: int32 [pieces], int64 [texts + 1].

        The same ids as those of `encode_ids`, several times faster on much text: what stands between two spaces is
        looked up, and only what was never seen goes to the library. All goes to `nanotoken` where that can be used.
        """
        if self._fast is not None:
            return self._fast(texts)
        import pyarrow as pa
        import pyarrow.compute as pc

        words = pc.split_pattern(pa.array(texts, pa.string()), " ")
        distinct = words.values.dictionary_encode()
        known = self._words.find(distinct.dictionary.to_pylist(), self.encode_ids)
        ids, ends = self._words.gathered(known[distinct.indices.to_numpy(zero_copy_only=False)])
        return ids, ends[words.offsets.to_numpy()]

    @cached_property
    def _fast(self) -> fast_tokens.Flat | None:
        return fast_tokens.encoder(self._plain.to_str(), self.encode_ids, self.vocabulary)

    def forget_words(self) -> None:
        """Free what `encode_flat` has learnt; it learns again."""
        self._words.forget()

    def encode_prompt(self, text: str) -> np.ndarray:
        """Ids (int32) of a text in which a person wrote [MASK] and means it; without [CLS] and [SEP]."""
        parts = self.encode_ids(text.split("[MASK]"))
        mask = np.array([self.mask_id], dtype=np.int32)
        return np.concatenate([piece for part in parts for piece in (mask, part)][1:])

    def tokens(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        """The pieces behind ids."""
        return [self.vocabulary[i] for i in ids]

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """Pieces joined to words with a space between; what normalisation took away does not come back."""
        return " ".join(self.tokens(ids)).replace(" ##", "")


_LOCATED_AT_ONCE = 1024
"""texts; the library's own encodings are large"""


def _located(text: str, ids: Sequence[int], offsets: Sequence[tuple[int, int]]) -> Located:
    spans = np.array(offsets, dtype=np.int64).reshape(-1, 2)  # [pieces, 2]
    # Normalisation may put marks into another order; characters of pieces that follow each other must too.
    starts = np.minimum.accumulate(spans[::-1, 0])[::-1]
    ends = np.maximum.accumulate(spans[:, 1])
    if len(spans) and not text.isascii():
        # An accent of its own that was stripped belongs to no piece: without it the text of a piece would be cut.
        for piece, limit in enumerate([*starts[1:].tolist(), len(text)]):
            end = int(ends[piece])
            while end < limit and unicodedata.category(text[end]).startswith("M"):
                end += 1
            ends[piece] = end
    return Located(text, np.array(ids, dtype=np.int32), starts, ends)


MAX_KNOWN_WORDS = 200_000
"""about 40 MB; beyond that what is known is forgotten"""
_PRINTABLE = re.compile(r"[!-~]+")
_RUNS = re.compile(r"[0-9A-Za-z]+|[^0-9A-Za-z]")


Encode = Callable[[Sequence[str]], list[npt.NDArray[np.int32]]]


class _KnownWords:
    """The ids of stretches of text without spaces: `ids[starts[i] : starts[i] + lengths[i]]` of number i."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing."""
        self.numbers: dict[str, int] = {}
        self.ids = np.empty(0, np.int32)
        self.starts = np.empty(0, np.int64)
        self.lengths = np.empty(0, np.int64)

    def find(self, words: Sequence[str], encode: Encode) -> npt.NDArray[np.int64]:
        """The numbers of distinct words; those that are new are encoded first."""
        new = [word for word in words if word not in self.numbers]
        if new and len(self.numbers) + len(new) > MAX_KNOWN_WORDS:
            self.forget()
            new = list(words)
        if new:
            self._learn(new, encode)
        return np.fromiter(map(self.numbers.__getitem__, words), np.int64, len(words))

    def gathered(self, numbers: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """(ids of these words, one after the other; where each begins, and the end of the last)."""
        lengths = self.lengths[numbers]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        return self.ids[ranges(self.starts[numbers], lengths)], ends

    def _learn(self, new: Sequence[str], encode: Encode) -> None:
        # BERT sets punctuation apart whatever stands beside it, so that `word.` is `word` and `.`, each seen before.
        # Of ASCII alone: elsewhere a mark can change its neighbour, and a control character joins what it stands between.
        runs = {word: parts for word in new if _PRINTABLE.fullmatch(word) and len(parts := _RUNS.findall(word)) > 1}
        parts = list(chain.from_iterable(runs.values()))
        alone = dict.fromkeys([word for word in new if word not in runs])
        alone |= dict.fromkeys(part for part in parts if part not in self.numbers)
        encoded = encode(list(alone))
        self._add(list(alone), np.concatenate([[], *encoded]), np.fromiter(map(len, encoded), np.int64, len(alone)))
        numbers = np.fromiter(map(self.numbers.__getitem__, parts), np.int64, len(parts))
        ids, ends = self.gathered(numbers)
        counts = np.fromiter(map(len, runs.values()), np.int64, len(runs))
        self._add(list(runs), ids, np.diff(ends[np.concatenate([[0], np.cumsum(counts)])]))

    def _add(self, words: Sequence[str], ids: npt.NDArray[Any], lengths: npt.NDArray[np.int64]) -> None:
        self.starts = np.concatenate([self.starts, len(self.ids) + np.cumsum(lengths) - lengths])
        self.lengths = np.concatenate([self.lengths, lengths])
        self.ids = np.concatenate([self.ids, ids.astype(np.int32)])
        self.numbers.update(zip(words, range(len(self.numbers), len(self.starts)), strict=True))


def load(folder: Path) -> Tokenizer:
    """Load the tokenizer of a folder with vocab.txt and tokenizer.json; DataError where they are broken or disagree."""
    vocabulary = read_vocabulary(folder / "vocab.txt")
    path = folder / "tokenizer.json"
    try:
        described = parsed(path.read_text(encoding="utf-8"))
        normalizer, listed = described["normalizer"], described["model"]["vocab"]
        lowercase, strip_accents = normalizer["lowercase"], normalizer["strip_accents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is not the tokenizer of a BERT vocabulary: {error!r}", "Take the one that belongs to vocab.txt."
        ) from error
    if listed != {token: number for number, token in enumerate(vocabulary)}:
        raise DataError(f"{path} and vocab.txt beside it list different tokens", "Take both from one model.")
    return make(vocabulary, lowercase=lowercase, strip_accents=lowercase if strip_accents is None else strip_accents)


def make(vocabulary: Sequence[str], *, lowercase: bool, strip_accents: bool) -> Tokenizer:
    """A tokenizer over the tokens in the order of their ids; DataError for a token that is missing or stands twice."""
    numbers = check(vocabulary)
    return Tokenizer(
        tuple(vocabulary),
        lowercase,
        strip_accents,
        pad_id=numbers["[PAD]"],
        unk_id=numbers["[UNK]"],
        cls_id=numbers["[CLS]"],
        sep_id=numbers["[SEP]"],
        mask_id=numbers["[MASK]"],
        _plain=_plain(numbers, lowercase, strip_accents),
    )


def check(vocabulary: Sequence[str], name: str = "the vocabulary") -> dict[str, int]:
    """Token → id; DataError for a token that is empty, too long or stands twice, or a missing special token."""
    numbers: dict[str, int] = {}
    for number, token in enumerate(vocabulary):
        if not token.strip():
            raise DataError(f"{name}: token {number} (line {number + 1}) is empty", _WHOLE)
        if len(token) > MAX_WORD_CHARACTERS + len("##"):
            raise DataError(
                f"{name}: token {number} (line {number + 1}), {token[:30]!r} …, has {len(token):,} characters; words of "
                f"more than {MAX_WORD_CHARACTERS} are [UNK]",
                "Is it a vocab.txt? One has a token a line.",
            )
        if token in numbers:
            lines = f"line {numbers[token] + 1} and on line {number + 1}"
            raise DataError(f"{name}: {token!r} stands on {lines}", _WHOLE)
        numbers[token] = number
    missing = [token for token in SPECIAL_TOKENS if token not in numbers]
    if missing:
        raise DataError(
            f"{name} lacks {', '.join(missing)}", "A BERT vocabulary has all of " + ", ".join(SPECIAL_TOKENS)
        )
    return numbers


def read_vocabulary(path: Path) -> tuple[str, ...]:
    """The tokens of a vocab.txt, one a line, in the order of their ids; DataError where it is broken."""
    try:
        if path.exists() and not path.is_file():
            raise DataError(f"{path} is no file", "Name a vocab.txt.")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES or content.count(b"\n") > LARGEST_SIZE:
            raise DataError(
                f"{path} has more than {LARGEST_SIZE:,} lines or {MAX_BYTES >> 20} MiB, and no vocabulary has",
                "Is it a vocab.txt? One has a token a line.",
            )
        text = content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} can't be read as a vocabulary: {error}",
            "A vocab.txt is UTF-8 text, one token a line: copy the model's own again.",
        ) from error
    tokens = tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
    check(tokens, str(path))
    return tokens


def tokenizer_json(vocabulary: Sequence[str], *, lowercase: bool, strip_accents: bool) -> str:
    """The text of a tokenizer.json that loads anywhere: [CLS] and [SEP] are added, only the five are special tokens."""
    from tokenizers import AddedToken, decoders, processors

    numbers = check(vocabulary)
    tokenizer = _plain(numbers, lowercase, strip_accents)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"]))
    tokenizer.decoder = decoders.WordPiece(prefix="##")
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer.to_str(pretty=True) + "\n"


def bert_words(*, lowercase: bool, strip_accents: bool) -> Callable[[Mapping[str, int]], Counter[str]]:
    """A function from counted texts to the counts of their words, as BERT's normaliser and pre-tokeniser make them.

    Words are what becomes pieces: "Don't" is `don`, `'`, `t`, and every Chinese character is one.
    """
    from tokenizers import pre_tokenizers

    normalize = _normalizer(lowercase, strip_accents).normalize_str
    split = pre_tokenizers.BertPreTokenizer().pre_tokenize_str

    def words(texts: Mapping[str, int]) -> Counter[str]:
        between_spaces: Counter[str] = Counter()
        for text, count in texts.items():
            for part in normalize(text).split(" "):
                between_spaces[part] += count
        found: Counter[str] = Counter()
        for part, count in between_spaces.items():  # each once: splitting is slower than normalising
            for word, _ in split(part):
                found[word] += count
        return found

    return words


def stand_for_text(vocabulary: Sequence[str]) -> list[str]:
    """The tokens but for [PAD], [unused0] and others of their form."""
    return [token for token in vocabulary if not _CONTROL.fullmatch(token)]


def out_of_reach(vocabulary: Sequence[str], *, lowercase: bool, strip_accents: bool) -> int:
    """How many tokens that stand for text no text can give, because it is normalised or split otherwise."""
    words = bert_words(lowercase=lowercase, strip_accents=strip_accents)
    texts = [token[2:] if len(token) > 2 and token.startswith("##") else token for token in stand_for_text(vocabulary)]
    return sum(words({text: 1}) != {text: 1} for text in texts)


def _normalizer(lowercase: bool, strip_accents: bool) -> "tokenizers.normalizers.BertNormalizer":
    from tokenizers.normalizers import BertNormalizer

    return BertNormalizer(clean_text=True, handle_chinese_chars=True, strip_accents=strip_accents, lowercase=lowercase)


def _plain(numbers: dict[str, int], lowercase: bool, strip_accents: bool) -> "tokenizers.Tokenizer":
    """Without added tokens, which the library would find in running text, and without [CLS] and [SEP]."""
    import tokenizers
    from tokenizers import models, pre_tokenizers

    model = models.WordPiece(
        numbers, unk_token="[UNK]", continuing_subword_prefix="##", max_input_chars_per_word=MAX_WORD_CHARACTERS
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = _normalizer(lowercase, strip_accents)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer
