"""What every option of the recipe's section `shards` promises, held against the documents: the stage runs on real text, and
what its rows must be is worked out here anew from the text, by another tokenizer and in plain Python.

The shares that are drawn at random have a tolerance of four or five standard deviations; all seeds are fixed.
"""

from collections import Counter, defaultdict

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy.stats import chi2_contingency, chisquare

from model.feeding.targets import drawn_masks
from pipeline.config import ShardsConfig
from pipeline.sharding.masking import control
from pipeline.sharding.shard_reader import ShardReader
from pipeline.sharding.shard_schema import shard_schema
from tests.pipeline import real_text
from tests.pipeline.real_text import CLS, MASK, SEP, rows, unmasked

CONFIG = ShardsConfig(sequence_length=64, max_predictions_per_seq=10, dupe_factor=1, short_seq_prob=0.0, files=2)
NONE = {"sentence_task": "none"}
FULL = {"sentence_task": "none", "packing": "full_sentences", "short_seq_prob": 0.1}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return real_text.corpus(tmp_path_factory.mktemp("corpus"), 60)


@pytest.fixture(scope="module")
def built(corpus, tmp_path_factory):
    """What changes in `CONFIG` → the folder of the shards."""
    made = {}

    def get(**changed):
        config = ShardsConfig.model_validate(CONFIG.model_dump() | changed)
        name = config.model_dump_json()
        if name not in made:
            made[name] = tmp_path_factory.mktemp("built")
            real_text.build(corpus.inputs, config, made[name])
        return made[name]

    return get


@pytest.fixture(scope="module")
def train(corpus):
    return [doc_id for doc_id in corpus.sentences if doc_id not in corpus.held_out]


def segments(row):
    """A and B, or the text, as before masking."""
    ids = unmasked(row)
    assert (ids[0], ids[-1]) == (CLS, SEP)
    if "token_type_start" not in row:
        return [ids[1:-1]]
    start = row["token_type_start"]
    assert ids[start - 1] == SEP
    return [ids[1 : start - 1], ids[start:-1]]


def near(share, expected, n, sigmas=5):
    return abs(share - expected) <= sigmas * (expected * (1 - expected) / n) ** 0.5


def tiles(text, pieces):
    """Whether the pieces, each once, are the text cut up: every piece begins where another ends."""
    waiting = Counter(map(tuple, pieces))
    lengths = sorted({len(piece) for piece in waiting}, reverse=True)

    def follow(at):
        if at == len(text):
            return not +waiting
        for length in lengths:
            piece = tuple(text[at : at + length])
            if len(piece) == length and waiting[piece] > 0:
                waiting[piece] -= 1
                if follow(at + length):
                    return True
                waiting[piece] += 1
        return False

    return follow(0)


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("changed", [NONE, NONE | {"objective": "clm"}, NONE | {"masking": "dynamic"}])
def test_one_document_a_row_loses_no_token_and_adds_none(changed, built, corpus, train):
    out = built(**changed)
    for part, documents in (("train", train), ("held_out", corpus.held_out)):
        pieces = defaultdict(list)
        for row in rows(out, part):
            (doc_id,) = row["documents"]
            pieces[doc_id].append(segments(row)[0])
            ends = np.cumsum([len(sentence) for sentence in corpus.sentences[doc_id]])
            assert len(row["input_ids"]) <= 64
            assert len(pieces[doc_id][-1]) <= ends[-1]
        assert set(pieces) == set(documents)
        assert all(tiles(corpus.tokens(doc_id), pieces[doc_id]) for doc_id in documents)


@pytest.mark.parametrize("changed", [FULL, FULL | {"objective": "clm"}, FULL | {"masking": "dynamic"}])
def test_full_sentences_are_the_documents_one_after_the_other_with_a_separator(changed, built, corpus, train):
    out = built(**changed)
    for part, documents in (("train", train), ("held_out", corpus.held_out)):
        pieces, lengths = defaultdict(list), []
        for row in rows(out, part):
            text, lengths = segments(row)[0], [*lengths, len(row["input_ids"])]
            parts = [[]]
            for token in text:
                parts.append([]) if token == SEP else parts[-1].append(token)
            assert len(parts) == len(row["documents"])
            for doc_id, piece in zip(row["documents"], parts, strict=True):
                assert piece
                pieces[doc_id].append(piece)
        assert set(pieces) == set(documents)
        assert all(tiles(corpus.tokens(doc_id), pieces[doc_id]) for doc_id in documents)
        assert max(lengths) <= 64
        assert np.mean(lengths) > 64 - 25  # a sentence has 27 tokens on average, half of one is left over


def test_clm_pairs_have_the_tokenizers_ids(built, corpus):
    for row in rows(built(objective="clm")):
        assert set(row) == {"input_ids", "token_type_start", "next_sentence_label", "documents"}
        a, b = segments(row)
        for doc_id, piece in ((row["documents"][0], a), (row["documents"][-1], b)):
            assert within(corpus.tokens(doc_id), piece)


def within(text, piece):
    return bool(places(text, piece))


def places(text, piece):
    """Where the piece begins in the text."""
    starts = np.flatnonzero(np.array(text[: len(text) - len(piece) + 1]) == piece[0])
    return [int(at) for at in starts if text[at : at + len(piece)] == piece]


def test_dynamic_rows_are_the_static_ones_unmasked(built):
    for changed in ({}, NONE, FULL, {"sentence_task": "sop"}, {"faithful": "original"}):
        static, dynamic = built(**changed), built(**changed, masking="dynamic")
        for part in ("train", "held_out"):
            without = [{**row, "input_ids": unmasked(row)} for row in rows(static, part)]
            for row in without:
                del row["masked_lm_positions"], row["masked_lm_ids"]
            assert without == rows(dynamic, part)


def test_short_targets(built, corpus, train):
    """Each document has one target a pass: with probability short_seq_prob one from 2 to 62. A document with a row of more
    than 40 tokens that does not consist of one sentence has a target above 38."""
    long = [doc_id for doc_id in train if len(corpus.tokens(doc_id)) > 600]

    def share(probability):
        longest = defaultdict(int)
        for seed in range(3):
            for row in rows(built(**NONE, masking="dynamic", short_seq_prob=probability, seed=seed)):
                (text,), (doc_id,) = segments(row), row["documents"]
                if text not in corpus.sentences[doc_id] and len(text) < 62:  # whole sentences, more than one
                    longest[seed, doc_id] = max(longest[seed, doc_id], len(text))
        return np.mean([longest[seed, doc_id] > 38 for seed in range(3) for doc_id in long])

    n = 3 * len(long)
    assert n > 100
    assert share(0.0) == 1
    # of the 61 targets 24 are above 38; with one of 39 to 44 the sentences may leave no row of more than 38
    chance = 5 * 0.5 / n**0.5
    assert 0.5 + 0.5 * 18 / 61 - chance < share(0.5) < 0.5 + 0.5 * 24 / 61 + chance


# ── pairs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ordered_pairs_stand_together_and_label_1_means_swapped(built, corpus):
    labels = []
    for row in rows(built(sentence_task="sop")):
        a, b = segments(row)
        (doc_id,) = row["documents"]
        labels.append(row["next_sentence_label"])
        first, second = (b, a) if row["next_sentence_label"] else (a, b)
        assert follows(corpus.sentences[doc_id], first, second, cut=len(row["input_ids"]) == 64)
    assert near(np.mean(labels), 0.5, len(labels))


def follows(sentences, first, second, cut):
    """Whether the second piece stands behind the first with the end of a sentence between them: at once or, where tokens were
    cut away, at most two sentences further on."""
    text = [token for sentence in sentences for token in sentence]
    ends, most = np.cumsum([len(sentence) for sentence in sentences]), 2 * max(map(len, sentences)) if cut else 0
    return any(
        0 <= start - end <= most and ((end <= ends) & (ends <= start)).any()
        for start in places(text, second)
        for end in (at + len(first) for at in places(text, first))
    )


@pytest.mark.parametrize("faithful", ["paper", "original"])
def test_next_sentence_pairs(faithful, built, corpus):
    labels = []
    for row in rows(built(faithful=faithful, short_seq_prob=1.0)):
        a, b = segments(row)
        text, label = corpus.tokens(row["documents"][0]), row["next_sentence_label"]
        labels.append(label)
        assert len(row["documents"]) == 1 + label
        if label:
            assert row["documents"][0] != row["documents"][1]
            assert within(text, a)
            assert within(corpus.tokens(row["documents"][1]), b)
        else:
            assert follows(corpus.sentences[row["documents"][0]], a, b, cut=len(row["input_ids"]) == 64)
    if faithful == "paper":
        assert near(np.mean(labels), 0.5, len(labels))
    else:
        assert np.mean(labels) > 0.5 + 5 * 0.5 / len(labels) ** 0.5  # chunks of one sentence have no next one


def test_a_chunk_is_as_long_as_its_target_asks(built, corpus):
    """Before truncation a pair has sentences up to the target: with short_seq_prob 0 every row is full, but for those at the
    end of a document and random ones whose document ended."""
    lengths = [len(row["input_ids"]) for row in rows(built(sentence_task="sop"))]
    documents = len(corpus.sentences) - len(corpus.held_out)
    assert sum(length < 64 for length in lengths) <= documents


# ── masks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def words_of(row, vocabulary):
    """Places of each word: a piece `##…` goes with the token before it, also across a [SEP]."""
    ids = unmasked(row)
    words = []
    for place, token in enumerate(ids):
        if token in (CLS, SEP):
            continue
        if words and vocabulary[token].startswith("##"):
            words[-1].append(place)
        else:
            words.append([place])
    return words


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"mask_rate": 0.4, "max_predictions_per_seq": 26},
        {"mask_rate": 0.02},
        {"max_predictions_per_seq": 3},
        {"sequence_length": 512, "max_predictions_per_seq": 77},
        NONE,
        FULL,
    ],
)
def test_the_number_of_masks(changed, built):
    rate, most = changed.get("mask_rate", 0.15), changed.get("max_predictions_per_seq", 10)
    for row in rows(built(**changed)):
        masks = len(row["masked_lm_positions"])
        assert masks == min(most, max(1, round(len(row["input_ids"]) * rate)))  # half to even, as Python rounds
        assert row["masked_lm_positions"] == sorted(set(row["masked_lm_positions"]))
        assert not {CLS, SEP} & set(row["masked_lm_ids"])


@pytest.mark.parametrize("changed", [{}, FULL, {"max_ngram": 3}, {"max_ngram": 3} | NONE])
def test_whole_words_are_masked_whole(changed, built, corpus):
    several = short = total = 0
    for row in rows(built(whole_words=True, **changed)):
        masked = set(row["masked_lm_positions"])
        wanted = min(10, max(1, round(len(row["input_ids"]) * 0.15)))
        found = words_of(row, corpus.vocabulary)
        touched = [word for word in found if masked & set(word)]
        if not all(masked >= set(word) for word in touched):
            assert min(map(len, found)) > wanted  # no word is short enough
            continue
        assert 1 <= len(masked) <= wanted
        if len(masked) < wanted:
            short += 1
            if "max_ngram" not in changed:
                left = [len(word) for word in found if not masked & set(word)]
                assert min(left, default=99) > wanted - len(masked)  # none of the others would fit
        several, total = several + sum(len(word) > 1 for word in touched), total + 1
    assert several > 500
    assert short < 0.05 * total


def test_ngrams_are_words_in_a_row(built, corpus):
    """Runs of masked words: of n = 1, 2, 3 words with probability ∝ 1/n, 18/11 on average; runs that touch make one."""
    means = {}
    for most in (1, 3):
        run_lengths = []
        for row in rows(built(whole_words=True, max_ngram=most)):
            masked, run = set(row["masked_lm_positions"]), 0
            for word in [*words_of(row, corpus.vocabulary), [-1]]:
                if masked & set(word):
                    run += 1
                elif run:
                    run_lengths.append(run)
                    run = 0
        means[most] = np.mean(run_lengths)
    assert 1.1 < means[1] < 1.25  # one in six neighbours is masked too, by chance
    assert 1.6 < means[3] < 2.0


TABLE_8 = [(1, 0, 0), (0.8, 0.1, 0.1), (0.8, 0.2, 0), (0.8, 0, 0.2), (0, 0.8, 0.2), (0, 1, 0)]
"""Devlin et al. 2019, table 8, as (mask, random, same)."""


@pytest.mark.parametrize("mix", TABLE_8)
def test_mixes_of_the_papers_table_8(mix, built):
    counts = Counter()
    for row in rows(built(mask_random_keep=mix)):
        for place, original in zip(row["masked_lm_positions"], row["masked_lm_ids"], strict=True):
            now = row["input_ids"][place]
            counts["mask" if now == MASK else "keep" if now == original else "random"] += 1
    lucky = mix[1] / 30522
    expected = np.array([mix[0] + lucky, mix[1] - 2 * lucky, mix[2] + lucky])
    found = np.array([counts["mask"], counts["random"], counts["keep"]])
    n = found.sum()
    assert n > 10_000
    assert all(abs(found - n * expected) <= 5 * np.sqrt(n * expected * (1 - expected)) + 1)
    if mix[1] == 0:
        assert (found[np.array(mix) == 0] == 0).all()


def test_random_words_are_even_over_the_vocabulary_or_over_its_words(built, corpus):
    special = {i for i, token in enumerate(corpus.vocabulary) if token.startswith("[unused") or token in
               ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")}  # fmt: skip
    assert len(special) == 999
    for random_words, usable in (("all", 30522), ("no_specials", 30522 - 999)):
        drawn = [
            row["input_ids"][place]
            for row in rows(built(mask_random_keep=(0, 1, 0), random_words=random_words))
            for place in row["masked_lm_positions"]
        ]
        share = np.mean([token in special for token in drawn])
        assert near(share, 999 / 30522, len(drawn)) if random_words == "all" else share == 0
        words = [token for token in drawn if token not in special]
        deciles = np.histogram(words, np.quantile([i for i in range(30522) if i not in special], np.linspace(0, 1, 11)))
        assert chisquare(deciles[0]).pvalue > 1e-4
        assert usable > len(set(drawn)) > 0.2 * len(drawn)


@pytest.mark.parametrize("changed", [{}, {"whole_words": True, "max_ngram": 2}, FULL])
def test_masks_drawn_when_a_batch_is_loaded_are_distributed_as_stored_ones(changed, built, corpus):
    """Dynamic masks of four epochs against static ones of four seeds: as many in each row exactly; the kinds and the places
    (in tenths of a row) by chi-square of two samples at p > 10⁻⁴."""
    config = ShardsConfig.model_validate(CONFIG.model_dump() | changed | {"masking": "dynamic"})
    reader = ShardReader(built(**changed, masking="dynamic") / "train")
    draw = drawn_masks(config, control(corpus.vocabulary, cls_id=CLS, sep_id=SEP, mask_id=MASK), seed=5)
    numbers = np.arange(len(reader))
    dynamic = [draw(reader.take(numbers), numbers, np.full(len(numbers), epoch)) for epoch in range(4)]
    static = [ShardReader(built(**changed, seed=seed) / "train") for seed in range(11, 15)]
    static = [each.take(np.arange(len(each))) for each in static]

    def described(samples):
        kinds, tenths, counts = np.zeros(3, int), np.zeros(10, int), Counter()
        for rows_ in samples:
            masks = np.diff(rows_.masked_offsets)
            owner = np.repeat(np.arange(len(rows_)), masks)
            now = rows_.input_ids[rows_.input_offsets[owner] + rows_.masked_positions]
            kinds += [
                (now == MASK).sum(),
                ((now != MASK) & (now != rows_.masked_ids)).sum(),
                (now == rows_.masked_ids).sum(),
            ]
            tenths += np.bincount((10 * rows_.masked_positions / rows_.lengths[owner]).astype(int), minlength=10)
            counts.update(zip(rows_.lengths.tolist(), masks.tolist(), strict=True))
        return kinds, tenths, counts

    one, other = described(dynamic), described(static)
    for name in (0, 1):
        assert chi2_contingency([one[name], other[name]]).pvalue > 1e-4
    assert near(one[0][0] / one[0].sum(), 0.8, one[0].sum())
    if "whole_words" not in changed:
        assert set(one[2]) == {(n, min(10, max(1, round(0.15 * n)))) for n, _ in one[2]}
        assert set(other[2]) == {(n, min(10, max(1, round(0.15 * n)))) for n, _ in other[2]}
    # another epoch, other masks
    assert not np.array_equal(dynamic[0].input_ids, dynamic[1].input_ids)


# ── passes and parts ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_pass_has_other_pairs_and_masks(built, train):
    five = rows(built(dupe_factor=5))
    texts, pairs = Counter(), Counter()
    for row in five:
        texts[tuple(row["input_ids"]), tuple(row["masked_lm_positions"])] += 1
        pairs[tuple(unmasked(row)), row["token_type_start"]] += 1
    one = len(rows(built(dupe_factor=1)))
    assert len(five) == pytest.approx(5 * one, rel=0.03)
    assert len(texts) > 0.999 * len(five)
    assert len(pairs) > 0.8 * len(five)


@pytest.mark.parametrize("changed", [{}, {"faithful": "original"}, {"sentence_task": "sop"}, NONE, FULL])
def test_held_out_documents_stay_among_themselves(changed, built, corpus):
    out = built(**changed)
    named = {part: {doc_id for row in rows(out, part) for doc_id in row["documents"]} for part in ("train", "held_out")}
    assert named["held_out"] == corpus.held_out
    assert not named["train"] & corpus.held_out


@pytest.mark.parametrize("changed", [{}, NONE, {"masking": "dynamic"}, {"objective": "clm"} | FULL])
def test_columns(changed, built):
    config = ShardsConfig.model_validate(CONFIG.model_dump() | changed)
    for path in built(**changed).glob("*/*.parquet"):
        assert pq.read_schema(path).equals(shard_schema(30522, config))
