"""Projections and attention a group of heads at a time: the same as one after the other, kept or recomputed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from graphmill.kernels.hgt import projected as hgt_projected
from graphmill.kernels.hgt.attention import Backend, unpack
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.hgt.projected import head_groups, hgt_projected_attention
from tests.kernels.hgt.graphs import random_edges
from tests.kernels.hgt.reference import hgt_attention_reference
from tests.kernels.hgt.test_hgt import BACKENDS

HEADS, WIDTH, IN = 4, 3, 5
# Type 1 is nowhere, type 3 is never a target.
COUNTS, RELATIONS = [7, 0, 12, 6], [(0, 2, 30), (2, 0, 25), (2, 2, 40), (0, 0, 0), (3, 2, 9)]


def case(dtype: torch.dtype = torch.float64) -> tuple[MessageGraph, list[Tensor], list[Any], list[Tensor]]:
    graph = MessageGraph.build(COUNTS, random_edges(COUNTS, RELATIONS, 3))
    g = torch.Generator().manual_seed(0)

    def leaf(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=g, dtype=torch.float64).to(dtype).requires_grad_()

    x = [leaf(n, IN) for n in COUNTS]
    projections: list[Any] = []
    for t in range(len(COUNTS)):
        parts = (t in graph.target_types) + 2 * (t in graph.source_types)
        projections.append((leaf(parts * HEADS * WIDTH, IN), leaf(parts * HEADS * WIDTH)) if parts else None)
    shape = (len(RELATIONS), HEADS)
    return graph, x, projections, [leaf(*shape, WIDTH, WIDTH), leaf(*shape, WIDTH, WIDTH), leaf(*shape)]


def run(graph: MessageGraph, x: Any, projections: Any, relations: Any, masked: Any, **options: Any) -> list[Tensor]:
    out = hgt_projected_attention(x, projections, *relations, graph, masked, **options)
    return finish(out, x, projections, relations)


def finish(out: list[Tensor | None], x: Any, projections: Any, relations: Any) -> list[Tensor]:
    g = torch.Generator().manual_seed(9)
    values = [o for o in out if o is not None]
    loss = sum((o * torch.randn(o.shape, generator=g).to(o.dtype)).sum() for o in values)
    leaves = [*x, *(p for pair in projections if pair for p in pair), *relations]
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    return [*values, *(torch.zeros_like(p) if d is None else d for d, p in zip(gradients, leaves, strict=True))]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("masks", [False, True])
def test_values_and_gradients_equal_the_reference(
    backend: Any, recompute: bool, groups: int, masks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hgt_projected, "_GROUP_BYTES", 1)
    monkeypatch.setattr(hgt_projected, "_MOST_GROUPS", groups)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    graph, x, projections, relations = case()
    masked = torch.rand(graph.num_pairs, generator=torch.Generator().manual_seed(1)) < 0.3 if masks else None
    packed = [None if p is None else F.linear(rows, *p) for rows, p in zip(x, projections, strict=True)]
    plain = hgt_attention_reference(*_unpack_heads(packed, graph), *relations, graph, masked)
    expected = finish(plain, x, projections, relations)
    found = run(graph, x, projections, relations, masked, backend=backend, recompute=recompute)
    for ours, theirs in zip(found, expected, strict=True):
        assert (ours - theirs).norm() <= 1e-10 * (1 + theirs.norm())


def _unpack_heads(packed: Any, graph: MessageGraph) -> Any:
    return unpack(packed, graph, torch.empty(1, HEADS, WIDTH, WIDTH))


def test_recomputing_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hgt_projected, "_GROUP_BYTES", 1)
    graph, x, projections, relations = case(torch.float32)
    kept, again = (run(graph, x, projections, relations, None, recompute=r) for r in (False, True))
    assert all(torch.equal(a, b) for a, b in zip(kept, again, strict=True))


def test_under_autocast_rows_are_in_half_precision_and_gradients_in_that_of_the_weights() -> None:
    graph, x, projections, relations = case(torch.float32)
    x = [(0.3 * rows.detach()).requires_grad_() for rows in x]  # logits of the size that training has
    wide = run(graph, x, projections, relations, None)
    with torch.autocast("cpu", torch.bfloat16):
        out = hgt_projected_attention(x, projections, *relations, graph)
    assert all(o.dtype == torch.bfloat16 for o in out if o is not None)
    low = finish(out, x, projections, relations)
    for a, b in zip(low, wide, strict=True):
        assert (a.float() - b).norm() <= 0.05 * (1 + b.norm())
    assert all(a.dtype == torch.float32 for a in low[len([o for o in out if o is not None]) :])


@pytest.mark.parametrize("backend", ["auto", "dense", "sparse"])
def test_autocast_around_the_backward_pass_changes_nothing(backend: Backend) -> None:
    graph, x, projections, relations = case(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        out = hgt_projected_attention(x, projections, *relations, graph, None, backend)
        inside = finish(out, x, projections, relations)
        out = hgt_projected_attention(x, projections, *relations, graph, None, backend)
    outside = finish(out, x, projections, relations)
    assert all(torch.equal(a, b) for a, b in zip(inside, outside, strict=True))


@pytest.mark.parametrize("rows", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_groups_of_heads_under_autocast(rows: torch.dtype, groups: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # The second layer of a checkpointed training in bfloat16: its input is in that, and each group adds to its gradient.
    monkeypatch.setattr(hgt_projected, "_GROUP_BYTES", 1)
    monkeypatch.setattr(hgt_projected, "_MOST_GROUPS", groups)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    graph, x, projections, relations = case(torch.float32)
    x = [(0.3 * part.detach()).requires_grad_() for part in x]
    wide = run(graph, x, projections, relations, None, recompute=True)
    low_x = [part.detach().to(rows).requires_grad_() for part in x]
    with torch.autocast("cpu", torch.bfloat16):
        out = hgt_projected_attention(low_x, projections, *relations, graph, recompute=True)
    low = finish(out, low_x, projections, relations)
    first = len([o for o in out if o is not None])
    assert all(found.dtype == rows for found in low[first : first + len(x)])
    for a, b in zip(low, wide, strict=True):
        assert (a.float() - b).norm() <= 0.05 * (1 + b.norm())


@pytest.mark.parametrize("backend", ["auto", "dense"])
def test_what_is_kept_is_a_product_less_when_it_is_recomputed(backend: Backend) -> None:
    """And by torch's dense operators a number an edge and head."""
    graph, x, projections, relations = case()

    def kept(recompute: bool) -> int:
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
            hgt_projected_attention(x, projections, *relations, graph, None, backend, recompute)
        return sum(sizes)

    projected = sum(len(rows) * len(p[1]) for rows, p in zip(x, projections, strict=True) if p)
    of_edges = sum(r.num_edges for r in graph.relations) * relations[0].shape[1] if backend == "dense" else 0
    assert kept(False) - kept(True) == projected + of_edges


def test_groups_leave_every_thread_a_head_and_small_graphs_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    large, small = [torch.empty(200_000, 1)], [torch.empty(100, 1)]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert head_groups(small, 8, 64, True) == [(0, 8)]
    assert head_groups(large, 8, 64, True) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    assert head_groups(large, 8, 64, False, low=True) == [(0, 8)]  # as much memory as groups take in fp32
    assert head_groups(large, 8, 64, True, low=True) == head_groups(large, 8, 64, True)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    assert head_groups(large, 8, 64, True) == [(0, 4), (4, 8)]
    assert head_groups(large, 3, 64, True) == [(0, 3)]


def test_the_outputs_are_let_go_as_the_backward_pass_begins() -> None:
    graph, x, projections, relations = case()
    out = [o for o in hgt_projected_attention(x, projections, *relations, graph) if o is not None]
    loss = sum(o.sum() for o in out)
    del out
    torch.autograd.backward(loss, retain_graph=True)
    with pytest.raises(RuntimeError, match="propagated through once"):
        torch.autograd.backward(loss)


def test_an_output_that_was_written_to_is_refused() -> None:
    graph, x, projections, relations = case()
    out = [o for o in hgt_projected_attention(x, projections, *relations, graph) if o is not None]
    with torch.no_grad():
        out[0].mul_(2.0)
    with pytest.raises(RuntimeError, match="modified in place"):
        sum(o.sum() for o in out).backward()  # type: ignore[union-attr]


@pytest.mark.parametrize("broken", ["relations", "prior", "dtype", "rows", "projection"])
def test_what_does_not_fit_is_refused_before_compiled_code_sees_it(broken: str) -> None:
    graph, x, projections, relations = case()
    if broken == "relations":
        relations = [w[:-1] for w in relations]
    elif broken == "prior":
        relations[2] = relations[2][:, :-1]
    elif broken == "dtype":
        relations[2] = relations[2].float()
    elif broken == "rows":
        x[2] = x[2][:-1]
    else:
        projections[0] = (projections[0][0][:-1], projections[0][1])
    with pytest.raises(ValueError, match=r"relations|prior|rows|projection|dtype"):
        hgt_projected_attention(x, projections, *relations, graph)


def test_inference_mode() -> None:
    graph, x, projections, relations = case()
    wanted = hgt_projected_attention(x, projections, *relations, graph)
    with torch.inference_mode():
        found = hgt_projected_attention(x, projections, *relations, graph)
    for a, b in zip(found, wanted, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b.detach())


@pytest.mark.parametrize("backend", BACKENDS)
def test_groups_write_their_own_columns_of_an_output_in_half_precision(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    graph, x, projections, relations = case(torch.float32)
    x = [0.3 * rows.detach() for rows in x]  # logits of the size that training has

    def attend() -> list[Tensor | None]:
        with torch.autocast("cpu", torch.bfloat16):
            return hgt_projected_attention(x, projections, *relations, graph, None, backend, recompute=True)

    whole = attend()
    monkeypatch.setattr(hgt_projected, "_GROUP_BYTES", 1)
    assert len(head_groups(x, HEADS, WIDTH, True, True)) == 4
    for a, b in zip(attend(), whole, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            assert a.dtype == torch.bfloat16
            assert (a.float() - b.float()).norm() <= 0.01 * (1 + b.float().norm())
