"""How large a model a text can teach, and how long: the numbers of a recipe, from counts of its text alone."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipeline.prose.languages import base_code

LEAST_DOCUMENTS = 2
"""of each part: a random next sentence needs another document"""
BY_CHANCE = 10
"""Held-out documents to expect where it is not known which they are: fewer than LEAST_DOCUMENTS then come once in two thousand
times (Poisson)."""
TOLD_ALPHABET = 1000
"""`vocabulary.alphabet_limit` unless a recipe says otherwise"""

PASSES = 40
"""over the text: what the paper trained BERT for (Devlin et al. 2019, appendix A.2)"""
TOKENS_PER_WEIGHT = 20
"""that a model sees in training and makes use of (Hoffmann et al. 2022, table 3)"""
DUPE_FACTOR = 10
"""as the paper's code"""
MOST_STEPS = 1_000_000
"""as the paper"""
LEAST_STEPS = 100
FILLED = {64: 0.92, 128: 0.92, 512: 0.80}
"""Share of a row that is not padding, by its length: what shards of real text have (7 to 9 % padding at 128, 18 to 23 % at 512)"""
LONG_SHARE = 0.1
"""of the steps are of long rows (Devlin et al. 2019, appendix A.2)"""

_HELD_OUT = (0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_ENOUGH = (
    (10, 60_000, 0.1),
    (LEAST_DOCUMENTS, 6_000, 0.3),
    (LEAST_DOCUMENTS, 3_000, 0.5),
    (LEAST_DOCUMENTS, 0, 0.5),
)
"""(documents, characters, largest share): some 10,000 tokens tell the accuracy of masked words to ±2.5 points, some 1,000 to ±8;
fewer than 500 are not published (pipeline/suites.py), and 3,000 characters make as many; then as the documents allow."""
VOCABULARY = ((100_000_000, 30_522), (10_000_000, 16_000), (1_000_000, 8_000), (0, 4_000))
"""(words of the text from which on, tokens); the last of the table is the paper's"""
_CASELESS = frozenset(
    """
am ar as bn bo dv dz fa gu he hi ja ka km kn ko ks lo ml mr my ne or pa ps sa sd si ta te th ti ug ur yi za zh
""".split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Casing:
    """What the vocabulary makes of capitals and accents, and why."""

    lowercase: bool
    strip_accents: bool
    why: str

    @property
    def options(self) -> dict[str, bool]:
        """As keyword arguments of tokenizers."""
        return {"lowercase": self.lowercase, "strip_accents": self.strip_accents}


@dataclass(frozen=True)
class Text:
    """Counts of a text; where only a part was read, those of all of it, estimated."""

    share_read: float
    """1: all of it"""
    documents: int
    held_out_documents: int
    characters: int
    train_words: int
    """words and punctuation marks, as BERT cuts them, of the documents to train on"""
    held_out_words: int
    held_out: float
    """share of the documents"""
    pieces_per_word: float
    """tokens of a word, with a vocabulary of this size made of this text"""
    vocabulary: int
    alphabet: int
    """characters that make up nearly all of the text"""
    read: int
    dropped: dict[str, int]
    """documents of those that were read, by reason"""
    detected: str
    """the language of most documents, by the detector"""
    language_share: float
    """of the documents, that are in the language that was said"""

    @property
    def train_tokens(self) -> int:
        """Tokens that one pass over the text is."""
        return round(self.train_words * self.pieces_per_word)

    @property
    def document_tokens(self) -> float:
        """Tokens of a document, on average."""
        words = self.train_words + self.held_out_words
        return words * self.pieces_per_word / max(1, self.documents)


@dataclass(frozen=True)
class Size:
    """A model, and how it is trained on a text that is large enough for it and no larger one."""

    name: str
    layers: int
    hidden: int
    heads: int
    batch_size: int
    learning_rate: str
    """as it is written"""

    def weights(self, vocabulary: int, positions: int) -> int:
        """How many numbers are learned, the two heads of pretraining included (model/bert.py)."""
        h, inner = self.hidden, 4 * self.hidden
        embeddings = (vocabulary + positions + 2) * h + 2 * h
        layer = 4 * (h * h + h) + 2 * (h * inner) + inner + h + 4 * h
        heads = (h * h + h) + (h * h + h + 2 * h + vocabulary) + 2 * h + 2
        return embeddings + self.layers * layer + heads


SIZES = (
    Size("tiny", 2, 128, 2, 32, "1e-3"),
    Size("mini", 4, 256, 4, 64, "5e-4"),
    Size("small", 4, 512, 8, 128, "5e-4"),
    Size("medium", 8, 512, 8, 256, "2e-4"),
    Size("base", 12, 768, 12, 256, "1e-4"),
)
"""The models that google-research/bert released (Turc et al. 2019), the smallest first. Batch and rate of base are the paper's, smaller
models take larger steps; those of small are ELECTRA-small's (Clark et al. 2020)."""


@dataclass(frozen=True)
class PhaseSize:
    """A sequence length and its steps."""

    sequence_length: int
    steps: int


@dataclass(frozen=True)
class Sizes:
    """The numbers of a recipe."""

    model: Size
    weights: int
    phases: tuple[PhaseSize, ...]
    passes: float
    """over the text, of all phases together"""
    dupe_factor: int
    larger: Size | None
    """the next model"""
    larger_words: int
    """about how many words of such text it wants"""

    @property
    def steps(self) -> int:
        """Of all phases."""
        return sum(phase.steps for phase in self.phases)

    @property
    def positions(self) -> int:
        """Of the longest phase."""
        return max(phase.sequence_length for phase in self.phases)


def casing(language: str) -> Casing:
    """How capitals and accents of a language are treated."""
    code = base_code(language)
    if code == "en":
        return Casing(
            True, True, "as the uncased BERT: English loses little by it, and the same words stand for more text"
        )
    if code == "de":
        return Casing(False, False, "German nouns are told by their capital letter, and schon is not schön")
    if code in _CASELESS:
        return Casing(False, False, "the script has no capitals, and its marks belong to the letters")
    return Casing(
        False, False, "names are told by their capital letter, and letters with marks are letters of their own"
    )


def held_out_shares(
    count: Callable[[float], tuple[float, float]], documents: float, least: int = LEAST_DOCUMENTS
) -> list[float]:
    """Shares of documents to hold out, the best first; empty where no share leaves `least` of them in both parts.

    Args:
        count: share → (documents, characters) that it holds out.
        documents: all of them.
    """
    good: list[float] = []
    for enough, characters, largest in _ENOUGH:
        for share in _HELD_OUT:
            held, size = count(share)
            if share <= largest and max(enough, least) <= held <= documents - least and size >= characters:
                good.append(share)
    return list(dict.fromkeys(good))


def wanted_vocabulary(words: int, characters: int) -> int:
    """Tokens of the vocabulary by the words of the text; where a script has many characters, these come on top."""
    return next(size for least, size in VOCABULARY if words >= least) + (
        characters if characters > TOLD_ALPHABET else 0
    )


def rounded_down(size: int) -> int:
    """Two digits, and zeros; the paper's number stays."""
    if size in (wanted for _, wanted in VOCABULARY):
        return size
    step = 10 ** max(0, math.floor(math.log10(max(1, size))) - 1)
    return size // step * step


def sizes(text: Text) -> Sizes:
    """The largest model whose weights the text can teach, and steps for PASSES over it."""
    useful = PASSES * text.train_tokens / TOKENS_PER_WEIGHT
    short = 64 if text.document_tokens <= 64 else 128
    place = max(
        (n for n, size in enumerate(SIZES) if size.weights(text.vocabulary, _positions(n, text)) <= useful), default=0
    )
    model = SIZES[place]
    phases = _phases(text, model, (short,) if _positions(place, text) == short else (short, 512))
    seen = sum(phase.steps * _tokens(model, phase.sequence_length) for phase in phases)
    passes = seen / max(1, text.train_tokens)
    larger = SIZES[place + 1] if place + 1 < len(SIZES) else None
    tokens = 0.0
    if larger:
        tokens = TOKENS_PER_WEIGHT * larger.weights(text.vocabulary, _positions(place + 1, text)) / PASSES
    return Sizes(
        model=model,
        weights=model.weights(text.vocabulary, max(phase.sequence_length for phase in phases)),
        phases=phases,
        passes=passes,
        dupe_factor=max(1, min(DUPE_FACTOR, math.ceil(passes))),
        larger=larger,
        larger_words=_round(tokens / text.pieces_per_word),
    )


def _positions(place: int, text: Text) -> int:
    """Tokens of the longest rows: small models see little beyond a paragraph, and rows are no longer than documents."""
    if text.document_tokens <= 64:
        return 64
    return 512 if SIZES[place].hidden >= 512 and text.document_tokens >= 256 else 128


def _tokens(model: Size, length: int) -> float:
    """That a step sees, padding left out."""
    return model.batch_size * length * FILLED[length]


def _phases(text: Text, model: Size, lengths: Sequence[int]) -> tuple[PhaseSize, ...]:
    shares = (1.0,) if len(lengths) == 1 else (1 - LONG_SHARE, LONG_SHARE)
    a_step = sum(share * _tokens(model, length) for share, length in zip(shares, lengths, strict=True))
    steps = min(MOST_STEPS, max(LEAST_STEPS, _round(PASSES * text.train_tokens / a_step)))
    return tuple(PhaseSize(length, max(1, round(share * steps))) for share, length in zip(shares, lengths, strict=True))


def _round(number: float) -> int:
    """Two digits, and zeros."""
    if number < 100:
        return math.ceil(number)
    unit = 10 ** (math.floor(math.log10(number)) - 1)
    return round(number / unit) * unit
