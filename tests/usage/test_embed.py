"""Nodes that joined after the training: their vectors, what scores their links, and input that cannot be used."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.settings import LinkSettings
from graphmill.runs.train import train
from graphmill.usage.embed import NEW, grown_link_model, join
from graphmill.usage.exported import Run
from graphmill.usage.joining_nodes import read_later_edges
from graphmill.usage.links import link_model, write_links
from tests.ingest.kg_text import COLUMNS
from tests.training.cases import CASES, CLOSED_LINKS, recommender_graph, typed_graph

HEADER = "head,head_type,relation,tail,tail_type\n"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("later")) / "graph")


def trained(graph: TypedGraph, folder: Path, case: str = "blend", **sections: Any) -> Run:
    values = CASES[case].job(graph, training={"epochs": 1}, **sections).settings.model_dump() | {"preset": "none"}
    return graphmill.load(_exported(train(values, "test", root=str(folder))["run_dir"]))


def _exported(run_dir: str) -> str:
    from graphmill.runs.export import export_run, restore

    export_run(restore(run_dir))
    return run_dir


@pytest.fixture(scope="module")
def run(graph: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(graph, tmp_path_factory.mktemp("runs"))


def edges_of(graph: TypedGraph, node: str, new: str) -> str:
    """The training edges of a drug, as those of another drug."""
    drugs, genes = graph.node_type("drug"), graph.node_type("gene/protein")
    ids = graph.node_table()["id"].to_pylist()
    edges = graph.edges(graph.relation("drug", "drug_protein", "gene/protein"))
    mine = (edges.src == ids.index(node) - drugs.offset) & (edges.split == 0)
    targets = [ids[t + genes.offset] for t in edges.dst[mine]]
    return "".join(f"{new},drug,drug_protein,{target},gene/protein\n" for target in targets)


def written(folder: Path, rows: str) -> Path:
    path = folder / "edges.csv"
    path.write_text(HEADER + rows)
    return path


def test_a_node_with_the_edges_of_another_has_its_spectral_direction(
    graph: TypedGraph, run: Run, tmp_path: Path
) -> None:
    node = str(run.embeddings.ids[graph.node_type("drug").offset + 3])
    grown = run.embed(written(tmp_path, edges_of(graph, node, "twin")), tmp_path / "out", columns=COLUMNS)
    width = 8
    new, old = grown["twin"][:width], run[node][:width]
    assert new @ old == pytest.approx(np.linalg.norm(new) * np.linalg.norm(old), rel=1e-5)
    assert 1.0 <= np.linalg.norm(new) / np.linalg.norm(old) < 2.0  # as much longer as others keep less of theirs
    assert np.isfinite(grown["twin"]).all()
    assert grown.neighbors("twin", 1).node_id[0] == node


def test_a_vector_does_not_depend_on_what_else_joins(graph: TypedGraph, run: Run, tmp_path: Path) -> None:
    alone = run.embed(written(tmp_path, edges_of(graph, "n90", "x")), tmp_path / "one", columns=COLUMNS)
    rows = edges_of(graph, "n90", "x") + edges_of(graph, "n95", "y") + edges_of(graph, "n97", "z")
    together = run.embed(written(tmp_path, rows), tmp_path / "three", columns=COLUMNS)
    np.testing.assert_allclose(alone["x"][:8], together["x"][:8], atol=1e-6)


def test_known_nodes_keep_their_vectors_and_new_ones_come_last_of_their_type(
    graph: TypedGraph, run: Run, tmp_path: Path
) -> None:
    rows = edges_of(graph, "n90", "x") + edges_of(graph, "n91", "y") + "z,disease,disease_protein,n40,gene/protein\n"
    grown = run.embed(written(tmp_path, rows), tmp_path / "out", columns=COLUMNS)
    assert len(grown) == len(run) + 3
    old = [i for i, node in enumerate(grown.embeddings.ids) if node not in ("x", "y", "z")]
    np.testing.assert_array_equal(np.asarray(grown.embeddings.vectors)[old], run.embeddings.vectors)
    assert [str(grown.embeddings.ids[i]) for i in (30, len(grown) - 2, len(grown) - 1)] == ["z", "x", "y"]
    alone = pq.read_table(tmp_path / "out" / NEW)
    assert sorted(alone["node_id"].to_pylist()) == ["x", "y", "z"]
    assert grown.manifest["joined"]["nodes"] == {"disease": 1, "drug": 2}


def test_a_new_node_is_scored_as_one_that_was_there(graph: TypedGraph, run: Run, tmp_path: Path) -> None:
    grown = run.embed(written(tmp_path, edges_of(graph, "n90", "twin")), tmp_path / "out", columns=COLUMNS)
    result = grown.links("twin", "drug_protein", 10)
    known = [line.split(",")[3] for line in edges_of(graph, "n90", "twin").splitlines()]
    assert len(result) == 10
    assert not set(result.tail_id) & set(known)
    again = grown.score(["twin"] * 10, "drug|drug_protein|gene/protein", result.tail_id.tolist())
    np.testing.assert_allclose(again, result.score, atol=1e-5)
    targets = grown.links(known[0], "gene/protein|drug_protein|drug", 30, node_type="gene/protein", known=True)
    assert "twin" in set(targets.tail_id)
    with pytest.raises(InputError, match="ask for one head in one relation"):
        grown.links("twin")


@pytest.mark.parametrize("case", ["hgt-full", "blend"])
def test_features_and_the_older_loss_go_through_the_layers(graph: TypedGraph, tmp_path: Path, case: str) -> None:
    run = trained(graph, tmp_path, case)
    grown = run.embed(written(tmp_path, edges_of(graph, "n90", "twin")), tmp_path / "out", columns=COLUMNS)
    vector = grown["twin"]
    assert vector.shape == run["n90"].shape
    assert np.isfinite(vector).all()
    assert np.abs(vector).sum() > 0


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("n90,drug,drug_protein,n40,gene/protein\n", "nothing to embed"),
        ("x,virus,drug_protein,n40,gene/protein\n", "type 'virus', which the model does not have"),
        ("x,drug,cures,n40,gene/protein\n", "no relation drug|cures|gene/protein"),
        ("x,drug,drug_protein,y,gene/protein\n", "2 of its new nodes have no edge to a node of the model"),
        ("N90,drug,drug_protein,N40,gene/protein\n", "if they are nodes of the model, case ignored: 0 → 2 of 2"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(run: Run, tmp_path: Path, rows: str, says: str) -> None:
    with pytest.raises(InputError) as error:
        run.embed(written(tmp_path, rows), tmp_path / "out", columns=COLUMNS)
    assert says in str(error.value)
    assert not (tmp_path / "out").exists()


def test_the_runs_own_vectors_are_not_written_over(graph: TypedGraph, run: Run, tmp_path: Path) -> None:
    file = written(tmp_path, edges_of(graph, "n90", "twin"))
    with pytest.raises(InputError, match="choose another folder"):
        run.embed(file, run.path / "embeddings", columns=COLUMNS)


def test_a_system_of_tables_says_what_to_do_instead(graph: TypedGraph, tmp_path: Path) -> None:
    run = trained(graph, tmp_path, "complex")
    with pytest.raises(SettingsError, match="train it again on the grown graph"):
        run.embed(written(tmp_path, edges_of(graph, "n90", "twin")), columns=COLUMNS)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("knn", "graphmill links RUN --edges FILE"),
        ("ease", "graphmill recommend RUN --history FILE"),
        ("ials", "train it again on the grown graph, or use mmgcn or dragon"),
    ],
)
def test_a_closed_form_is_not_told_to_start_from_a_run(name: str, sentence: str, tmp_path: Path) -> None:
    if name == "ials":
        pytest.importorskip("implicit")
    graph = (typed_graph if name == "knn" else recommender_graph)(tmp_path / "graph")
    evaluation = {"baselines": []} if name == "knn" else {"top_k": [5], "selection_metric": "recall@5"}
    run = graphmill.train(graph, name, progress=False, evaluation=evaluation)
    (tmp_path / "edges.csv").write_text("head,relation,tail\na,r,b\n")
    with pytest.raises(SettingsError, match=sentence):
        run.embed(tmp_path / "edges.csv")


@pytest.mark.parametrize("case", ["blend", "hgt-full", "spectral", "knn", "nbfnet"])
def test_links_of_later_edges_are_predicted_untrained(
    graph: TypedGraph, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``graphmill links --edges``: a new node's links exclude its edges, and are those of its vector where it has one."""
    from graphmill.cli import app

    values = (CASES | CLOSED_LINKS)[case].job(graph, training={"epochs": 1}).settings.model_dump() | {"preset": "none"}
    run = train(values, "test", root=str(tmp_path / "runs"))["run_dir"]
    file = written(tmp_path, edges_of(graph, "n90", "twin"))
    columns = [part for name in COLUMNS for part in ("--read", f"columns.{name}={COLUMNS[name]}")]
    command = ["links", run, "--edges", str(file), *columns, "--head", "twin", "--relation", "drug_protein", "--json"]
    app(command, standalone_mode=False)
    result = json.loads(capsys.readouterr().out)["links"]
    tails = [row["tail_id"] for row in result]
    assert len(tails) == 10
    assert not {line.split(",")[3] for line in edges_of(graph, "n90", "twin").splitlines()} & set(tails)
    if case in ("blend", "spectral"):
        _exported(run)
        of_vectors = graphmill.load(run).embed(file, tmp_path / "out", columns=COLUMNS)
        rows = of_vectors.links("twin", "drug_protein", 10)
        assert [row["score"] for row in result] == pytest.approx(rows.score.tolist(), rel=1e-4)


@pytest.mark.parametrize("case", ["blend", "hgt-full", "spectral", "knn", "nbfnet"])
def test_a_table_of_later_edges_leaves_the_runs_own_table(
    graph: TypedGraph, case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``graphmill links --edges`` without ``--head``: all heads, new ones too, and no explanation by the old graph."""
    from graphmill.cli import app

    values = (CASES | CLOSED_LINKS)[case].job(graph, training={"epochs": 1}).settings.model_dump() | {"preset": "none"}
    run = Path(train(values, "test", root=str(tmp_path / "runs"))["run_dir"])
    write_links(link_model(run), LinkSettings(relations=["drug_protein"], k=1, explained_links=0, csv=False))
    before = {file.name: file.read_bytes() for file in (run / "links").iterdir()}
    file = written(tmp_path, edges_of(graph, "n90", "twin"))
    columns = [part for name in COLUMNS for part in ("--read", f"columns.{name}={COLUMNS[name]}")]
    command = ["links", str(run), "--edges", str(file), *columns, "--relation", "drug|drug_protein|gene/protein"]
    app([*command, "-k", "3", "--json"], standalone_mode=False)
    report = json.loads(capsys.readouterr().out)
    table = pq.read_table(run / "links_with_later_edges" / "links.parquet").to_pandas()
    assert report["rows"] == len(table) == 3 * (graph.node_type("drug").count + 1)
    assert "twin" in set(table.head_id)
    assert "because" not in table
    assert any("without the later edges" in note for note in report["notes"])
    assert {file.name: file.read_bytes() for file in (run / "links").iterdir()} == before


@pytest.mark.parametrize("case", ["blend", "hgt-full"])
def test_a_later_edge_between_known_nodes_changes_links(graph: TypedGraph, case: str, tmp_path: Path) -> None:
    values = CASES[case].job(graph, training={"epochs": 1}).settings.model_dump() | {"preset": "none"}
    run = train(values, "test", root=str(tmp_path / "runs"))["run_dir"]
    relation = graph.relation("drug", "drug_protein", "gene/protein").index
    before = link_model(run).scorer.score_targets(relation, np.array([3]))[0]
    tail = graph.node_table()["id"].to_pylist()[graph.node_type("gene/protein").offset + int(before.argmin())]
    file = written(tmp_path, f"n93,drug,drug_protein,{tail},gene/protein\n")
    model = grown_link_model(run, str(file), settings={"columns": COLUMNS})
    assert model.graph.num_nodes == graph.num_nodes
    assert not np.allclose(model.scorer.score_targets(relation, np.array([3]))[0], before)


def test_on_the_command_line(graph: TypedGraph, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from graphmill.cli import app

    file = written(tmp_path, edges_of(graph, "n90", "twin"))
    app(["embed", str(run.path), "--edges", str(file), "-o", str(tmp_path / "out"), "--json"], standalone_mode=False)
    result = json.loads(capsys.readouterr().out)
    assert result["new_nodes"] == {"drug": 1}
    assert (tmp_path / "out" / "embeddings.parquet").is_file()


def described_graph(out: Path) -> TypedGraph:
    """The typed graph, in which words of genes and drugs tell their community."""
    first = {"gene/protein": (30, 60), "drug": (90, 24)}
    tables = {
        kind: pa.table(
            {
                "node": pa.array(range(start, start + count), pa.int32()),
                "words": pa.array([f"group{n % 6} thing" for n in range(count)]),
            }
        )
        for kind, (start, count) in first.items()
    }
    return typed_graph(out, None, tables)


@pytest.mark.parametrize("case", ["blend", "hgt-features"])
def test_attributes_alone_give_a_new_node_a_vector_like_its_kind(case: str, tmp_path: Path) -> None:
    graph = described_graph(tmp_path / "graph")
    run = trained(graph, tmp_path / "runs", case)
    (tmp_path / "new.csv").write_text("id,words\nx0,group0 thing\nx3,group3 thing\nn90,group3 thing\n")
    with pytest.raises(InputError, match="name one as TYPE=FILE"):
        run.embed(attributes=tmp_path / "new.csv")
    grown = run.embed(attributes={"drug": tmp_path / "new.csv"}, output=tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / NEW)["node_id"].to_pylist() == ["x0", "x3"]
    vectors, ids = np.asarray(grown.embeddings.vectors), list(grown.embeddings.ids)
    assert np.abs(vectors[[ids.index("x0"), ids.index("x3")]]).sum(1).min() > 0
    if case == "blend":
        genes = [f"n{30 + n}" for n in range(60)]
        scores = {new: grown.links(new, "drug_protein", k=60) for new in ("x0", "x3")}
        for new, result in scores.items():
            listed = result["tail_id"].tolist()
            places = [listed.index(gene) for n, gene in enumerate(genes) if n % 6 == int(new[1]) and gene in listed]
            assert np.mean(places) < 25, "genes of its own group come first"


def test_attributes_for_a_model_without_any_are_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id,words\nx0,group0 thing\n")
    with pytest.raises(InputError, match="it has none; give edges"):
        run.embed(attributes=tmp_path / "new.csv")


@pytest.mark.parametrize(
    ("name", "rows"),
    [("later.csv", "head,relation,tail\nnew,r,n3\nnew,s,n4\n"), ("later.tsv", "new\tr\tn3\nnew\ts\tn4\n")],
)
def test_later_edges_without_types_are_of_the_only_type(name: str, rows: str, tmp_path: Path) -> None:
    edges = pd.DataFrame(
        [
            (f"n{i}", "gene", relation, f"n{i * k % 20}", "gene")
            for i in range(20)
            for relation, k in (("r", 3), ("s", 7))
        ],
        columns=["head", "head_type", "relation", "tail", "tail_type"],
    )
    graph = graphmill.build_graph(graphmill.read_edges(edges), tmp_path / "graph")
    (tmp_path / name).write_text(rows)
    tables = read_later_edges(graph, str(tmp_path / name))
    assert set(tables.nodes["type"].to_pylist()) == {"gene"}
    assert not any("type" in note for note in tables.notes)
    assert join(graph, tables, name).later.counts == [1]
