"""``graphmill probe``: labels in a file, matched to the vectors of a run, beside degrees and spectral vectors."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import InputError
from graphmill.evaluation.probe import LabelSettings
from graphmill.usage.probe import labelled_type, probe_run

COMMUNITIES, EACH = 3, 30
AREAS = ["xyz"[n // 3 % 3] for n in range(COMMUNITIES * EACH)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spectral vectors of genes in three communities that rarely meet, and an attribute that has nothing to do with them."""
    folder, rng = tmp_path_factory.mktemp("probe"), np.random.default_rng(0)
    ends = rng.integers(0, COMMUNITIES * EACH, (6000, 2))
    near = (ends[:, 0] % COMMUNITIES == ends[:, 1] % COMMUNITIES) | (rng.random(len(ends)) < 0.1)
    ends = np.unique(ends[near & (ends[:, 0] != ends[:, 1])], axis=0)[::3]
    rows = {"head": [f"G{n}" for n in ends[:, 0]], "relation": "meets", "tail": [f"G{n}" for n in ends[:, 1]]}
    table = pd.DataFrame({**rows, "head_type": "gene", "tail_type": "gene"})
    about = pd.DataFrame({"id": [f"G{n}" for n in range(COMMUNITIES * EACH)], "area": AREAS})
    tables = graphmill.read_attributes(graphmill.read_edges(table, "kg_csv"), about, "gene", area="category")
    graph = graphmill.build_graph(tables, folder / "graph")
    return graphmill.train(graph, "spectral", progress=False, output=folder / "runs", model={"embedding_dim": 16}).path


def labels(folder: Path, values: list[str], header: str = "id,community") -> Path:
    file = folder / "labels.csv"
    rows = [f"G{number},{value}" for number, value in enumerate(values)]
    file.write_text("\n".join([header, *rows, "G999,a", "G1000,"]) + "\n")
    return file


def test_a_run_is_probed_and_its_card_shows_it(run: Path, tmp_path: Path) -> None:
    file = labels(tmp_path, ["abc"[n % 3] for n in range(COMMUNITIES * EACH)])
    result = CliRunner().invoke(app, ["probe", str(run), "--labels", str(file), "--json"])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert (answer["label"], answer["node_type"], answer["kind"], answer["nodes"]) == ("community", "gene", "class", 90)
    assert answer["scores"]["vectors"]["value"] > 0.9
    assert set(answer["scores"]) == {"vectors", "chance", "degree", "spectral", "given attributes"}
    assert answer["scores"]["given attributes"]["value"] < 0.6
    assert answer["over"]["degree"]["low"] > 0
    assert answer["passed"]
    (note,) = answer["notes"]
    assert "90 of 91" in note
    assert "G999" in note
    [matches] = answer["coverage"]
    assert (matches["matched"], matches["ids"], matches["samples"]) == (90, 91, ["G999"])
    output = CliRunner().invoke(app, ["probe", str(run), "--labels", str(file)]).stdout
    assert re.search(r"the labels in the gene nodes +90 of 91 +100% +'G999'", output)
    card = (run / "card.md").read_text()
    assert "## What the vectors know" in card
    assert answer["sentence"] in card


def test_shuffled_labels_do_not_pass(run: Path, tmp_path: Path) -> None:
    values = np.random.default_rng(1).permutation(["abc"[n % 3] for n in range(COMMUNITIES * EACH)])
    result = probe_run(run, LabelSettings(file=str(labels(tmp_path, list(values)))))
    assert abs(result["scores"]["vectors"]["value"] - 1 / 3) < 0.15
    assert not result["passed"]


def test_labels_that_attributes_tell_are_read_from_them_alone(run: Path, tmp_path: Path) -> None:
    result = probe_run(run, LabelSettings(file=str(labels(tmp_path, AREAS))))
    assert result["scores"]["given attributes"]["value"] > 0.95
    assert result["scores"]["vectors"]["value"] < 0.6
    assert result["over"]["given attributes"]["high"] < 0


def test_an_export_alone_is_compared_with_chance(run: Path, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(run / "embeddings", tmp_path / "elsewhere")
    file = labels(tmp_path, ["abc"[n % 3] for n in range(COMMUNITIES * EACH)])
    result = probe_run(tmp_path / "elsewhere", LabelSettings(file=str(file)))
    assert set(result["scores"]) == {"vectors", "chance"}
    assert "the graph is not here" in result["notes"][-1]
    assert not (tmp_path / "elsewhere" / "validation").exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"node_type": "drug"}, "no nodes of type 'drug'"),
        ({"column": "class"}, "no column 'class'"),
    ],
)
def test_wrong_labels_are_a_sentence(run: Path, tmp_path: Path, settings: dict[str, str], message: str) -> None:
    file = labels(tmp_path, ["a"] * 90)
    with pytest.raises(InputError, match=message):
        probe_run(run, LabelSettings(file=str(file), **settings))


def test_labels_of_other_ids_name_the_repair(tmp_path: Path) -> None:
    ids, types = np.array(["a", "b", "m:1", "m:2"]), np.array([0, 0, 1, 1])
    with pytest.raises(InputError, match=r"labels.csv: 0 of 2 .*case ignored: 0 → 2 of 2$"):
        labelled_type(LabelSettings(file="labels.csv"), ["M:1", "M:2"], ids, types, ["gene", "disease"])
    with pytest.raises(InputError, match=r"not 'x'; gene ids are such as 'a'$"):
        labelled_type(LabelSettings(file="labels.csv"), ["x"], ids, types, ["gene", "disease"])


def test_a_file_with_two_columns_of_labels_needs_a_name(run: Path, tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text("id,a,b\nG1,x,y\n")
    with pytest.raises(InputError, match=r"which column has the label"):
        probe_run(run, LabelSettings(file=str(tmp_path / "two.csv")))


def test_aliases_bring_old_ids_of_labels_to_the_graph(run: Path, tmp_path: Path) -> None:
    file = labels(tmp_path, ["abc"[n % 3] for n in range(COMMUNITIES * EACH)])
    file.write_text(file.read_text().replace("G", "OLD"))
    (tmp_path / "aliases.csv").write_text("\n".join(["old_id,id", *(f"OLD{n},G{n}" for n in range(80))]))
    result = probe_run(run, LabelSettings(file=str(file), aliases=str(tmp_path / "aliases.csv")))
    assert result["nodes"] == 80
    file.write_text(file.read_text().replace("OLD", "x:G"))
    assert probe_run(run, LabelSettings(file=str(file), repair_ids=["prefix x:"]))["nodes"] > 80
    file.write_text(file.read_text().replace("x:G", "OLD"))
    with pytest.raises(InputError, match="prefix 'OLD' replaced by 'G': 0 → 90 of 91"):
        probe_run(run, LabelSettings(file=str(file), node_type="gene"))
