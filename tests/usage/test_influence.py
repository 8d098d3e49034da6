"""The influence analysis of a run: a file with names, and refusals."""

import json
from pathlib import Path

import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.influence.settings import InfluenceSettings
from graphmill.runs.train import train
from graphmill.usage import explain as module
from graphmill.usage.explain import trace_influence
from tests.systems.conve.graphs import graph_of

PARTS = ("head", "relation", "tail", "triple")
SETTINGS = {
    "system": "conve",
    "preset": "none",
    "model": {"embedding_dim": 24, "output_channels": 4},
    "training": {"epochs": 8, "learning_rate": 0.01},
    "acceleration": {"batch_size": 64, "keep_influence": 3},
    "evaluation": {"eval_every": 8},
}


@pytest.fixture(scope="module")
def sample(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return graph_of(repository / "data/01_raw/triples", tmp_path_factory.mktemp("kg") / "graph")


@pytest.fixture(scope="module")
def run_dir(sample: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> str:
    settings = SETTINGS | {"data": str(sample.path)}
    return str(train(settings, "test", root=str(tmp_path_factory.mktemp("runs")))["run_dir"])


class TestTestMode:
    def test_the_file_has_the_documented_shape(self, run_dir: str, tmp_path: Path) -> None:
        content = trace_influence(run_dir, InfluenceSettings(max_test_triples=4, top_k=3), out=tmp_path)
        assert content == json.loads((tmp_path / "test.json").read_text())
        assert (content["num_test_triples"], content["num_training_triples"], content["top_k"]) == (4, 1493, 3)
        assert content["learning_rate"] == 0.01
        assert len(content["checkpoints"]) == 3
        first = content["results"][0]
        assert {f"test_{part}" for part in PARTS} | {"top_influences", "top_opponents"} == set(first)
        assert set(first["top_influences"][0]) == {f"train_{part}" for part in PARTS} | {"influence"}
        assert first["test_triple"].split()[0] in ("drug", "gene", "disease", "phenotype", "condition")

    def test_lists_are_sorted_by_signed_influence(self, run_dir: str, tmp_path: Path) -> None:
        content = trace_influence(run_dir, InfluenceSettings(max_test_triples=6, top_k=4), out=tmp_path)
        for each in content["results"]:
            scores = [row["influence"] for row in (*each["top_influences"], *reversed(each["top_opponents"]))]
            assert scores == sorted(scores, reverse=True)

    def test_it_does_not_depend_on_batches_or_passes(self, run_dir: str, tmp_path: Path) -> None:
        whole = trace_influence(run_dir, InfluenceSettings(max_test_triples=4), out=tmp_path / "a")
        cut = InfluenceSettings(max_test_triples=4, batch_size=100, memory_budget="10KiB")
        parts = trace_influence(run_dir, cut, out=tmp_path / "b")
        for left, right in zip(whole["results"], parts["results"], strict=True):
            for a, b in zip(left["top_influences"][:3], right["top_influences"][:3], strict=True):
                assert a["influence"] == pytest.approx(b["influence"], rel=1e-4)


def test_an_explanation_leaves_the_model_as_it_was(run_dir: str) -> None:
    restored = module.restore(run_dir)
    before = {name: tensor.clone() for name, tensor in restored.model.state_dict().items()}
    head, relation, tail = map(int, restored.system.traced_triples("valid")[0])
    nodes, kind = restored.graph.node_table(), restored.graph.relations[relation]
    ids = nodes["id"].to_pylist()
    expected = module._score(restored, kind, head, tail)
    link = module.explain_link(restored, ids[head], "|".join(kind.key), ids[tail])
    assert link.score == pytest.approx(expected)
    assert all(torch.equal(tensor, before[name]) for name, tensor in restored.model.state_dict().items())


class TestLosses:
    def test_a_softmax_is_traced_like_any_loss(self, sample: TypedGraph, tmp_path: Path) -> None:
        few = {"data": str(sample.path), "objective": {"loss": "softmax"}, "training": {"epochs": 2}}
        run = train(SETTINGS | few, "test", root=str(tmp_path / "runs"))["run_dir"]
        result = trace_influence(run, InfluenceSettings(max_test_triples=2), out=tmp_path / "out")
        assert all(record["top_influences"] for record in result["results"])


class TestRefusals:
    def test_a_system_without_gradients_in_factors(self, run_dir: str, monkeypatch) -> None:
        restored = module.restore(run_dir)
        restored.system = type("Other", (), {"name": "hgt"})()
        monkeypatch.setattr(module, "restore", lambda path: restored)
        with pytest.raises(SettingsError, match=r"hgt does not \(conve does\)"):
            trace_influence(run_dir)
