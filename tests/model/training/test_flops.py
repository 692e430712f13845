"""Operations of a step, against a count by torch and by hand."""

import numpy as np
import pytest
from torch.utils.flop_counter import FlopCounterMode

from model.bert import BertForPretraining, pretraining_losses
from model.feeding.batches import batch_of
from model.training.flops import peak_flops, training_flops
from pipeline.config import Architecture
from pipeline.sharding.shard_schema import Shards


def rows(length: int, masked: int, count: int) -> Shards:
    positions = np.tile(np.arange(1, masked + 1), count)
    return Shards(
        input_ids=np.ones(length * count, np.int64),
        input_offsets=np.arange(count + 1) * length,
        token_type_start=np.full(count, length // 2),
        masked_positions=positions,
        masked_ids=np.ones(masked * count, np.int64),
        masked_offsets=np.arange(count + 1) * masked,
        label=np.zeros(count, np.int64),
    )


def test_operations_are_those_that_torch_counts() -> None:
    """Rows without padding, so that nothing is computed that is not counted but the pooler and the pair head."""
    architecture = Architecture(layers=3, hidden=64, heads=4, intermediate=160, max_positions=32, dropout=0.0)
    some = rows(32, 5, 4)
    model = BertForPretraining(architecture, 960, "nsp")
    batch = batch_of(some, 32)
    with FlopCounterMode(display=False) as counted:
        words, pairs = model(*batch.model_inputs)
        pretraining_losses(words, batch.masked_ids, pairs, batch.labels).total.backward()
    # torch's counter does not see the fused attention of the CPU: 4 · H · length² a row and full layer.
    attention = 3 * 4 * (2 * 4 * 64 * 32 * 32 + 4 * 64 * 6 * 32)
    assert training_flops(architecture, 960, some) - attention == pytest.approx(counted.get_total_flops(), rel=0.02)


def test_bert_base_takes_what_the_rule_of_six_says() -> None:
    """6 operations a parameter of the encoder's layers and token (Kaplan et al. 2020), for short rows."""
    base = Architecture()
    some = rows(128, 19, 8)
    layers = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert training_flops(base, 30522, some) == pytest.approx(6 * layers * 128 * 8, rel=0.10)


def test_peaks_are_known_by_the_name_of_the_card() -> None:
    assert peak_flops("NVIDIA H200", "bf16") == 989.4e12
    assert peak_flops("NVIDIA A100-SXM4-80GB", "bf16") == 312e12
    assert peak_flops("NVIDIA H200", "fp32") is None
    assert peak_flops("AMD EPYC", "bf16") is None
