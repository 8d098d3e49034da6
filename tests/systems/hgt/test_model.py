"""The HGT layer is PyTorch Geometric's; the model around it does what it says."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch_geometric.nn import HGTConv

from graphmill.graph.spectral import shortened as numpy_shortened
from graphmill.kernels.hgt.plan import MessageGraph
from graphmill.systems.hgt.inference import infer
from graphmill.systems.hgt.model import HGT, HGTLayer, shortened
from tests.kernels.hgt.graphs import Shape, hub, random_edges

SHAPES: dict[str, Shape] = {
    "several types": ([7, 5, 9], [(0, 1, 20), (1, 0, 20), (1, 2, 30), (2, 2, 12)], 0),
    "a type that is never a target": ([7, 5], [(0, 1, 20), (1, 1, 10)], 1),
    "a type that is never a source": ([7, 5], [(0, 1, 20), (0, 0, 10)], 2),
    "isolated nodes and an empty relation": ([20, 15], [(0, 1, 6), (1, 0, 0), (0, 0, 3)], 3),
    "parallel edges": ([2, 2], [(0, 1, 30), (1, 0, 30)], 4),
}


def pyg_twin(layer: HGTLayer, counts: list[int], relations: list[tuple[int, int]], in_dim: int) -> HGTConv:
    types = [str(t) for t in range(len(counts))]
    names = [(str(s), f"r{i}", str(t)) for i, (s, t) in enumerate(relations)]
    twin = HGTConv(in_dim, layer.out_dim, (types, names), heads=layer.num_heads).double()
    d, heads = layer.out_dim, layer.num_heads
    with torch.no_grad():
        for t in types:
            if t not in layer.projections:
                continue
            rows = [0, 0, 0]  # PyG has k, q, v for every type; ours has what is used, q first
            parts = iter(range(3))
            if layer.is_target[int(t)]:
                rows[1] = next(parts)
            if layer.is_source[int(t)]:
                rows[0], rows[2] = next(parts), next(parts)
            mine, theirs = layer.projections[t], twin.kqv_lin.lins[t]
            for slot, part in enumerate(rows):
                theirs.weight[slot * d : (slot + 1) * d] = mine.weight[part * d : (part + 1) * d]
                theirs.bias[slot * d : (slot + 1) * d] = mine.bias[part * d : (part + 1) * d]
            if layer.is_target[int(t)]:
                twin.out_lin.lins[t].load_state_dict(layer.outputs[t].state_dict())
            if layer.skip is not None:
                twin.skip[t].fill_(layer.skip[int(t)])
        for r, name in enumerate(names):
            twin.p_rel["__".join(name)].copy_(layer.prior[r])
            for h in range(heads):
                twin.k_rel.weight[h * len(names) + r] = layer.w_k[r, h]
                twin.v_rel.weight[h * len(names) + r] = layer.w_v[r, h]
    return twin


@pytest.mark.parametrize("name", [*SHAPES, "one hub"])
@pytest.mark.parametrize("out_dim", [8, 12])
def test_the_layer_equals_hgtconv_with_the_same_weights(name: str, out_dim: int) -> None:
    torch.manual_seed(0)
    if name == "one hub":
        counts, edges = [5, 4], hub(200)
    else:
        counts, sizes, seed = SHAPES[name]
        edges = random_edges(counts, sizes, seed)
    relations = [(e.source_type, e.target_type) for e in edges]
    layer = HGTLayer(len(counts), relations, 8, out_dim, 4).double()
    with torch.no_grad():
        layer.prior.uniform_(0.5, 2)
        if layer.skip is not None:
            layer.skip.normal_()
    twin = pyg_twin(layer, counts, relations, 8)
    x = [torch.randn(n, 8, dtype=torch.float64, requires_grad=True) for n in counts]
    ours = layer(x, MessageGraph.build(counts, edges))
    index = {
        (str(e.source_type), f"r{i}", str(e.target_type)): torch.stack([e.src, e.dst]) for i, e in enumerate(edges)
    }
    theirs = twin({str(t): rows for t, rows in enumerate(x)}, index)
    loss_ours, loss_theirs = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for t, rows in enumerate(ours):
        if str(t) not in theirs:
            assert rows is x[t]
            continue
        assert_equal(rows, theirs[str(t)])
        loss_ours, loss_theirs = loss_ours + rows.square().sum(), loss_theirs + theirs[str(t)].square().sum()
    got, wanted = (
        torch.autograd.grad(loss_ours, x, allow_unused=True),
        torch.autograd.grad(loss_theirs, x, allow_unused=True),
    )
    for a, b in zip(got, wanted, strict=True):
        if b is None:
            assert a is None or not a.any()
        else:
            assert_equal(torch.zeros_like(b) if a is None else a, b)


@pytest.mark.parametrize(("relations", "wide"), [([(0, 1), (0, 0)], [24, 8]), ([(0, 1)], [16, 8])])
def test_what_a_type_never_is_has_no_projection(relations: list[tuple[int, int]], wide: list[int]) -> None:
    """q for targets, k and v for sources, nothing else."""
    layer = HGTLayer(3, relations, 8, 8, 2)
    assert [layer.projections[str(t)].out_features for t in range(2)] == wide
    assert "2" not in layer.projections
    assert "2" not in layer.outputs
    x = torch.randn(4, 8)
    assert layer.update_all([x, x, x], [None, None, None])[2] is x


def assert_equal(a: Tensor, b: Tensor) -> None:
    assert (a - b).norm() <= 1e-10 * (1 + b.norm())


def small_model(num_layers: int = 2, **options) -> tuple[HGT, MessageGraph]:
    counts, sizes, seed = SHAPES["several types"]
    edges = random_edges(counts, sizes, seed)
    torch.manual_seed(5)
    relations = [(e.source_type, e.target_type) for e in edges]
    return HGT(counts, relations, 8, 10, num_layers, 2, **options), MessageGraph.build(counts, edges)


def test_embeddings_come_in_global_node_order() -> None:
    model, graph = small_model()
    assert model(graph).shape == (21, 10)


def test_without_layers_the_graph_does_not_matter() -> None:
    model, graph = small_model(num_layers=0)
    other = MessageGraph.build(graph.source_counts, random_edges([7, 5, 9], [(0, 1, 3)] * 4, 99))
    assert torch.equal(model(graph), model(other))


def test_checkpointing_changes_no_bit_dropout_included() -> None:
    gradients = []
    for on in (False, True):
        model, graph = small_model(dropout=0.3, gradient_checkpointing=on)
        torch.manual_seed(1)
        model(graph, masked_pairs=torch.rand(graph.num_pairs) < 0.2).square().sum().backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


def test_under_autocast_messages_are_in_half_precision_and_gradients_in_that_of_the_weights() -> None:
    model, graph = small_model()
    layer = model.layer(0)
    x = [0.3 * torch.randn(n, 8) for n in graph.source_counts]

    def run(low: bool) -> tuple[list[Tensor], list[Tensor]]:
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            out = [m for m in layer.messages(x, graph) if m is not None]
        weights = [layer.w_k, layer.w_v, layer.prior, *layer.projections.parameters()]
        return out, list(torch.autograd.grad(sum(m.float().square().sum() for m in out), weights))

    (low, of_low), (exact, of_exact) = run(True), run(False)
    assert {m.dtype for m in low} == {torch.bfloat16}
    assert {g.dtype for g in of_low} == {torch.float32}
    for a, b in zip([*low, *of_low], [*exact, *of_exact], strict=True):
        assert (a.float() - b).norm() <= 0.05 * (1 + b.norm())


def test_a_sample_of_the_graph_reads_its_rows_of_the_tables() -> None:
    model, graph = small_model()
    everything = [torch.arange(r.num_edges) for r in graph.relations]
    sample, rows = graph.edge_subgraph(everything, [torch.arange(n) for n in graph.source_counts])
    assert torch.equal(model(sample, node_rows=rows), model(graph))


def test_features_are_added_and_asked_for() -> None:
    model, graph = small_model(feature_dims={1: 3})
    features = {1: torch.randn(5, 3)}
    assert not torch.equal(model(graph, features), model(graph, {1: torch.zeros(5, 3)}))
    with pytest.raises(ValueError, match="node type 1 was built with features"):
        model(graph)


def test_a_width_that_the_heads_do_not_divide_is_refused() -> None:
    with pytest.raises(ValueError, match="hidden_dim 10 is not divisible by num_heads 4"):
        HGT([3], [(0, 0)], 10, 8, 1, 4)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("few", [[[1, 4], None, []], [[1], [], []]])
@pytest.mark.parametrize("num_layers", [0, 1, 2])
def test_only_the_needed_rows_come_back_and_equal_the_full_forward(
    num_layers: int, few: list[list[int] | None], checkpointing: bool
) -> None:
    """The others are left out behind the attention."""
    model, graph = small_model(num_layers, gradient_checkpointing=checkpointing)
    model, needed = model.double(), [None if part is None else torch.tensor(part, dtype=torch.int64) for part in few]
    masked = torch.rand(graph.num_pairs, generator=torch.Generator().manual_seed(0)) < 0.3
    full, part = model(graph, masked_pairs=masked), model(graph, masked_pairs=masked, needed=needed)
    rows = [1, 4, 7, 8, 9, 10, 11] if few[1] is None else [1]
    assert_equal(part, full[rows])
    ours, theirs = (torch.autograd.grad(y.square().sum(), [*model.tables]) for y in (part, full[rows]))
    for a, b in zip(ours, theirs, strict=True):
        assert_equal(a, b)


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("chunk_rows", [1, 7, 1000])
def test_inference_in_chunks_equals_the_forward_pass(name: str, chunk_rows: int) -> None:
    counts, sizes, seed = SHAPES[name]
    edges = random_edges(counts, sizes, seed)
    graph = MessageGraph.build(counts, edges)
    torch.manual_seed(3)
    model = HGT(counts, [(e.source_type, e.target_type) for e in edges], 8, 10, 2, 2, 0.5, feature_dims={0: 3}).double()
    features = {0: torch.randn(counts[0], 3)}
    chunks = list(infer(model, graph, features, chunk_rows))
    assert model.training
    assert max(c.rows.shape[0] for c in chunks) <= chunk_rows
    assert [(c.node_type, c.start) for c in chunks] == sorted((c.node_type, c.start) for c in chunks)
    assert_equal(torch.cat([c.rows for c in chunks]), model.eval()(graph, features).detach())


@pytest.mark.parametrize("width", [8, 5, 11])
def test_it_starts_as_the_mean_of_the_neighbours_spectral_vectors(width: int) -> None:
    """Before any training, one layer's rows are nearly parallel to the means, whose entries are as small as they are."""
    counts, sizes, seed = SHAPES["several types"]
    edges = random_edges(counts, sizes, seed)
    torch.manual_seed(0)
    dims = dict.fromkeys(range(3), width + 2)
    model = HGT(counts, [(e.source_type, e.target_type) for e in edges], 8, 8, 1, 2, feature_dims=dims, spectral=width)
    given = {t: torch.randn(n, width + 2) / 20 for t, n in enumerate(counts)}
    with torch.no_grad():
        for table in model.tables:
            table.zero_()
        for projection in model.features.values():
            projection.weight[:, :2] = 0.0
        result = model.eval()(MessageGraph.build(counts, edges), given).split(counts)
    for target, rows in enumerate(result):
        total = torch.zeros(counts[target], 8)
        degree = torch.zeros(counts[target], 1)
        for e in edges:
            if e.target_type == target:
                sent = torch.nn.functional.pad(given[e.source_type][:, 2:], (0, max(8 - width, 0)))[:, :8]
                total.index_add_(0, torch.as_tensor(e.dst), sent[torch.as_tensor(e.src)])
                degree.index_add_(0, torch.as_tensor(e.dst), torch.ones(len(e.dst), 1))
        some = degree[:, 0] > 1
        cosine = torch.nn.functional.cosine_similarity(rows[some], total[some])
        assert cosine.min() > 0.8
        assert cosine.mean() > 0.95


def test_shortened_rows_are_those_of_numpy_and_have_a_gradient_at_zero() -> None:
    rows = torch.randn(20, 6) * torch.logspace(-1, 1, 20)[:, None]
    torch.testing.assert_close(shortened(rows), torch.from_numpy(numpy_shortened(rows.numpy())), rtol=2e-3, atol=1e-4)
    zero = torch.zeros(1, 6, requires_grad=True)
    shortened(zero).sum().backward()
    assert torch.isfinite(zero.grad).all()
