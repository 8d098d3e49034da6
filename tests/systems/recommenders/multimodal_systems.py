"""Small systems of recommenders on the recommender graph of ``tests.training.cases``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import merge
from graphmill.settings import parse
from graphmill.systems.dragon.settings import DragonSettings
from graphmill.systems.dragon.system import DragonSystem
from graphmill.systems.mf.settings import MfSettings
from graphmill.systems.mf.system import MfSystem
from graphmill.systems.mmgcn.settings import MmgcnSettings
from graphmill.systems.mmgcn.system import MmgcnSystem
from graphmill.systems.recommenders.system import RecommenderSystem
from graphmill.training.contract import StepSizes
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks
from graphmill.training.step import Gradient, compute_gradient
from tests.training.cases import recommender_graph

CPU = torch.device("cpu")
PARTS: dict[str, tuple[Any, Any]] = {
    "mmgcn": (MmgcnSettings, MmgcnSystem),
    "dragon": (DragonSettings, DragonSystem),
    "mf": (MfSettings, MfSystem),
}


def small_graph(folder: Path) -> TypedGraph:
    return recommender_graph(folder / "graph")


def system_of(name: str, graph: TypedGraph, **sections: dict[str, Any]) -> Any:
    settings, system = PARTS[name]
    base = {"model": {"embedding_dim": 4}, "acceleration": {"batch_size": 40}}
    built = system(graph, parse(settings, merge(base, sections), "test"), "full")
    built.to(CPU)
    return built


def gradient(
    system: RecommenderSystem,
    model: torch.nn.Module,
    index: int = 0,
    precision: Precision | None = None,
    chunks: int = 1,
) -> Gradient:
    """One step's gradient, left in the parameters."""
    model.zero_grad()
    return compute_gradient(
        system,
        model,
        list(model.parameters()),
        system.step(system.phases[0], 0, index),
        step_sizes=StepSizes(micro_batches=chunks),
        precision=precision or Precision("fp32", CPU),
        ranks=Ranks(),
        seed_parts=(0, 0, index),
    )


def train(
    system: RecommenderSystem, epochs: int, rate: float = 0.01, precision: str = "fp32"
) -> tuple[torch.nn.Module, list[Gradient]]:
    """A plain training loop with the engine's loss scaling; every step's losses."""
    model, arithmetic = system.build(StepSizes()).train(), Precision(precision, CPU)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    steps = []
    for _ in range(epochs):
        for index in range(system.phases[0].steps_per_epoch):
            result = gradient(system, model, index, arithmetic)
            arithmetic.scaler.update(not result.finite)
            steps.append(result)
            if result.finite:
                optimizer.step()
    return model, steps
