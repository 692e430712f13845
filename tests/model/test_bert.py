"""The model against transformers' BertForPreTraining with the same weights, and by value."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from model.bert import Bert, BertForPretraining, initialize, pretraining_losses
from model.optimizer import AdamW, clip_gradients
from model.weights import from_hugging_face, to_hugging_face
from pipeline.config import Architecture

CONFIGS = {
    "wide": Architecture(layers=2, hidden=48, heads=4, max_positions=40, dropout=0.0),
    "deep": Architecture(layers=3, hidden=24, heads=2, intermediate=40, max_positions=24, dropout=0.0),
}
VOCABULARY = 101


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def model_of(architecture: Architecture, seed: int = 7) -> BertForPretraining:
    """Weights far from their initial values, so that every bias and gain counts."""
    model = BertForPretraining(architecture, VOCABULARY, "nsp")
    initialize(model, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def reference_of(model: BertForPretraining) -> Any:
    from transformers import BertConfig, BertForPreTraining

    architecture = model.encoder.architecture
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=architecture.hidden,
        num_hidden_layers=architecture.layers,
        num_attention_heads=architecture.heads,
        intermediate_size=architecture.intermediate or 4 * architecture.hidden,
        max_position_embeddings=architecture.max_positions,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        is_decoder=architecture.attention == "causal",
    )
    reference = BertForPreTraining(config)
    weights = to_hugging_face(model.state_dict())
    decoder = "cls.predictions.decoder"  # tied there too: the same arrays under two names
    weights |= {
        f"{decoder}.weight": weights["bert.embeddings.word_embeddings.weight"],
        f"{decoder}.bias": weights["cls.predictions.bias"],
    }
    reference.load_state_dict(weights)
    return reference.eval()


def batch_of(architecture: Architecture, seed: int = 3) -> dict[str, torch.Tensor]:
    """Three rows of unequal length; the masked words of row 0 are at 2 and 5, of row 1 at 1, of row 2 at 3 and 7."""
    random = torch.Generator().manual_seed(seed)
    size = 12
    ids = torch.randint(1, VOCABULARY, (3, size), generator=random)  # 0 is padding, and gets no gradient there
    mask = torch.arange(size)[None] < torch.tensor([[12], [6], [9]])
    types = (torch.arange(size)[None] >= torch.tensor([[7], [3], [5]])).long()
    return {
        "input_ids": ids * mask,
        "token_type_ids": types * mask,
        "attention_mask": mask,
        "positions": torch.tensor([[0, 2, 5], [0, 1, 0], [0, 3, 7]]),
        "masked_places": torch.tensor([1, 2, 4, 7, 8]),
    }


@pytest.mark.parametrize("name", CONFIGS)
def test_hidden_states_and_logits_are_those_of_transformers(name: str) -> None:
    model, batch = model_of(CONFIGS[name]), batch_of(CONFIGS[name])
    inputs = {key: batch[key] for key in ("input_ids", "token_type_ids", "attention_mask")}
    with torch.inference_mode():
        theirs = reference_of(model)(**inputs, output_hidden_states=True)
        hidden = model.encoder(**inputs)
        words, sentences = model(**batch)
    real = batch["attention_mask"]
    torch.testing.assert_close(hidden[real], theirs.hidden_states[-1][real], atol=1e-5, rtol=0)
    at_masks = theirs.prediction_logits[[0, 0, 1, 2, 2], [2, 5, 1, 3, 7]]
    torch.testing.assert_close(words, at_masks, atol=1e-5, rtol=0)
    torch.testing.assert_close(sentences, theirs.seq_relationship_logits, atol=1e-5, rtol=0)


def test_left_to_right_states_and_logits_are_those_of_transformers() -> None:
    model, batch = model_of(CONFIGS["deep"].model_copy(update={"attention": "causal"})), batch_of(CONFIGS["deep"])
    inputs = {key: batch[key] for key in ("input_ids", "token_type_ids", "attention_mask")}
    reference = reference_of(model)
    with torch.inference_mode():
        theirs = reference(**inputs, output_hidden_states=True)
        hidden = model.encoder(**inputs)
        words, _ = model(**batch)
    real = batch["attention_mask"]
    torch.testing.assert_close(hidden[real], theirs.hidden_states[-1][real], atol=1e-5, rtol=0)
    at_masks = theirs.prediction_logits[[0, 0, 1, 2, 2], [2, 5, 1, 3, 7]]
    torch.testing.assert_close(words, at_masks, atol=1e-5, rtol=0)
    changed = batch["input_ids"].clone()
    changed[:, 5:] += 1
    with torch.inference_mode():
        later = model.encoder(changed % VOCABULARY, batch["token_type_ids"], batch["attention_mask"])
    assert torch.equal(later[:, :5], hidden[:, :5])  # what stands behind changes nothing


def test_without_padding_the_mask_makes_no_difference() -> None:
    model, batch = model_of(CONFIGS["deep"]), batch_of(CONFIGS["deep"])
    full = torch.ones_like(batch["attention_mask"])
    with torch.inference_mode():
        hidden = model.encoder(batch["input_ids"], batch["token_type_ids"], full)
        theirs = reference_of(model).bert(batch["input_ids"], full, batch["token_type_ids"]).last_hidden_state
    torch.testing.assert_close(hidden, theirs, atol=1e-5, rtol=0)


def test_positions_give_the_same_states_and_gradients_as_the_whole_sequence() -> None:
    model, batch = model_of(CONFIGS["wide"]), batch_of(CONFIGS["wide"])
    inputs = batch["input_ids"], batch["token_type_ids"], batch["attention_mask"]

    def gradients(hidden: torch.Tensor) -> list[torch.Tensor]:
        model.zero_grad()
        (hidden * torch.arange(hidden.numel()).reshape(hidden.shape).cos()).sum().backward()
        return [p.grad.clone() for p in model.encoder.parameters() if p.grad is not None]

    rows = torch.arange(3)[:, None]
    whole = model.encoder(*inputs)[rows, batch["positions"]]
    chosen = model.encoder(*inputs, batch["positions"])
    torch.testing.assert_close(chosen, whole, atol=1e-5, rtol=0)
    for ours, full in zip(gradients(chosen), gradients(whole), strict=True):
        torch.testing.assert_close(ours, full, atol=2e-4, rtol=1e-4)


def test_losses_are_those_of_transformers_and_of_hand_calculation() -> None:
    model, batch = model_of(CONFIGS["wide"]), batch_of(CONFIGS["wide"])
    targets, labels = torch.tensor([4, 9, 16, 25, 36]), torch.tensor([0, 1, 1])
    everywhere = torch.full((3, 12), -100)
    everywhere[[0, 0, 1, 2, 2], [2, 5, 1, 3, 7]] = targets
    with torch.inference_mode():
        words, sentences = model(**batch)
        losses = pretraining_losses(words, targets, sentences, labels)
        theirs = reference_of(model)(
            **{key: batch[key] for key in ("input_ids", "token_type_ids", "attention_mask")},
            labels=everywhere,
            next_sentence_label=labels,
        )
    assert losses.total.item() == pytest.approx(theirs.loss.item(), abs=1e-5)
    # two equal logits: ln 2; logits 0 and ln 3 with the second right: ln 4 / 3
    by_hand = pretraining_losses(
        torch.zeros(2, 8), torch.tensor([1, 5]), torch.tensor([[0.0, math.log(3)]]), torch.tensor([1])
    )
    assert by_hand.masked_words.item() == pytest.approx(math.log(8))
    assert by_hand.next_sentence is not None and by_hand.next_sentence.item() == pytest.approx(math.log(4 / 3))
    assert by_hand.total.item() == pytest.approx(math.log(8) + math.log(4 / 3))


def test_gradient_of_the_masked_word_loss_is_that_of_cross_entropy() -> None:
    random = torch.Generator().manual_seed(1)
    logits = (5 * torch.randn(7, 33, generator=random)).requires_grad_()
    targets = torch.randint(0, 33, (7,), generator=random)
    (ours,) = torch.autograd.grad(3 * pretraining_losses(logits, targets, None, None).total, logits)
    (theirs,) = torch.autograd.grad(3 * F.cross_entropy(logits, targets), logits)
    torch.testing.assert_close(ours, theirs, atol=1e-7, rtol=1e-5)


def test_fifty_steps_of_training_give_the_losses_of_transformers_and_torch() -> None:
    ours = model_of(CONFIGS["deep"]).train()
    # In float64: Adam makes full steps out of gradients that are nothing but rounding (those of the key's bias are).
    theirs = reference_of(ours).train().double()
    ours.double()
    exempt = ("bias", "LayerNorm.weight")
    named = list(theirs.named_parameters())
    groups = [
        {"params": [p for n, p in named if not n.endswith(exempt)], "weight_decay": 0.01},
        {"params": [p for n, p in named if n.endswith(exempt)], "weight_decay": 0.0},
    ]
    their_optimizer = torch.optim.AdamW(groups, lr=1e-3, eps=1e-6)
    our_optimizer = AdamW(ours.named_parameters(), bias_correction=True)
    targets, labels = torch.tensor([4, 9, 16, 25, 36]), torch.tensor([0, 1, 1])
    everywhere = torch.full((3, 12), -100)
    everywhere[[0, 0, 1, 2, 2], [2, 5, 1, 3, 7]] = targets
    for step in range(50):
        batch = batch_of(CONFIGS["deep"], seed=step)
        words, sentences = ours(**batch)
        our_loss = pretraining_losses(words, targets, sentences, labels).total
        our_loss.backward()
        clip_gradients(ours.parameters(), 1.0)
        our_optimizer.step(1e-3)
        our_optimizer.zero_grad()
        inputs = {key: batch[key] for key in ("input_ids", "token_type_ids", "attention_mask")}
        their_loss = theirs(**inputs, labels=everywhere, next_sentence_label=labels).loss
        their_loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)  # by norm + 1e-6
        their_optimizer.step()
        their_optimizer.zero_grad()
        assert our_loss.item() == pytest.approx(their_loss.item(), abs=1e-6), step


def test_initial_weights() -> None:
    model = BertForPretraining(Architecture(layers=1, hidden=128, heads=2), 1000, "nsp")
    initialize(model, 5)
    weights = dict(model.named_parameters())
    words = weights["encoder.embeddings.word.weight"]
    assert words.abs().max() <= 0.04
    # a normal of deviation s cut off at ±2s has deviation 0.8796 s
    assert words.std().item() == pytest.approx(0.8796 * 0.02, rel=0.01)
    for name, parameter in weights.items():
        if parameter.ndim == 1:
            expected = 1.0 if name.endswith("norm.weight") else 0.0
            assert (parameter == expected).all(), name
        else:
            assert parameter.abs().max() <= 0.04 and parameter.std() > 0.01, name
    again = BertForPretraining(Architecture(layers=1, hidden=128, heads=2), 1000, "nsp")
    torch.rand(3)
    initialize(again, 5)
    assert all(torch.equal(weights[name], parameter) for name, parameter in again.named_parameters())
    initialize(again, 6)
    assert not torch.equal(words, dict(again.named_parameters())["encoder.embeddings.word.weight"])


@pytest.mark.parametrize(
    ("architecture", "vocabulary", "parameters"),
    [
        # google-research/bert: base has 110,106,428 with both heads and the pooler for 30,522 words (HF counts the same)
        (Architecture(), 30522, 110_106_428),
        (Architecture(layers=24, hidden=1024, heads=16), 30522, 336_226_108),
    ],
)
def test_number_of_parameters(architecture: Architecture, vocabulary: int, parameters: int) -> None:
    with torch.device("meta"):
        model = BertForPretraining(architecture, vocabulary, "nsp")
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters


def test_names_of_weights_go_there_and_back() -> None:
    model = model_of(CONFIGS["deep"])
    there = to_hugging_face(model.state_dict())
    assert list(from_hugging_face(there)) == list(model.state_dict())


def test_dropout_depends_on_the_seed_only_and_only_in_training() -> None:
    model = Bert(Architecture(layers=1, hidden=16, heads=2, max_positions=12, dropout=0.5), VOCABULARY)
    initialize(model, 1)
    ids = torch.arange(12)[None]
    inputs = ids, torch.zeros_like(ids), torch.ones_like(ids, dtype=torch.bool)

    def run(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        return model(*inputs)

    assert torch.equal(run(1), run(1)) and not torch.equal(run(1), run(2))
    model.eval()
    assert torch.equal(run(1), run(2))


def test_bf16_is_near_fp32() -> None:
    model, batch = model_of(CONFIGS["wide"]), batch_of(CONFIGS["wide"])
    with torch.inference_mode():
        exact, _ = model(**batch)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            rough, _ = model(**batch)
    assert rough.dtype == torch.bfloat16
    assert (rough.float() - exact).abs().max() < 0.05 * exact.abs().max()
