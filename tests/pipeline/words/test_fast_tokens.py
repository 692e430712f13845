"""nanotoken gives the ids of `tokenizers` for whatever text; where it is not installed, these tests skip."""

import json
import random

import numpy as np
import pytest

from pipeline.tokenizer import make, read_vocabulary
from pipeline.words import fast_tokens
from pipeline.words.fast_tokens import agrees, encoder, probes
from tests.conftest import shared

VOCABULARIES = ("uncased", "cased", "multilingual-cased")
KINDS = [(True, True), (True, False), (False, True), (False, False)]


@pytest.fixture(scope="module", params=[(name, *kind) for name in VOCABULARIES for kind in KINDS], ids=str)
def both(request):
    """(nanotoken's encoder, ours) over one of three vocabularies, lowercased or not, with accents or not."""
    pytest.importorskip("nanotoken", reason="needs nanotoken: pip install nanotoken==0.1.0")
    name, lowercase, strip_accents = request.param
    vocabulary = read_vocabulary(shared(f"data/reference/vocab-bert-base-{name}.txt"))
    tokenizer = make(vocabulary, lowercase=lowercase, strip_accents=strip_accents)
    fast = encoder(tokenizer._plain.to_str(), tokenizer.encode_ids, vocabulary)
    assert fast is not None
    return fast, tokenizer


def test_every_character(both):
    """Of the first two planes; above, where few are assigned, some. (All were compared for the version that is named.)"""
    fast, tokenizer = both
    codes = (*range(0xD800), *range(0xE000, 0x20000), *range(0x20000, 0x110000, 37))
    characters = (chr(code) for code in codes)
    assert agrees(fast, tokenizer.encode_ids, [f"xa{each}b {each} ." for each in characters])


def test_golden_texts(both):
    fast, tokenizer = both
    lines = shared("data/reference/tokenization_golden.jsonl").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 1311
    assert agrees(fast, tokenizer.encode_ids, [json.loads(line)["text"] for line in lines])


def test_random_texts(both):
    fast, tokenizer = both
    rng = random.Random(17)
    every = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    odd = list("aZ09 \t\n\u00a0\u3000\u200b\u0301\u0327Σσςİıß-‑—…[]#中文한é\ufeff\x00\x7f\u00ad")
    pools = (every[:128], every[:0x300], every[:0x3000], every, odd)
    texts = ["".join(rng.choices(rng.choice(pools), k=rng.randrange(40))) for _ in range(10_000)]
    assert agrees(fast, tokenizer.encode_ids, texts)


def test_the_tokenizer_uses_it_and_forgetting_changes_nothing(both):
    _, tokenizer = both
    texts = ["Some words, again.", "", "Some other words ΣΑΣ"]
    ids, starts = tokenizer.encode_flat(texts)
    assert (ids.dtype, starts.dtype) == (np.int32, np.int64)
    assert agrees(tokenizer.encode_flat, tokenizer.encode_ids, texts)
    assert tokenizer._fast is not None and not tokenizer._words.numbers
    tokenizer.forget_words()
    assert np.array_equal(tokenizer.encode_flat(texts)[0], ids)


def test_one_that_differs_is_not_used(both, caplog):
    fast, tokenizer = both
    other = make(tokenizer.vocabulary, lowercase=not tokenizer.lowercase, strip_accents=tokenizer.strip_accents)
    assert not agrees(fast, other.encode_ids, probes(tokenizer.vocabulary))
    assert encoder(tokenizer._plain.to_str(), other.encode_ids, tokenizer.vocabulary) is None
    assert "installed but not used: it gives other ids" in caplog.text


def test_another_version_is_not_used(both, monkeypatch, caplog):
    _, tokenizer = both
    monkeypatch.setattr(fast_tokens, "COMPARED", "0.0.9")
    assert encoder(tokenizer._plain.to_str(), tokenizer.encode_ids, tokenizer.vocabulary) is None
    assert "installed but not used: version 0.1.0 was not compared" in caplog.text
