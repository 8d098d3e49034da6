"""What every registered system passes, by what it can do and not by its name: chance, a planted rule, and its lists.

A new system is in here as soon as it is registered. Its settings are those of its first case in ``tests.training.cases``,
or its defaults, and more epochs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from graphmill.components.plan import abilities_of
from graphmill.graph.splits import TRAIN
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.systems import registry
from graphmill.training.contract import StepSizes
from graphmill.usage.exported import Run
from tests.evaluation.planted import (
    NODES,
    UNKNOWN,
    USERS,
    Kind,
    chance,
    leaking_graph,
    measured,
    planted_graph,
)
from tests.training.cases import CASES, CLOSED_FORMS

EPOCHS = 24
REFUSING = "repeats"
"""It refuses data where nobody takes an item again, as in the planted graph (``tests/training/test_closed_forms.py``)."""
SURE = 4.0
"""Standard deviations that separate a finding from chance."""


def kind_of(system: str) -> Kind:
    """The planted graph of a system."""
    return "items" if abilities_of(system).recommends else "links"


@dataclass(frozen=True)
class Trained:
    """A system that was trained on the planted graph of its kind, and exported."""

    kind: Kind
    restored: Restored
    folder: Path


@pytest.fixture(scope="module", params=[name for name in registry.SYSTEMS if name != REFUSING])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    system: str = request.param
    if system == "ials":
        pytest.importorskip("implicit")
    kind, folder = kind_of(system), tmp_path_factory.mktemp(system)
    graph = planted_graph(kind, folder / "graph")
    known = [*CASES.values(), *CLOSED_FORMS.values()]
    # The case of HGT has tables alone as inputs, which learn no rule in so few steps: it has its defaults here.
    settings = next((case.settings for case in known if case.system == system != "hgt"), None)
    if settings is None:
        chosen = registry.settings_model(system)().evaluation.selection_metric.partition("@")[0]
        few = {"top_k": [5], "selection_metric": f"{chosen}@5"}
        settings = {"evaluation": few} if kind == "items" else {}
    values = merge({"system": system, "data": str(graph.path), "preset": "none"}, settings)
    values = merge(values, {"acceleration": {"device": "cpu"}})
    if "epochs" in values.get("training", {}):
        values = merge(values, {"training": {"epochs": EPOCHS}, "evaluation": {"eval_every": EPOCHS}})
    path = train(values, "test", root=str(folder / "runs"))["run_dir"]
    restored = restore(path)
    export_run(restored)
    return Trained(kind, restored, folder)


def evaluated(restored: Restored, system: Any, model: Any) -> tuple[str, float]:
    return measured(system.evaluate(model, "test", final=True, poll=lambda: None))


def test_a_planted_rule_is_found_and_a_shuffled_split_gives_chance(trained: Trained) -> None:
    restored = trained.restored
    metric, result = evaluated(restored, restored.system, restored.model)
    expected, deviation = chance(trained.kind, metric)
    margin = SURE if restored.system.name == "popularity" else 2 * SURE  # it finds the popular group alone
    assert result > expected + margin * deviation, f"{metric} {result:.3f}, chance {expected:.3f} ± {deviation:.3f}"
    # The same weights, asked for links that are nobody's.
    graph = planted_graph(trained.kind, trained.folder / "shuffled", shuffled=True)
    system = registry.create(restored.system.name, graph, restored.job.settings, restored.job.batching)
    system.to(restored.job.device)
    model = system.build(StepSizes())
    model.load_state_dict(restored.model.state_dict())
    metric, result = evaluated(restored, system, model.eval())
    assert abs(result - expected) < SURE * deviation, f"{metric} {result:.3f}, chance {expected:.3f} ± {deviation:.3f}"


def test_its_lists_have_nothing_that_is_known_disliked_or_unknown(trained: Trained) -> None:
    graph = trained.restored.graph
    ids = graph.node_table()["id"].to_pylist()
    relation = next(each for each in graph.relations if each.name in ("linked", "interacted"))
    edges, first = graph.edges(relation), graph.node_type(relation.source).offset
    last = graph.node_type(relation.target).offset
    rows = zip(edges.src.tolist(), edges.dst.tolist(), edges.split.tolist(), strict=True)
    trained_links = {(ids[first + head], ids[last + tail]) for head, tail, split in rows if split == TRAIN}
    disliked = {
        (ids[first + head], ids[last + tail])
        for each in graph.relations if each.name == "disliked"
        for head, tail in zip(graph.edges(each).src.tolist(), graph.edges(each).dst.tolist(), strict=True)
    }  # fmt: skip
    assert bool(disliked) == (trained.kind == "items")
    run = Run(trained.restored.run.path)
    if trained.kind == "items":
        table = run.recommend(k=len(ids))
        listed = list(zip(table["user_id"], table["item_id"], strict=True))
        unseen = run.recommend(k=len(ids), exclude_seen="never")
        assert not set(zip(unseen["user_id"], unseen["item_id"], strict=True)) & disliked
        assert UNKNOWN not in set(table["item_id"])
    else:
        table = run.links("*", relation.name, k=len(ids), known="exclude_train")
        listed = list(zip(table["head_id"], table["tail_id"], strict=True))
    assert listed
    assert len(set(listed)) == len(listed)
    assert not set(listed) & (trained_links | disliked)


@pytest.mark.parametrize("kind", ["links", "items"])
def test_a_leak_is_named_and_there_is_none_else(kind: Kind, tmp_path: Path) -> None:
    for leaks, graph in (
        (False, planted_graph(kind, tmp_path / "clean")),
        (True, leaking_graph(kind, tmp_path / "leaking")),
    ):
        result = graph.describe()["leakage"]["overlaps"]
        [named] = [each["relations"] for each in result if (each["held_out"], each["seen"]) == ("test", "train")]
        edges = NODES if kind == "links" else sum(USERS)
        name = "node | linked | node" if kind == "links" else "user | interacted | item"
        assert named == ({name: {"edges": edges, "leaked": edges}} if leaks else {})
