"""A bidirectional LSTM over rows of any length that stand one after the other.

Over a frozen BERT it reads what the encoder found (Devlin et al. 2019, section 5.3); over the left-to-right ablation it
lets every token see what stands behind it (section 5.1).
"""

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from model.layers.attention import Rows
from pipeline.ragged import places


class BiLSTM(nn.Module):
    """Some layers of two LSTMs each, one of which reads a row from its end.

    `hidden` counts the units of one direction, so that 2 · hidden values come out for every token. The paper says
    "two-layer 768-dimensional BiLSTM" and no more; ELMo's, with which it compares itself, counts the units of one direction
    too (Peters et al. 2018, section 3.4), and so do the libraries that build one.

    The state is fp32 under autocast too: rounding errors would add up from token to token. `model.bert.initialize` sets
    the weights.
    """

    def __init__(self, inputs: int, hidden: int, layers: int) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, hidden, layers, bidirectional=True)

    @property
    def width(self) -> int:
        """Values for every token: first the direction that has read the row up to it, then the one that comes from its end."""
        return 2 * self.lstm.hidden_size

    def forward(self, values: Tensor, rows: Rows) -> Tensor:
        """float [T, inputs], the rows of which tell where each begins → float [T, width].

        Elsewhere than on a CPU this waits for the device: torch needs the lengths on the host.
        """
        order, sizes = time_major(np.array(rows.lengths, np.int64))
        if not len(order):  # only rows without a token, which torch refuses
            return values.new_empty((0, self.width))
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        with torch.autocast(values.device.type, enabled=False):
            packed = F.embedding(_on(order, values), values.to(next(self.lstm.parameters()).dtype))  # [T, inputs]
            found = self.lstm(PackedSequence(packed, torch.from_numpy(sizes)))[0].data  # [T, width]
            return F.embedding(_on(back, values), found)


def time_major(
    lengths: npt.NDArray[np.int64],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(tokens in the order in which they are read: the first of every row, then the second of every row that has two, …, of
    longer rows first; how many are read at each time), int64 [T] and int64 [longest], for rows of these lengths."""
    by_length = np.argsort(-lengths, kind="stable")
    sizes = np.bincount(lengths, minlength=1)[::-1].cumsum()[::-1][1:]  # rows of more than 0, 1, … tokens
    starts = (np.cumsum(lengths) - lengths)[by_length]
    return starts[places(sizes)] + np.repeat(np.arange(len(sizes)), sizes), sizes.copy()


def _on(places: npt.NDArray[np.int64], like: Tensor) -> Tensor:
    return torch.from_numpy(places).to(like.device)
