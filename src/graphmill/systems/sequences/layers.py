"""Layers of SASRec and TiSASRec: projections, feed-forward, and the arrangements of residual connections.

Rows of all sequences are in buckets (``kernels/sequence_attention``); everything except attention is row-wise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.products import linear
from graphmill.kernels.sequence_attention import Bucket
from graphmill.systems.sequences.hyper_connections import HyperConnection

Attention = Callable[[Tensor, Tensor, Tensor], Tensor]
"""query, key, value [R, d] → [R, d]."""

PRE, POST, ORIGINAL = "pre", "post", "original"


@dataclass(frozen=True)
class SequenceInputs:
    """Rows in buckets: ``items`` and ``positions`` int64 [R]; ``times`` int64 [R], scaled, or None.

    ``positions`` count from the end: the newest item of every sequence has the last position. Padding rows have any
    valid number; their results are never read.
    """

    items: Tensor
    positions: Tensor
    times: Tensor | None
    buckets: Sequence[Bucket]


class Projections(nn.Module):
    """Q, K and V of one attention, as one product if all have the same input, and the output projection, if any."""

    def __init__(self, dim: int, output: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.bias = nn.Parameter(torch.zeros(3 * dim))
        self.output = nn.Linear(dim, dim) if output else None

    def forward(self, query: Tensor, other: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """``query`` [R, d] gives Q; ``other`` gives K and V."""
        dim = query.shape[1]
        if query is other:
            q, k, v = linear(query, self.weight, self.bias).split(dim, dim=1)
        else:
            q = linear(query, self.weight[:dim], self.bias[:dim])
            k, v = linear(other, self.weight[dim:], self.bias[dim:]).split(dim, dim=1)
        return q, k, v


class FeedForward(nn.Module):
    """W₂ relu(W₁ x), each followed by dropout, at one width throughout (as in SASRec)."""

    def __init__(self, dim: int, rate: float) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.rate = rate

    def forward(self, x: Tensor, onto: Tensor | None = None) -> Tensor:
        """[R, d] → [R, d], added to ``onto`` if given."""
        # Dropout of ReLU equals ReLU of dropout: backward needs only the last result.
        inner = torch.relu(F.dropout(linear(x, self.first.weight, self.first.bias), self.rate, self.training))
        out = F.dropout(linear(inner, self.second.weight, self.second.bias), self.rate, self.training)
        return out if onto is None else onto + out


class Block(nn.Module):
    """Attention and feed-forward with their residual connections.

    * pre: x + A(LN x), then x + F(LN x);
    * post: LN(x + A(x)), then LN(x + F(x));
    * original (SASRec's first code, and TiSASRec): q = LN x attends to the raw x, and the residual is the normalised
      input: q + A(q, x), then z + F(z) with z = LN of this sum; no output projection.

    With hyper-connections (``mhc`` has two) x is [R, n, d], the branches are those of *pre* without residuals.
    """

    def __init__(self, dim: int, rate: float, norm: str, eps: float, mhc: Sequence[HyperConnection]) -> None:
        super().__init__()
        self.norm = norm
        self.projections = Projections(dim, output=norm != ORIGINAL)
        self.feed_forward = FeedForward(dim, rate)
        self.norm_attention, self.norm_feed_forward = nn.LayerNorm(dim, eps), nn.LayerNorm(dim, eps)
        self.mhc = nn.ModuleList(mhc) if mhc else None

    def forward(self, x: Tensor, attention: Attention) -> Tensor:
        """[R, d] (or streams [R, n, d]) → the same."""
        first, second = self.norm_attention, self.norm_feed_forward
        if self.mhc is not None:
            x = self.mhc[0](x, lambda y: self._attend(first(y), attention))
            return self.mhc[1](x, lambda y: self.feed_forward(second(y)))
        if self.norm == PRE:
            x = x + self._attend(first(x), attention)
            return self.feed_forward(second(x), x)
        if self.norm == POST:
            x = first(x + self._attend(x, attention))
            return second(self.feed_forward(x, x))
        query = first(x)
        z = second(query + attention(*self.projections(query, x)))
        return self.feed_forward(z, z)

    def _attend(self, x: Tensor, attention: Attention) -> Tensor:
        """[R, d] → [R, d]: attention and the output projection, if there is one."""
        attended = attention(*self.projections(x, x))
        output = self.projections.output
        return attended if output is None else linear(attended, output.weight, output.bias)


def initialise(model: nn.Module, draw: Callable[[Tensor], Tensor]) -> None:
    """Xavier initialisation of every matrix and table (separately for the three parts of a projection); biases zero.
    Hyper-connections keep their own start."""
    for module in model.modules():
        if isinstance(module, HyperConnection):
            continue
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.dim() < 2:
                if name == "bias":
                    nn.init.zeros_(parameter)
            elif isinstance(module, Projections):
                for part in parameter.chunk(3):
                    draw(part)
            else:
                draw(parameter)
