"""What rows without stored masks are given to predict: the next word, or masks that are drawn when they are loaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from model.feeding.order import mix
from pipeline.config import PretrainConfig, ShardsConfig
from pipeline.ragged import places, ranges
from pipeline.sharding.masking import Control, control, draw_masks
from pipeline.sharding.shard_schema import Shards
from pipeline.streams import drawn, stable_hash
from pipeline.tokenizer import read_vocabulary

Targets = Callable[[Shards, npt.NDArray[np.int64], npt.NDArray[np.int64]], Shards]
"""(rows without targets, their numbers, the epoch of each; -1: held out) → the rows with what is to be predicted"""


def targets_of(config: PretrainConfig, vocabulary: Path) -> Targets | None:
    """What the rows of this phase are given, with the words of vocab.txt; None: their masks are stored."""
    if config.objective == "clm":
        return next_words
    if config.masks is None:
        return None
    words = read_vocabulary(vocabulary)
    cls_id, sep_id, mask_id = (words.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))
    of_vocabulary = control(words, cls_id=cls_id, sep_id=sep_id, mask_id=mask_id)
    return drawn_masks(config.masks, of_vocabulary, mix(config.seed, config.first_step))


def next_words(rows: Shards, numbers: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]) -> Shards:
    """Left to right: every token is to be predicted but the first, at the position before it."""
    counts = rows.lengths - 1
    following = ranges(rows.input_offsets[:-1] + 1, counts)
    return replace(
        rows,
        masked_positions=places(counts),
        masked_ids=rows.input_ids[following],
        masked_offsets=np.concatenate([[0], np.cumsum(counts)]),
    )


def drawn_masks(config: ShardsConfig, control: Control, seed: int) -> Targets:
    """Masks that are drawn when rows are loaded: a function of (seed, epoch, number of the row)."""
    root = np.array([stable_hash("masks", seed)], np.uint64)

    def draw(rows: Shards, numbers: npt.NDArray[np.int64], epochs: npt.NDArray[np.int64]) -> Shards:
        keys = drawn(drawn(root, epochs + 1), numbers)
        found = draw_masks(rows.input_ids, rows.lengths, keys, config, config.max_predictions_per_seq, control)
        return replace(
            rows,
            input_ids=found.input_ids,
            masked_positions=found.positions,
            masked_ids=found.ids,
            masked_offsets=np.concatenate([[0], np.cumsum(found.counts)]),
        )

    return draw
