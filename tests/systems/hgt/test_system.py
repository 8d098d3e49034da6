"""HGT's loss is the documented one, its settings are honoured or refused, and it learns what is planted."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import fingerprint, parse_settings, read_settings
from graphmill.systems.hgt.batch import round_up
from graphmill.systems.hgt.settings import TEMPERATURE
from graphmill.training.contract import Encoded
from tests.training.cases import CASES, trained, typed_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("hgt")) / "graph")


def losses(graph: TypedGraph, **sections: Any) -> tuple[Any, Any, torch.Tensor, dict[str, float]]:
    _, system = CASES["hgt-full"].build(graph, **sections)
    model = CASES["hgt-full"].model(system, torch.float64).eval()
    batch = system.step(system.phases[0], 0, 1)
    with torch.no_grad():
        encoded = system.encode(model, batch)
        terms = system.terms(model, batch, encoded)
        # Of all nodes, by their global numbers.
        z = system.encode(model, replace(batch, read=np.arange(graph.num_nodes))).tensors["z"]
    return system, model, z, {t.name: float(t.sum) / batch.weights[t.name] for t in terms}  # type: ignore[union-attr]


def test_the_link_loss_is_a_mean_over_relations_of_the_textbook_cross_entropy(graph: TypedGraph) -> None:
    system, model, z, result = losses(graph)
    batch = system.step(system.phases[0], 0, 1)
    weights = model.decoder.weights()
    means = []
    for number in np.unique(batch.relation):
        mine = batch.relation == number
        vector = weights[number]

        def score(
            tails: np.ndarray, degree: np.ndarray, mine: Any = mine, vector: Any = vector, number: Any = number
        ) -> Any:
            s = ((z[batch.head[mine]] * vector).roll(8, 1) * z[tails]).sum(1)
            return s + model.decoder.popularities()[number] * torch.from_numpy(degree) + model.decoder.offset[number]

        positive = score(batch.tail[mine], batch.tail_degree[mine])
        loss = -torch.log(torch.sigmoid(positive)).mean()
        for column in range(batch.negative.shape[1]):
            negative = score(batch.negative[mine][:, column], batch.negative_degree[mine][:, column])
            loss = loss - torch.log(1 - torch.sigmoid(negative)).mean() / batch.negative.shape[1]
        means.append(float(loss))
    assert result["link"] == pytest.approx(np.mean(means), rel=1e-5)


def test_the_contrastive_term_is_the_supervised_info_nce(graph: TypedGraph) -> None:
    system, _, z, result = losses(graph)
    batch, similar = system.step(system.phases[0], 0, 1), system.data.similar
    unit = torch.nn.functional.normalize(z[similar.first : similar.first + similar.count], dim=1)
    cosine = (unit @ unit.T / TEMPERATURE).numpy()
    total = 0.0
    for row, anchor in enumerate(batch.anchor - similar.first):
        positives = batch.positive[batch.positive_indptr[row] : batch.positive_indptr[row + 1]] - similar.first
        others = np.delete(np.exp(cosine[anchor]), anchor).sum()
        total -= np.mean([np.log(np.exp(cosine[anchor, p]) / others) for p in positives])
    assert result["contrastive"] == pytest.approx(total / len(batch.anchor), rel=1e-6)


def test_the_weights_of_the_two_terms_add_up_to_one_and_a_graph_without_diseases_has_links_only(
    graph: TypedGraph,
) -> None:
    _, system = CASES["hgt-full"].build(graph, objective={"contrastive_weight": 0.3})
    model = CASES["hgt-full"].model(system)
    batch = system.step(system.phases[0], 0, 0)
    terms = {t.name: t.coefficient for t in system.terms(model, batch, system.encode(model, batch))}
    assert terms == {"link": pytest.approx(0.7), "contrastive": pytest.approx(0.3)}
    _, links = CASES["hgt-full"].build(graph, objective={"contrastive_type": "pathway"})
    batch = links.step(links.phases[0], 0, 0)
    terms = {t.name: t.coefficient for t in links.terms(model, batch, links.encode(model, batch))}
    assert terms == {"link": 1.0}


def test_weight_decay_leaves_tables_biases_and_gates_alone(graph: TypedGraph) -> None:
    _, system = CASES["hgt-full"].build(graph)
    decayed = {
        n
        for g in system.parameter_groups(CASES["hgt-full"].model(system), system.phases[0])
        if g.decay
        for n in g.names
    }
    assert decayed
    assert not [n for n in decayed if "tables" in n or n.endswith("bias") or "skip" in n]


def test_embeddings_are_the_forward_pass_over_all_training_edges(graph: TypedGraph) -> None:
    _, system = CASES["hgt-full"].build(graph)
    model = CASES["hgt-full"].model(system).eval()
    blocks = list(system.embeddings(model))
    exported = np.concatenate([b.vectors for b in blocks])
    assert [b.start for b in blocks] == np.cumsum([0, *[len(b.vectors) for b in blocks[:-1]]]).tolist()
    with torch.no_grad():
        whole = model.encoder(system.messages, system.features)
    assert exported.shape == (graph.num_nodes, 16)
    assert np.linalg.norm(exported - whole.numpy()) <= 1e-5 * np.linalg.norm(whole.numpy())


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model": {"hidden_dim": 100, "num_heads": 8}}, "use 104"),
        ({"model": {"embedding_dim": 15}}, "make it even"),
        ({"model": {"num_layers": 0}}, "num_layers"),
        ({"acceleration": {"batch_size": 64}}, "sampling.edge_sample_size"),
        ({"acceleration": {"batch_sise": 64}}, "batch_sise"),
        ({"training": {"epochs": 0}}, "epochs"),
        ({"evaluation": {"metrics": ["recall"]}}, "recall"),
        ({"preset": "m1_64gb"}, "m1_64gb"),
        ({"system": "gcn"}, r"known: .*hgt"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_one_sentence(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        parse_settings({"system": "hgt", **values}, "settings.yaml")
    assert "\n" not in str(caught.value)


def test_the_defaults_are_the_settings_that_were_measured(repository: Path) -> None:
    """What ``benchmarks.link_quality`` trains by is what a user gets who writes nothing."""
    ours = parse_settings({"system": "hgt", "preset": "none"}, "x").model_dump()
    measured = parse_settings(read_settings(repository / "examples/hgt/hetionet_kg_5k.yaml"), "y").model_dump()
    same = {"data": "", "evaluation": {}}  # when the epochs are evaluated, and by how many queries
    assert ours | same == measured | same


def test_the_fingerprint_holds_what_decides_the_result_and_nothing_else(graph: TypedGraph) -> None:
    case = CASES["hgt-full"]

    def digest(**sections: Any) -> str:
        return fingerprint(case.job(graph, **sections), graph.content_hash, 1)

    same = digest()
    for step_sizes in (
        {"micro_batches": 7},
        {"checkpoint_every_epochs": 3},
        {"gradient_checkpointing": True},
        {"processes": 2},
    ):
        assert digest(acceleration=step_sizes) == same
    assert digest(training={"epochs": 50, "patience_epochs": 1}) == same
    assert digest(evaluation={"eval_every": 1}) == same
    for identity in ({"model": {"dropout": 0.1}}, {"training": {"seed": 1}}, {"acceleration": {"precision": "bf16"}}):
        assert digest(**identity) != same


def test_it_learns_the_planted_communities(graph: TypedGraph) -> None:
    job, system = CASES["hgt-full"].build(
        graph,
        model={"dropout": 0.0, "num_layers": 1},
        training={"epochs": 80, "learning_rate": 0.02},
        objective={"contrastive_weight": 0.0},
        evaluation={"eval_every": 80},
    )
    engine = trained(job, system)
    queries = link_queries(graph, "valid")
    result = rank_links(system.scorer(engine.model.eval()), queries)
    popular = rank_links(DegreeScorer(queries), queries)
    assert result.micro["mrr"] > 1.3 * popular.micro["mrr"]


@pytest.mark.parametrize(
    ("nodes", "count", "size"), [([], 0, 0), ([], 40, 0), ([7], 40, 3), ([0, 1, 39], 40, 3), ([1, 2, 4, 9], 10, 4)]
)
def test_arrays_of_a_step_have_sizes_in_sixteenths(nodes: list[int], count: int, size: int) -> None:
    result = round_up(np.array(nodes, dtype=np.int64), count)
    assert len(result) == size
    assert set(nodes) <= set(result.tolist()) <= set(range(count))
    assert (np.diff(result) > 0).all()


def test_a_step_of_the_whole_graph_computes_what_its_loss_reads(graph: TypedGraph) -> None:
    case = CASES["hgt-full"]
    few = {"edge_sample_size": 1}
    _, system = case.build(graph, sampling=few, objective={"contrastive_weight": 0.0})
    model = case.model(system, torch.float64).eval()
    batch = system.step(system.phases[0], 0, 1)
    encoded = system.encode(model, batch)
    read = torch.from_numpy(batch.seeds())
    kept = [
        round_up(rows, t.count) for rows, t in zip(system.data.by_type(batch.seeds()), graph.node_types, strict=True)
    ]
    assert len(read) < len(encoded.tensors["z"]) == sum(map(len, kept)) < 0.9 * graph.num_nodes
    whole = system.encode(model, replace(batch, read=np.arange(graph.num_nodes)))
    assert len(whole.tensors["z"]) == graph.num_nodes
    torch.testing.assert_close(encoded.tensors["z"][encoded.tensors["lookup"][read]], whole.tensors["z"][read])
    ours, theirs = ([term.sum for term in system.terms(model, batch, e)] for e in (encoded, whole))
    torch.testing.assert_close(ours, theirs)
    # Every process encodes the same rows, whatever its part of the links is.
    for rank in range(3):
        part = batch.shard(rank, 3)
        assert len(part.relation) < len(batch.relation)
        assert torch.equal(system.encode(model, part).tensors["lookup"], encoded.tensors["lookup"])


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_a_sample_of_edges_computes_what_its_loss_reads_and_nothing_else(graph: TypedGraph, layers: int) -> None:
    case = CASES["hgt-edge-sampled"]
    _, system = case.build(graph, model={"num_layers": layers}, sampling={"edge_sample_size": 40})
    model = case.model(system, torch.float64).eval()
    micro = system.step(system.phases[0], 0, 1).micro[1]
    seeds = torch.from_numpy(micro.seeds())
    encoded = system.encode(model, micro)
    # The same messages as one graph in which every layer computes every node.
    local = [torch.from_numpy(rows) for rows in system.data.by_type(micro.seeds())]
    messages = [torch.as_tensor(m) for m in micro.messages]
    whole, rows = system.messages.edge_subgraph(messages, local)
    z = model.encoder(whole, system.features, None, rows)
    ids = torch.cat([kept + t.offset for kept, t in zip(rows, graph.node_types, strict=True)])
    assert 0 < len(encoded.tensors["z"]) < len(ids)
    wanted = z[torch.searchsorted(ids, seeds)]
    result = encoded.tensors["z"][encoded.tensors["lookup"][seeds]]
    torch.testing.assert_close(result, wanted, rtol=1e-10, atol=1e-12)
    weights = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    parameters = [p for name, p in model.encoder.named_parameters() if "table" in name or "layers" in name]
    gradients = [torch.autograd.grad((x * weights).sum(), parameters, allow_unused=True) for x in (result, wanted)]
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-11)
    # The losses are those of the whole sample, the contrastive term's candidates included.
    assert len(micro.anchor)
    lookup = torch.full((graph.num_nodes,), -1, dtype=torch.int64)
    lookup[ids] = torch.arange(len(ids))
    both = [system.terms(model, micro, e) for e in (encoded, Encoded({"z": z, "lookup": lookup, "on host": lookup}))]
    for ours, theirs in zip(*both, strict=True):
        torch.testing.assert_close(ours.sum, theirs.sum, rtol=1e-10, atol=1e-12)
