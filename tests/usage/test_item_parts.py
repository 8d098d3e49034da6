"""Items by part: windows of the future, the popularity of late, numbers of interactions, and a stored attribute as label."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import InputError
from graphmill.evaluation.probe import LabelSettings
from graphmill.evaluation.ranking.parts import TIME
from graphmill.runs.export import restore
from graphmill.usage.probe import read_labels

USERS, ITEMS, DAYS = 40, 30, 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Popularity, of interactions that move on to newer items day by day; items have a genre and a year."""
    folder, rng = tmp_path_factory.mktemp("parts"), np.random.default_rng(0)
    day = np.sort(rng.integers(0, DAYS, 900))
    item = (day // 5 + rng.integers(0, 6, len(day))) % ITEMS
    rows = {"user_id": [f"u{n}" for n in rng.integers(0, USERS, len(day))], "item_id": [f"i{n}" for n in item]}
    seen = pd.DataFrame({**rows, "timestamp": 1_600_000_000 + 86_400 * day}).drop_duplicates(["user_id", "item_id"])
    about = pd.DataFrame({"id": [f"i{n}" for n in range(ITEMS)], "genre": ["ab"[n % 2] for n in range(ITEMS)]})
    about["year"] = range(1990, 1990 + ITEMS)
    about["seen"] = [f"{2000 + n % 3}-06-01" for n in range(ITEMS)]
    seen.to_csv(folder / "seen.csv", index=False)
    tables = graphmill.read_interactions(folder / "seen.csv", "interactions_csv")
    tables = graphmill.read_attributes(tables, about, "item", genre="category", year="number", seen="date")
    graph = graphmill.build_graph(tables, folder / "graph", split={"method": "by_time", "valid": 0.1, "test": 0.2})
    values = {"top_k": [5], "baselines": [], "selection_metric": "recall@5"}
    return graphmill.train(graph, "popularity", progress=False, output=folder / "runs", evaluation=values).path


def test_held_out_items_are_shown_by_window_by_interactions_and_by_attribute(run: Path) -> None:
    result = CliRunner().invoke(app, ["rank", str(run), "--labels", "genre", "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    kinds = ["training interactions of the user", "training interactions of the item", "genre of the item", TIME]
    assert list(dict.fromkeys(row["by"] for row in answer["parts"])) == kinds
    queries = {kind: sum(row["queries"] for row in answer["parts"] if row["by"] == kind) for kind in kinds}
    assert len(set(queries.values())) == 1
    assert {row["part"] for row in answer["parts"] if row["by"] == "genre of the item"} == {"a", "b"}
    hits = {
        who: np.array([row["hits@5"][who] for row in answer["parts"] if row["by"] == TIME])
        for who in ("model", "recent")
    }
    assert hits["recent"].mean() > hits["model"].mean()  # what is popular moves on
    assert hits["recent"][0] > hits["recent"][-1]  # and moves away from what was seen last
    assert answer["figures"]["recent"]["recall@5"] > answer["figures"]["model"]["recall@5"]
    card = (run / "card.md").read_text()
    assert "held-out items among the first 5" in card


def test_labels_that_no_held_out_item_has_are_a_note(run: Path, tmp_path: Path) -> None:
    table, command = tmp_path / "labels.csv", ["rank", str(run), "--labels", str(tmp_path / "labels.csv")]
    table.write_text("id,mood\n" + "".join(f"i{n},calm\n" for n in range(10)))  # the items of the first days
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "no held-out link of test" in result.stderr
    table.write_text("id,mood\ni0,calm\ni1,calm\n")
    with pytest.raises(InputError, match="no class of mood"):
        CliRunner().invoke(app, command, catch_exceptions=False)


def test_a_question_is_refused_for_items(run: Path, tmp_path: Path) -> None:
    (tmp_path / "q.yaml").write_text("relations: [interacts]\n")
    result = CliRunner().invoke(app, ["rank", str(run), "--question", str(tmp_path / "q.yaml")])
    assert "recommends items: questions" in str(result.exception)


def test_stored_attributes_are_read_back(run: Path) -> None:
    graph = restore(run).graph
    name, years = read_labels(LabelSettings(file="year"), graph=graph)
    assert (name, years["i7"]) == ("year", ["1997"])
    assert read_labels(LabelSettings(file="genre"), graph=graph)[1]["i3"] == ["b"]
    assert read_labels(LabelSettings(file="seen"), graph=graph)[1]["i4"] == ["2001"]
    with pytest.raises(InputError, match="area"):
        read_labels(LabelSettings(file="area"), graph=graph)


def test_next_items_have_parts_and_an_interval(run: Path, tmp_path: Path) -> None:
    rows = pd.read_csv(next(folder for folder in run.parents if (folder / "seen.csv").is_file()) / "seen.csv")
    ordered = graphmill.build_graph(graphmill.read_interactions(rows), tmp_path / "graph", add_reverse="never")
    markov = graphmill.train(ordered, "markov", progress=False, output=tmp_path / "runs")
    about = {"id": [f"i{n}" for n in range(ITEMS)], "genre": ["ab"[n % 2] for n in range(ITEMS)]}
    pd.DataFrame(about).to_csv(tmp_path / "genres.csv", index=False)
    result = CliRunner().invoke(app, ["rank", str(markov.path), "--labels", str(tmp_path / "genres.csv"), "--json"])
    assert result.exit_code == 0, result.output
    parts = json.loads(result.stdout)["parts"]
    kinds = ["training interactions of the user", "training interactions of the item", "genre of the item"]
    assert list(dict.fromkeys(row["by"] for row in parts)) == kinds
    report = json.loads((markov.path / "ranking.json").read_text())
    against, queries = report["against"], [row["queries"] for row in parts if row["by"] == kinds[2]]
    assert sum(queries) == against["queries"]
    of_parts = sum(row["hits@20"]["model"] * row["queries"] for row in parts if row["by"] == kinds[2]) / sum(queries)
    assert of_parts == pytest.approx(report["figures"]["model"]["hr@20"])
    assert against["figures"]["model"] == pytest.approx(report["figures"]["model"]["ndcg@10"])
    assert against["low"] < against["high"]
