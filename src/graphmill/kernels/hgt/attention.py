"""HGT's attention over all relations of a typed graph, differentiable, without a tensor of edges × width.

Heterogeneous Graph Transformer, Hu et al. 2020, equations 3 to 5. ``hgt.relations`` has the arithmetic. This module
makes it an autograd function and chooses the backend for the edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.hgt import by_type, dense
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.relations import (
    Rows,
    Saved,
    Step,
    TypeRows,
    Weights,
    attend_backward,
    attend_types,
    deltas,
    present,
    side_by_side,
    whole_gradients,
)

Backend = Literal["auto", "dense", "sparse"]


def hgt_attention(
    q: Sequence[Tensor | None],
    k: Sequence[Tensor | None],
    v: Sequence[Tensor | None],
    w_k: Tensor,
    w_v: Tensor,
    prior: Tensor,
    graph: MessageGraph,
    masked_pairs: Tensor | None = None,
    backend: Backend = "auto",
) -> list[Tensor | None]:
    """Σ_j α_ij v_j W^V_r, with α the softmax of (q_i · k_j W^K_r) p_r / √D over all edges j → i, of any relation r.

    q: per node type [targets, H·D], None for types that are never a target; k, v: [sources, H·D], None for types that
    are never a source; w_k, w_v: [relations, H, D, D]; prior: [relations, H]; masked_pairs: bool [pairs], True for
    pairs whose edges carry no message in this step. Returns per type [targets, H·D], zero for nodes without a message,
    None for types that are never a target. Rows may be bfloat16 with float32 weights: then products, softmax and sums
    are in float32, and the result in bfloat16. The result is deterministic: no backend adds to one number from two
    threads. ``backend``: the implementation for the edges (:func:`edge_backend`).

    Raises ValueError if the shapes do not fit the graph.
    """
    check_weights(w_k, w_v, prior, graph, [x for x in (*q, *k, *v) if x is not None])
    _check(Rows(q, k, v), w_k, graph)
    kinds = {x.dtype for x in (*q, *k, *v) if x is not None} or {w_k.dtype}
    edges = edge_backend(backend, w_k, kinds.pop() if len(kinds) == 1 else None)
    # Compiled code needs rows and matrices that are contiguous in memory.
    rows = side_by_side((*q, *k, *v))
    weights = (w.contiguous() for w in (w_k, w_v, prior))
    return list(_Attention.apply(Step(graph, masked_pairs, edges), *weights, *rows))


def _check(rows: Rows, w_k: Tensor, graph: MessageGraph) -> None:
    heads, width = w_k.shape[1:3]
    counts_of = (graph.target_counts, graph.source_counts, graph.source_counts)
    for name, part, counts in zip(Rows._fields, rows, counts_of, strict=True):
        for t, (x, count) in enumerate(zip(part, counts, strict=True)):
            if x is not None and x.shape != (count, heads * width):
                raise ValueError(f"{name} of type {t} is [{count}, {heads * width}], not {list(x.shape)}")
    for number, r in enumerate(graph.relations):
        s, t = r.source_type, r.target_type
        if r.num_edges and (rows.q[t] is None or rows.k[s] is None or rows.v[s] is None):
            raise ValueError(f"relation {number} needs q of type {t} and k and v of type {s}, of which one is None")


def check_weights(w_k: Tensor, w_v: Tensor, prior: Tensor, graph: MessageGraph, rows: Sequence[Tensor]) -> None:
    """Raise ValueError if matrices and prior do not fit the graph's relations or differ in dtype, or if devices differ.

    Compiled code gets addresses, and would read and write outside of the tensors.
    """
    weights = (w_k, w_v, prior)
    relations = len(graph.relations)
    square = w_k.dim() == 4 and w_k.shape == (relations, *w_k.shape[1:3], w_k.shape[2])
    if not square or w_v.shape != w_k.shape or prior.shape != w_k.shape[:2]:
        shapes = ", ".join(str(list(w.shape)) for w in weights)
        raise ValueError(f"w_k, w_v [{relations}, H, D, D] and prior [{relations}, H]; not {shapes}")
    if len({w.dtype for w in weights}) > 1:
        raise ValueError(f"w_k, w_v and prior of one dtype; not {', '.join(str(w.dtype) for w in weights)}")
    devices = {x.device for x in (*weights, *rows)} | ({graph.device} if relations else set())
    if len(devices) > 1:
        raise ValueError(f"graph, rows and weights on one device; not {', '.join(sorted(str(d) for d in devices))}")


def edge_backend(name: Backend, weights: Tensor, dtype: torch.dtype | None) -> ModuleType:
    """The backend module for the edges, for matrices [relations, H, D, D] and rows of ``dtype`` (None: of several).

    On the CPU, auto takes torch's sparse operators, which do not support float16; that takes the dense operators, and so do
    other devices.

    Raises ValueError for sparse on other devices than the CPU.
    """
    device = weights.device
    if name == "sparse" and device.type != "cpu":
        raise ValueError(f"backend sparse works on the CPU, not on {device.type}; use dense or auto")
    if name == "dense" or device.type != "cpu" or (name == "auto" and dtype == torch.float16):
        return dense
    return by_type


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, step: Step, *inputs: Tensor | None) -> tuple[Tensor | None, ...]:
        w_k, w_v, prior, *rows = inputs
        n, weights = step.graph.num_types, Weights(present(w_k), present(w_v), present(prior))
        with torch.autocast(weights.w_k.device.type, enabled=False):
            result = attend_types(_split(rows, n), weights, step)
        outputs, *others = ([None if of_type is None else of_type[i] for of_type in result] for i in range(3))
        ctx.step = step._replace(masked_pairs=None)
        ctx.save_for_backward(step.masked_pairs, *inputs, *outputs, *others[0], *others[1])
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_out: Tensor | None) -> tuple[Tensor | None, ...]:
        masked_pairs, w_k, w_v, prior, *rest = ctx.saved_tensors
        step: Step = ctx.step._replace(masked_pairs=masked_pairs)
        n = step.graph.num_types
        weights, rows = Weights(w_k, w_v, prior), rest[: 3 * n]
        outputs, log_totals, logits = _split(rest[3 * n :], n)
        slopes = side_by_side(d_out)
        delta = deltas(slopes, outputs, w_k.shape[1], step.edges)
        saved = Saved(_split(rows, n), log_totals, delta, logits)
        with torch.autocast(w_k.device.type, enabled=False):
            if hasattr(step.edges, "whole_backward"):
                result, d_weights = whole_gradients(saved, slopes, weights, step)
                d_rows = _filled([part for parts in result for part in parts], rows, weights)
            else:
                d_rows = _filled([None] * len(rows), rows, weights)
                d_weights = attend_backward(saved, slopes, _split(d_rows, n), weights, step)
        cast = (None if g is None or x is None else g.to(x.dtype) for g, x in zip(d_rows, rows, strict=True))
        return (None, *d_weights, *cast)


def _split(rows: TypeRows, num_types: int) -> Rows:
    """Three lists per type of their concatenation."""
    return Rows(*(rows[i * num_types : (i + 1) * num_types] for i in range(3)))


def _filled(gradients: TypeRows, rows: TypeRows, weights: Weights) -> list[Tensor | None]:
    """Zeros for rows without a gradient: in the weights' precision, even if the rows are bfloat16."""
    return [
        torch.zeros(x.shape, dtype=weights.w_k.dtype, device=x.device) if g is None and x is not None else g
        for g, x in zip(gradients, rows, strict=True)
    ]


def unpack(packed: TypeRows, graph: MessageGraph, w_k: Tensor) -> Rows:
    """q, k and v per type, as views of the columns of tensors that hold q (of targets), then k and v (of sources)."""
    size = w_k.shape[1] * w_k.shape[2]
    q, k, v = ([None] * graph.num_types for _ in range(3))
    for t, rows in enumerate(packed):
        if rows is None:
            continue
        columns = iter(rows.split(size, dim=1))
        if t in graph.target_types:
            q[t] = next(columns)
        if t in graph.source_types:
            k[t], v[t] = next(columns), next(columns)
    return Rows(q, k, v)
