"""A classifier on top of BERT: vectors of a text or of its tokens, dropout, one linear layer (Devlin et al. 2019, sections
4.1 to 4.4 and 5.3)."""

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.bert import Bert
from model.layers.attention import Rows
from model.layers.bilstm import BiLSTM
from model.layers.dropout import Dropout
from model.layers.layer_choices import ChosenLayers, width
from model.tuning.long_texts import pooled
from model.tuning.tuning_batches import Batch, KeptStates, Read
from pipeline.config import Architecture, Bilstm, LayerChoice

Pooling = Literal["cls", "mean", "last", "ends", "tokens"]


class Classifier(nn.Module):
    """The encoder with a classification head, and a BiLSTM between them, if there is one.

    Without `classes` there is no layer on top: a text's vector is what the encoder makes of it.

    `pooling` says what the head reads. Of a text: `cls`, the pooled first token (the paper), `mean`, the mean over its
    hidden states, which suits encoders that saw little or no next-sentence training, or `last`, the state of its last token,
    which alone has seen all others in a left-to-right encoder (Radford et al. 2018, section 3.2). `tokens`: those that are
    asked.

    With a BiLSTM `mean` is over what comes out of it; instead of `cls` and `last` there is `ends`, the state in which each
    direction ends, the usual vector of a BiLSTM's text beside mean and maximum (Conneau et al. 2017, section 3.2). In what
    comes out at [CLS] or at the last token, one of the two directions has read a single token. The paper does not say how
    it read its BiLSTM.

    With `layers` the encoder is frozen and no part of this: batches bring what it said (`KeptStates`), and its pooler, which
    belongs to the last layer, is not used.
    """

    encoder: Bert
    """none where `layers` are chosen"""

    def __init__(
        self,
        architecture: Architecture,
        vocabulary_size: int,
        classes: int,
        pooling: Pooling,
        bilstm: Bilstm | None = None,
        layers: LayerChoice | None = None,
    ) -> None:
        super().__init__()
        self.pooling = pooling
        values = architecture.hidden
        self.chosen = ChosenLayers(layers, architecture.layers) if layers else None
        if layers:
            values = width(layers, values)
        else:
            self.encoder = Bert(architecture, vocabulary_size)
        self.dropout = Dropout(architecture.dropout)
        self.bilstm = BiLSTM(values, bilstm.hidden, bilstm.layers) if bilstm else None
        self.head = nn.Linear(self.bilstm.width if self.bilstm else values, classes) if classes else None

    @property
    def whole(self) -> bool:
        """Whether every token of a row is read that is not asked for by name (`batch_of`)."""
        return self.pooling != "cls"

    def forward(self, batch: Batch) -> Tensor:
        """Logits float [B, classes]; of tokens [Q, classes]; of choices, with one class, [n, choices] (`side_by_side`); of texts
        in windows [n, classes], their mean. Without classes, the vectors of the texts of each example, [n, texts, H]."""
        read = batch.read
        if self.chosen is None:
            assert not isinstance(batch, KeptStates)
            states = batch.states(self.encoder)  # [Q, H]
        else:
            assert isinstance(batch, KeptStates)
            states = self.chosen(batch.layers)  # [Q, H], of several layers more
        if self.bilstm is not None:
            states = self.bilstm(self.dropout(states), read.rows)
        vectors = self._pooled(states, read)
        if self.head is None:
            assert read.compared is not None
            return F.embedding(read.compared.clamp(min=0), vectors)  # in the place of a text that is not there, any
        logits: Tensor = self.head(self.dropout(vectors))
        if read.windows is not None:
            return pooled(logits.float(), read.windows)
        return logits if read.compared is None else side_by_side(logits, read.compared)

    def _pooled(self, states: Tensor, read: Read) -> Tensor:
        """Float [Q, H] → [B, H], one vector of each row; of `tokens` as they are."""
        if self.pooling == "tokens":
            return states
        if self.pooling == "mean":
            return mean_pool(states, read.row_of, read.rows)
        first, last = (F.embedding(at, states) for at in (read.rows.starts[:-1], read.rows.starts[1:] - 1))
        if self.pooling == "ends":
            forward = states.shape[1] // 2
            return torch.cat([last[:, :forward], first[:, forward:]], 1)
        if self.pooling == "last":
            return last
        return first if self.chosen is not None else self.encoder.pool(first[:, None])


def pooling_over(pooling: Pooling, bilstm: Bilstm | None) -> Pooling:
    """What is read where a recipe asks for `pooling`."""
    return "ends" if bilstm and pooling in ("cls", "last") else pooling


def side_by_side(logits: Tensor, rows: Tensor) -> Tensor:
    """Float [R, 1], int64 [N, choices] (−1: no choice) → float [N, choices], −∞ where there is none: a softmax leaves it out."""
    return F.embedding(rows.clamp(min=0), logits).squeeze(2).masked_fill(rows < 0, float("-inf"))


def mean_pool(states: Tensor, row_of: Tensor, rows: Rows) -> Tensor:
    """Mean over the tokens of each row: float [T, H], int64 [T] → float [B, H], in fp32 at least."""
    lengths = rows.starts.diff()
    wide = states.to(torch.promote_types(states.dtype, torch.float32))
    sums = wide.new_zeros(len(lengths), wide.shape[1]).index_add(0, row_of, wide)
    return sums / lengths[:, None]
