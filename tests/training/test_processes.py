"""1, 2 and 4 processes do what one process does with the same global batch, for every system."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import merge, parse_settings
from graphmill.training.processes import Ranks
from tests.training.cases import STEPPED
from tests.training.rank_program import gradients
from tests.training.runs import outcome, run, settings_of

ROOT = Path(__file__).parents[2]
# A step so small that some of four ranks have nothing of it, and that does not divide by two.
TINY: dict[str, Any] = {
    "hgt": {"sampling": {"edge_sample_size": 3}},
    "conve": {"acceleration": {"batch_size": 3}},
    "sequences": {"acceleration": {"batch_size": 3}},
}


def without_dropout(values: dict[str, Any]) -> dict[str, Any]:
    """Masks belong to a process's own rows, so equality with one process is a statement about steps without them."""
    model = parse_settings(values, "test").model  # type: ignore[attr-defined]
    return merge(values, {"model": {n: 0.0 for n in type(model).model_fields if "dropout" in n}})


def jobs(graphs: dict[str, TypedGraph], world: int) -> list[dict[str, Any]]:
    """Every case of two processes; one of each system of four, with a tiny step that leaves some nothing to do."""
    out = []
    names = STEPPED if world == 2 else {case.system: name for name, case in STEPPED.items()}.values()
    for name in names:
        case = STEPPED[name]
        values = without_dropout(settings_of(case, graphs[name]))
        if world > 2:
            family = next(key for key in TINY if key in (case.system, "sequences"))
            values = merge(values, TINY[family])
        out.append({"name": name, "values": values, "train": ""})
    return out


@pytest.fixture(scope="module", params=[2, 4])
def ranks(
    request: pytest.FixtureRequest, graphs: dict[str, TypedGraph], tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, dict[str, Any]]:
    """World size, and what rank 0 found for every job; whole trainings with two processes alone."""
    world, folder = request.param, tmp_path_factory.mktemp(f"ranks{request.param}")
    todo = jobs(graphs, world)
    for job in todo:
        if world == 2:
            job["train"] = str(folder / job["name"])
    (folder / "jobs.json").write_text(json.dumps(todo))
    command = [sys.executable, "-m", "tests.training.rank_program", str(world), str(folder / "jobs.json")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    assert process.returncode == 0, process.stderr[-9000:]
    return world, {job["name"]: torch.load(folder / f"{job['name']}.pt", weights_only=False) for job in todo}


def test_gradients_equal_those_of_one_process_uneven_and_empty_shards_included(
    ranks: tuple[int, dict[str, Any]], graphs: dict[str, TypedGraph]
) -> None:
    world, by_name = ranks
    for job in jobs(graphs, world):
        alone = gradients(job["values"], Ranks())
        for phase, expected in alone.items():
            ours = by_name[job["name"]]["gradients"][phase]
            scale = expected["norm"]
            assert ours["gradients"].keys() == expected["gradients"].keys(), job["name"]
            for name, gradient in expected["gradients"].items():
                error = float((ours["gradients"][name] - gradient).norm())
                assert error <= 1e-10 * max(float(gradient.norm()), 1e-3 * scale), (world, job["name"], name, error)
            assert ours["losses"] == pytest.approx(expected["losses"], rel=1e-10), job["name"]
            assert ours["norm"] == pytest.approx(expected["norm"], rel=1e-10), job["name"]


def test_no_more_bytes_are_reduced_than_needed(ranks: tuple[int, dict[str, Any]]) -> None:
    _, by_name = ranks
    for name, job in by_name.items():
        for phase in job["gradients"].values():
            least = phase["parameter_bytes"]
            if phase["encoding_bytes"] is not None:
                # A replicated step: the encoding's gradient before the way back through it, or the parameters' after.
                least = min(phase["encoding_bytes"], least)
            assert phase["bytes"] == least, name


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_whole_trainings_equal_those_of_one_process(
    ranks: tuple[int, dict[str, Any]], graphs: dict[str, TypedGraph], tmp_path: Path
) -> None:
    by_name = ranks[1]
    for job in jobs(graphs, 2):
        alone = outcome(run(job["values"], tmp_path / job["name"]))
        together = outcome(by_name[job["name"]]["result"])
        traces = [[record["losses"]["total"] for record in one.steps] for one in (alone, together)]
        np.testing.assert_allclose(traces[1], traces[0], rtol=2e-4, err_msg=job["name"])
        np.testing.assert_allclose(together.embeddings, alone.embeddings, rtol=0.02, atol=0.02, err_msg=job["name"])
        # Ranks are steps: where two scores nearly tie, the last bits of the weights decide.
        for metric, value in alone.metrics.items():
            if metric.endswith("mrr"):
                assert together.metrics[metric] == pytest.approx(value, abs=0.05), job["name"]


def test_evaluation_over_several_processes_equals_that_of_one_to_the_bit(ranks: tuple[int, dict[str, Any]]) -> None:
    for name, job in ranks[1].items():
        if not name.endswith("-tiny"):
            assert job["evaluated"]["shared"] == job["evaluated"]["alone"], name


def test_replicas_that_differ_by_one_bit_are_seen_by_every_process(ranks: tuple[int, dict[str, Any]]) -> None:
    for name, job in ranks[1].items():
        if not name.endswith("-tiny"):
            equal, different = job["drift"]
            assert equal == "", name
            assert "copies of parameter 'LAST' differ after epoch 1, step 2; nothing was saved" in different, name
