"""Tables divided by rows over 2 and 3 processes train as one process does: ``acceleration.sharding: rows`` (ADR 2)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import merge, parse_settings
from graphmill.systems import registry
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.processes import Ranks
from graphmill.training.run_directory import RunDirectory
from graphmill.training.sharding import divide
from tests.training import sharding_program
from tests.training.cases import CASES
from tests.training.runs import run, settings_of

ROOT = Path(__file__).parents[2]
SYSTEMS = ("lightgcn", "kgat", "kgat-graphsage", "hgt-full", "hgt-features", "hgt-softmax")
TRAININGS = ("lightgcn", "kgat", "hgt-full")
ROWS: dict[str, Any] = {"acceleration": {"sharding": "rows"}}
TINY: dict[str, Any] = {"acceleration": {"batch_size": 2}}
TRAINED: dict[str, Any] = {"acceleration": {"checkpoint_every_epochs": 1}, "evaluation": {"baselines": []}}
KILLED_AT = {"lightgcn": 7, "hgt-full": 6, "kgat": 13}  # in the second of three epochs, of four steps a phase


def values_of(name: str, graphs: dict[str, TypedGraph], *more: dict[str, Any]) -> dict[str, Any]:
    """A case without dropout, whose masks are of a process's own rows."""
    values = settings_of(CASES[name], graphs[name])
    model = parse_settings(values, "test").model  # type: ignore[attr-defined]
    values = merge(values, {"model": {n: 0.0 for n in type(model).model_fields if "dropout" in n}})
    for section in more:
        values = merge(values, section)
    return values


def steps(graphs: dict[str, TypedGraph]) -> dict[str, dict[str, Any]]:
    """Job name → the job: each system as it is, with a step of which some rank has nothing, and with a rank without rows."""
    out: dict[str, dict[str, Any]] = {}
    for system in SYSTEMS:
        is_recommender = CASES[system].system != "hgt"
        more: dict[str, Any] = {"objective": {"negatives_per_positive": 3}} if is_recommender else {}
        tiny = TINY if is_recommender else {"sampling": {"edge_sample_size": 1}}
        out[system] = {"values": values_of(system, graphs, ROWS)}
        out[f"{system}-tiny"] = {"values": values_of(system, graphs, ROWS, tiny)}
        out[f"{system}-empty"] = {"values": values_of(system, graphs, ROWS, more), "empty": True}
    return {name: {"name": name, "step": True, **job} for name, job in out.items()}


@pytest.fixture(scope="module")
def ran(graphs: dict[str, TypedGraph], tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Number of ranks → the folder of what they left.

    Two ranks do all jobs, and begin trainings that the last one dies in. Three do all jobs, and go on with those.
    """
    folder = tmp_path_factory.mktemp("ranks")
    folders = {2: folder / "two", 3: folder / "three"}
    trainings, groups = [], []
    before = list(steps(graphs).values())
    for system in TRAININGS:
        values = values_of(system, graphs, ROWS, TRAINED)
        trainings.append({"name": f"{system}-train", "values": values, "train": str(folders[2] / system)})
        killed = {**trainings[-1], "kill_at": KILLED_AT[system]}
        groups.append({"world": 2, "folder": str(folders[2]), "jobs": [*before, killed]})
        before = []
    groups.append({"world": 3, "folder": str(folders[3]), "jobs": [*steps(graphs).values(), *trainings]})
    for path in folders.values():
        path.mkdir()
    (folder / "groups.json").write_text(json.dumps(groups))
    command = [sys.executable, "-m", "tests.training.sharding_program", str(folder / "groups.json")]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280, check=False)
    assert process.returncode == 0, process.stderr[-6000:]
    *died, went_on = json.loads((folder / "codes.json").read_text())
    assert [codes[-1] for codes in died] == [-signal.SIGKILL] * 3, process.stderr[-6000:]
    assert all(codes[0] for codes in died)
    assert all(list((folders[2] / system).rglob("*.safetensors")) for system in TRAININGS), process.stderr[-6000:]
    assert went_on == [0, 0, 0], process.stderr[-6000:]
    return folders


@pytest.mark.parametrize("world", [2, 3])
def test_a_step_equals_that_of_one_process_also_where_a_rank_has_no_rows_or_no_samples(
    world: int, graphs: dict[str, TypedGraph], ran: dict[int, Path]
) -> None:
    folder = ran[world]
    for name, job in steps(graphs).items():
        alone = sharding_program.one_step(job["values"], Ranks())
        together = torch.load(folder / f"{name}.pt", weights_only=False)
        for phase, expected in alone["phases"].items():
            ours = together["phases"][phase]
            assert ours["gradients"].keys() == expected["gradients"].keys(), name
            for parameter, gradient in expected["gradients"].items():
                error = float((ours["gradients"][parameter] - gradient).norm())
                assert error <= 1e-10 * max(float(gradient.norm()), 1e-3 * expected["norm"]), (name, parameter, error)
            assert ours["losses"] == pytest.approx(expected["losses"], rel=1e-10), name
            assert ours["norm"] == pytest.approx(expected["norm"], rel=1e-10), name
        np.testing.assert_allclose(together["vectors"], alone["vectors"], rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("world", [2, 3])
def test_a_step_sends_what_the_model_of_the_decision_says(
    world: int, graphs: dict[str, TypedGraph], ran: dict[int, Path]
) -> None:
    """A pass over the layers alone, and a step, with the rows that its batch reads.

    All nodes are at most what ranks read of each other, and those that they read are what is sent.
    """
    folder = ran[world]
    # Nodes of these graphs have some ten neighbours: with three ranks some are read by one of the others alone.
    least = 0.9 if world == 2 else 0.7
    elsewhere = (world - 1) / world
    for system in SYSTEMS:
        m: Any = parse_settings(steps(graphs)[system]["values"], "test").model  # type: ignore[attr-defined]
        if system.startswith("hgt"):
            widths = [m.hidden_dim] * m.num_layers
        else:
            widths = [m.embedding_dim, *getattr(m, "layer_dims", [m.embedding_dim] * 2)[:-1]]
        kinds = graphs[system].node_types
        nodes = sum(kind.count for kind in kinds if system != "lightgcn" or kind.name in ("user", "item"))
        layers = sum(2 * elsewhere * nodes * width * 8 for width in widths)
        result = torch.load(folder / f"{system}.pt", weights_only=False)
        assert least * layers <= result["sent"]["layers"] <= 1.1 * layers, system
        for phase, step in result["phases"].items():
            read = 2 * result["sent"]["read"] * sum(widths) * 8
            assert read <= layers
            model = 2 * elsewhere * step["asked"] + (0 if phase == "kg" else read)  # facts go over no layer
            assert step["exchanged"] == pytest.approx(model, rel=0.1), (system, phase)


def test_each_rank_holds_its_rows_alone_and_only_shared_weights_are_reduced(
    graphs: dict[str, TypedGraph], ran: dict[int, Path]
) -> None:
    result = torch.load(ran[2] / "lightgcn.pt", weights_only=False)
    assert 15 <= result["sent"]["rows"]["user"] <= 25
    assert result["phases"]["train"]["reduced"] == 0


@pytest.mark.parametrize("system", TRAININGS)
def test_a_training_whose_rank_was_killed_goes_on_with_three_and_ends_as_one_process_does(
    system: str, ran: dict[int, Path], graphs: dict[str, TypedGraph], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(registry, "create", registry.create)
    sharding_program.in_float64()
    values = values_of(system, graphs, TRAINED)
    alone = run(values, tmp_path)
    result = torch.load(ran[3] / f"{system}-train.pt", weights_only=False)
    assert result["steps_done"] == alone["steps_done"]
    assert result["bytes_exchanged"] > 0
    expected, answer = last(alone["run_dir"]), last(result["run_dir"])
    assert answer.keys() == expected.keys()
    for name, tensor in expected.items():
        torch.testing.assert_close(
            answer[name], tensor, rtol=1e-10, atol=1e-10, msg=lambda text, n=name: f"{n}: {text}"
        )
    # Ranks are steps: HGT's are of fp32, where two scores may nearly tie.
    assert result["metrics"] == pytest.approx(alone["metrics"], rel=1e-10, abs=0.02 if system == "hgt-full" else None)
    # The same run directory goes on in one process, whose checkpoint knows nothing of ranks.
    longer = {"training": {"epochs": 4}}
    further = run(merge(values, longer), ran[2] / system)
    assert further["run_dir"] == result["run_dir"]
    more = last(run(merge(values, longer), tmp_path)["run_dir"])
    for name, tensor in last(further["run_dir"]).items():
        torch.testing.assert_close(tensor, more[name], rtol=1e-10, atol=1e-10)


def last(folder: str) -> dict[str, torch.Tensor]:
    """Tensors of the last checkpoint."""
    return CheckpointStore(RunDirectory(folder).checkpoints).load("last").snapshot.tensors


def test_ranges_are_even_in_work_and_some_may_be_empty() -> None:
    assert divide(np.ones(10), 3) == (0, 4, 7, 10)
    assert divide(np.array([100, 1, 1]), 3) == (0, 1, 1, 3)
    assert divide(np.ones(1), 3) == (0, 1, 1, 1)
    assert divide(np.ones(0), 2) == (0, 0, 0)


def test_what_cannot_be_divided_is_refused_in_one_sentence(graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    values = values_of("lightgcn", graphs, ROWS)
    with pytest.raises(SettingsError, match="over several processes, and this training has one"):
        run(values, tmp_path)
    assert not list(tmp_path.iterdir())
    other = {"system": "mf", "data": values["data"], "acceleration": {"sharding": "rows"}}
    with pytest.raises(SettingsError, match="sharding: rows is not for mf"):
        run(other, tmp_path)
