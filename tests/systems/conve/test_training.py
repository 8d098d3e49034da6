"""ConvE through the worker: it learns the sample's rules, every ready settings file runs, and its files rebuild it."""

from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.training import compiling
from tests.systems.conve.graphs import frequency_mrr

PLAIN = {"label_smoothing": 0.0}
"""The objective of the learning tests; with ``negatives: sampled`` nothing reads it."""
LEARNS = {
    "system": "conve",
    "preset": "none",
    "model": {"embedding_dim": 48, "output_channels": 8, "input_dropout": 0.1, "feature_map_dropout": 0.0},
    "objective": PLAIN,
    "training": {"epochs": 30, "learning_rate": 0.005},
    "acceleration": {"batch_size": 64},
    "evaluation": {"eval_every": 30},
}
EXAMPLES = sorted((Path(__file__).parents[3] / "examples/conve").glob("*.yaml"))


@pytest.fixture(scope="module")
def run(sample: TypedGraph, tmp_path_factory: pytest.TempPathFactory):
    report = train(LEARNS | {"data": str(sample.path)}, "test", root=str(tmp_path_factory.mktemp("runs")))
    return report, restore(report["run_dir"])


class TestLearning:
    def test_it_ranks_held_out_triples_far_above_their_frequency(self, run) -> None:
        report, restored = run
        assert report["metrics"]["test_mrr"] > 3 * frequency_mrr(restored.graph)

    def test_the_loss_falls(self, run) -> None:
        epochs = run[1].run.metrics.read("epoch")
        assert epochs[-1]["losses"]["bce"] < 0.3 * epochs[0]["losses"]["bce"]

    def test_every_entity_gets_its_row_of_the_table(self, run) -> None:
        restored = run[1]
        manifest = export_run(restored)
        assert (manifest["rows"], manifest["dim"]) == (restored.graph.num_nodes, 48)
        blocks = np.concatenate([b.vectors for b in restored.system.embeddings(restored.model)])
        np.testing.assert_array_equal(blocks, restored.model.entities.detach().numpy())


def test_what_is_compiled_is_one_graph(sample: TypedGraph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch makes and runs the graphs itself: no C++ compiler is needed to see that they can be made."""
    compile_ = torch.compile
    monkeypatch.setattr(compiling.torch, "compile", lambda function, mode: compile_(function, backend="aot_eager"))
    values = merge(
        LEARNS, {"data": str(sample.path), "training": {"epochs": 1}, "acceleration": {"compile": "default"}}
    )
    result = train(values, "test", root=str(tmp_path))["compile"]
    assert (result["functions"], result["graphs"]) == (1, 1)


class TestSampledLoss:
    def test_slcwa_learns_too(self, sample: TypedGraph, tmp_path: Path) -> None:
        few = {"training": {"epochs": 10}, "data": str(sample.path)}
        settings = {**merge(LEARNS, few), "objective": {"negatives": "sampled"}}
        report = train(settings, "test", root=str(tmp_path))
        assert report["metrics"]["test_mrr"] > 1.2 * frequency_mrr(sample)


class TestReadySettings:
    @pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
    def test_each_runs(self, path: Path, sample: TypedGraph, tmp_path: Path) -> None:
        values = yaml.safe_load(path.read_text())
        few = {
            "data": str(sample.path),
            "training": {"epochs": 2, "steps_per_epoch": 2},
        }
        report = train(merge(values, few), str(path), root=str(tmp_path))
        assert report["epochs_done"] == 2
        assert report["final_losses"]["total"] > 0
        assert report["precision"] == values["acceleration"]["precision"]
