"""How large a model a text can teach: the rules, held against published sizes and counts by hand."""

from dataclasses import replace

import pytest
from transformers import BertConfig, BertForPreTraining

from pipeline.starting.recipe_sizes import (
    FILLED,
    SIZES,
    Text,
    casing,
    held_out_shares,
    rounded_down,
    sizes,
    wanted_vocabulary,
)

TEXT = Text(
    share_read=1.0,
    documents=1_000,
    held_out_documents=50,
    characters=6_000_000,
    train_words=1_000_000,
    held_out_words=50_000,
    held_out=0.05,
    pieces_per_word=1.25,
    vocabulary=8_000,
    alphabet=90,
    read=1_000,
    dropped={},
    detected="en",
    language_share=1.0,
)


@pytest.mark.parametrize("size", SIZES, ids=lambda size: size.name)
def test_weights_are_those_of_transformers(size: object) -> None:
    assert isinstance(size, type(SIZES[0]))
    config = BertConfig(
        vocab_size=1000,
        hidden_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        intermediate_size=4 * size.hidden,
        max_position_embeddings=128,
    )
    assert size.weights(1000, 128) == BertForPreTraining(config).num_parameters()


def test_the_models_are_the_published_ones() -> None:
    """Millions of weights in the table of google-research/bert's compact models, of the encoder with its pooler."""
    published = {"tiny": 4.4, "mini": 11.3, "small": 29.1, "medium": 41.7, "base": 110.1}
    for size in SIZES:
        h = size.hidden
        heads = (h * h + h + 2 * h + 30522) + 2 * h + 2
        encoder = size.weights(30522, 512) - heads
        assert encoder / 1e6 == pytest.approx(published[size.name], rel=0.02), size.name


def test_a_model_is_no_larger_than_the_text_can_teach() -> None:
    """1.25 million tokens, 40 passes, 20 tokens for a weight: 2.5 million weights. mini has more, tiny fewer."""
    tiny, mini = SIZES[0].weights(8_000, 128), SIZES[1].weights(8_000, 128)
    assert tiny < 2_500_000 < mini
    found = sizes(TEXT)
    assert (found.model.name, found.weights) == ("tiny", tiny)
    assert found.larger is SIZES[1]
    # The text that mini wants is just the text that it gets.
    enough = replace(TEXT, train_words=round(1.02 * found.larger_words))
    assert sizes(enough).model.name == "mini"
    assert sizes(replace(TEXT, train_words=round(0.95 * found.larger_words))).model.name == "tiny"


def test_steps_are_forty_passes_over_the_text() -> None:
    found = sizes(TEXT)
    (phase,) = found.phases
    assert phase.sequence_length == 128
    tokens = phase.steps * found.model.batch_size * 128 * FILLED[128]
    assert tokens / 1_250_000 == pytest.approx(found.passes) == pytest.approx(40, rel=0.05)
    assert found.dupe_factor == 10


def test_the_paper_is_where_its_text_is() -> None:
    """3,300 million words (Devlin et al. 2019): its size, its steps, its vocabulary."""
    paper = replace(TEXT, documents=6_000_000, train_words=3_300_000_000, pieces_per_word=1.15, vocabulary=30522)
    found = sizes(paper)
    assert (found.model.name, found.model.batch_size, found.model.learning_rate) == ("base", 256, "1e-4")
    assert [(p.sequence_length, p.steps) for p in found.phases] == [(128, 900_000), (512, 100_000)]
    assert found.larger is None and found.positions == 512
    assert wanted_vocabulary(3_300_000_000, 100) == 30522


@pytest.mark.parametrize(("documents", "length"), [(1_050, 128), (30_000, 64), (300, 128)])
def test_rows_are_no_longer_than_documents(documents: int, length: int) -> None:
    assert sizes(replace(TEXT, documents=documents)).positions == length


def test_passes_are_told_as_they_are_where_steps_have_bounds() -> None:
    little = sizes(replace(TEXT, train_words=2_000))
    assert little.steps == 100 and little.passes > 100
    few = sizes(replace(TEXT, documents=10**9, train_words=200_000_000_000, vocabulary=30522))
    assert few.steps == 1_000_000 and few.passes < 1 and few.dupe_factor == 1, "never more dupes than passes"


def test_a_larger_text_asks_for_a_larger_vocabulary() -> None:
    assert [wanted_vocabulary(n, 90) for n in (1_000, 999_999, 1_000_000, 10**7, 10**8)] == [
        *(4_000, 4_000, 8_000, 16_000, 30_522)
    ]
    assert wanted_vocabulary(1_000, 3_500) == 7_500, "characters of Chinese come on top"
    assert [rounded_down(n) for n in (99, 101, 1_287, 30_522, 4_000, 0)] == [99, 100, 1_200, 30_522, 4_000, 0]


def test_held_out_documents_are_enough_of_both_parts() -> None:
    def of(documents: int, characters: int) -> float:
        shares = held_out_shares(lambda share: (int(share * documents), share * documents * characters), documents)
        return shares[0]

    assert of(100_000, 3_000) == 0.005
    assert of(1_000, 3_000) == 0.02, "twenty documents of 3,000 characters are the first 60,000"
    assert of(12, 1_000_000) == 0.2, "two of twelve, however long"
    assert of(4, 100) == 0.5
    assert of(12, 500) == 0.5, "six documents of 500 characters are 3,000"
    assert held_out_shares(lambda share: (3 * share, 100), 3) == []
    # Where it is only known how many there will be, ten are asked for.
    assert held_out_shares(lambda share: (100 * share, 1e9), 100, least=10)[0] == 0.1


@pytest.mark.parametrize(
    ("language", "lowercase", "why"),
    [("en", True, "uncased"), ("en-GB", True, "uncased"), ("de", False, "nouns"), ("fr", False, "names"), ("zh", False, "no capitals")],
)  # fmt: skip
def test_capitals_and_accents_follow_the_language(language: str, lowercase: bool, why: str) -> None:
    found = casing(language)
    assert found.options == {"lowercase": lowercase, "strip_accents": lowercase} and why in found.why
