"""The Heterogeneous Graph Transformer as a pure module: tables and features in, one row per node out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graphmill.kernels.hgt.attention import Rows, hgt_attention, joined, unpack
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.products import linear
from graphmill.kernels.recomputed import recomputed
from graphmill.kernels.table_rows import table_rows
from graphmill.systems.hgt.casts import FEW_NUMBERS, Linear, cast_rows, cast_together

TABLE_STD = 0.1
SHORTENING = 0.3
FIRST_GATE, LATER_GATE = 3.0, -1.0
"""Logits of the gates if layers start as means: the first passes its messages on, later ones add some to what they get."""
T = TypeVar("T", Tensor, Tensor | None)


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
        self.is_source = [any(s == t for s, _ in relations) for t in range(num_types)]
        self.is_target = [any(d == t for _, d in relations) for t in range(num_types)]
        head_dim = out_dim // num_heads
        self.projections = nn.ModuleDict()
        self.outputs = nn.ModuleDict()
        for t in range(num_types):
            parts = self.is_target[t] + 2 * self.is_source[t]
            if parts:
                self.projections[str(t)] = Linear(in_dim, parts * out_dim)
            if self.is_target[t]:
                self.outputs[str(t)] = Linear(out_dim, out_dim)
        self.skip = nn.Parameter(torch.ones(num_types)) if in_dim == out_dim else None
        self.w_k = nn.Parameter(torch.empty(len(relations), num_heads, head_dim, head_dim))
        self.w_v = nn.Parameter(torch.empty(len(relations), num_heads, head_dim, head_dim))
        self.prior = nn.Parameter(torch.ones(len(relations), num_heads))
        bound = (6 / (2 * head_dim)) ** 0.5  # Glorot, per matrix
        nn.init.uniform_(self.w_k, -bound, bound)
        nn.init.uniform_(self.w_v, -bound, bound)

    @torch.no_grad()
    def start_as_mean(self, signs: Tensor | None, gate: float) -> None:
        """Set the weights so that a message is about the mean of the neighbours' rows, [.., width] as wide as a message.

        ``signs`` [relations, out_dim], 1 or −1: what a relation multiplies its rows by, so that the mean keeps relations
        apart. The attention keeps its random weights. GELU halves small numbers, which the output's map doubles.
        """
        for t in range(len(self.is_source)):
            if self.is_source[t]:
                projection: Linear = self.projections[str(t)]  # type: ignore[assignment]
                nn.init.eye_(projection.weight[-self.out_dim :])
                projection.bias[-self.out_dim :] = 0.0
            if self.is_target[t]:
                out: Linear = self.outputs[str(t)]  # type: ignore[assignment]
                out.weight.copy_(2.0 * torch.eye(self.out_dim))
                out.bias.zero_()
        diagonal = torch.ones(len(self.w_v), self.out_dim) if signs is None else signs
        self.w_v.copy_(torch.diag_embed(diagonal.view(self.w_v.shape[:3])))
        if self.skip is not None:
            self.skip.fill_(gate)

    def forward(
        self,
        x: Sequence[Tensor],
        graph: MessageGraph,
        masked_pairs: Tensor | None = None,
    ) -> list[Tensor]:
        """Per type [N_t, in_dim] to [N_t, out_dim]; types that are never a target keep their input."""
        return self.update_all(x, self.messages(x, graph, masked_pairs))

    def messages(
        self, x: Sequence[Tensor], graph: MessageGraph, masked_pairs: Tensor | None = None
    ) -> list[Tensor | None]:
        """The aggregated messages of every node, per type [N_t, out_dim]; None for types that are never a target."""
        rows = enumerate(cast_rows(x))
        packed = [linear(r, *_pair(self.projections, t)) if str(t) in self.projections else None for t, r in rows]
        return self._attend(unpack(packed, graph, self.w_k), graph, masked_pairs)

    def _attend(self, rows: Rows, graph: MessageGraph, masked_pairs: Tensor | None) -> list[Tensor | None]:
        return hgt_attention(rows, self.w_k, self.w_v, self.prior, graph, masked_pairs)

    def receive(
        self, receivers: Sequence[Tensor], rows: Rows, graph: MessageGraph, masked_pairs: Tensor | None = None
    ) -> list[Tensor]:
        """:meth:`forward` for some receivers only: per type [targets of ``graph``, in_dim]. ``rows``: their q, and the
        senders' k and v."""
        return self.update_all(receivers, self._attend(rows, graph, masked_pairs))

    def receive_from(
        self,
        senders: Sequence[Tensor],
        receivers: Sequence[Tensor],
        graph: MessageGraph,
        masked_pairs: Tensor | None = None,
    ) -> list[Tensor]:
        """:meth:`receive` from ``senders``, per type [sources of ``graph``, in_dim]."""
        both = [self._both(t) for t in range(len(senders))]
        sent = [None if kv is None else linear(x, *kv) for x, (_, kv) in zip(cast_rows(senders), both, strict=True)]
        halves = [(None, None) if kv is None else kv.split(self.out_dim, 1) for kv in sent]
        keys, values = ([pair[n] for pair in halves] for n in range(2))
        asking = zip(cast_rows(receivers), both, strict=True)
        queries = [None if q is None else linear(x, *q) for x, (q, _) in asking]
        return self.receive(receivers, joined(queries, keys, values, graph, self.w_k), graph, masked_pairs)

    def queries(self, node_type: int, rows: Tensor) -> Tensor:
        """q of some rows, [n, out_dim], of a type that is a target."""
        q, _ = self._both(node_type)
        assert q is not None
        return linear(rows, *q)

    def keys_values(self, node_type: int, rows: Tensor) -> Tensor:
        """k and v of some rows side by side, [n, 2·out_dim], of a type that is a source."""
        _, kv = self._both(node_type)
        assert kv is not None
        return linear(rows, *kv)

    def _both(self, node_type: int) -> tuple[tuple[Tensor, Tensor] | None, tuple[Tensor, Tensor] | None]:
        """Weight and bias of q, and those of k and v; None where the type has none.

        They are split, not sliced: the gradient of a split is one call, but each slice would fill an array of full size.
        """
        sizes = [self.out_dim] * self.is_target[node_type] + [2 * self.out_dim] * self.is_source[node_type]
        if not sizes:
            return None, None
        weight, bias = _pair(self.projections, node_type)
        parts = list(zip(weight.split(sizes), bias.split(sizes), strict=True)) if len(sizes) > 1 else [(weight, bias)]
        return parts[0] if self.is_target[node_type] else None, parts[-1] if self.is_source[node_type] else None

    def update_all(self, x: Sequence[Tensor], messages: Sequence[Tensor | None]) -> list[Tensor]:
        """New rows of every type from its rows and its messages: output product and skip connection."""
        maps = [None if m is None else _pair(self.outputs, t) for t, m in enumerate(messages)]
        outputs = [
            None if m is None or of is None else linear(F.gelu(m), *(w.to(m.dtype) for w in of))
            for m, of in zip(messages, maps, strict=True)
        ]
        if self.skip is None:
            return [rows if y is None else y for rows, y in zip(x, outputs, strict=True)]
        # All gates at once: separate gates would need launches for each type, forward and backward.
        gates = self.skip.sigmoid().unbind()
        updated = [(t, y) for t, y in enumerate(outputs) if y is not None]
        out, sizes = list(x), [len(x[t]) for t, _ in updated]
        if x[0].device.type == "cpu" or not updated or sum(sizes) * self.out_dim > FEW_NUMBERS:
            for t, y in updated:
                out[t] = torch.lerp(x[t], y.to(x[t].dtype), gates[t])
            return out
        rows = torch.cat([x[t] for t, _ in updated])
        gate = torch.cat([gates[t].expand(size, 1) for (t, _), size in zip(updated, sizes, strict=True)])
        skipped = torch.lerp(rows, torch.cat([y for _, y in updated]).to(rows.dtype), gate)
        for (t, _), part in zip(updated, skipped.split(sizes), strict=True):
            out[t] = part
        return out


def _as_identity(linear: nn.Module, columns: slice = slice(None)) -> None:
    """Set a map's weights [out, in] to 1 where the number of a row is that of a column, among ``columns``; no bias."""
    weight, bias = linear.weight, linear.bias
    weight[:, columns] = torch.eye(len(weight), weight[:, columns].shape[1])  # type: ignore[arg-type, index, operator]
    bias.zero_()  # type: ignore[operator]


def _pair(maps: nn.ModuleDict, node_type: int) -> tuple[Tensor, Tensor]:
    """Weight and bias of a type's linear map."""
    return maps[str(node_type)].pair()  # type: ignore[operator]


class HGT(nn.Module):
    """Per node type an input (a learnable table plus a projection of features), HGT layers, and a linear map at the end.

    ``type_counts``: nodes per type; ``relations``: (source_type, target_type) in the graph's order; ``feature_dims``:
    width of the features of the types that have some.
    ``spectral``: this many last columns of every type's features are spectral vectors. Then there are no tables, and the
    model starts from what these vectors know: they are its inputs, layers means of their neighbours' rows, the last map the
    identity. ``signs``
    [relations, hidden_dim]: of the first layer (:meth:`HGTLayer.start_as_mean`).
    """

    def __init__(
        self,
        type_counts: Sequence[int],
        relations: Sequence[tuple[int, int]],
        hidden_dim: int,
        out_dim: int,
        num_layers: int,
        num_heads: int,
        dropout: float = 0.0,
        feature_dims: Mapping[int, int] | None = None,
        gradient_checkpointing: bool = False,
        spectral: int = 0,
        signs: Tensor | None = None,
    ) -> None:
        super().__init__()
        if hidden_dim % num_heads:
            raise ValueError(f"hidden_dim {hidden_dim} is not divisible by num_heads {num_heads}")
        self.type_counts = tuple(type_counts)
        self.out_dim = out_dim
        self.dropout = dropout
        self.gradient_checkpointing = gradient_checkpointing
        types, tables = len(type_counts), () if spectral else type_counts
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(n, hidden_dim) * TABLE_STD) for n in tables)
        self.features = nn.ModuleDict({str(t): Linear(f, hidden_dim) for t, f in (feature_dims or {}).items()})
        self.layers = nn.ModuleList(
            HGTLayer(types, relations, hidden_dim, hidden_dim, num_heads) for _ in range(num_layers)
        )
        self.heads = nn.ModuleList(Linear(hidden_dim, out_dim) for _ in range(types))
        if spectral:
            self._start_from_spectral(spectral, signs)

    @torch.no_grad()
    def _start_from_spectral(self, width: int, signs: Tensor | None) -> None:
        for projection in self.features.values():
            _as_identity(projection, slice(-width, None))
        for number in range(len(self.layers)):
            self.layer(number).start_as_mean(None if number else signs, LATER_GATE if number else FIRST_GATE)
        for head in self.heads:
            _as_identity(head)

    def forward(
        self,
        graph: MessageGraph,
        features: Mapping[int, Tensor] | None = None,
        masked_pairs: Tensor | None = None,
        node_rows: Sequence[Tensor] | None = None,
        needed: Sequence[Tensor | None] | None = None,
        cut: bool = True,
    ) -> Tensor:
        """The nodes' rows [N, out_dim] in global node order (types contiguous).

        ``features``: per type [N_t, f], of all nodes of the type; ``masked_pairs``: bool [pairs], pairs without
        messages in this step; ``node_rows``: per type the local numbers of the graph's nodes, if it is a subgraph.
        ``needed``: per type the ascending numbers of the nodes whose rows are returned (None: all of the type).
        With ``cut`` the last layer computes messages for these nodes only. Without it, it computes messages for all nodes
        and only the operations after them for the needed ones, which is faster if most nodes are needed.
        """
        with cast_together(self._maps()):
            x = self.inputs(features, node_rows)
            for number in range(len(self.layers)):
                chosen = needed if number == len(self.layers) - 1 else None
                x = recomputed(self.again, self._layer, number, x, graph, masked_pairs, chosen, cut)
            if needed is not None and not self.layers:
                x = take(x, needed)
            return self.embed_all(x)

    @property
    def again(self) -> bool:
        """Whether the backward pass computes layers again."""
        return self.gradient_checkpointing and torch.is_grad_enabled()

    def _maps(self) -> list[Linear]:
        """Linear maps to cast together; none if gradient checkpointing recomputes them in the backward pass."""
        return [] if self.again else [m for m in self.modules() if isinstance(m, Linear)]

    def embed_all(self, x: Sequence[Tensor]) -> Tensor:
        """Apply all heads: per type [n_t, hidden_dim] to [Σ n_t, out_dim]."""
        return torch.cat([head(rows) for head, rows in zip(self.heads, cast_rows(x), strict=True)])

    def inputs(self, features: Mapping[int, Tensor] | None, node_rows: Sequence[Tensor] | None) -> list[Tensor]:
        """The first layer's input, per type [N_t, hidden_dim]."""
        inputs = []
        for t in range(len(self.type_counts)):
            numbers = None if node_rows is None else node_rows[t]
            rows = [table if numbers is None else table_rows(table, numbers) for table in self.tables[t : t + 1]]
            if str(t) in self.features:
                if features is None or t not in features:
                    raise ValueError(f"node type {t} was built with features, but none were given")
                given = features[t] if numbers is None else features[t].index_select(0, numbers)
                projection: Linear = self.features[str(t)]  # type: ignore[assignment]
                dtype = projection.weight.dtype  # of the inputs, whatever the precision of products
                rows.append(projection(given.to(dtype)).to(dtype))
            inputs.append(sum(rows[1:], rows[0]))
        return inputs

    def head(self, node_type: int, rows: Tensor) -> Tensor:
        """Apply one type's head: rows [n, hidden_dim] to [n, out_dim]."""
        vectors: Tensor = self.heads[node_type](rows)
        return vectors

    def layer(self, number: int) -> HGTLayer:
        """The convolution of layer ``number``, 0 to num_layers − 1."""
        return self.layers[number]  # type: ignore[return-value]

    def finish(self, number: int, node_type: int, rows: Tensor) -> Tensor:
        """Shorten rows and apply dropout after layer ``number``; types that are never a target stay the same."""
        if not self.layer(number).is_target[node_type]:
            return rows
        return F.dropout(shortened(rows), self.dropout, self.training)

    def finish_all(self, number: int, x: Sequence[Tensor]) -> list[Tensor]:
        """Apply :meth:`finish` to the rows of every type; on an accelerator, to all types at once."""
        if x[0].device.type == "cpu":
            return [self.finish(number, t, rows) for t, rows in enumerate(x)]
        received = [t for t in range(len(x)) if self.layer(number).is_target[t]]
        out = list(x)
        if received:
            whole = F.dropout(shortened(torch.cat([x[t] for t in received])), self.dropout, self.training)
            for t, rows in zip(received, whole.split([len(x[t]) for t in received]), strict=True):
                out[t] = rows
        return out

    def _layer(
        self,
        number: int,
        x: Sequence[Tensor],
        graph: MessageGraph,
        masked_pairs: Tensor | None,
        needed: Sequence[Tensor | None] | None,
        cut: bool,
    ) -> list[Tensor]:
        """One layer, for the ``needed`` receivers only if there are any. ``cut``: as in :meth:`forward`."""
        layer = self.layer(number)
        if needed is not None and cut:
            out = layer.receive_from(x, take(x, needed), graph.for_targets(needed), masked_pairs)
            return self.finish_all(number, out)
        messages = layer.messages(x, graph, masked_pairs)
        if needed is not None:
            x, messages = take(x, needed), take(messages, needed)
        return self.finish_all(number, layer.update_all(x, messages))


def shortened(rows: Tensor) -> Tensor:
    """Rows [n, d] of length √(l / (l + 0.3)) instead of l, nearly: a mean of many unlike rows is short, and becomes longer.

    As :func:`graphmill.graph.spectral.shortened`, with a gradient at 0.
    """
    length = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.promote_types(rows.dtype, torch.float32))
    return rows * (length * (length + SHORTENING) + 1e-4).rsqrt().to(rows.dtype)


def take(x: Sequence[T], rows: Sequence[Tensor | None]) -> list[T]:
    """Per type the ``rows`` (int64, on any device) of ``x``; all of them where ``rows`` is None."""
    return [
        part if chosen is None or part is None else table_rows(part, chosen.to(part.device))
        for part, chosen in zip(x, rows, strict=True)
    ]
