"""Questions, judgements, an outside list and labels: through rank, links, card and promotion, in Python and commands."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import GraphmillError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.reports.card_files import read_card_files
from graphmill.reports.ranking_tables import ranking_tables
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from tests.training.cases import CLOSED_LINKS, typed_graph

KNN = {"evaluation": {"baselines": ["knn"]}}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("question") / "graph")


@pytest.fixture(scope="module")
def run(graph: TypedGraph) -> Path:
    values = {
        **CLOSED_LINKS["spectral"].settings,
        "system": "spectral",
        "data": str(graph.path),
        "preset": "none",
        **KNN,
    }
    made = train(values, "test", root=str(graph.path.parent / "runs"))
    export_run(restore(made["run_dir"]))
    return Path(made["run_dir"])


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(each) for each in arguments], catch_exceptions=True)


def answer(*arguments: Any) -> Any:
    result = command(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def written(path: Path, **question: Any) -> Path:
    path.write_text(yaml.safe_dump(question))
    return path


def held_out(graph: TypedGraph, split: int) -> list[tuple[str, str]]:
    """Drug and protein of held-out links, by id."""
    relation = next(each for each in graph.relations if (each.source, each.name) == ("drug", "drug_protein"))
    edges, first = graph.edges(relation.index), graph.node_type("gene/protein").offset
    held = np.asarray(edges.split) == split
    drugs = graph.node_type("drug").offset
    return [(f"n{h + drugs}", f"n{t + first}") for h, t in zip(edges.src[held], edges.dst[held], strict=True)]


def test_a_question_is_ranked_alone_and_leaves_the_whole_ranking(run: Path, graph: TypedGraph, tmp_path: Path) -> None:
    whole = answer("rank", run)
    kept = (run / "ranking.json").read_bytes()
    heads = sorted({head for head, _ in held_out(graph, 1)})[:4]
    candidates = sorted({tail for _, tail in held_out(graph, 1)})
    (tmp_path / "heads.txt").write_text("\n".join(heads))
    request = {"relations": ["drug_protein"], "heads_file": "heads.txt", "candidates": candidates, "metric": "hits@3"}
    file = written(tmp_path / "q.yaml", **request, split="valid")
    result = answer("rank", run, "--question", file)
    assert (run / "ranking.json").read_bytes() == kept
    assert result["split"] == "valid"
    assert result["answer"]["low"] <= result["answer"]["value"] <= result["answer"]["high"]
    assert set(result["answer"]["by_scorer"]) == set(whole["figures"])
    asked_links = sum(head in heads for head, _ in held_out(graph, 1))
    assert sum(row["queries"] for row in result["parts"] if row["by"] == "relation") == asked_links
    assert [row["relation"] for row in result["predicted"]] == ["drug | drug_protein | gene/protein"]
    card = (run / "card.md").read_text()
    assert f"hits@3 of the model is {result['answer']['value']:.3f}" in card.replace("\\", "")
    assert "MRR by part of the queries" in card
    output = command("rank", run, "--question", file).stdout
    assert "For the question (" in output
    frame = graphmill.load(run).rank(question=str(file))
    assert frame.loc["mrr", "model"] == result["figures"]["model"]["mrr"]
    links = answer("links", run, "--question", file)
    tables = read_card_files(run).question["predicted"]
    assert tables[0]["heads"] <= 4
    assert links["rows"] <= 4 * 10
    report = json.loads((run / "links" / "links.json").read_text())
    assert report["relations"][0]["candidates"] == len(candidates)


def test_the_whole_ranking_shows_labels_and_agreement(run: Path, graph: TypedGraph, tmp_path: Path) -> None:
    ids, types = graph.node_table()["id"].to_pylist(), graph.node_table()["type"].to_pylist()
    rows = [f"{node},{'ab'[int(node[1:]) % 2]}" for node, kind in zip(ids, types, strict=True) if kind == "drug"]
    (tmp_path / "areas.csv").write_text("id,area\n" + "\n".join(rows) + "\n")
    true = [f"{head},drug_protein,{tail},yes" for head, tail in held_out(graph, 2)]
    (tmp_path / "truth.csv").write_text(
        "head,relation,tail,judgement\n" + "\n".join([*true, "n90,drug_protein,?,no"]) + "\n"
    )
    result = answer("rank", run, "--labels", tmp_path / "areas.csv", "--truth", tmp_path / "truth.csv")
    assert {row["part"] for row in result["parts"] if row["by"] == "area of the head"} == {"a", "b"}
    assert result["truth"]["yes"]["links"] == len(set(true))  # as written, although the graph has both directions
    assert result["truth"]["auc"] is None
    assert result["truth"]["notes"]
    of_truth, of_labels = result["coverage"]
    assert (of_truth["samples"], of_truth["matched"], of_truth["ids"] - of_truth["matched"]) == (
        ["?"], len({node for link in held_out(graph, 2) for node in link} | {"n90"}), 1
    )  # fmt: skip
    assert (of_labels["matched"], of_labels["share"]) == (len(rows), 1.0)
    tables = ranking_tables(json.loads((run / "ranking.json").read_text()))
    assert [each.name for each in tables] == ["by_part", "predicted", "truth"]
    assert all(len(row) == len(each.head) for each in tables for row in each.rows)


def test_judged_links_are_true_or_no_queries_or_left_out(run: Path, graph: TypedGraph, tmp_path: Path) -> None:
    wrong = held_out(graph, 2)[0]
    best = graphmill.load(run).links("n90", "drug_protein", k=1).iloc[0]
    judgements = tmp_path / "judgements.csv"
    judgements.write_text(
        "head,relation,tail,judgement\n"
        f"{wrong[0]},drug_protein,{wrong[1]},no\n{best['head_id']},drug_protein,{best['tail_id']},yes\n"
    )
    file = written(tmp_path / "q.yaml", relations=["drug|drug_protein|gene/protein"], split="test")
    request = [answer("rank", run, "--question", file, *more) for more in ((), ("--judgements", judgements))]
    queries = [sum(row["queries"] for row in each["parts"] if row["by"] == "relation") for each in request]
    assert queries[1] == queries[0] - 1
    assert request[1]["judgements"]["yes"]["hits"]["value"] == 1.0
    links = graphmill.load(run).links("n90", "drug_protein", k=3, judgements=str(judgements))
    assert links["judged"].tolist() == ["yes", "", ""]
    output = command("links", run, "--relation", "drug_protein", "--head", "n90", "-k", "3", "--judgements", judgements)
    assert re.search(rf"{len({*wrong, best['head_id'], best['tail_id']})} of \d +100%", output.stdout)
    assert "judged" in output.stdout
    assert "yes" in output.stdout
    rest = graphmill.load(run).links("n90", "drug_protein", k=3, judgements=str(judgements), judged="leave_out")
    assert best["tail_id"] not in rest["tail_id"].tolist()
    assert rest["tail_id"].tolist()[:2] == links["tail_id"].tolist()[1:]


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("relations: [cures]", "has no relation 'cures'"),
        ("relation: [drug_protein]", "unknown setting 'relation' (did you mean 'relations'?"),
        ("metric: auc", "metric 'auc' is not measured for each query"),
        ("split: train", "split"),
        ("", "says nothing"),
        ("a: [", "is not valid YAML"),
        ("candidates: [n0]\nrelations: [drug_protein]", "the relation needs tails of type"),
        ("heads: [n90]\nheads_file: heads.txt", "are both given"),
    ],
)
def test_a_wrong_question_is_a_sentence_and_nothing_is_written(
    run: Path, tmp_path: Path, question: str, sentence: str
) -> None:
    (tmp_path / "q.yaml").write_text(question)
    before = times_of_files(run)
    for name in ("rank", "links"):
        failed = command(name, run, "--question", tmp_path / "q.yaml")
        assert isinstance(failed.exception, GraphmillError)
        assert failed.exception.exit_code == 2
        assert sentence in str(failed.exception)
    assert times_of_files(run) == before


def times_of_files(folder: Path) -> dict[Path, int]:
    """All but the notes of verified hashes, which the first reader writes."""
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if not path.name.endswith(".verified.json")}


def test_what_says_two_things_is_a_sentence(run: Path, tmp_path: Path) -> None:
    file = written(tmp_path / "q.yaml", heads=["n90"], split="test")
    for arguments, sentence in (
        (["rank", run, "--question", file, "--split", "valid"], "says which split"),
        (["links", run, "--question", file, "--head", "n91"], "heads and a question"),
        (["rank", run, "--judgements", tmp_path / "none.csv"], "none.csv"),
        (["promote", run, "--question", file, "--to", tmp_path], "write split: valid"),
    ):
        failed = command(*arguments)
        assert isinstance(failed.exception, GraphmillError), (arguments, failed.output)
        assert sentence in str(failed.exception)
