"""From an edge CSV to an embedding CSV by the three steps of the Python interface."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import graphmill
from graphmill.errors import SettingsError
from graphmill.export.writers import COLUMNS
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.training.run_directory import RunDirectory
from tests.samples.biomed import HEADER

TYPES = {"drug": 12, "disease": 12, "gene/protein": 18, "anatomy": 6}
KINDS = ["drug", "disease", "gene/protein"]
SMALL: dict[str, Any] = {
    "epochs": 2, "device": "cpu", "seed": 0, "model": {"embedding_dim": 12, "hidden_dim": 8, "num_layers": 1},
    "sampling": {"edge_sample_size": 40},
}  # fmt: skip


def write_kg(path: Path) -> list[str]:
    """Rings between neighbouring types, both directions, in PrimeKG's columns; the ids of the nodes in their order."""
    kinds = [kind for kind, count in TYPES.items() for _ in range(count)]
    first = {kind: kinds.index(kind) for kind in TYPES}

    def node(index: int) -> str:
        return f"{index},ID{index},{kinds[index]},node {index},TEST"

    lines = []
    for a, b in (
        ("drug", "gene/protein"),
        ("disease", "gene/protein"),
        ("drug", "disease"),
        ("anatomy", "gene/protein"),
    ):
        for i in range(TYPES[a] * 3):
            ends = (first[a] + i % TYPES[a], first[b] + (i + i // TYPES[a]) % TYPES[b])
            for x, y in (ends, ends[::-1]):
                lines.append(f"{a}_{b},{a}_{b},{node(x)},{node(y)}\n")
    path.write_text(HEADER + "".join(lines))
    return [f"ID{i}" for i in range(len(kinds))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("library")


@pytest.fixture(scope="module")
def ids(folder: Path) -> list[str]:
    return write_kg(folder / "edges.csv")


def trained(folder: Path, name: str, kinds: list[str] = KINDS, **arguments: Any) -> graphmill.Run:
    tables = graphmill.read_edges(folder / "edges.csv", "kg_csv")
    graph = graphmill.build_graph(tables, folder / name / "graph", include_node_types=kinds)
    return graphmill.train(graph, "hgt", progress=False, **arguments)


@pytest.fixture(scope="module")
def run(folder: Path, ids: list[str]) -> graphmill.Run:
    return trained(folder, "small", **SMALL)


def test_the_csv_has_its_columns_and_a_row_a_node(run: graphmill.Run, ids: list[str]) -> None:
    file = run.path / "embeddings" / "embeddings.csv"
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert len(run) == 12 + 12 + 18, "anatomy is not among include_node_types"
    assert tuple(rows[0]) == COLUMNS
    assert {row["node_id"] for row in rows} == set(ids[: len(run)])
    assert {row["node_type"] for row in rows} == set(KINDS)
    for row in rows:
        assert json.loads(row["embedding"]) == pytest.approx(run[row["node_id"]].tolist(), rel=1e-5)
    assert list(pd.read_csv(file)["node_name"]) == [row["node_name"] for row in rows]


def test_every_parameter_reaches_its_setting(folder: Path, ids: list[str]) -> None:
    sections = {"model": {"embedding_dim": 12, "hidden_dim": 8}, "training": {"learning_rate": 0.02}}
    found = trained(folder, "elsewhere", **{**SMALL, **sections, "seed": 9})
    settings = RunDirectory(found.path).read_json("settings.json")
    training = settings["training"]
    assert found.path.is_relative_to(folder / "elsewhere")
    assert (settings["model"]["embedding_dim"], settings["model"]["hidden_dim"]) == (12, 8)
    assert (training["epochs"], training["learning_rate"], training["seed"]) == (2, 0.02, 9)
    assert settings["acceleration"]["device"] == "cpu"


def test_what_is_not_given_is_the_default_that_was_measured(folder: Path, ids: list[str]) -> None:
    written = RunDirectory(trained(folder, "plain", list(TYPES), device="cpu").path).read_json("settings.json")
    ours = HgtSettings.model_validate({"preset": "none"}).model_dump()
    for section in ("model", "objective", "training"):
        assert written[section] == ours[section], section


def test_the_same_call_reuses_and_more_epochs_go_on(run: graphmill.Run, folder: Path) -> None:
    directory = RunDirectory(run.path)
    steps = len(directory.metrics.read("step"))
    assert trained(folder, "small", **SMALL).path == run.path
    assert len(directory.metrics.read("step")) == steps, "nothing was trained again"
    assert trained(folder, "small", **{**SMALL, "epochs": 3}).path == run.path
    assert [record["epoch"] for record in directory.metrics.read("epoch")] == [1, 2, 3]


def test_a_mistake_is_one_sentence(folder: Path, ids: list[str]) -> None:
    with pytest.raises(SettingsError, match="learning_rate") as refused:
        trained(folder, "wrong", **{**SMALL, "training": {"learning_rate": -1.0}})
    assert "\n" not in str(refused.value)
