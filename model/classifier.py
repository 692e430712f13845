"""A classifier on top of BERT: vectors of a text or of its tokens, dropout, one linear layer (Devlin et al. 2019, sections
4.1 to 4.4 and 5.3)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.attention import Rows
from model.bert import Bert
from model.dropout import Dropout
from model.long_texts import pooled
from model.tuning_batches import Batch
from pipeline.config import Architecture

Pooling = Literal["cls", "mean", "tokens"]


class Classifier(nn.Module):
    """The encoder with a classification head.

    Without `classes` there is no layer on top: a text's vector is what the encoder makes of it.

    `pooling` says what the head reads. Of a text: `cls`, the pooled first token (the paper), or `mean`, the mean over its
    hidden states, which suits encoders that saw little or no next-sentence training. `tokens`: those that are asked.
    """

    def __init__(self, architecture: Architecture, vocabulary_size: int, classes: int, pooling: Pooling) -> None:
        super().__init__()
        self.pooling = pooling
        self.encoder = Bert(architecture, vocabulary_size)
        self.dropout = Dropout(architecture.dropout)
        self.head = nn.Linear(architecture.hidden, classes) if classes else None

    @property
    def whole(self) -> bool:
        """Whether every token of a row is read that is not asked for by name (`batch_of`)."""
        return self.pooling != "cls"

    def forward(self, batch: Batch) -> Tensor:
        """Logits float [B, classes]; of tokens [Q, classes]; of choices, with one class, [n, choices] (`side_by_side`); of texts
        in windows [n, classes], their mean. Without classes, the vectors of the texts of each example, [n, texts, H]."""
        states = batch.states(self.encoder)  # [Q, H]
        read = batch.read
        if self.pooling == "cls":
            states = self.encoder.pool(states[:, None])
        elif self.pooling == "mean":
            states = mean_pool(states, read.row_of, read.rows)
        if self.head is None:
            assert read.compared is not None
            return F.embedding(read.compared.clamp(min=0), states)  # in the place of a text that is not there, any
        logits: Tensor = self.head(self.dropout(states))
        if read.windows is not None:
            return pooled(logits.float(), read.windows)
        return logits if read.compared is None else side_by_side(logits, read.compared)


def side_by_side(logits: Tensor, rows: Tensor) -> Tensor:
    """Float [R, 1], int64 [N, choices] (−1: no choice) → float [N, choices], −∞ where there is none: a softmax leaves it out."""
    return F.embedding(rows.clamp(min=0), logits).squeeze(2).masked_fill(rows < 0, float("-inf"))


def mean_pool(states: Tensor, row_of: Tensor, rows: Rows) -> Tensor:
    """Mean over the tokens of each row: float [T, H], int64 [T] → float [B, H], in fp32 at least."""
    lengths = rows.starts.diff()
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    sums = wide.new_zeros(len(lengths), wide.shape[1]).index_add(0, row_of, wide)
    return sums / lengths[:, None]
