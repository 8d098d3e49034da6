"""TiSASRec (Li et al. 2020): SASRec with separate keys and values for absolute positions and relative times.

    e_ij = q_i · (k_j + P^K_j + R^K[r_ij]) / √d_h;   o_i = Σ_j α_ij (v_j + P^V_j + R^V[r_ij])

with r_ij = min(|t'_i - t'_j|, span) and t' the user's scaled times. Dropout acts on the rows of R once per forward
pass, not on each pair of positions: the pairs are never materialised.
"""

from __future__ import annotations

from torch import Tensor, nn

from graphmill.kernels.sequence_attention.times import Intervals, time_attention
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.sequences.layers import SequenceInputs
from graphmill.systems.sequences.sasrec import MakeHyperConnection, SASRec


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
