"""The Heterogeneous Graph Transformer as a pure module: tables and features in, one embedding per node out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from graphmill.kernels.dropout import dropout
from graphmill.kernels.hgt.attention import Backend, hgt_attention
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.projected import hgt_projected_attention
from graphmill.kernels.products import Linear, linear
from graphmill.kernels.products.gelu_linear import gelu_linear
from graphmill.kernels.table_rows import table_rows

TABLE_STD = 0.1


class HGTLayer(nn.Module):
    """One HGT convolution (Hu et al. 2020), equal to PyTorch Geometric's ``HGTConv`` with the same weights.

    ``relations`` are (source_type, target_type) in the order of the graph's relations. ``projections[t]`` holds q (if
    the type is a target) and k, v (if it is a source) side by side, each ``out_dim`` wide.
    """

    def __init__(
        self, num_types: int, relations: Sequence[tuple[int, int]], in_dim: int, out_dim: int, num_heads: int
    ) -> None:
        super().__init__()
        if out_dim % num_heads:
            raise ValueError(f"width {out_dim} is not divisible by {num_heads} heads")
        self.out_dim, self.num_heads = out_dim, num_heads
        self.backend: Backend = "auto"
        self.is_source = [any(s == t for s, _ in relations) for t in range(num_types)]
        self.is_target = [any(d == t for _, d in relations) for t in range(num_types)]
        head_dim = out_dim // num_heads
        self.projections = nn.ModuleDict()
        self.outputs = nn.ModuleDict()
        for t in range(num_types):
            parts = self.is_target[t] + 2 * self.is_source[t]
            if parts:
                self.projections[str(t)] = nn.Linear(in_dim, parts * out_dim)
            if self.is_target[t]:
                self.outputs[str(t)] = nn.Linear(out_dim, out_dim)
        self.skip = nn.Parameter(torch.ones(num_types)) if in_dim == out_dim else None
        self.w_k = nn.Parameter(torch.empty(len(relations), num_heads, head_dim, head_dim))
        self.w_v = nn.Parameter(torch.empty(len(relations), num_heads, head_dim, head_dim))
        self.prior = nn.Parameter(torch.ones(len(relations), num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the relation matrices anew; priors start at 1."""
        bound = (6 / (2 * self.w_k.shape[-1])) ** 0.5  # Glorot, per matrix
        nn.init.uniform_(self.w_k, -bound, bound)
        nn.init.uniform_(self.w_v, -bound, bound)

    def forward(
        self,
        x: Sequence[Tensor],
        graph: MessageGraph,
        masked_pairs: Tensor | None = None,
        recompute: bool = False,
    ) -> list[Tensor]:
        """Per type [N_t, in_dim] to [N_t, out_dim]; types that no relation ends in keep their input.

        ``recompute``: project to q, k and v once more in the backward pass instead of keeping them.
        """
        return self.update_all(x, self.messages(x, graph, masked_pairs, recompute))

    def messages(
        self, x: Sequence[Tensor], graph: MessageGraph, masked_pairs: Tensor | None = None, recompute: bool = False
    ) -> list[Tensor | None]:
        """What arrives at every node, per type [N_t, out_dim]; None for types that no relation ends in."""
        projections = [self._projection(t) if str(t) in self.projections else None for t in range(len(x))]
        weights = (self.w_k, self.w_v, self.prior)
        return hgt_projected_attention(x, projections, *weights, graph, masked_pairs, self.backend, recompute)

    def receive(
        self,
        receivers: Sequence[Tensor],
        keys: Sequence[Tensor | None],
        values: Sequence[Tensor | None],
        graph: MessageGraph,
        masked_pairs: Tensor | None = None,
    ) -> list[Tensor]:
        """:meth:`forward` for some receivers only: per type [targets of ``graph``, in_dim], with the senders' k and v."""
        queries = [self.queries(t, rows) for t, rows in enumerate(receivers)]
        weights = (self.w_k, self.w_v, self.prior)
        messages = hgt_attention(queries, keys, values, *weights, graph, masked_pairs, self.backend)
        return self.update_all(receivers, messages)

    def receive_from(
        self,
        senders: Sequence[Tensor],
        receivers: Sequence[Tensor],
        graph: MessageGraph,
        masked_pairs: Tensor | None = None,
    ) -> list[Tensor]:
        """:meth:`receive` with the k and v of ``senders``, per type [sources of ``graph``, in_dim]."""
        both = [self.keys_values(t, rows) for t, rows in enumerate(senders)]
        keys = [None if kv is None else kv[:, : self.out_dim] for kv in both]
        values = [None if kv is None else kv[:, self.out_dim :] for kv in both]
        return self.receive(receivers, keys, values, graph, masked_pairs)

    def queries(self, node_type: int, rows: Tensor) -> Tensor | None:
        """q of some rows, [n, out_dim]; None where the type is never a target."""
        if not self.is_target[node_type]:
            return None
        weight, bias = self._projection(node_type)
        return linear(rows, weight[: self.out_dim], bias[: self.out_dim])

    def keys_values(self, node_type: int, rows: Tensor) -> Tensor | None:
        """k and v of some rows side by side, [n, 2·out_dim]; None where the type is never a source."""
        if not self.is_source[node_type]:
            return None
        weight, bias = self._projection(node_type)
        return linear(rows, weight[-2 * self.out_dim :], bias[-2 * self.out_dim :])

    def update_all(self, x: Sequence[Tensor], messages: Sequence[Tensor | None]) -> list[Tensor]:
        """What becomes of the rows of every type when their messages arrive: output product, skip."""
        # All gates at once: one a type would be launches a type, forward and backward.
        gates = [None] * len(x) if self.skip is None else self.skip.sigmoid().unbind()
        return [self._update(t, *own) for t, own in enumerate(zip(x, messages, gates, strict=True))]

    def _update(self, node_type: int, rows: Tensor, message: Tensor | None, gate: Tensor | None) -> Tensor:
        if message is None:
            return rows
        output: nn.Linear = self.outputs[str(node_type)]  # type: ignore[assignment]
        y = gelu_linear(message, output.weight, output.bias)
        return y if gate is None else torch.lerp(rows, y.to(rows.dtype), gate)

    def _projection(self, node_type: int) -> tuple[Tensor, Tensor]:
        projection: nn.Linear = self.projections[str(node_type)]  # type: ignore[assignment]
        return projection.weight, projection.bias


class HGT(nn.Module):
    """A learnable table (and a projection of features) per node type, HGT layers, and a two-layer head per type.

    ``type_counts``: nodes per type; ``relations``: (source_type, target_type) in the graph's order; ``feature_dims``:
    width of the features of the types that have some. ``num_layers`` 0 is the same model without message passing.
    ``output_norm``: LayerNorm without gain of every embedding, times d^(−1/4), so that the product of two unrelated ones
    has variance 1 and no vector can be long because its node has many links.
    """

    def __init__(
        self,
        type_counts: Sequence[int],
        relations: Sequence[tuple[int, int]],
        hidden_dim: int,
        embedding_dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float = 0.0,
        layer_norm: bool = True,
        feature_dims: Mapping[int, int] | None = None,
        gradient_checkpointing: bool = False,
        output_norm: bool = True,
    ) -> None:
        super().__init__()
        if hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} is not divisible by num_heads {num_heads}")
        self.type_counts = tuple(type_counts)
        self.embedding_dim = embedding_dim
        self.dropout = dropout
        self.gradient_checkpointing = gradient_checkpointing
        self.output_norm = output_norm
        types = len(type_counts)
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(n, hidden_dim) * TABLE_STD) for n in type_counts)
        self.features = nn.ModuleDict({str(t): Linear(f, hidden_dim) for t, f in (feature_dims or {}).items()})
        self.layers = nn.ModuleList(
            HGTLayer(types, relations, hidden_dim, hidden_dim, num_heads) for _ in range(num_layers)
        )
        self.norms = nn.ModuleList(
            nn.ModuleList(nn.LayerNorm(hidden_dim) if layer_norm else nn.Identity() for _ in range(types))
            for _ in range(num_layers)
        )
        self.heads = nn.ModuleList(
            nn.Sequential(Linear(hidden_dim, embedding_dim), nn.GELU(), Linear(embedding_dim, embedding_dim))
            for _ in range(types)
        )

    def forward(
        self,
        graph: MessageGraph,
        features: Mapping[int, Tensor] | None = None,
        masked_pairs: Tensor | None = None,
        node_rows: Sequence[Tensor] | None = None,
        needed: Sequence[Tensor | None] | None = None,
        cut: bool = True,
    ) -> Tensor:
        """Embeddings [N, embedding_dim] in global node order (types contiguous).

        ``features``: per type [N_t, f], of all nodes of the type; ``masked_pairs``: bool [pairs], pairs without
        messages in this step; ``node_rows``: per type the local numbers of the graph's nodes, where the graph is cut.
        ``needed``: per type the ascending numbers of the nodes whose embedding is wanted (None: all of the type), and only
        those are returned. With ``cut`` the graph is cut down to them for the last layer, which computes no others; without,
        messages arrive everywhere and what comes behind them is left out, which is quicker where most are needed.
        """
        x = self.inputs(features, node_rows)
        again = self.gradient_checkpointing and torch.is_grad_enabled()
        for number in range(len(self.layers)):
            chosen = needed if number == len(self.layers) - 1 else None
            if chosen is not None and cut:
                if again:
                    x = checkpoint(self._layer_for, number, x, graph, masked_pairs, chosen, use_reentrant=False)
                else:
                    x = self._layer_for(number, x, graph, masked_pairs, chosen)
                continue
            # The attention recomputes its own projections, so that its edges are not gone over once more.
            messages = self.layer(number).messages(x, graph, masked_pairs, recompute=again)
            if chosen is not None:
                x, messages = _take(x, chosen), _take(messages, chosen)
            if again:
                x = checkpoint(self._after, number, x, messages, use_reentrant=False)
            else:
                x = self._after(number, x, messages)
        if needed is not None and not self.layers:
            x = _take(x, needed)
        return self.embed_all(x)

    def forward_sampled(
        self,
        blocks: Sequence[MessageGraph],
        node_rows: Sequence[Tensor],
        features: Mapping[int, Tensor] | None = None,
    ) -> Tensor:
        """Embeddings of a sample's seeds, types in turn: layer l computes the receivers of ``blocks[l]``, no others.

        ``node_rows``: per type the int64 local numbers of the nodes that the first layer reads. A block's receivers are
        the first rows of its senders, and they are the senders of the next block.
        """
        x = self.inputs(features, node_rows)
        for number, block in enumerate(blocks):
            if self.gradient_checkpointing and torch.is_grad_enabled():
                x = checkpoint(self._block, number, x, block, use_reentrant=False)
            else:
                x = self._block(number, x, block)
        return self.embed_all(x)

    def embed_all(self, x: Sequence[Tensor]) -> Tensor:
        """All heads: per type [n_t, hidden_dim] to [Σ n_t, embedding_dim]."""
        return self._normed(torch.cat([head(rows) for head, rows in zip(self.heads, x, strict=True)]))

    def inputs(self, features: Mapping[int, Tensor] | None, node_rows: Sequence[Tensor] | None) -> list[Tensor]:
        """Per type [N_t, hidden_dim]: what the first layer reads."""
        inputs = []
        for t, table in enumerate(self.tables):
            rows: Tensor = table if node_rows is None else table_rows(table, node_rows[t])
            if str(t) in self.features:
                if features is None or t not in features:
                    raise ValueError(f"node type {t} was built with features, but none were given")
                given = features[t] if node_rows is None else features[t].index_select(0, node_rows[t])
                rows = rows + self.features[str(t)](given.to(rows.dtype))
            inputs.append(rows)
        return inputs

    def head(self, node_type: int, rows: Tensor) -> Tensor:
        """The head: [n, hidden_dim] of one type to their embeddings [n, embedding_dim]."""
        return self._normed(self.heads[node_type](rows))

    def _normed(self, z: Tensor) -> Tensor:
        return F.layer_norm(z, (self.embedding_dim,)) * self.embedding_dim**-0.25 if self.output_norm else z

    def layer(self, number: int) -> HGTLayer:
        """The convolution of one layer, 0 to num_layers − 1."""
        layer: HGTLayer = self.layers[number]  # type: ignore[assignment]
        return layer

    def finish(self, number: int, node_type: int, rows: Tensor) -> Tensor:
        """What follows layer ``number``'s convolution: norm, gelu, dropout; nothing for types that receive nothing."""
        if not self.layer(number).is_target[node_type]:
            return rows
        norms: nn.ModuleList = self.norms[number]  # type: ignore[assignment]
        return dropout(F.gelu(norms[node_type](rows)), self.dropout, self.training)

    def finish_all(self, number: int, x: Sequence[Tensor]) -> list[Tensor]:
        """:meth:`finish` of the rows of every type; on an accelerator gelu and dropout of all of them at once."""
        if x[0].device.type == "cpu":
            return [self.finish(number, t, rows) for t, rows in enumerate(x)]
        norms: nn.ModuleList = self.norms[number]  # type: ignore[assignment]
        received = [t for t in range(len(x)) if self.layer(number).is_target[t]]
        out = list(x)
        if received:
            whole = torch.cat([norms[t](x[t]) for t in received])
            parts = dropout(F.gelu(whole), self.dropout, self.training).split([len(x[t]) for t in received])
            for t, rows in zip(received, parts, strict=True):
                out[t] = rows
        return out

    def _layer_for(
        self,
        number: int,
        x: Sequence[Tensor],
        graph: MessageGraph,
        masked_pairs: Tensor | None,
        needed: Sequence[Tensor | None],
    ) -> list[Tensor]:
        """A layer with these receivers only."""
        out = self.layer(number).receive_from(x, _take(x, needed), graph.for_targets(needed), masked_pairs)
        return self.finish_all(number, out)

    def _after(self, number: int, x: Sequence[Tensor], messages: Sequence[Tensor | None]) -> list[Tensor]:
        """What a layer does with its messages, node by node."""
        return self.finish_all(number, self.layer(number).update_all(x, messages))

    def _block(self, number: int, x: Sequence[Tensor], block: MessageGraph) -> list[Tensor]:
        receivers = [rows[:count] for rows, count in zip(x, block.target_counts, strict=True)]
        out = self.layer(number).receive_from(x, receivers, block)
        return self.finish_all(number, out)


@overload
def _take(x: Sequence[Tensor], rows: Sequence[Tensor | None]) -> list[Tensor]: ...


@overload
def _take(x: Sequence[Tensor | None], rows: Sequence[Tensor | None]) -> list[Tensor | None]: ...


def _take(x: Sequence[Tensor | None], rows: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    return [
        part if chosen is None or part is None else table_rows(part, chosen)
        for part, chosen in zip(x, rows, strict=True)
    ]
