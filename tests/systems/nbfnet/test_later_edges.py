"""Links of nodes and edges that came after the training, without training: scores as of a graph built with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.settings import LinkSettings
from graphmill.runs.export import export_run, restore
from graphmill.usage.embed import grown_link_model
from graphmill.usage.links import Predictor, estimate_links, link_model, scoring_bytes
from tests.training.cases import CASES, typed_graph
from tests.training.runs import run, settings_of

HEADER = "head,head_type,relation,tail,tail_type\n"
COLUMNS = {
    f"{end}_{what}": end + more for end in ("head", "tail") for what, more in (("id", ""), ("type", "_type"))
} | {"relation": "relation"}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("graph") / "graph")


@pytest.fixture(scope="module")
def trained(graph: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = run(settings_of(CASES["nbfnet"], graph), tmp_path_factory.mktemp("runs"))
    return Path(result["run_dir"])


def written(folder: Path, *lines: str) -> str:
    path = folder / "later.csv"
    path.write_text(HEADER + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return str(path)


def test_a_new_node_is_scored_through_its_edges(graph: TypedGraph, trained: Path, tmp_path: Path) -> None:
    ids = graph.node_table()["id"].to_pylist()
    offset = {t.name: t.offset for t in graph.node_types}
    genes = [ids[offset["gene/protein"] + n] for n in (0, 6, 12, 18)]
    file = written(tmp_path, *(f"new,drug,drug_protein,{gene},gene/protein" for gene in genes))
    model = grown_link_model(trained, file, settings={"columns": COLUMNS})
    assert model.graph.num_nodes == graph.num_nodes + 1
    assert [r.key for r in model.graph.relations] == [r.key for r in graph.relations]
    drugs = graph.node_type("drug").count
    relation = graph.relation("drug", "drug_protein", "gene/protein").index
    edges = model.graph.edges(relation)
    assert len(edges.src) == len(graph.edges(relation).src) + len(genes)
    assert (np.asarray(edges.split)[np.asarray(edges.src) == drugs] == 0).all()
    predictor = Predictor(model, LinkSettings.model_validate({"heads": ["new"], "relations": ["drug_protein"], "k": 5}))
    (predicted,) = predictor.predict()
    tails = [row["tail_id"] for row in predicted.rows.table(np.arange(5)).to_pylist()]
    assert not set(tails) & set(genes)
    # A known drug's scores change only by the paths through the new node.
    before, after = link_model(trained).scorer, model.scorer
    old = before.score_targets(relation, np.array([1])).numpy()
    assert np.abs(after.score_targets(relation, np.array([1])).numpy() - old).max() < np.abs(old).max()


def test_new_edges_between_known_nodes_count(graph: TypedGraph, trained: Path, tmp_path: Path) -> None:
    ids = graph.node_table()["id"].to_pylist()
    drug, gene = graph.node_type("drug").offset, graph.node_type("gene/protein").offset
    relation = graph.relation("drug", "drug_protein", "gene/protein").index
    edges = graph.edges(relation)
    pairs = set(zip(np.asarray(edges.src).tolist(), np.asarray(edges.dst).tolist(), strict=True))
    tail = next(t for t in range(60) if (2, t) not in pairs)
    file = written(tmp_path, f"{ids[drug + 2]},drug,drug_protein,{ids[gene + tail]},gene/protein")
    model = grown_link_model(trained, file, settings={"columns": COLUMNS})
    assert model.graph.num_nodes == graph.num_nodes
    old, new = (m.scorer.score_targets(relation, np.array([2])).numpy() for m in (link_model(trained), model))
    assert not np.allclose(old, new)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("new,drug,cures,n1,disease", "no relation drug|cures|disease"),
        ("new,planet,drug_protein,n30,gene/protein", "type 'planet'"),
        ("new,drug,drug_protein,other,gene/protein", "no edge to a node of the model"),
    ],
)
def test_what_the_model_does_not_know_is_refused(trained: Path, tmp_path: Path, line: str, said: str) -> None:
    with pytest.raises(InputError, match=said.replace("|", r"\|")):
        grown_link_model(trained, written(tmp_path, line), settings={"columns": COLUMNS})


def test_a_system_of_tables_refuses_later_edges(graph: TypedGraph, tmp_path: Path) -> None:
    result = run(settings_of(CASES["complex"], graph, {"training": {"epochs": 1}}), tmp_path / "runs")
    with pytest.raises(SettingsError, match="blend, hgt, knn, nbfnet and spectral"):
        grown_link_model(result["run_dir"], written(tmp_path, "n1,disease,disease_protein,n31,gene/protein"))


def test_the_export_is_the_weights(graph: TypedGraph, trained: Path) -> None:
    from safetensors.torch import load_file

    manifest = export_run(restore(trained))
    assert set(manifest["files"]) == {"weights.safetensors", "relations.parquet", "nodes.parquet"}
    weights = load_file(trained / "scorer" / "weights.safetensors")
    model = restore(trained).model
    assert set(weights) == set(model.state_dict())
    assert all((weights[name] == value).all() for name, value in model.state_dict().items())
    assert not (trained / "embeddings" / "manifest.json").exists()


def test_time_and_memory_of_a_table_are_told_before_it_is_made(trained: Path) -> None:
    model = link_model(trained)
    result = estimate_links(model, LinkSettings(), scoring_bytes(trained))
    assert [each["relation"] for each in result["relations"]] == [" | ".join(r.key) for r in model.graph.relations]
    assert [each["heads"] for each in result["relations"]] == [
        model.graph.node_type(r.source).count for r in model.graph.relations
    ]
    assert 0 < result["seconds"] < 600
    assert result["peak_bytes"] > 400 << 20
    assert not (trained / "links").exists()


def test_a_loaded_run_predicts_and_says_that_it_has_no_vectors(graph: TypedGraph, trained: Path) -> None:
    export_run(restore(trained))
    result = graphmill.load(trained)
    assert "no vectors" in repr(result)
    ids = graph.node_table()["id"].to_pylist()
    drug = ids[graph.node_type("drug").offset]
    assert len(result.links(drug, "drug_protein", k=3)) == 3
    assert result.type_of(result.row(drug)) == "drug"
    with pytest.raises(InputError, match="no vectors"):
        _ = result[drug]
