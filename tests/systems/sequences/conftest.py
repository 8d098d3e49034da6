"""A small watch graph and a plain training loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions_csv import read_sequence
from graphmill.settings import parse
from graphmill.systems import registry
from graphmill.training.contract import StepSizes
from tests.samples import watch


@pytest.fixture(scope="session")
def watched(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    """150 users, 12 items, gaps that decide what follows."""
    folder = tmp_path_factory.mktemp("watched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(watch._SHAPES, "test", (150, 12, 12, 24))
        (folder / "views.tsv").write_bytes(b"".join(watch.Watch("test").chunks()))
    tables = read_sequence(folder / "views.tsv")
    return build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), folder / "graph")


def system_on(graph: TypedGraph, name: str, **sections: Any) -> Any:
    model = {"embedding_dim": 16, "dropout": 0.0, "max_length": 24, **sections.pop("model", {})}
    values = {"system": name, "data": str(graph.path), "model": model, "acceleration": {"batch_size": 32}, **sections}
    system = registry.create(name, graph, parse(registry.settings_model(name), values, "test"), "full")
    system.to(torch.device("cpu"))
    return system


@pytest.fixture
def trained() -> Callable[..., tuple[Any, torch.nn.Module, float]]:
    """Train by plain steps of Adam; returns the system, the model in eval mode, and the last epoch's mean loss."""

    def train(graph: TypedGraph, name: str, epochs: int, rate: float = 0.01, **sections: Any) -> Any:
        system = system_on(graph, name, **sections)
        model = system.build(StepSizes()).train()
        optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
        torch.manual_seed(0)
        for epoch in range(epochs):
            total = count = 0.0
            for index in range(system.sampler.steps_per_epoch):
                batch = system.step(system.phases[0], epoch, index)
                (term, *_) = system.terms(model, batch, system.encode(model, batch))
                weight = batch.weights[term.name]
                (term.sum / weight).backward()
                optimizer.step()
                optimizer.zero_grad()
                total, count = total + float(term.sum.detach()), count + weight
        return system, model.eval(), total / count

    return train
