"""SASRec (Kang and McAuley 2018): self-attention over a user's items with learned positions; the item table gives the
scores.

x_t = √d E[item_t] + P[position_t];   blocks;   state = LN(x_L);   score of item j = state_t · E[j]
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.recomputed import recomputed
from graphmill.kernels.sequence_attention import causal_attention
from graphmill.kernels.sequence_attention.times import Intervals, time_attention
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.sequences.hyper_connections import HyperConnection, reduce_streams
from graphmill.systems.sequences.layers import Attention, Block, SequenceInputs, initialise

MakeHyperConnection = Callable[[int], HyperConnection]
"""Sub-layer number → its connection."""


class SASRec(nn.Module):
    """``forward`` gives the state after each row; ``items.weight`` [I, d] is the table that scores them."""

    draw = staticmethod(nn.init.xavier_normal_)
    """Initial values of matrices and tables."""

    def __init__(
        self,
        num_items: int,
        max_length: int,
        dim: int,
        blocks: int,
        heads: int,
        rate: float,
        norm: str,
        eps: float,
        mhc: MakeHyperConnection | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.rate = heads, rate
        self.items = nn.Embedding(num_items, dim)
        self.add_tables(max_length, dim)
        self.blocks = nn.ModuleList(
            Block(dim, rate, norm, eps, [mhc(2 * n), mhc(2 * n + 1)] if mhc else []) for n in range(blocks)
        )
        self.final_norm = nn.LayerNorm(dim, eps)
        self.streams = mhc(0).streams if mhc else 0
        self.gradient_checkpointing = False
        initialise(self, self.draw)

    def add_tables(self, max_length: int, dim: int) -> None:
        """The tables beside that of the items."""
        self.positions = nn.Embedding(max_length, dim)

    def forward(self, inputs: SequenceInputs) -> Tensor:
        """[R, d]: the state after each row, from which the next item is scored."""
        x = self.item_vectors(inputs) + table_rows(self.positions.weight, inputs.positions)

        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return causal_attention(query, key, value, inputs.buckets, self.heads, self.rate, self.training)

        return self.run_blocks(self.drop(x), attention)

    def item_vectors(self, inputs: SequenceInputs) -> Tensor:
        """[R, d]: √d E[item]."""
        return table_rows(self.items.weight, inputs.items) * math.sqrt(self.items.embedding_dim)

    def drop(self, x: Tensor) -> Tensor:
        """Dropout at the model's rate, in training."""
        return F.dropout(x, self.rate, self.training)

    def run_blocks(self, x: Tensor, attention: Attention) -> Tensor:
        """All blocks and the last norm: [R, d] → [R, d]."""
        if self.streams:
            # At first all streams are equal.
            x = x[:, None, :]
        again = self.gradient_checkpointing and self.training and torch.is_grad_enabled()
        for block in self.blocks:
            x = recomputed(again, block, x, attention)
        return self.final_norm(reduce_streams(x) if self.streams else x)


class TiSASRec(SASRec):
    """:class:`.sasrec.SASRec` with other tables; inputs have times. ``time_span``: the longest interval distinguished."""

    draw = staticmethod(nn.init.xavier_uniform_)

    def __init__(
        self,
        num_items: int,
        max_length: int,
        dim: int,
        blocks: int,
        heads: int,
        rate: float,
        norm: str,
        eps: float,
        time_span: int,
        mhc: MakeHyperConnection | None = None,
    ) -> None:
        self.time_span = time_span
        super().__init__(num_items, max_length, dim, blocks, heads, rate, norm, eps, mhc)

    def add_tables(self, max_length: int, dim: int) -> None:
        """Keys and values of positions and of times."""
        self.position_keys, self.position_values = nn.Embedding(max_length, dim), nn.Embedding(max_length, dim)
        rows = self.time_span + 1
        self.time_keys, self.time_values = nn.Embedding(rows, dim), nn.Embedding(rows, dim)

    def forward(self, inputs: SequenceInputs) -> Tensor:
        """[R, d]: the state after each row."""
        assert inputs.times is not None
        x = self.drop(self.item_vectors(inputs))
        intervals = Intervals(inputs.times, inputs.buckets, self.time_span)
        position_key = self.drop(table_rows(self.position_keys.weight, inputs.positions))
        position_value = self.drop(table_rows(self.position_values.weight, inputs.positions))
        time_key, time_value = self.drop(self.time_keys.weight), self.drop(self.time_values.weight)

        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            key, value = key + position_key.to(key.dtype), value + position_value.to(value.dtype)
            tables = time_key.to(key.dtype), time_value.to(value.dtype)
            return time_attention(query, key, value, intervals, *tables, self.heads, self.rate, self.training)

        return self.run_blocks(x, attention)
