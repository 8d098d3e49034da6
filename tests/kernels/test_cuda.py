"""The kernels on a CUDA device against the plain forms, in fp32 and float64; everything here needs a device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmill.kernels.full_softmax import Ragged, full_logistic_sum
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.kernels.propagation import propagate, sparse_matrix
from graphmill.kernels.top_k import top_k
from graphmill.kernels.translation import grouped_projection, segment_softmax, translation_logits
from graphmill.systems.conve.folded_convolution import rectified_linear, windows
from tests.kernels.hgt.graphs import Inputs, hgt_attention, hub, inputs, random_edges
from tests.kernels.hgt.reference import hgt_attention_reference
from tests.kernels.hgt.test_hgt import assert_close

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]
CUDA = torch.device("cuda")
SHAPES = {
    "small": ([6, 5], [(0, 1, 25), (1, 0, 25)], 2, 3),
    "three types": ([30, 50, 4], [(0, 1, 300), (1, 0, 300), (2, 1, 90), (1, 1, 500)], 4, 16),
    "wide": ([200, 90], [(0, 1, 900), (1, 0, 900), (1, 1, 0)], 8, 64),
    "one head": ([20, 7], [(0, 1, 60)], 1, 5),
}


def on_cuda(x: Inputs) -> Inputs:
    parts = [[None if t is None else t.detach().to(CUDA).requires_grad_() for t in part] for part in x[:3]]
    return Inputs(*parts, *(t.detach().to(CUDA).requires_grad_() for t in x[3:]))


def run(attend, x: Inputs, graph: MessageGraph, masked: Tensor | None, **options) -> list[Tensor]:
    """Outputs and gradients, on the CPU."""
    outputs = [o for o in attend(*x, graph, masked, **options) if o is not None]
    g = torch.Generator().manual_seed(9)
    loss = sum((o * torch.randn(o.shape, generator=g).to(o)).sum() for o in outputs)
    leaves = x.leaves()
    result = torch.autograd.grad(loss, leaves, allow_unused=True)
    gradients = [torch.zeros_like(t) if d is None else d for d, t in zip(result, leaves, strict=True)]
    return [t.detach().cpu() for t in (*outputs, *gradients)]


@pytest.mark.parametrize("shape", [*SHAPES, "hub"])
def test_hgt_attention_is_the_reference(
    shape: str,
) -> None:
    counts, relations, heads, width = SHAPES.get(shape, ([5, 4], None, 2, 8))
    graph = MessageGraph.build(counts, hub(3000) if relations is None else random_edges(counts, relations, 1))
    x = inputs(graph, heads, width, torch.float64)
    masked = torch.rand(max(graph.num_pairs, 1), generator=torch.Generator().manual_seed(3)) < 0.3
    cuda_graph = graph.to(CUDA)
    for mask in (None, masked):
        theirs = run(hgt_attention_reference, x, graph, mask)
        ours = run(hgt_attention, on_cuda(x), cuda_graph, None if mask is None else mask.to(CUDA))
        assert_close(ours, theirs, 1e-10)


def test_hgt_attention_in_single_and_half_precision() -> None:
    counts, relations, heads, width = SHAPES["three types"]
    graph = MessageGraph.build(counts, random_edges(counts, relations, 1))
    x = inputs(graph, heads, width, torch.float32)
    exact = Inputs(
        *([None if t is None else t.detach().double().requires_grad_() for t in part] for part in x[:3]),
        *(t.detach().double().requires_grad_() for t in x[3:]),
    )
    theirs = run(hgt_attention_reference, exact, graph, None)
    ours = run(hgt_attention, on_cuda(x), graph.to(CUDA), None)
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).norm() <= 1e-5 * b.norm()
    low = on_cuda(x)
    half = low._replace(
        **{n: [None if t is None else t.detach().bfloat16().requires_grad_() for t in getattr(low, n)] for n in "qkv"}
    )
    for a, b in zip(run(hgt_attention, half, graph.to(CUDA), None), theirs, strict=True):
        assert (a.double() - b).norm() <= 0.03 * b.norm()


def test_a_device_gives_the_same_bits_twice() -> None:
    counts, relations, heads, width = SHAPES["wide"]
    graph = MessageGraph.build(counts, random_edges(counts, relations, 1)).to(CUDA)
    x = on_cuda(inputs(graph.to("cpu"), heads, width, torch.float32))
    first, second = (run(hgt_attention, x, graph, None) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def both(function, *tensors: Tensor) -> list[list[Tensor]]:
    """Outputs and gradients of a function on the CPU and on CUDA, in float64."""
    result = []
    for device in (torch.device("cpu"), CUDA):
        variables = [t.detach().to(device).requires_grad_(t.is_floating_point()) for t in tensors]
        outputs = function(*variables)
        outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
        g = torch.Generator().manual_seed(5)
        loss = sum((o * torch.randn(o.shape, generator=g, dtype=torch.float64).to(device)).sum() for o in outputs)
        gradients = torch.autograd.grad(loss, [t for t in variables if t.requires_grad], allow_unused=True)
        result.append([t.detach().cpu() for t in (*outputs, *(d for d in gradients if d is not None))])
    return result


def assert_equal(results: list[list[Tensor]]) -> None:
    assert len(results[0]) == len(results[1])
    assert_close(results[1], results[0], 1e-9)


@pytest.mark.parametrize("parts", [1, 4])
def test_all_entities_in_one_block_and_in_several(parts: int) -> None:
    x, entities, bias = (torch.randn(*s, dtype=torch.float64) for s in ((7, 4), (50, 4), (50,)))
    pairs = torch.randperm(350, generator=torch.Generator().manual_seed(1))[:60].sort().values

    def loss(x: Tensor, e: Tensor, b: Tensor, p: Tensor) -> Tensor:
        rows = Ragged(p // 50, np.searchsorted((p // 50).cpu().numpy(), np.arange(8)))
        return full_logistic_sum(x, e, p % 50, rows, b, one=0.9, zero=0.002, parts=parts)

    assert_equal(both(loss, x, entities, bias, pairs))


def test_convolution_folded_into_a_product() -> None:
    picture = torch.randn(9, 8, 6, dtype=torch.float64)
    assert_equal(both(lambda p: windows(p, (3, 2)), picture))
    filters, cells = torch.randn(9, 5, 7, dtype=torch.float64), torch.randn(9, 7, 30, dtype=torch.float64)
    weight, bias = torch.randn(11, 150, dtype=torch.float64), torch.randn(11, dtype=torch.float64)
    assert_equal(both(rectified_linear, filters, cells, weight, bias))


def test_propagation_projection_and_top_k() -> None:
    g = torch.Generator().manual_seed(2)
    dense = torch.rand(30, 20, generator=g, dtype=torch.float64) * (torch.rand(30, 20, generator=g) < 0.2)
    row, column = dense.nonzero().T
    matrix = sparse_matrix(row.numpy(), column.numpy(), dense[row, column].numpy(), (30, 20))
    x = torch.randn(20, 6, generator=g, dtype=torch.float64)
    assert_equal(both(lambda x: propagate(matrix.to(x.device), x), x))
    rows, matrices = torch.randn(12, 4, dtype=torch.float64), torch.randn(3, 4, 5, dtype=torch.float64)
    assert_equal(both(lambda r, m: grouped_projection(r, [0, 5, 5, 12], m), rows, matrices))
    heads, tails, translation = (torch.randn(*s, dtype=torch.float64) for s in ((6, 4), (8, 4), (4,)))
    head, tail = torch.tensor([0, 0, 1, 4, 5]), torch.tensor([7, 2, 2, 0, 1])
    indptr = torch.tensor([0, 2, 3, 3, 3, 4, 5])
    with torch.no_grad():
        ours, theirs = (
            segment_softmax(
                translation_logits(*(t.to(d) for t in (heads, tails, translation, head, tail))),
                head.to(d),
                indptr.to(d),
            )
            for d in (CUDA, torch.device("cpu"))
        )
    assert_close([ours.cpu()], [theirs], 1e-10)
    scores = torch.randint(0, 9, (40, 300), generator=g).float()
    for a, b in zip(top_k(scores.to(CUDA), 20), top_k(scores, 20), strict=True):
        assert torch.equal(a.cpu(), b)
