"""Sentence vectors: the mean of a text's hidden states, learnt from pairs of texts that mean the same.

Every text is a row of its own; nothing of one is seen by the other, so that a vector can be kept and compared with any
other. The loss asks which of a batch's texts goes with which (in-batch negatives: Henderson et al. 2017, section 4.4, with
cosines times 20 as Sentence-BERT's authors have it as multiple negatives ranking; elsewhere InfoNCE). Scores are
correlations of the cosines with what people said (Reimers and Gurevych 2019).
"""

from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from model.tuning.examples import Examples, Ints, as_row, read_columns
from pipeline.ragged import ranges
from pipeline.tokenizer import Tokenizer

SCALE = 20.0
"""what cosines are multiplied by before the softmax"""
NONE = -1
"""in the place of a text where there is none"""


def read_sentence_pairs(path: Path, tokenizer: Tokenizer, max_length: int) -> Examples:
    """Read train, dev or test.parquet of a sentence-similarity task: `choices` has the two or three rows of each example.

    Labels are scores, NaN where there is none, as for pairs of train. Raises DataError where it can't be read.
    """
    ids, first, second, third, scores = read_columns(path, "example_id", "text_a", "text_b", "negative", "score")
    texts = [
        [text for text in texts if text is not None] for texts in zip(first, second, third, strict=True)
    ]  # of each example
    starts = np.array([0, *accumulate(map(len, texts))], np.int64)
    pieces = tokenizer.encode_ids([text for each in texts for text in each])
    rows = [as_row(each, None, tokenizer, max_length) for each in pieces]
    cut = np.array([row[2] for row in rows], bool)
    return Examples(
        example_ids=tuple(ids),
        texts=(),
        input_ids=tuple(row[0] for row in rows),
        second_starts=np.array([row[1] for row in rows], np.int64),
        labels=np.array([np.nan if score is None else score for score in scores], np.float64),
        truncated=len(np.unique(np.repeat(np.arange(len(ids)), np.diff(starts))[cut])),
        choices=starts,
        counts={"texts": len(rows), "cut_texts": int(cut.sum()), "hard_negatives": len(rows) - 2 * len(ids)},
    )


def text_numbers(input_ids: Iterable[npt.NDArray[np.int32]]) -> Ints:
    """[R] A number for each row, the same for rows of the same tokens: no encoder can tell these apart."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(ids.tobytes(), len(numbers)) for ids in input_ids], np.int64)


def texts_of(examples: Examples, numbers: Ints) -> Ints:
    """`text_numbers` of some examples: int64 [n, k], k of the example with most texts, NONE where another has none."""
    assert examples.choices is not None
    starts, counts = examples.choices[:-1][numbers], np.diff(examples.choices)[numbers]
    there = np.arange(counts.max())[None, :] < counts[:, None]
    found = np.full(there.shape, NONE, np.int64)
    found[there] = text_numbers(examples.input_ids[row] for row in ranges(starts, counts))
    return found


def contrastive_loss(vectors: Tensor, texts: Tensor) -> Tensor:
    """Mean cross entropy of choosing, for each first text of a batch, the second one of its pair; a scalar.

    It chooses among all second texts of the batch and, with k = 3, all hard negatives, by cosine times SCALE. What is no
    negative is not among them (`not_negative`).

    vectors: float [n, k, H], k = 2 (a text, one that means the same) or 3 (and one that does not, though it looks so);
    texts: int64 [n, k] numbers of these texts, NONE where an example has no hard negative.
    """
    unit = F.normalize(vectors, dim=2)
    candidates = unit[:, 1:].transpose(0, 1).flatten(0, 1)  # [n · (k − 1), H]: all second texts, then all negatives
    cosines = unit[:, 0] @ candidates.T  # [n, n · (k − 1)]
    logits = (SCALE * cosines).masked_fill(not_negative(texts), float("-inf"))
    return F.cross_entropy(logits, torch.arange(len(vectors), device=vectors.device))


def not_negative(texts: Tensor) -> Tensor:
    """Which candidates an example must not be told apart from: bool [n, n · (k − 1)], never its own second text.

    texts: int64 [n, k] as for `contrastive_loss`. Pair j says that its texts mean the same. If one of them is a text of pair i
    too, so does the other; a hard negative that is a text of pair i is no negative of it, and one that is not there of none.
    """
    pairs = texts[:, :2]  # [n, 2]
    same = (pairs[:, None, :, None] == pairs[None, :, None, :]).flatten(2).any(2)  # [n, n]
    own = torch.eye(len(texts), dtype=torch.bool, device=texts.device)
    left_out = [same & ~own]
    if texts.shape[1] == 3:
        hard = texts[:, 2]
        left_out.append((pairs[:, :, None] == hard).any(1) | (hard == NONE))
    return torch.cat(left_out, dim=1)


def cosines(vectors: Tensor) -> Tensor:
    """Of the first two texts of each example: float [n, k, H] → float [n], from −1 to 1; what is held against scores."""
    return F.cosine_similarity(vectors[:, 0], vectors[:, 1], dim=1)
