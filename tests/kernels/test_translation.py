"""Projections grouped by relation, KGAT's logits, and the softmax over a node's edges: equal to their plain forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphmill.kernels import translation
from graphmill.kernels.translation import (
    EdgeGroup,
    grouped_projection,
    score_edges_,
    segment_softmax,
    translation_logits,
)


def test_grouped_projection_is_the_product_with_gathered_matrices() -> None:
    torch.manual_seed(0)
    rows = torch.randn(11, 4, dtype=torch.float64, requires_grad=True)
    matrices = torch.randn(5, 4, 3, dtype=torch.float64, requires_grad=True)
    bounds = [0, 3, 3, 4, 11, 11]  # two groups without rows
    group = torch.tensor([0, 0, 0, 2, 3, 3, 3, 3, 3, 3, 3])
    weight = torch.randn(11, 3, dtype=torch.float64)
    result = grouped_projection(rows, bounds, matrices)
    wanted = torch.bmm(rows[:, None], matrices[group])[:, 0]
    torch.testing.assert_close(result, wanted, rtol=1e-12, atol=1e-12)
    ours = torch.autograd.grad((result * weight).sum(), (rows, matrices))
    plain = torch.autograd.grad((wanted * weight).sum(), (rows, matrices))
    torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-12)
    assert torch.autograd.gradcheck(lambda r, m: grouped_projection(r, bounds, m), (rows, matrices))


def test_grouped_projection_of_nothing() -> None:
    assert grouped_projection(torch.zeros(0, 4), [0, 0], torch.ones(1, 4, 2)).shape == (0, 2)


def test_logits_are_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(1)
    heads, tails, move = torch.randn(6, 3), torch.randn(5, 3), torch.randn(3)
    head, tail = torch.randint(6, (40,)), torch.randint(5, (40,))
    whole = translation_logits(heads, tails, move, head, tail)
    wanted = torch.stack([tails[t] @ torch.tanh(heads[h] + move) for h, t in zip(head, tail, strict=True)])
    torch.testing.assert_close(whole, wanted)
    monkeypatch.setattr(translation, "EDGE_BYTES", 4 * 3 * 7)
    torch.testing.assert_close(translation_logits(heads, tails, move, head, tail), wanted)


def some_edges(seed: int = 0) -> tuple[EdgeGroup, torch.Tensor, torch.Tensor]:
    """Relations 2 to 7 of nine over 300 nodes, one of them without edges, one with a hub; heads and tails by edge."""
    rng = np.random.default_rng(seed)
    pairs = []
    for relation, size in enumerate((40, 900, 0, 1, 500)):
        head = np.where(rng.random(size) < 0.3, 7, rng.integers(300, size=size))
        pairs.append((np.full(size, relation), head, rng.integers(300, size=size)))
    relation, head, tail = (np.concatenate(column) for column in zip(*pairs, strict=True))
    order = np.lexsort((tail, head, relation))
    relation, head, tail = relation[order], head[order], tail[order]
    (heads, head_of), (tails, tail_of) = (np.unique(relation * 300 + n, return_inverse=True) for n in (head, tail))
    bounds = [np.searchsorted(keys, np.arange(6) * 300).tolist() for keys in (heads, tails)]
    indptr = np.concatenate(([0], np.cumsum(np.bincount(head_of))))
    edges = rng.permutation(2000)[: len(head)]  # places among all edges
    arrays = (torch.from_numpy(a) for a in (edges, heads % 300, tails % 300, indptr, tail_of))
    return EdgeGroup(2, 7, *bounds, *arrays), torch.from_numpy(head), torch.from_numpy(tail)


@pytest.mark.parametrize(("depth", "width"), [(64, 64), (20, 33), (7, 3), (16, 64)])
def test_edges_are_scored_as_by_their_formula(depth: int, width: int) -> None:
    torch.manual_seed(2)
    part, head, tail = some_edges()
    nodes, projections, translations = torch.randn(300, depth), torch.randn(9, depth, width), torch.randn(9, width)
    relation = torch.arange(2, 7).repeat_interleave(torch.tensor([40, 900, 0, 1, 500]))
    moved = torch.einsum("ed,edk->ek", nodes[head].double(), projections[relation].double()) + translations[relation]
    other = torch.einsum("ed,edk->ek", nodes[tail].double(), projections[relation].double())
    wanted = (torch.tanh(moved) * other).sum(1)
    logits = torch.full((2000,), 9.0)
    score_edges_(logits, nodes, projections, translations, part)
    error = (logits[part.edges].double() - wanted).abs()
    assert (error <= 1e-6 * depth * other.abs().sum(1)).all()
    others = torch.ones(2000, dtype=torch.bool)
    others[part.edges] = False
    assert (logits[others] == 9.0).all()


def test_large_vectors_are_scored_as_small_ones() -> None:
    """tanh is ±1 far out, and NaN stays what it is."""
    part, head, tail = some_edges()
    nodes = torch.randn(300, 16) * torch.logspace(-3, 6, 300)[:, None]
    nodes[11, 3] = torch.nan
    projections, translations = torch.eye(16).expand(9, 16, 16).contiguous(), torch.zeros(9, 16)
    logits = torch.zeros(2000)
    score_edges_(logits, nodes, projections, translations, part)
    wanted = (torch.tanh(nodes[head].double()) * nodes[tail].double()).sum(1)
    scale = nodes[tail].double().abs().sum(1)
    known = ~wanted.isnan()
    assert 0 < known.sum() < len(wanted)
    assert ((logits[part.edges].double() - wanted)[known].abs() <= 1e-5 * scale[known]).all()
    assert logits[part.edges][~known].isnan().all()


def test_the_softmax_of_rows_is_torchs_row_by_row() -> None:
    torch.manual_seed(3)
    counts = torch.tensor([0, 1, 7, 8, 0, 16, 17, 300, 2000, 0])
    indptr = torch.cat((torch.zeros(1, dtype=torch.int64), counts.cumsum(0)))
    row, logits = torch.arange(10).repeat_interleave(counts), 30 * torch.randn(int(counts.sum()))
    result = segment_softmax(logits, row, indptr)
    wanted = torch.cat([torch.softmax(part.double(), 0) for part in logits.split(counts.tolist())]).float()
    torch.testing.assert_close(result, wanted, rtol=5e-6, atol=1e-30)


def test_segment_softmax_adds_up_to_one_for_each_node_and_survives_large_logits() -> None:
    logits = torch.tensor([1e4, 1e4 - 1, -1e4, 3.0, -1e4])
    row = torch.tensor([0, 0, 0, 2, 3])
    result = segment_softmax(logits, row, torch.tensor([0, 3, 3, 4, 5, 5]))
    assert result[:3].tolist() == pytest.approx([0.7310586, 0.2689414, 0.0])
    assert result[3:].tolist() == [1.0, 1.0]
