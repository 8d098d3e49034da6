"""HGT's attention together with the projections to q, k and v, some heads at a time.

As two separate functions, q, k and v of all nodes would be kept for the backward pass, and their gradients would exist at
the same time. Here the backward pass completes one group of heads, including the gradients of input and weights, before the
next. With ``recompute``, the backward pass projects q, k and v again, and nothing is kept of them or of the edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from graphmill.kernels.hgt import attention as hgt
from graphmill.kernels.hgt.attention import Backend, unpack
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.relations import (
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
from graphmill.kernels.products import add_product_, product

_MOST_GROUPS = 4
_GROUP_BYTES = 32 << 20
"""Smallest size in bytes of q, k and v of a group of heads. Smaller groups would not be worth their calls."""


def hgt_projected_attention(
    x: Sequence[Tensor],
    projections: Sequence[tuple[Tensor, Tensor] | None],
    w_k: Tensor,
    w_v: Tensor,
    prior: Tensor,
    graph: MessageGraph,
    masked_pairs: Tensor | None = None,
    backend: Backend = "auto",
    recompute: bool = False,
) -> list[Tensor | None]:
    """:func:`graphmill.kernels.hgt.attention.hgt_attention` on q, k, v = x Wᵀ + b.

    x: per type [n, in]. projections: per type weight [parts · H·D, in] and bias, with the rows of q (if the type is a
    target), then k and v (if it is a source); None if it is neither. The other arguments are as there. Under autocast
    the projections and their results have its precision. ``recompute``: keep no q, k, v, and compute one more product
    in the backward pass. The backward pass can run only once, because it releases the output.

    Raises ValueError if shapes, dtypes or devices do not fit the graph and each other.
    """
    _check(x, projections, w_k, graph)
    hgt.check_weights(w_k, w_v, prior, graph, [part for part in x if part is not None])
    kind = w_k.device.type
    low = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else w_k.dtype
    edges = hgt.edge_backend(backend, w_k, low)
    weights, biases = ([None if p is None else p[n] for p in projections] for n in range(2))
    # Compiled code needs matrices that are contiguous in memory.
    relations = (w.contiguous() for w in (w_k, w_v, prior))
    step = Step(graph, masked_pairs, edges)
    return list(_Projected.apply(step, low, recompute, *relations, *x, *weights, *biases))


def _check(
    x: Sequence[Tensor], projections: Sequence[tuple[Tensor, Tensor] | None], w_k: Tensor, graph: MessageGraph
) -> None:
    sides = (graph.source_counts, graph.source_types), (graph.target_counts, graph.target_types)
    for t, (rows, pair) in enumerate(zip(x, projections, strict=True)):
        used = [counts[t] for counts, types in sides if t in types]
        if not used:
            continue
        if any(count != len(rows) for count in used):
            raise ValueError(f"x of type {t} has {len(rows)} rows, and its graph {' and '.join(map(str, used))} nodes")
        parts = (t in graph.target_types) + 2 * (t in graph.source_types)
        size = parts * w_k.shape[1] * w_k.shape[2]
        if pair is None or pair[0].shape != (size, rows.shape[1]) or pair[1].shape != (size,):
            result = "none" if pair is None else f"{list(pair[0].shape)} and {list(pair[1].shape)}"
            raise ValueError(f"the projection of type {t} is [{size}, {rows.shape[1]}] and [{size}]; not {result}")


def group_count(rows: int, heads: int, width: int, threads: int, roomy: bool = False) -> int:
    """Number of groups of heads on the CPU. Each group must be large enough, and have a head for every thread.

    ``roomy``: q, k and v are kept in half precision. Then all heads at once need no more memory than groups in fp32.
    Groups would also have short rows to gather, which costs a quarter of the time.
    """
    if roomy:
        return 1
    return min(_MOST_GROUPS, heads, max(1, rows * heads * width * 3 * 4 // _GROUP_BYTES), max(1, heads // threads))


def head_groups(x: TypeRows, heads: int, width: int, recompute: bool, low: bool = False) -> list[tuple[int, int]]:
    """Bounds (first, end) of each group of heads. On an accelerator one group, to save launches, unless ``recompute``."""
    rows = [r for r in x if r is not None]
    on_cpu = rows[0].device.type == "cpu"
    threads = torch.get_num_threads() if on_cpu else 1
    roomy = low and not recompute
    groups = group_count(sum(len(r) for r in rows), heads, width, threads, roomy) if on_cpu or recompute else 1
    return [(heads * i // groups, heads * (i + 1) // groups) for i in range(groups)]


class _Projected(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, step: Step, low: torch.dtype, recompute: bool, w_k: Tensor, w_v: Tensor, prior: Tensor,
        *inputs: Tensor | None,
    ) -> tuple[Tensor | None, ...]:  # fmt: skip
        graph = step.graph
        n, (heads, width) = graph.num_types, w_k.shape[1:3]
        x, weights, biases = inputs[:n], inputs[n : 2 * n], inputs[2 * n :]
        outputs: list[Tensor | None] = [None] * n
        totals: list[Tensor | None] = []
        kept: list[Tensor | None] = []
        logits: list[Tensor | None] = []
        groups = head_groups(x, heads, width, recompute, low.itemsize < w_k.dtype.itemsize)
        with torch.autocast(w_k.device.type, enabled=False):
            for a, b in groups:
                packed = _project(x, weights, biases, (a, b, heads, width), low)
                parts = unpack(packed, graph, w_k[:, a:b])
                own = Weights(w_k[:, a:b], w_v[:, a:b], prior[:, a:b])
                if len(groups) > 1 or not hasattr(step.edges, "whole_forward"):
                    for t in graph.target_types:
                        if outputs[t] is None:
                            outputs[t] = w_k.new_empty(graph.target_counts[t], heads * width, dtype=low)
                columns = [None if whole is None else whole[:, a * width : b * width] for whole in outputs]
                for t, result in enumerate(attend_types(parts, own, step, columns)):
                    if result is not None and outputs[t] is None:
                        outputs[t] = result[0]
                    totals.append(None if result is None else result[1])
                    logits.append(None if result is None or recompute else result[2])
                kept += [] if recompute else packed
        ctx.step, ctx.low, ctx.groups, ctx.recompute = step._replace(masked_pairs=None), low, groups, recompute
        ctx.save_for_backward(step.masked_pairs, w_k, w_v, prior, *inputs, *totals, *logits, *kept)
        # Do not save these with autograd, which keeps tensors until the backward pass has ended. They are released when
        # it begins.
        ctx.outputs = [None if o is None else (o.detach(), _version(o)) for o in outputs]
        return tuple(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_out: Tensor | None) -> tuple[Tensor | None, ...]:
        masked_pairs, w_k, w_v, prior, *rest = ctx.saved_tensors
        step: Step = ctx.step._replace(masked_pairs=masked_pairs)
        n = step.graph.num_types
        heads, width = w_k.shape[1:3]
        lists: Iterator[list[Tensor | None]] = iter([rest[i : i + n] for i in range(0, len(rest), n)])
        x, weights, biases = (next(lists) for _ in range(3))
        slopes = side_by_side(d_out)
        delta = deltas(slopes, _outputs(ctx), heads, step.edges)
        totals, logits = ([next(lists) for _ in ctx.groups] for _ in range(2))
        d_x: list[Tensor | None] = [None] * n
        d_projection = [[None if p is None else torch.empty_like(p) for p in group] for group in (weights, biases)]
        d_own = Weights(*(torch.empty_like(w) for w in (w_k, w_v, prior)))
        with torch.autocast(w_k.device.type, enabled=False):
            for (a, b), log_totals, of_edges in zip(ctx.groups, totals, logits, strict=True):
                place = (a, b, heads, width)
                packed = _project(x, weights, biases, place, ctx.low) if ctx.recompute else next(lists)
                columns = slice(a * width, b * width)
                shares = [None if d is None else d[:, a:b] for d in delta]
                own = Weights(w_k[:, a:b], w_v[:, a:b], prior[:, a:b])
                given = (
                    Saved(unpack(packed, step.graph, own.w_k), log_totals, shares, of_edges),
                    [None if d is None else d[:, columns] for d in slopes],
                )
                d_packed, result = _edges_backward(packed, given, own, step)
                if len(ctx.groups) == 1:
                    d_own = result
                else:
                    for whole, part in zip(d_own, result, strict=True):
                        whole[:, a:b] = part
                del packed
                for t, d in enumerate(d_packed):
                    if d is not None:
                        want = ctx.needs_input_grad[6 + t]
                        into = present(d_projection[0][t]), present(d_projection[1][t])
                        given_rows, weight = present(x[t]), present(weights[t])
                        d_x[t] = _project_backward(d, given_rows, weight, d_x[t], into, place, ctx.low, want)
                        d_packed[t] = None
        return (None, None, None, *d_own, *d_x, *d_projection[0], *d_projection[1])


def _edges_backward(
    packed: TypeRows, given: tuple[Saved, TypeRows], own: Weights, step: Step
) -> tuple[list[Tensor | None], Weights]:
    """The gradients of ``packed`` q, k and v, and those of the relations' weights."""
    if hasattr(step.edges, "whole_backward"):
        parts, result = whole_gradients(*given, own, step)
        of_type = [[part for part in own_parts if part is not None] for own_parts in zip(*parts, strict=True)]
        return [torch.cat(side, 1) if side else None for side in of_type], result
    d_packed = [None if p is None else torch.zeros_like(p, dtype=own.w_k.dtype) for p in packed]
    result = attend_backward(*given, unpack(d_packed, step.graph, own.w_k), own, step)
    return d_packed, result


def _version(x: Tensor) -> int:
    """The tensor's version counter; 0 for tensors of ``inference_mode``, which have none."""
    return 0 if x.is_inference() else x._version


def _outputs(ctx: Any) -> list[Tensor | None]:
    """Return and release the forward pass's outputs. Raises RuntimeError if they were released before, or modified."""
    kept, ctx.outputs = ctx.outputs, None
    if kept is None or any(pair is not None and _version(pair[0]) != pair[1] for pair in kept):
        what = "there is none any more: it is propagated through once" if kept is None else "it was modified in place"
        raise RuntimeError(f"the backward pass of HGT's attention needs its output, but {what}")
    return [None if pair is None else pair[0] for pair in kept]


Place = tuple[int, int, int, int]  # first head, last, all heads, width of one


def _project(x: TypeRows, weights: TypeRows, biases: TypeRows, place: Place, low: torch.dtype) -> list[Tensor | None]:
    """Per type the q, k, v of a group of heads in one tensor, [n, parts · h·D]."""
    return [
        None if r is None or w is None or b is None else _times(r, _own(w, place).to(low).T, _own(b, place), low)
        for r, w, b in zip(x, weights, biases, strict=True)
    ]


def _times(left: Tensor, right: Tensor, bias: Tensor | None, low: torch.dtype) -> Tensor:
    """left · right (+ ``bias``) in the precision of the projections."""
    return product(left.to(low), right.to(low), None if bias is None else bias.to(low))


def _project_backward(
    d: Tensor, rows: Tensor, weight: Tensor, d_x: Tensor | None, d_projection: tuple[Tensor, Tensor], place: Place,
    low: torch.dtype, want_rows: bool,
) -> Tensor | None:  # fmt: skip
    """Fill the group's rows of ``d_projection`` (weight and bias), add the group's part to ``d_x``, and return ``d_x``."""
    d_weight, d_bias = d_projection
    own = _own(weight, place).to(low)
    d = d.to(low)
    if _is_whole(place) and d_weight.dtype == d_bias.dtype == low:
        product(d.mT, rows.to(low), out=d_weight)
        torch.sum(d, 0, out=d_bias)
    else:
        into_weight, sums = _times(d.mT, rows, None, low), d.sum(0)
        size = (place[1] - place[0]) * place[3]
        for number, c in enumerate(_slices(weight, place)):
            d_weight[c] = into_weight[number * size : (number + 1) * size]
            d_bias[c] = sums[number * size : (number + 1) * size]
    if not want_rows:
        return None
    if d_x is None:
        return _times(d, own, None, low).to(rows.dtype)
    return add_product_(d_x, d, own) if d.dtype == own.dtype == d_x.dtype else d_x.add_(_times(d, own, None, low))


def _is_whole(place: Place) -> bool:
    return place[:2] == (0, place[2])


def _own(p: Tensor, place: Place) -> Tensor:
    """The rows of a group's q, k and v in a weight or bias, concatenated."""
    return p if _is_whole(place) else torch.cat([p[c] for c in _slices(p, place)])


def _slices(weight: Tensor, place: Place) -> list[slice]:
    """The rows of q, k and v of a group of heads."""
    a, b, heads, width = place
    return [slice(p + a * width, p + b * width) for p in range(0, weight.shape[0], heads * width)]
