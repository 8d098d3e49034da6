"""The function that does it all: one call from an edge CSV to an embedding CSV."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import graphmill
from graphmill.api import generate_hgt_embeddings_batched
from graphmill.errors import SettingsError
from graphmill.export.writers import COLUMNS
from graphmill.systems.hgt.settings import HgtSettings
from graphmill.training.run_directory import RunDirectory
from tests.samples.biomed import HEADER

TYPES = {"drug": 12, "disease": 12, "gene/protein": 18, "anatomy": 6}
SMALL: dict[str, Any] = {
    "embedding_dim": 12, "num_epochs": 2, "device": "cpu", "model": {"hidden_dim": 8, "num_layers": 1},
    "include_node_types": ["drug", "disease", "gene/protein"], "sampling": {"edge_sample_size": 40},
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


@pytest.fixture(scope="module")
def stats(folder: Path, ids: list[str]) -> dict[str, Any]:
    return generate_hgt_embeddings_batched(str(folder / "edges.csv"), str(folder / "out" / "vectors.csv"), **SMALL)


def test_the_figures_that_it_returns(stats: dict[str, Any], folder: Path) -> None:
    assert set(stats) == {"total_nodes", "output_file", "embedding_dim", "run_dir", "metrics", "seconds"}
    assert stats["total_nodes"] == 12 + 12 + 18, "anatomy is not among include_node_types"
    assert stats["output_file"] == str(folder / "out" / "vectors.csv")
    assert {"valid_mrr", "test_mrr"} <= set(stats["metrics"])
    assert stats["seconds"] > 0


def test_the_csv_has_its_columns_and_a_row_a_node(stats: dict[str, Any], ids: list[str]) -> None:
    with Path(stats["output_file"]).open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == COLUMNS
    assert {row["node_id"] for row in rows} == set(ids[: stats["total_nodes"]])
    assert {row["node_type"] for row in rows} == set(SMALL["include_node_types"])
    run = graphmill.load(stats["run_dir"])
    for row in rows:
        assert json.loads(row["embedding"]) == pytest.approx(run[row["node_id"]].tolist(), rel=1e-5)
    assert list(pd.read_csv(stats["output_file"])["node_name"]) == [row["node_name"] for row in rows]


def test_every_parameter_reaches_its_setting(folder: Path, ids: list[str]) -> None:
    sections = {"model": {"hidden_dim": 8}, "training": {"learning_rate": 0.02}}
    result = generate_hgt_embeddings_batched(
        str(folder / "edges.csv"), str(folder / "other.csv"), **{**SMALL, **sections, "seed": 9},
        work_dir=str(folder / "elsewhere"),
    )  # fmt: skip
    assert Path(result["run_dir"]).is_relative_to(folder / "elsewhere")
    settings = RunDirectory(result["run_dir"]).read_json("settings.json")
    training = settings["training"]
    assert (settings["model"]["embedding_dim"], settings["model"]["hidden_dim"]) == (12, 8)
    assert (training["epochs"], training["learning_rate"], training["seed"]) == (2, 0.02, 9)
    assert settings["acceleration"]["device"] == "cpu"


def test_what_is_not_given_is_the_default_that_was_measured(folder: Path, ids: list[str]) -> None:
    types = list(TYPES)
    result = generate_hgt_embeddings_batched(
        str(folder / "edges.csv"), str(folder / "plain.csv"), include_node_types=types, device="cpu"
    )
    written = RunDirectory(result["run_dir"]).read_json("settings.json")
    ours = HgtSettings.model_validate({"preset": "none"}).model_dump()
    for section in ("model", "objective", "training"):
        assert written[section] == ours[section], section


def test_the_same_call_reuses_and_more_epochs_go_on(
    stats: dict[str, Any], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, before = RunDirectory(stats["run_dir"]), Path(stats["output_file"]).read_bytes()
    steps = len(run.metrics.read("step"))
    Path(stats["output_file"]).unlink()
    call = (str(folder / "edges.csv"), stats["output_file"])
    again = generate_hgt_embeddings_batched(*call, **SMALL)
    assert again == stats
    assert Path(again["output_file"]).read_bytes() == before
    assert len(run.metrics.read("step")) == steps, "nothing was trained again"
    longer = generate_hgt_embeddings_batched(*call, **{**SMALL, "num_epochs": 3})
    assert longer["run_dir"] == stats["run_dir"]
    assert [record["epoch"] for record in run.metrics.read("epoch")] == [1, 2, 3]


def test_a_mistake_is_one_sentence(folder: Path, ids: list[str]) -> None:
    with pytest.raises(SettingsError, match="learning_rate") as refused:
        generate_hgt_embeddings_batched(
            str(folder / "edges.csv"), str(folder / "no.csv"), **{**SMALL, "training": {"learning_rate": -1.0}}
        )
    assert "\n" not in str(refused.value)
    assert not (folder / "no.csv").exists()
