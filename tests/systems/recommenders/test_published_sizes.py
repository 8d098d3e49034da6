"""Steps of an epoch and edges of the graph at the sizes of the published data, counted by the systems themselves on made-up
pairs and facts of just that number. (What makes the memory of such data is left out where no count depends on it.)
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.graph.interactions import CsrPattern, Interactions, Knowledge
from graphmill.settings import parse
from graphmill.systems.kgat import system as kgat
from graphmill.systems.kgat.graph import CollaborativeGraph
from graphmill.systems.kgat.settings import KgatSettings
from graphmill.systems.kgat.system import KgatSystem
from graphmill.systems.mmgcn.settings import MmgcnSettings
from graphmill.systems.mmgcn.system import MmgcnSystem
from graphmill.systems.recommenders import multimodal
from graphmill.systems.recommenders import system as shared

pytestmark = pytest.mark.slow


def view_of(users: int, items: int, pairs: int, item_offset: int) -> Interactions:
    """``pairs`` training pairs, spread evenly over users."""
    indptr = np.linspace(0, pairs, users + 1).astype(np.int64)
    counts = np.diff(indptr)
    columns = np.arange(pairs, dtype=np.int64) - np.repeat(indptr[:-1], counts)
    columns += np.repeat(np.arange(users) * 7 % (items - counts.max()), counts)
    train, none = (
        CsrPattern(indptr, columns.astype(np.int32)),
        CsrPattern(np.zeros(users + 1, np.int64), np.zeros(0, np.int32)),
    )
    nothing: Any = {}
    features = {"audio": np.zeros((items, 1), np.float32), "text": np.zeros((items, 1), np.float32)}
    present = {name: np.ones(items, bool) for name in features}
    return Interactions(users, items, 0, item_offset, train, none, none, none, features, present, nothing, {})


def test_steps_of_music4all(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,040,936 training pairs: 1,974 steps of 2,048, the last one short; 987 of 4,096; 62 of 65,536."""
    view = view_of(14_125, 80_735, 4_040_936, 14_125)
    monkeypatch.setattr(shared, "interaction_view", lambda graph: view)
    monkeypatch.setattr(multimodal, "user_item_graph", lambda *arguments: torch.empty(0))
    graph: Any = SimpleNamespace(num_nodes=94_860)
    for batch, steps, rest in ((2048, 1974, 232), (4096, 987, 2280), (65_536, 62, 43_240)):
        # 2,048 is what a file that says nothing has.
        values = {} if batch == 2048 else {"acceleration": {"batch_size": batch}}
        settings = parse(MmgcnSettings, values, "test")
        system = MmgcnSystem(graph, settings, "full")
        (phase,) = system.phases
        assert (phase.batch_size, phase.steps_per_epoch) == (batch, steps)
        assert len(system.step(phase, 0, steps - 1)) == rest


def test_steps_and_edges_of_amazon_book(monkeypatch: pytest.MonkeyPatch) -> None:
    """652,514 pairs, 2,557,746 facts: 6,420,520 edges; 638 steps of 1,024 pairs, 3,136 of 2,048 facts or 1,600 of 4,015."""
    users, items, entities, relations = 70_679, 24_915, 113_487, 39
    view = view_of(users, items, 652_514, users)
    facts = np.arange(2_557_746)
    knowledge = Knowledge(
        users + facts % entities,
        facts % relations,
        users + facts * 7919 % entities,
        tuple(f"r{n}" for n in range(relations)),
    )
    monkeypatch.setattr(shared, "interaction_view", lambda graph: view)
    monkeypatch.setattr(kgat, "knowledge_view", lambda graph: knowledge)
    made: list[CollaborativeGraph] = []

    def once(*arguments: Any) -> CollaborativeGraph:
        """A graph of this size takes seconds and is the same for both conventions."""
        made.extend([] if made else [CollaborativeGraph(*arguments)])
        return made[0]

    monkeypatch.setattr(kgat, "CollaborativeGraph", once)
    graph: Any = SimpleNamespace(num_nodes=users + entities)
    assert graph.num_nodes == 184_166
    for written, facts_per_step, steps in ((0, 2048, 3136), (4015, 4015, 1600)):
        settings = parse(KgatSettings, {"objective": {"kg_batch_size": written}}, "test")
        system = KgatSystem(graph, settings, "full")
        assert len(system.facts) == 6_420_520
        assert system.facts.num_relations == 80
        sizes = [(phase.batch_size, phase.steps_per_epoch) for phase in system.phases]
        assert sizes == [(1024, 638), (facts_per_step, steps)]
