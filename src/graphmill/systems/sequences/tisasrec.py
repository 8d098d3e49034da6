"""TiSASRec (Li et al. 2020): SASRec with separate keys and values for absolute positions and relative times.

    e_ij = q_i · (k_j + P^K_j + R^K[r_ij]) / √d_h;   o_i = Σ_j α_ij (v_j + P^V_j + R^V[r_ij])

with r_ij = min(|t'_i - t'_j|, span) and t' the user's scaled times. Dropout acts on the rows of R once per forward
pass, not on each pair of positions: the pairs are never materialised.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from graphmill.kernels.dropout import dropout
from graphmill.kernels.sequence_attention.times import Intervals, time_attention
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.sequences.hyper_connections import HyperConnection
from graphmill.systems.sequences.layers import Block, SequenceInputs, initialise
from graphmill.systems.sequences.sasrec import MakeHyperConnection, numbered, run_blocks


class TiSASRec(nn.Module):
    """Like :class:`.sasrec.SASRec`; inputs have times. ``time_span``: the longest interval that is distinguished."""

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
        super().__init__()
        self.heads, self.rate, self.time_span = heads, rate, time_span
        self.items = nn.Embedding(num_items, dim)
        self.position_keys, self.position_values = nn.Embedding(max_length, dim), nn.Embedding(max_length, dim)
        self.time_keys, self.time_values = nn.Embedding(time_span + 1, dim), nn.Embedding(time_span + 1, dim)
        self.blocks = nn.ModuleList(
            Block(dim, rate, norm, eps, numbered(mhc, number) if mhc else None) for number in range(blocks)
        )
        self.final_norm = nn.LayerNorm(dim, eps)
        self.streams = mhc(0).streams if mhc else 0
        self.gradient_checkpointing = False
        initialise(self, nn.init.xavier_uniform_, (HyperConnection,))

    def forward(self, inputs: SequenceInputs) -> Tensor:
        """[R, d]: the state after each row."""
        assert inputs.times is not None
        x = table_rows(self.items.weight, inputs.items) * math.sqrt(self.items.embedding_dim)
        x = self._drop(x)
        intervals = Intervals(inputs.times, inputs.buckets, self.time_span)
        position_key = self._drop(table_rows(self.position_keys.weight, inputs.positions))
        position_value = self._drop(table_rows(self.position_values.weight, inputs.positions))
        time_key, time_value = self._drop(self.time_keys.weight), self._drop(self.time_values.weight)

        def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return time_attention(
                query,
                key + position_key.to(key.dtype),
                value + position_value.to(value.dtype),
                intervals,
                time_key.to(key.dtype),
                time_value.to(value.dtype),
                self.heads,
                self.rate,
                self.training,
            )

        return run_blocks(self, x, attention)

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.rate, self.training)
