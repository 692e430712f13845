"""A classifier on top of BERT: one vector per text, or per word, dropout, one linear layer (Devlin et al. 2019, sections
4.1, 4.4 and 5.3)."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from model.bert import Bert
from pipeline.config import Architecture

Pooling = Literal["cls", "mean", "words"]


class Classifier(nn.Module):
    """The encoder with a classification head.

    `pooling` says what the head reads. Of a text: `cls`, the pooled first token (the paper), or `mean`, the mean over its
    hidden states, which suits encoders that saw little or no next-sentence training. `words`: the tokens that are asked.
    """

    def __init__(self, architecture: Architecture, vocabulary_size: int, classes: int, pooling: Pooling) -> None:
        super().__init__()
        self.pooling = pooling
        self.encoder = Bert(architecture, vocabulary_size)
        self.dropout = nn.Dropout(architecture.dropout)
        self.head = nn.Linear(architecture.hidden, classes)

    def forward(
        self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor, asked: Tensor | None = None
    ) -> Tensor:
        """int64 [B, S], int64 [B, S], bool [B, S] (False: padding) → logits float [B, classes].

        Of words: `asked` int64 [N], tokens counted through all rows, → float [N, classes]. Of choices, with one class:
        `asked` int64 [N, choices], rows, → float [N, choices] (`side_by_side`).
        """
        hidden = self.encoder(input_ids, token_type_ids, attention_mask)  # [B, S, H]
        if self.pooling == "words":
            assert asked is not None
            read = F.embedding(asked, hidden.flatten(0, 1))
        else:
            read = self.encoder.pool(hidden) if self.pooling == "cls" else mean_pool(hidden, attention_mask)
        logits: Tensor = self.head(self.dropout(read))
        return logits if asked is None or self.pooling == "words" else side_by_side(logits, asked)


def side_by_side(logits: Tensor, rows: Tensor) -> Tensor:
    """Float [R, 1], int64 [N, choices] (−1: no choice) → float [N, choices], −∞ where there is none: a softmax leaves it out."""
    return F.embedding(rows.clamp(min=0), logits).squeeze(2).masked_fill(rows < 0, float("-inf"))


def mean_pool(hidden: Tensor, attention_mask: Tensor) -> Tensor:
    """Mean over the tokens that are not padding: float [B, S, H], bool [B, S] → float [B, H]."""
    weights = attention_mask.unsqueeze(2).to(hidden.dtype)  # [B, S, 1]
    return (hidden * weights).sum(1) / weights.sum(1)
