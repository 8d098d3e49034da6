"""The plain KGAT that benchmarks time computes what ours computes: the comparison is of the same function."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from benchmarks.naive import kgat

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems.kgat.model import Kgat
from graphmill.systems.kgat.recipe import KgatRecipe
from graphmill.training.contract import Execution
from tests.training.cases import CASES, recommender_graph

DIMS = (8, 8, 4)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return recommender_graph(tmp_path_factory.mktemp("naive") / "graph")


def both(graph: TypedGraph) -> tuple[KgatRecipe, Kgat, kgat.Kgat]:
    """Our recipe and model, and the plain model with the same weights."""
    model = {"embedding_dim": DIMS[0], "relation_dim": DIMS[0], "layer_dims": list(DIMS[1:]), "message_dropout": 0.0}
    penalties = {"regularisation": 0.1, "kg_regularisation": 0.1}
    _, recipe = CASES["kgat"].build(graph, model=model, objective=penalties)
    assert isinstance(recipe, KgatRecipe)
    ours, g = recipe.build(Execution()), recipe.facts
    assert isinstance(ours, Kgat)
    edges = torch.from_numpy(np.stack((g.head, g.relation, g.tail)).astype(np.int64))
    plain = kgat.Kgat(g.num_nodes, g.num_relations, DIMS, edges, ours.attention.clone())
    plain.dropout.p = 0.0
    with torch.no_grad():
        plain.nodes.weight.copy_(ours.nodes())
        plain.relations.weight.copy_(ours.translations)
        plain.matrices.copy_(ours.projections)
        for layer, to_sum, to_product in zip(ours.layers, plain.sums, plain.products, strict=True):
            to_sum.load_state_dict(layer.sum.state_dict())
            to_product.load_state_dict(layer.product.state_dict())
    return recipe, ours, plain


def test_vectors_and_both_losses_with_their_gradients(graph: TypedGraph) -> None:
    recipe, ours, plain = both(graph)
    cf, kg = recipe.phases
    batch, view = recipe.step(cf, 0, 0), recipe.view
    numbers = (
        batch.users + view.user_offset,
        batch.positives + view.item_offset,
        batch.negatives.reshape(-1) + view.item_offset,
    )
    facts = recipe.step(kg, 0, 0)
    rows = (facts.heads, facts.relations, facts.tails, facts.wrong_tails)
    for step, theirs in (
        (batch, plain.cf_loss(*(torch.from_numpy(a).long() for a in numbers), 0.1)),
        (facts, plain.kg_loss(*(torch.from_numpy(np.asarray(a)).long() for a in rows), 0.1)),
    ):
        ours.zero_grad()
        plain.zero_grad()
        terms = recipe.terms(ours.train(), step, recipe.encode(ours, step))
        total = sum(term.coefficient * term.sum / term.weight for term in terms)
        assert float(total.detach()) == pytest.approx(float(theirs.detach()), rel=1e-5)
        total.backward()
        theirs.backward()
        mine = torch.cat([table.grad for table in ours.tables])
        torch.testing.assert_close(mine, plain.nodes.weight.grad, rtol=1e-3, atol=1e-6)


def test_attention_where_no_two_edges_are_parallel(graph: TypedGraph) -> None:
    """torch's sparse softmax adds parallel edges up first; ours keeps them apart, as the paper does."""
    recipe, ours, plain = both(graph)
    g = recipe.facts
    found = g.attention(ours)
    plain.refresh()
    theirs = plain.adjacency.to_dense()
    size = theirs.shape[0]
    ends = torch.from_numpy(g.head.astype(np.int64) * size + g.tail)
    own = torch.zeros(size * size).index_add_(0, ends, found).view(size, size)
    counts = torch.bincount(ends, minlength=size * size).view(size, size)
    single = (counts.max(1).values == 1).nonzero()[:, 0]
    assert len(single) > size // 2
    torch.testing.assert_close(own[single], theirs[single], rtol=1e-4, atol=1e-6)
