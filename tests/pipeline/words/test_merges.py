"""Merging from counts equals the trainer of `tokenizers`, which is fed every word as often as it was counted."""

import lzma
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.errors import BertError
from pipeline.tokenizer import SPECIAL_TOKENS, bert_words
from pipeline.wikipedia import read_pages, read_site
from pipeline.wikitext import to_text
from pipeline.words.alphabet import most_frequent, spelled
from pipeline.words.merges import merged
from pipeline.words.word_counts import Words
from tests.conftest import shared


def of_library(words: Mapping[str, int], pinned: list[str], size: int, min_frequency: int) -> list[str]:
    """What `tokenizers` makes of the words when the numbers of all characters are given; without, each run gives another order."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    def lines() -> Iterator[str]:
        for word, count in sorted(words.items()):
            for start in range(0, count, 4096):
                yield " ".join([word] * min(4096, count - start))

    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        show_progress=False,
        special_tokens=pinned,
        limit_alphabet=1_000_000,
        continuing_subword_prefix="##",
    )
    library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    library.train_from_iterator(lines(), trainer)
    numbers = library.get_vocab(with_added_tokens=False)
    return sorted(numbers, key=numbers.__getitem__)


def both(words: Mapping[str, int], more: int, min_frequency: int) -> tuple[list[str], list[str], int]:
    """(ours, the library's, how many tokens stand before the merged ones) with `more` tokens asked for."""
    counted = Words(pa.array(list(words), pa.large_string()), np.array(list(words.values()), np.int64))
    characters = most_frequent(counted, 1_000_000)
    symbols, weights, continued = spelled(counted, characters, len(SPECIAL_TOKENS))
    pinned = [*SPECIAL_TOKENS, *characters, *(f"##{character}" for character in continued)]
    size = len(pinned) + more
    ours = merged(symbols, weights, pinned, size, min_frequency)
    return ours, of_library(words, pinned, size, min_frequency), len(pinned)


def test_by_hand() -> None:
    # a ##a 3 (twice in aaa), ##a ##b 2, a ##b 1 → aa; then aaa is aa ##a (1), aab is aa ##b (2) → aab
    ours, library, pinned = both({"aaa": 1, "aab": 2, "ab": 1}, 2, 1)
    assert ours[pinned:] == ["aa", "aab"]
    assert ours == library


@given(
    st.dictionaries(
        st.text(st.sampled_from("abcé"), min_size=1, max_size=12), st.integers(1, 9), min_size=1, max_size=25
    ),
    st.integers(1, 60),
    st.integers(1, 4),
)
@settings(max_examples=400, deadline=None)
def test_words_of_few_letters_where_pairs_tie_and_overlap(words: dict[str, int], more: int, min_frequency: int) -> None:
    ours, library, _ = both(words, more, min_frequency)
    assert ours == library


@given(st.dictionaries(st.text(min_size=1, max_size=8).filter(str.isalnum), st.integers(1, 3), min_size=1, max_size=25))
@settings(max_examples=100, deadline=None)
def test_words_of_any_letters(words: dict[str, int]) -> None:
    ours, library, _ = both(words, 20, 1)
    assert ours == library


def english() -> str:
    return lzma.decompress(shared("data/reference/pairs_corpus.txt.xz").read_bytes()).decode()[:1_500_000]


@cache
def of_wiki(name: str) -> str:
    path = shared(f"data/wikipedia/{name}")
    texts: list[str] = []
    site = read_site(path)
    try:
        for page in read_pages(path):
            if page.namespace == 0 and not page.redirect:
                texts.append(to_text(page.text, site))
    except BertError:  # the end of the file is cut off
        pass
    return "\n".join(texts)[:500_000]


def novels() -> str:
    return "\n".join(
        path.read_text(encoding="utf-8-sig") for path in sorted(shared("data/books/novels").glob("*.txt"))[:3]
    )


REAL: dict[str, Callable[[], str]] = {
    "english": english,
    "novels": novels,
    "ja": partial(of_wiki, "jawiki-20220720-head.xml.bz2"),
    **{name: partial(of_wiki, f"minidumps/{name}_wiki.xml.bz2") for name in ("zh", "ko", "ru", "ar", "de")},
}


@pytest.mark.parametrize("name", REAL)
@pytest.mark.parametrize(("more", "min_frequency", "lowercase"), [(4000, 2, True), (1_000_000, 3, False)])
def test_real_text(name: str, more: int, min_frequency: int, lowercase: bool) -> None:
    words = bert_words(lowercase=lowercase, strip_accents=lowercase)({REAL[name](): 1})
    words = Counter({word: count for word, count in words.items() if len(word) <= 200})
    assert len(words) > 200
    ours, library, pinned = both(words, more, min_frequency)
    assert len(ours) > pinned + 50
    assert ours == library


def test_places_beyond_a_block(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(5)
    words = {"".join(draw.choices("abcd", k=draw.randint(1, 9))): draw.randint(1, 20) for _ in range(300)}
    whole = both(words, 200, 2)
    monkeypatch.setattr("pipeline.words.merges.BLOCK", 7)
    monkeypatch.setattr("pipeline.words.alphabet.BLOCK_WORDS", 11)
    assert both(words, 200, 2) == whole
    assert whole[0] == whole[1]


def test_counts_beyond_32_bits() -> None:
    # the library would count to 2^31 only; more than 2^53 in all would be too much for floats
    words = {"ab": 3_000_000_000, "cd": 3_000_000_001, "ef": 1}
    counted = Words(pa.array(list(words), pa.large_string()), np.array(list(words.values()), np.int64))
    characters = most_frequent(counted, 5)
    assert characters == ["a", "b", "c", "d", "e"]
    symbols, weights, continued = spelled(counted, characters, 0)
    assert continued == ["b", "d"]
    pinned = [*characters, "##b", "##d"]
    assert merged(symbols, weights, pinned, 9, 2) == [*pinned, "cd", "ab"]
