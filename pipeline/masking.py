"""Static masks (Devlin et al. 2019, section 3.1 and appendix A.1; google-research/bert create_pretraining_data.py)."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]
COLUMN_BITS = np.uint64(16)
LAST = np.uint64(1 << 47)
"""as a key without column: behind every candidate"""


def mask_counts(lengths: Ints, rate: float, max_predictions: int, control_tokens: int) -> npt.NDArray[np.int64]:
    """Number of masked positions of instances of these lengths ([CLS] and [SEP] included).

    min(max_predictions, max(1, round(length · rate))), halves to the even number, and never more than there are
    tokens other than the `control_tokens`.
    """
    wanted = np.maximum(1, np.rint(lengths * rate)).astype(np.int64)
    return np.minimum(np.minimum(wanted, max_predictions), lengths - control_tokens)


@dataclass(frozen=True)
class MaskDraws:
    """Random numbers for the masks of some instances, one after the other."""

    keys: npt.NDArray[np.uint64]
    """one per token; in each instance the candidates with the smallest keys are masked"""
    choices: npt.NDArray[np.float64]
    """one per masked token in [0, 1): [MASK], random word or kept"""
    words: npt.NDArray[np.int64]
    """one per masked token: the random word, uniform over the whole vocabulary"""


def draw_masks(rng: np.random.Generator, tokens: int, masks: int, vocab_size: int) -> MaskDraws:
    """Draws for instances that have together so many tokens and masks."""
    keys = rng.bit_generator.random_raw(tokens)
    return MaskDraws(keys, rng.random(masks), rng.integers(0, vocab_size, masks))


def joined(draws: Sequence[MaskDraws]) -> MaskDraws:
    """The draws of several documents, one after the other."""
    return MaskDraws(*(np.concatenate([getattr(d, field.name) for d in draws]) for field in fields(MaskDraws)))


@dataclass(frozen=True)
class Masked:
    """Masked instances; the last two have `counts[i]` entries for instance i."""

    input_ids: Ints
    positions: npt.NDArray[np.uint16]
    """ascending in each instance"""
    ids: Ints
    """what stood there before"""


def apply_masks(
    input_ids: Ints, lengths: Ints, candidate: npt.NDArray[np.bool_], counts: Ints, draws: MaskDraws, mask_id: int,
    mask_random_keep: tuple[float, float, float],
) -> Masked:  # fmt: skip
    """Mask `counts[i]` candidates of each instance.

    Args:
        input_ids: [sum of lengths] ids of all instances, one after the other.
        lengths: [n] tokens of each instance.
        candidate: [sum of lengths] False for [CLS] and [SEP].
        counts: [n] see `mask_counts`.
        draws: random numbers for exactly these instances.
        mask_id: id of [MASK].
        mask_random_keep: shares of [MASK], random words and kept words, decided for every token by itself.
    """
    width = int(lengths.max(initial=0))
    inside = np.arange(width) < lengths[:, None]
    keys = np.full(inside.shape, LAST)
    keys[inside] = np.where(candidate, draws.keys >> (COLUMN_BITS + np.uint64(1)), LAST)
    # The column in the low bits makes the keys of an instance differ, so that exactly `counts` are chosen.
    keys = keys << COLUMN_BITS | np.arange(width, dtype=np.uint64)
    limit = np.sort(keys, axis=1)[np.arange(len(lengths)), counts - 1]
    chosen = (keys <= limit[:, None])[inside]
    columns = np.broadcast_to(np.arange(width, dtype=np.uint16), inside.shape)[inside]

    original = input_ids[chosen]
    mask, random, _ = mask_random_keep
    words = np.where(draws.choices < mask + random, draws.words, original)
    masked = input_ids.copy()
    masked[chosen] = np.where(draws.choices < mask, mask_id, words)
    return Masked(masked, columns[chosen], original)
