"""Tables of predicted links of runs: equal to brute force on every system that predicts, in Python, files and commands."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import GraphmillError, InputError, SettingsError
from graphmill.export.embeddings import SCORING
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions import calibration
from graphmill.predictions.settings import COLUMNS, LinkSettings
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from graphmill.usage.links import Predictor, link_model, write_links
from tests.training.cases import CASES
from tests.training.runs import settings_of

SYSTEMS = {
    **{"blend": "blend-untrained", "layers": "hgt-full", "conve": "conve-kvsall"},
    **{name: name for name in ("complex", "distmult", "rotate", "transe")},
}


@pytest.fixture(scope="module")
def runs(graph: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, graphmill.Run]:
    answer = {}
    for name, case in SYSTEMS.items():
        root = tmp_path_factory.mktemp(name)
        result = train(settings_of(CASES[case], graph, {"training": {"epochs": 1}}), "test", root=str(root))
        export_run(restore(result["run_dir"]))
        answer[name] = graphmill.load(result["run_dir"])
    return answer


@pytest.fixture(autouse=True)
def small_relations_have_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "LEAST_LINKS", 5)


@pytest.mark.parametrize("system", SYSTEMS)
def test_links_are_those_of_brute_force(system: str, runs: dict[str, graphmill.Run], graph: TypedGraph) -> None:
    restored = restore(runs[system].path)
    scorer = restored.system.scorer(restored.model)
    ids = graph.node_table()["id"].to_pylist()
    expected = {}
    for relation in graph.relations:
        source, target = graph.node_type(relation.source), graph.node_type(relation.target)
        scores = scorer.score_targets(relation.index, np.arange(source.count)).numpy().copy()
        edges = graph.edges(relation.index)
        scores[edges.src, edges.dst] = -np.inf
        if relation.source == relation.target:
            np.fill_diagonal(scores, -np.inf)
        for head in range(source.count):
            best = np.argsort(-scores[head], kind="stable")[:3]
            key = ids[source.offset + head], relation.name, relation.target
            expected[key] = [(ids[target.offset + tail], scores[head, tail]) for tail in best]
    with pytest.raises(InputError, match="an empty list of heads"):
        runs[system].links([], k=3)
    result = runs[system].links("*", k=3)
    assert list(result.columns) == list(COLUMNS)
    for key, rows in result.groupby(["head_id", "relation", "tail_type"]):
        wanted = expected.pop(key)
        np.testing.assert_allclose(rows["score"], [score for _, score in wanted], atol=1e-5)
        assert rows["tail_id"].tolist() == [tail for tail, _ in wanted]
        assert rows["rank"].tolist() == [1, 2, 3]
    assert not expected, "every head has its links in every relation"


def test_a_row_says_how_usual_likely_and_supported_it_is(runs: dict[str, graphmill.Run]) -> None:
    result = runs["blend"].links("*", "disease_protein", k=4, node_type="disease", path_links=50)
    assert set(result["known"]) == {""}
    np.testing.assert_allclose(result["relative_rank"], result["rank"] / result["median_rank"], rtol=1e-5)
    by_score = result.sort_values("score")
    assert by_score["probability"].is_monotonic_increasing
    assert result["probability"].between(0, 1).all()
    looked = result[result["paths"].notna()]
    assert len(looked) == 50
    assert looked["score"].min() >= result[result["paths"].isna()]["score"].max()
    assert set(looked["path_length"]) <= {0, 2, 3}
    named = looked[looked["path_length"] > 0].iloc[0]
    for path in named["paths"].split(" ; "):
        assert path.startswith(named["head_name"])
        assert path.endswith(named["tail_name"])


def test_without_a_head_the_best_links_of_the_relation_over_all_heads(runs: dict[str, graphmill.Run]) -> None:
    overall, everything = (runs["complex"].links(head, "drug_protein", k=6, node_type="drug") for head in ("", "*"))
    assert len(overall) == 6
    best = everything.sort_values("score", ascending=False, kind="stable").head(6)
    assert overall[["head_id", "tail_id"]].to_numpy().tolist() == best[["head_id", "tail_id"]].to_numpy().tolist()


def test_held_out_links_are_found_where_only_training_is_left_out(runs: dict[str, graphmill.Run]) -> None:
    result = runs["blend"].links("*", "disease_protein", k=60, known="exclude_train")
    assert set(result["known"]) == {"", "valid", "test"}
    flagged = runs["blend"].links("*", "disease_protein", k=60, known=True)
    assert set(flagged["known"]) == {"", "train", "valid", "test"}
    assert len(flagged) > len(result)


def test_an_export_without_its_graph_still_ranks_a_heads_tails(runs: dict[str, graphmill.Run], tmp_path: Path) -> None:
    shutil.copytree(runs["blend"].path / "embeddings", tmp_path / "alone")
    alone = graphmill.load(tmp_path / "alone")
    # A graph of its own hash: that of another test may lie in a folder above.
    alone.manifest["data"] |= {"path": "nowhere", "content_hash": "none"}
    result = alone.links("n90", "drug_protein", k=4)
    assert list(result.columns) == list(COLUMNS)
    assert result["paths"].isna().all()
    whole = runs["blend"].links("n90", "drug_protein", k=60, known="exclude_train")
    assert result["tail_id"].tolist() == whole["tail_id"].tolist()[:4], "of the links it knows those of training alone"


def test_evidence_of_another_kind_stands_beside_the_best_rows(runs: dict[str, graphmill.Run]) -> None:
    """The boundary that explanations of links use."""
    import pyarrow as pa

    class Told:
        schema = pa.schema([("because", pa.string())])
        most = 2

        def __call__(self, relation: int, heads: np.ndarray, tails: np.ndarray) -> dict[str, Any]:
            return {"because": [f"{relation}:{head}-{tail}" for head, tail in zip(heads, tails, strict=True)]}

    request = LinkSettings(relations=["drug_protein"], heads=["n90"], k=3)
    (result,) = Predictor(link_model(runs["complex"].path), request, evidence=[Told()]).predict()
    (table,) = result.rows.chunks()
    assert table.column_names == [*COLUMNS, "because"]
    relation = result.selected.relation.index
    tails = [int(tail[1:]) for tail in table["tail_id"].to_pylist()]
    assert table["because"].to_pylist() == [f"{relation}:90-{tails[0]}", f"{relation}:90-{tails[1]}", None]
    assert None not in table["paths"].to_pylist()


def test_the_best_links_of_a_blend_are_explained_by_the_edges_that_carry_them(runs: dict[str, graphmill.Run]) -> None:
    request = LinkSettings(relations=["drug_protein"], k=2, explained_links=2)
    write_links(link_model(runs["blend"].path), request)
    table = pq.read_table(runs["blend"].path / "links" / "links.parquet").to_pandas()
    for _, rows in table.sort_values("score", ascending=False).groupby("head_type"):  # it is held in both directions
        assert rows["because"].notna().tolist() == [True, True] + [False] * (len(rows) - 2)
    edges = table["because"].dropna().iloc[0].split(" ; ")
    assert 1 <= len(edges) <= 3
    assert all("–" in edge and "(+" in edge for edge in edges)
    write_links(link_model(runs["blend"].path), request.model_copy(update={"explained_links": 0}))
    assert "because" not in pq.read_schema(runs["blend"].path / "links" / "links.parquet").names
    shutil.rmtree(runs["blend"].path / "links")


# -- files -----------------------------------------------------------------------------------------------------------


def test_parquet_csv_and_report_say_the_same(runs: dict[str, graphmill.Run]) -> None:
    run = runs["conve"]
    report = write_links(link_model(run.path), LinkSettings(relations=["disease_protein"], k=3))
    folder = run.path / "links"
    table = pq.read_table(folder / "links.parquet").to_pandas()
    texts = {name: "" for name in table.columns if name not in ("known", "paths")}
    kinds = table.dtypes.to_dict()
    again = pd.read_csv(folder / "links.csv", dtype=kinds, keep_default_na=False, na_values=texts)
    pd.testing.assert_frame_equal(table, again, check_exact=False)
    assert json.loads((folder / "links.json").read_text())["rows"] == report["rows"] == len(table) == 3 * 90
    assert [each["heads"] for each in report["relations"]] == [30, 60]
    for each in report["relations"]:
        assert [at["n"] for at in each["diversity"]] == [1, 3]
        assert 0 < each["supported_rows"] <= each["looked_for_paths"]
        assert {"negatives", "base_rate", "ece_top"} <= set(each["calibration"])
    ends = [frozenset((row["head_id"], row["tail_id"])) for row in report["shown"]]
    assert len(ends) == len(set(ends)) == 6
    assert sorted(path.name for path in folder.iterdir()) == ["links.csv", "links.json", "links.parquet"]


def test_a_failure_leaves_the_tables_of_before(runs: dict[str, graphmill.Run], monkeypatch: pytest.MonkeyPatch) -> None:
    run = runs["complex"]
    model = link_model(run.path)
    write_links(model, LinkSettings(relations=["drug_protein"], k=1))
    before = {path.name: path.read_bytes() for path in (run.path / "links").iterdir()}
    monkeypatch.setattr(model.scorer, "poll", lambda: (_ for _ in ()).throw(SettingsError("stopped")))
    with pytest.raises(GraphmillError, match="stopped"):
        write_links(model, LinkSettings(k=2))
    assert {path.name: path.read_bytes() for path in (run.path / "links").iterdir()} == before


# -- the command -----------------------------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["links", *arguments], catch_exceptions=True)


def test_the_command_shows_a_heads_links(runs: dict[str, graphmill.Run]) -> None:
    of = str(runs["blend"].path)
    output = command(of, "--relation", "drug_protein", "--head", "node 90", "-k", "3")
    assert "node 90, drug_protein: gene/protein" in output.stdout
    assert "–drug_protein–" in output.stdout.replace("\n", "")
    result = json.loads(command(of, "--relation", "drug_protein", "--head", "n90", "-k", "3", "--json").stdout)
    frame = runs["blend"].links("n90", "drug_protein", k=3)
    assert [row["tail_id"] for row in result["links"]] == frame["tail_id"].tolist()
    assert list(result["links"][0]) == list(COLUMNS)
    assert "negatives" in result["calibration"][0]["calibration"]


def test_the_command_writes_all_links(runs: dict[str, graphmill.Run], tmp_path: Path) -> None:
    of = runs["complex"].path
    output = command(str(of), "--relation", "drug_protein", "--type", "drug", "-k", "2", "--set", "csv=false")
    assert "48 links in" in output.stdout.replace("\n", " ")
    assert sorted(path.name for path in (of / "links").iterdir()) == ["links.json", "links.parquet"]
    (tmp_path / "heads").write_text("n90\nn91\n")
    file = str(tmp_path / "heads")
    result = json.loads(command(str(of), "--relation", "drug_protein", "--heads-file", file, "--json").stdout)
    assert result["rows"] == 20


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--relation", "cures"], "has no relation 'cures'"),
        (["--head", "aspirin"], "has no node 'aspirin'"),
        (["--relation", "disease_protein", "--head", "n90"], "'n90' is of type drug"),
        (["-k", "0"], r"k = 0"),
        (["--known", "maybe"], "known"),
        (["--set", "depth=3"], "unknown setting 'depth'"),
    ],
)
def test_a_mistake_is_a_sentence_and_nothing_is_written(
    runs: dict[str, graphmill.Run], arguments: list[str], sentence: str
) -> None:
    of = runs["blend"].path
    failed = command(str(of), *arguments)
    assert isinstance(failed.exception, GraphmillError)
    assert failed.exception.exit_code == 2
    assert sentence in str(failed.exception)
    assert not (of / "links").exists()


def _scoring(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == SCORING]


@pytest.mark.parametrize("system", SYSTEMS)
def test_an_export_alone_scores_as_its_run(
    system: str, runs: dict[str, graphmill.Run], graph: TypedGraph, tmp_path: Path
) -> None:
    restored = restore(runs[system].path)
    of_run = restored.system.scorer(restored.model)
    alone = graphmill.load(shutil.copytree(runs[system].path / "embeddings", tmp_path / "export"))
    ids = graph.node_table()["id"].to_pylist()
    for relation in graph.relations:
        source, target = graph.node_type(relation.source), graph.node_type(relation.target)
        heads = np.arange(source.count)
        expected = of_run.score_targets(relation.index, heads).numpy()
        assert alone.scorer.score_targets(relation.index, heads).numpy() == pytest.approx(expected, abs=1e-5)
        tails = (3 * heads) % target.count
        names = [[ids[row] for row in rows] for rows in (heads + source.offset, tails + target.offset)]
        result = alone.score(names[0], "|".join(relation.key), names[1])
        assert result == pytest.approx(expected[heads, tails], abs=1e-5)
        edges = graph.edges(relation.index)
        train = np.asarray(edges.split) == 0
        known = {(int(h), int(t)) for h, t in zip(edges.src[train], edges.dst[train], strict=True)}
        assert (
            set(zip(*(part.tolist() for part in alone.scorer.links.known(relation.index, heads)), strict=True)) == known
        )


def test_the_types_of_heads_and_tails_choose_among_relations_of_one_name(
    runs: dict[str, graphmill.Run], graph: TypedGraph
) -> None:
    run, ids = runs["blend"], graph.node_table()["id"].to_pylist()
    drugs, genes = (
        [str(node) for node in ids[t.offset : t.offset + 3]]
        for t in (graph.node_type("drug"), graph.node_type("gene/protein"))
    )
    for heads, tails, key in (
        (drugs, genes, "drug|drug_protein|gene/protein"),
        (genes, drugs, "gene/protein|drug_protein|drug"),
    ):
        assert run.score(heads, "drug_protein", tails).tolist() == run.score(heads, key, tails).tolist()
    for heads, tails in ((drugs, drugs), ([drugs[0], genes[0]], [genes[0], drugs[0]]), ([], [])):
        with pytest.raises(InputError, match=r"'drug_protein' .* 2 relations; .*drug_protein"):
            run.score(heads, "drug_protein", tails)
    with pytest.raises(InputError, match="has no node 'aspirin'"):
        run.score(["aspirin"], "drug_protein", genes[:1])
    with pytest.raises(InputError, match="'cures' is no relation"):
        run.score(drugs, "cures", genes)


def test_vectors_without_relations_predict_nothing(runs: dict[str, graphmill.Run], tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"relations.safetensors is damaged: it is missing"):
        link_model(shutil.copytree(runs["complex"].path / "embeddings", tmp_path / "vectors", ignore=_scoring))
    with pytest.raises(InputError, match="is not a run directory"):
        link_model(tmp_path)
