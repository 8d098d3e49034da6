"""The fast attention against the obvious one: values, gradients, masks, odd graphs."""

from __future__ import annotations

import copy
import pickle
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from graphmill.kernels.hgt import segments
from graphmill.kernels.hgt.flat_graph import flat_graph
from graphmill.kernels.hgt.plan import MessageGraph, TypedEdges
from tests.kernels.hgt.graphs import Inputs, Shape, hgt_attention, hub, inputs, random_edges, shapes
from tests.kernels.hgt.reference import hgt_attention_reference


def run(attend, given: Inputs, graph: MessageGraph, masked: Tensor | None) -> tuple[list[Tensor], list[Tensor]]:
    outputs = [x for x in attend(*given, graph, masked) if x is not None]
    g = torch.Generator().manual_seed(9)
    loss = sum((x * torch.randn(x.shape, generator=g).to(x.dtype)).sum() for x in outputs)
    gradients = torch.autograd.grad(loss, given.leaves(), allow_unused=True)
    leaves = given.leaves()
    return outputs, [torch.zeros_like(x) if d is None else d for d, x in zip(gradients, leaves, strict=True)]


def assert_close(ours: list[Tensor], theirs: list[Tensor], tolerance: float) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        assert (a - b).norm() <= tolerance * (1 + b.norm()), f"{(a - b).norm()} of {b.norm()}"


@settings(max_examples=60, deadline=None)
@given(shape=shapes())
def test_values_and_gradients_equal_the_reference(shape: Shape) -> None:
    counts, relations, seed = shape
    graph = MessageGraph.build(counts, random_edges(counts, relations, seed))
    x = inputs(graph, heads=2, width=3, seed=seed)
    masked = torch.rand(max(graph.num_pairs, 1), generator=torch.Generator().manual_seed(seed)) < 0.3
    for mask in (None, masked):
        ours, theirs = run(hgt_attention, x, graph, mask), run(hgt_attention_reference, x, graph, mask)
        assert_close(ours[0], theirs[0], 1e-10)
        assert_close(ours[1], theirs[1], 1e-10)


def test_single_precision_agrees_to_one_part_in_a_hundred_thousand() -> None:
    counts, relations = [30, 50, 4], [(0, 1, 300), (1, 0, 300), (2, 1, 90), (1, 1, 500)]
    graph = MessageGraph.build(counts, random_edges(counts, relations, 1))
    x = inputs(graph, 4, 16, torch.float32)
    exact = Inputs(
        *(([None if t is None else t.detach().double().requires_grad_() for t in part]) for part in x[:3]),
        *(t.detach().double().requires_grad_() for t in x[3:]),
    )
    ours, theirs = run(hgt_attention, x, graph, None), run(hgt_attention_reference, exact, graph, None)
    for a, b in zip([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("width", [16, 33])
def test_whole_relations_of_any_head_width(width: int, dtype: torch.dtype) -> None:
    # Many edges a pair of nodes; few; and one edge for each source.
    relations = [(0, 1, 40_000), (1, 0, 40_000), (2, 1, 90), (1, 2, 90), (1, 1, 500), (3, 2, 70)]
    graph = MessageGraph.build([130, 600, 40, 3000], random_edges([130, 600, 40, 3000], relations, 1))
    low = dtype == torch.bfloat16
    x = inputs(graph, 4, width, torch.float32 if low else dtype)
    # Logits of the size that training has.
    parts = [[None if t is None else (t.detach() * 0.3).to(dtype).requires_grad_() for t in part] for part in x[:3]]
    given = Inputs(*parts, *x[3:])
    masked = torch.rand(graph.num_pairs, generator=torch.Generator().manual_seed(1)) < 0.3
    # Of many edges each, one target hears nothing of one relation, and another nothing at all.
    for r, node in [(graph.relations[0], 0), *((r, 1) for r in graph.relations if r.target_type == 1)]:
        masked[r.pair[r.target_nodes[r.target.long()] == node].long()] = True
    exact = Inputs(
        *(([None if t is None else t.detach().double().requires_grad_() for t in part]) for part in parts),
        *(t.detach().double().requires_grad_() for t in x[3:]),
    )
    tolerance = {torch.bfloat16: 0.01, torch.float32: 1e-5, torch.float64: 1e-12}[dtype]
    for mask in (None, masked):
        ours, theirs = run(hgt_attention, given, graph, mask), run(hgt_attention_reference, exact, graph, mask)
        for a, b in zip([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], strict=True):
            assert (a.double() - b).norm() <= tolerance * b.norm()


def test_a_copy_of_a_graph_finds_its_own_places_in_memory() -> None:
    graph = MessageGraph.build([6, 5], random_edges([6, 5], [(0, 1, 30), (1, 1, 30)], 2))
    x = inputs(graph, 2, 16)
    ours = run(hgt_attention, x, graph, None)
    for copied in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert set(vars(copied)) == {f.name for f in fields(graph)}
        again = run(hgt_attention, x, copied, None)
        assert all(torch.equal(a, b) for a, b in zip([*ours[0], *ours[1]], [*again[0], *again[1]], strict=True))


def test_operands_lie_in_memory_as_they_like() -> None:
    graph = MessageGraph.build([6, 5], random_edges([6, 5], [(0, 1, 30), (1, 1, 30)], 2))
    x = inputs(graph, 2, 16)
    turned = Inputs(
        *([None if t is None else t.detach().T.contiguous().T.requires_grad_() for t in part] for part in x[:3]),
        *(w.detach().mT.contiguous().mT.requires_grad_() for w in x[3:5]),
        x.prior.detach().T.contiguous().T.requires_grad_(),
    )
    ours, theirs = run(hgt_attention, turned, graph, None), run(hgt_attention, x, graph, None)
    assert_close([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], 1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": lambda q: [q[0], q[1][1:]]}, r"q of type 1 is \[5, 32\], not \[4, 32\]"),
        ({"v": lambda v: [v[0][:, 1:], v[1]]}, r"v of type 0 is \[6, 32\], not \[6, 31\]"),
        ({"k": lambda k: [None, k[1]]}, "relation 0 needs q of type 1 and k and v of type 0"),
        ({"w_k": lambda w: w[:1]}, r"w_k, w_v \[2, H, D, D\]"),
        ({"prior": lambda p: p[:, :1]}, r"prior \[2, H\]"),
    ],
)
def test_shapes_that_are_not_those_of_the_graph_are_refused(change: dict[str, Any], words: str) -> None:
    graph = MessageGraph.build([6, 5], random_edges([6, 5], [(0, 1, 30), (1, 1, 30)], 2))
    x = inputs(graph, 2, 16)
    with pytest.raises(ValueError, match=words):
        hgt_attention(*x._replace(**{n: f(getattr(x, n)) for n, f in change.items()}), graph)


@pytest.mark.parametrize("gathered", [False, True])
def test_products_of_an_edges_ends_piece_by_piece(gathered: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many at once as CUDA's kernel can number; of gathered rows, as on MPS, whose own kernel is not deterministic."""
    counts = [30, 50, 4]
    graph = MessageGraph.build(counts, random_edges(counts, [(0, 1, 300), (1, 0, 300), (2, 1, 90)], 1))
    x = inputs(graph, 5, 8)
    masked = torch.rand(graph.num_pairs, generator=torch.Generator().manual_seed(1)) < 0.3
    theirs = run(hgt_attention, x, graph, masked)
    monkeypatch.setattr(segments, "_MOST_PRODUCTS", 37)
    monkeypatch.setattr(segments, "_GATHERED_NUMBERS", 8 * 41)
    monkeypatch.setattr(segments, "_GATHERS", frozenset({"cpu"} if gathered else ()))
    ours = run(hgt_attention, x, graph, masked)
    assert_close([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], 1e-12)


def test_what_is_kept_for_the_backward_pass() -> None:
    """Inputs, outputs, a number a node and head, and a number an edge and head: no row of an edge."""
    heads, width, edges = 2, 4, 2000
    graph = MessageGraph.build([30, 20], random_edges([30, 20], [(0, 1, edges), (1, 1, edges)], 4))
    x = inputs(graph, heads, width)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        hgt_attention(*x, graph)
    given = [t for part in x for t in (part if isinstance(part, list) else [part]) if t is not None]
    most = sum(t.numel() for t in given) + graph.num_nodes * heads * (width + 1)
    assert most < edges * heads
    assert sum(t.numel() for t in kept) - 2 * edges * heads <= most


def test_one_hub_that_receives_every_edge() -> None:
    graph = MessageGraph.build([5, 4], hub(3000))
    x = inputs(graph, 2, 8)
    ours, theirs = run(hgt_attention, x, graph, None), run(hgt_attention_reference, x, graph, None)
    assert_close([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], 1e-10)


def test_gradients_agree_with_finite_differences() -> None:
    counts, relations = [3, 4], [(0, 1, 6), (1, 0, 5), (1, 1, 4)]
    graph = MessageGraph.build(counts, random_edges(counts, relations, 3))
    x = inputs(graph, 2, 2)
    masked = torch.tensor([False, True, False])

    def attend(*flat: Tensor) -> tuple[Tensor, ...]:
        q, k, v = list(flat[:2]), list(flat[2:4]), list(flat[4:6])
        return tuple(t for t in hgt_attention(q, k, v, *flat[6:], graph, masked) if t is not None)

    assert torch.autograd.gradcheck(attend, x.leaves())


def test_a_masked_pair_is_as_good_as_an_absent_edge() -> None:
    edges = random_edges([6, 5], [(0, 1, 25), (1, 0, 25)], 4)
    masked = torch.rand(13, generator=torch.Generator().manual_seed(1)) < 0.5
    without = [e._replace(**{n: getattr(e, n)[~masked[e.pair]] for n in ("src", "dst", "pair")}) for e in edges]
    graph, smaller = MessageGraph.build([6, 5], edges), MessageGraph.build([6, 5], without)
    x = inputs(graph, 2, 4)
    ours, theirs = run(hgt_attention, x, graph, masked), run(hgt_attention, x, smaller, None)
    assert_close([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], 1e-12)


def test_bfloat16_rows_keep_float32_sums() -> None:
    counts, relations = [30, 50], [(0, 1, 300), (1, 0, 300), (1, 1, 500)]
    graph = MessageGraph.build(counts, random_edges(counts, relations, 1))
    x = inputs(graph, 2, 16, torch.float32)
    half = [[None if t is None else t.detach().bfloat16() for t in part] for part in x[:3]]
    low = Inputs(*([None if t is None else t.requires_grad_() for t in part] for part in half), *x[3:])
    same = Inputs(
        *([None if t is None else t.detach().float().requires_grad_() for t in part] for part in half), *x[3:]
    )
    with torch.autocast("cpu", torch.bfloat16):
        ours = run(hgt_attention, low, graph, None)
    theirs = run(hgt_attention_reference, same, graph, None)
    assert ours[0][0].dtype == ours[1][0].dtype == torch.bfloat16
    for a, b in zip([*ours[0], *ours[1]], [*theirs[0], *theirs[1]], strict=True):
        assert (a.float() - b).norm() <= 0.03 * b.norm()


def test_thousands_of_bfloat16_rows_add_up_in_float32() -> None:
    """A hub that hears from every node of a type, and is heard by every one: in bf16 a sum of ones ends at 256."""
    many = 4000
    nodes = torch.arange(many)
    first = torch.zeros(many, dtype=torch.int64)
    edges = [TypedEdges(0, 1, nodes, first, nodes), TypedEdges(1, 0, first, nodes, nodes)]
    graph = MessageGraph.build([many, 2], edges)
    x = inputs(graph, 2, 16, torch.float32)
    # Logits near 0, so that every edge counts; values and gradients of one sign, so that sums grow.
    scales = ((0.01, 0.0), (0.01, 0.0), (0.1, 1.0))
    half = [
        [None if t is None else (t.detach() * scale + start).bfloat16() for t in part]
        for part, (scale, start) in zip(x[:3], scales, strict=True)
    ]
    eye = torch.eye(16).expand(2, 2, 16, 16).clone()
    weights = [eye.requires_grad_(), eye.clone().requires_grad_(), torch.ones(2, 2, requires_grad=True)]
    low = Inputs(*([None if t is None else t.clone().requires_grad_() for t in part] for part in half), *weights)
    same = Inputs(*([None if t is None else t.float().requires_grad_() for t in part] for part in half), *weights)

    def grown(attend, given: Inputs) -> list[Tensor]:
        outputs = [y for y in attend(*given, graph, None) if y is not None]
        loss = sum((y.float() * (1 + torch.arange(16).repeat(2) / 64)).sum() for y in outputs)
        return [*outputs, *torch.autograd.grad(loss, given.leaves())]

    with torch.autocast("cpu", torch.bfloat16):
        ours = grown(hgt_attention, low)
    # Of v's gradient the hub's row is the sum over all that hear it.
    theirs = grown(hgt_attention_reference, same)
    assert theirs[2 + 2 + 2 + 1].abs().max() > 0.75 * many
    for number in (0, 1, 6, 7, 9):  # outputs, v's gradients and that of its matrices; those of logits are sums near 0
        a, b = ours[number].float(), theirs[number]
        assert (a - b).norm() <= 0.01 * b.norm(), number


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_large_logits_do_not_overflow(share: float) -> None:
    """Nor do those of masked edges, which are far above what the softmax adds up."""
    graph = MessageGraph.build([6, 5], random_edges([6, 5], [(0, 1, 30), (1, 1, 30)], 2))
    x = inputs(graph, 1, 4)
    masked = torch.rand(graph.num_pairs, generator=torch.Generator().manual_seed(1)) < share
    scaled = x._replace(q=[None if t is None else (t * 1e4).detach().requires_grad_() for t in x.q])
    outputs, gradients = run(hgt_attention, scaled, graph, masked if share else None)
    assert all(t.isfinite().all() for t in [*outputs, *gradients])


def test_float16_rows_are_summed_in_float32() -> None:
    """Products of two rows can be beyond what fp16 holds."""
    large = torch.full((1, 32), 200.0, dtype=torch.float16)
    assert segments.head_products(large, large, 2).tolist() == [[640_000.0, 640_000.0]]
    counts, relations = [30, 50], [(0, 1, 300), (1, 0, 300)]
    graph = MessageGraph.build(counts, random_edges(counts, relations, 1))
    x = inputs(graph, 2, 16, torch.float32)
    rows = [[None if t is None else t.detach().half().requires_grad_() for t in part] for part in x[:3]]
    same = [[None if t is None else t.detach().float().requires_grad_() for t in part] for part in rows]

    def gradients(given: list[list[Tensor | None]]) -> list[Tensor]:
        out = [t for t in hgt_attention(*given, *x[3:], graph) if t is not None]
        wanted = [t for part in given for t in part if t is not None]
        return list(torch.autograd.grad(out, wanted, [torch.full_like(t, 300.0) for t in out]))

    for a, b in zip(gradients(rows), gradients(same), strict=True):
        assert a.isfinite().all()
        assert (a.float() - b).norm() <= 0.01 * b.norm()


def test_two_backward_passes_are_equal_bit_by_bit() -> None:
    counts, relations = [60, 50], [(0, 1, 900), (1, 0, 900)]
    graph = MessageGraph.build(counts, random_edges(counts, relations, 2))
    x = inputs(graph, 4, 8, torch.float32)
    first, second = run(hgt_attention, x, graph, None), run(hgt_attention, x, graph, None)
    assert all(torch.equal(a, b) for a, b in zip([*first[0], *first[1]], [*second[0], *second[1]], strict=True))


def test_no_tensor_of_edges_times_width_is_made() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            out = func(*args, **(kwargs or {}))
            if isinstance(out, Tensor) and out.layout == torch.strided:
                self.size = max(self.size, out.numel() * out.element_size())
            return out

    edges, heads, width = 150_000, 4, 16
    counts = [900, 1000]
    graph = MessageGraph.build(counts, random_edges(counts, [(0, 1, edges), (1, 0, edges // 30)], 3))
    flat_graph(graph, 1)  # its indices, some numbers an edge and head, are packed once
    with Largest() as seen:
        run(hgt_attention, inputs(graph, heads, width, torch.float32), graph, None)
    # Two numbers an edge and head are scratch; rows of all edges would be eight times as many.
    number = torch.float32.itemsize
    assert seen.size <= 2 * heads * graph.num_edges * number < heads * width * edges * number // 4


def test_relations_of_few_most_and_all_sources() -> None:
    """Relations of which few nodes of a type are sources, most of them, and all, into one type."""
    counts = [40, 40, 6]
    few, most, all_of_them = (torch.arange(n).repeat_interleave(5) for n in (7, 35, 6))
    relations = []
    for number, (kind, src) in enumerate(((0, few), (1, most), (2, all_of_them))):
        g = torch.Generator().manual_seed(number)
        dst = torch.randint(30, (len(src),), generator=g).sort().values  # ten nodes receive nothing
        src = src[torch.randperm(len(src), generator=g)]
        pair = torch.arange(len(src))
        relations.append(TypedEdges(kind, 0, src, dst, pair))
    graph = MessageGraph.build(counts, relations)
    given = inputs(graph, heads=2, width=5, seed=1)
    masked = torch.rand(graph.num_pairs, generator=torch.Generator().manual_seed(2)) < 0.5
    for mask in (None, masked):
        ours = run(hgt_attention, given, graph, mask)
        theirs = run(hgt_attention_reference, given, graph, mask)
        assert_close(ours[0], theirs[0], 1e-10)
        assert_close(ours[1], theirs[1], 1e-10)


def test_relations_of_about_one_size_are_multiplied_together() -> None:
    counts = [300, 70, 60]
    graph = MessageGraph.build(
        counts, random_edges(counts, [(0, 1, 3000), (1, 0, 500), (2, 0, 300), (0, 2, 900), (1, 2, 0)], 1)
    )
    flat = flat_graph(graph, 3)
    sizes = [graph.relations[n].source_nodes.numel() for n in flat.order.tolist()]
    assert sorted(flat.order.tolist()) == [0, 1, 2, 3], "a relation without edges is not there"
    assert len(flat.classes) < len(sizes)
    for c in flat.classes:
        class_sizes = sizes[c.first : c.first + c.count]
        assert max(class_sizes) == c.size
        assert min(class_sizes) * 2 >= c.size or c.size <= 64
    assert flat.edges == 3 * graph.num_edges
    assert flat_graph(graph, 3) is flat, "made once"


@pytest.mark.parametrize(
    ("src", "dst", "words"),
    [([0, 3], [0, 1], "source 3"), ([0, 1], [0, 9], "target 9"), ([0, 1], [1, 0], "sorted by dst")],
)
def test_edges_that_cannot_be_are_refused(src: list[int], dst: list[int], words: str) -> None:
    edges = random_edges([3, 3], [(0, 1, 2)], 0)[0]._replace(src=torch.tensor(src), dst=torch.tensor(dst))
    with pytest.raises(ValueError, match=words):
        MessageGraph.build([3, 3], [edges])
