"""One graph forward a step, however large the batch and in however many parts its loss: what makes large batches cheap."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.systems import registry
from graphmill.systems.dragon.model import Dragon
from graphmill.systems.kgat.model import Kgat
from graphmill.systems.mmgcn.model import MMGCN
from graphmill.training.contract import StepSizes
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks
from graphmill.training.step import compute_gradient
from tests.training.cases import CASES, recommender_graph
from tests.training.runs import run, settings_of

# Where each network goes over its graph. DRAGON's other two graphs are followed afterwards, for a part's rows alone.
FORWARDS: dict[str, tuple[type, str]] = {
    "mmgcn": (MMGCN, "forward"),
    "mmgcn-published": (MMGCN, "forward"),
    "dragon": (Dragon, "heterogeneous"),
    "kgat": (Kgat, "forward"),
}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return recommender_graph(tmp_path_factory.mktemp("forwards") / "graph")


@pytest.fixture
def calls(name: str, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often a training encodes, goes over the graph, and takes the loss of a part."""
    result: Counter[str] = Counter()

    def count(owner: Any, attribute: str, key: str) -> None:
        original = getattr(owner, attribute)

        def counted(model: Any, *arguments: Any, **options: Any) -> Any:
            subject = model if isinstance(model, torch.nn.Module) else arguments[0]
            result[key] += subject.training
            return original(model, *arguments, **options)

        monkeypatch.setattr(owner, attribute, counted)

    create = registry.create

    def creating(*arguments: Any) -> Any:
        system = create(*arguments)
        count(system, "encode", "encode")
        count(system, "terms", "part")
        return system

    monkeypatch.setattr(registry, "create", creating)
    count(*FORWARDS[name], "forward")
    return result


@pytest.mark.parametrize("name", FORWARDS)
@pytest.mark.parametrize("chunks", [1, 3, 16])
@pytest.mark.parametrize("times", [1, 400])
def test_a_step_goes_over_the_graph_once(
    graph: TypedGraph, name: str, chunks: int, times: int, calls: Counter[str]
) -> None:
    """A step of fifty pairs, and one of 20,000."""
    case = CASES[name]
    _, system = case.build(graph)
    model = case.model(system)
    for phase in system.phases:
        batch: Any = system.step(phase, 0, 0)
        arrays = (
            ("heads", "relations", "tails", "wrong_tails")
            if hasattr(batch, "heads")
            else ("users", "positives", "negatives")
        )
        batch = replace(batch, **{array: np.repeat(getattr(batch, array), times, axis=0) for array in arrays})
        assert len(batch) >= 30 * times
        calls.clear()
        compute_gradient(
            system,
            model,
            list(model.parameters()),
            batch,
            step_sizes=StepSizes(micro_batches=chunks),
            precision=Precision("fp32", torch.device("cpu")),
            ranks=Ranks(),
            seed_parts=(0, 0, 0),
        )
        # KGAT's facts are learned from the nodes' vectors alone: no propagation.
        forwards = 0 if phase.name == "kg" else 1
        assert (calls["encode"], calls["forward"], calls["part"]) == (1, forwards, chunks)


@pytest.mark.parametrize("name", FORWARDS)
def test_a_training_with_micro_batches_goes_over_the_graph_once_a_step(
    graph: TypedGraph, name: str, calls: Counter[str], tmp_path: Path
) -> None:
    report = run(settings_of(CASES[name], graph, {"acceleration": {"micro_batches": 4}}), tmp_path)
    steps = report["steps_done"]
    assert steps == 3 * 4 * (2 if name == "kgat" else 1)
    assert calls["encode"] == steps
    assert calls["part"] == 4 * steps
    assert calls["forward"] == 3 * 4
