"""Scaled dot-product attention over the rows of a batch, with and without padding: where the tokens of a row meet.

Q tokens that ask, K tokens that are looked at, A heads, D width of a head: H / A.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from model.layers.dropout import drawn_seed, kept, scale_of

Mix = Callable[[Tensor, Tensor, Tensor, float], Tensor]
"""(queries [.., Q, A, D], keys [.., K, A, D], values as keys, share dropped) → what each query finds [.., Q, A, D]"""


@dataclass(frozen=True)
class Rows:
    """Where the rows lie among tokens that stand one after the other."""

    starts: Tensor
    """int32 [B + 1], from 0 to the number of tokens: row i is starts[i] … starts[i + 1] − 1"""
    longest: int
    """tokens of the longest row"""

    @property
    def lengths(self) -> list[int]:
        """Tokens of each row. On a CPU only: elsewhere it would wait for the device."""
        return self.starts.diff().tolist()


def padded(mask: Tensor | None) -> Mix:
    """Rows side by side, [B, S, A, D]. `mask` bool [B, 1, 1 or Q, K]: True may be looked at; None: everything may."""

    def mix(queries: Tensor, keys: Tensor, values: Tensor, dropout: float) -> Tensor:
        q, k, v = (part.transpose(1, 2) for part in (queries, keys, values))  # [B, A, S, D]
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout).transpose(1, 2)

    return mix


def unpadded(asking: Rows, looked_at: Rows, causal: bool = False) -> Mix:
    """Rows one after the other, [T, A, D]; those who ask may be fewer than the tokens that they look at.

    `causal`: a token looks at itself and those before it; then `asking` is `looked_at`.
    """

    def mix(queries: Tensor, keys: Tensor, values: Tensor, dropout: float) -> Tensor:
        if queries.device.type != "cpu":
            return _by_kernel(queries, keys, values, asking, looked_at, causal, dropout)
        sizes = asking.lengths, looked_at.lengths
        if dropout:
            mixed: Tensor = _Attention.apply(queries, keys, values, sizes, causal, dropout, drawn_seed())
            return mixed
        # A row at a time needs neither padding nor a mask, and its scores stay in the cache. Rows are independent: one
        # call for several of them would save microseconds.
        found = [
            F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=causal)[0].transpose(0, 1)
            for (q,), (k, v) in _rows(sizes, (queries,), (keys, values))
        ]  # [Q, A, D] each
        return torch.cat(found)

    return mix


class _Attention(torch.autograd.Function):
    """`unpadded` with dropout on a CPU, where torch's fast kernel knows no dropout and the other draws it slowly.

    Row by row P = softmax(q kᵀ / √D), out = (P ∘ R) v with R the units kept, scaled; of each row P is kept for the way
    back, and R is drawn again.
    """

    @staticmethod
    def forward(
        ctx: Any,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        sizes: tuple[list[int], list[int]],
        causal: bool,
        dropout: float,
        seed: int,
    ) -> Tensor:
        """[Q, A, D], [K, A, D], [K, A, D] → [Q, A, D]."""
        found = torch.empty_like(queries)
        bits, shares = np.random.SFC64(seed), []
        scaled = queries * queries.shape[-1] ** -0.5
        for (q, out), (k, v) in _rows(sizes, (scaled, found), (keys, values)):
            scores = torch.bmm(q, k.transpose(1, 2))  # [A, Q, K]
            if causal:
                scores.masked_fill_(torch.ones(scores.shape[1:], dtype=torch.bool).triu_(1), -torch.inf)
            share = torch.softmax(scores, -1)
            out.copy_(torch.bmm(share * kept(tuple(share.shape), dropout, bits, share.dtype), v))
            shares.append(share)
        ctx.save_for_backward(scaled, keys, values, *shares)
        ctx.sizes, ctx.dropout, ctx.seed = sizes, dropout, seed
        return found.mul_(scale_of(dropout))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Of queries, keys and values."""
        scaled, keys, values, *shares = ctx.saved_tensors
        of_queries, of_keys, of_values = (torch.empty_like(part) for part in (scaled, keys, values))
        bits = np.random.SFC64(ctx.seed)
        gradient = gradient * scale_of(ctx.dropout)
        rows = _rows(ctx.sizes, (scaled, gradient, of_queries), (keys, values, of_keys, of_values))
        for ((q, asked, to_q), (k, v, to_k, to_v)), share in zip(rows, shares, strict=True):
            units = kept(tuple(share.shape), ctx.dropout, bits, share.dtype)
            to_v.copy_(torch.bmm((share * units).transpose(1, 2), asked))
            of_share = torch.bmm(asked, v.transpose(1, 2)).mul_(units)
            of_scores = torch._softmax_backward_data(of_share, share, -1, share.dtype)
            to_q.copy_(torch.bmm(of_scores, k))
            to_k.copy_(torch.bmm(of_scores.transpose(1, 2), q))
        return of_queries.mul_(scaled.shape[-1] ** -0.5), of_keys, of_values, None, None, None, None


def _rows(
    sizes: tuple[list[int], list[int]], of_asking: tuple[Tensor, ...], of_looked_at: tuple[Tensor, ...]
) -> Iterator[tuple[tuple[Tensor, ...], tuple[Tensor, ...]]]:
    """Views of each row, [A, Q or K, D]."""
    parts = (
        [part.transpose(0, 1).split(size, 1) for part in some]
        for size, some in zip(sizes, (of_asking, of_looked_at), strict=True)
    )
    asking, looked_at = (zip(*some, strict=True) for some in parts)
    return zip(asking, looked_at, strict=True)


def _by_kernel(
    queries: Tensor, keys: Tensor, values: Tensor, asking: Rows, looked_at: Rows, causal: bool, dropout: float
) -> Tensor:
    """Attention over rows of any length in one kernel, through torch's nested tensors: on CUDA in bf16 it is flash attention.

    Not run on a GPU so far, only its form, by a test on a CPU (which has no causal kernel for it): model/devices/cuda.py
    does not ask for unpadded batches before it was.
    torch.nn.attention.varlen knows no dropout (torch 2.13).
    """
    q, k, v = (
        torch.nested.nested_tensor_from_jagged(part, rows.starts, max_seqlen=rows.longest, min_seqlen=1).transpose(1, 2)
        for part, rows in ((queries, asking), (keys, looked_at), (values, looked_at))
    )
    found = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    return found.transpose(1, 2).values()
