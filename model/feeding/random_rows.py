"""Rows of random ids in the form of a recipe's shards: to measure with, where shards need not exist."""

import numpy as np

from pipeline.config import PretrainConfig
from pipeline.sharding.shard_schema import Shards


def random_rows(count: int, length: int, config: PretrainConfig, vocabulary_size: int) -> Shards:
    """`count` rows of `length` tokens, always the same ones.

    Each has as many masked words as a row of that length has at most: `max_predictions_per_seq` in proportion to its length,
    at least one; left to right every word but the first is to be predicted.
    """
    random = np.random.default_rng(0)
    if config.objective == "clm":
        masked, first = length - 1, 0
    else:
        share = length / config.sequence_length
        masked, first = max(1, min(round(config.max_predictions_per_seq * share), length - 2)), 1
    pairs = config.sentence_task != "none"
    return Shards(
        input_ids=random.integers(vocabulary_size, size=count * length),
        input_offsets=np.arange(count + 1) * length,
        masked_positions=np.tile(np.arange(first, first + masked), count),
        masked_ids=random.integers(vocabulary_size, size=count * masked),
        masked_offsets=np.arange(count + 1) * masked,
        token_type_start=np.full(count, length // 2, np.int32) if pairs else None,
        label=random.integers(2, size=count).astype(np.int8) if pairs else None,
    )
