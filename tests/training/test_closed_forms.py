"""Systems in closed form: one step computes the model, and everything else is as with other systems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from graphmill.errors import InputError, SettingsError, TrainingError
from graphmill.graph.histories import Histories
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_table
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.planning import estimate_run
from graphmill.runs.train import train
from graphmill.systems.closed_form import ClosedFormSystem
from graphmill.training.contract import StepSizes
from graphmill.usage.ranking import rank_any
from graphmill.usage.recommendations import recommend_run
from tests.graph.test_interactions import built
from tests.training.cases import CLOSED_FORMS, CLOSED_LINKS

ALL = {**CLOSED_FORMS, **CLOSED_LINKS}


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TypedGraph]:
    folder = tmp_path_factory.mktemp("graphs")
    made = {make: make(folder / make.__name__) for make in {case.graph for case in ALL.values()}}
    return {name: made[case.graph] for name, case in ALL.items()}


@pytest.fixture(params=CLOSED_FORMS)
def name(request: pytest.FixtureRequest) -> str:
    if request.param == "ials":
        pytest.importorskip("implicit")
    return str(request.param)


def trained(name: str, graph: TypedGraph, root: Path, **sections: Any) -> dict[str, Any]:
    if name == "ials":
        pytest.importorskip("implicit")
    values = ALL[name].job(graph, **sections).settings.model_dump()
    return dict(train(values, "test", root=str(root)))


@pytest.mark.parametrize("name", ALL)
def test_one_step_is_the_training_and_what_is_restored_scores_the_same(
    name: str, graphs: dict[str, TypedGraph], tmp_path: Path
) -> None:
    graph = graphs[name]
    report = trained(name, graph, tmp_path)
    assert (report["steps_done"], report["epochs_done"], report["best_epoch"]) == (1, 1, 1)
    result = restore(report["run_dir"])
    job, system = ALL[name].build(graph)
    assert isinstance(system, ClosedFormSystem)
    model = system.build(StepSizes())
    system.solve(model, lambda: None)
    for array in system.ARRAYS:
        np.testing.assert_array_equal(result.model.array(array), model.array(array), err_msg=array)
    users = np.arange(5)
    torch.testing.assert_close(
        result.system.scorer(result.model).score_targets(0, users), system.scorer(model).score_targets(0, users)
    )
    assert system.held_out("valid") > 0
    assert trained(name, graph, tmp_path)["reused"]
    estimate = estimate_run(job, graph, "test")
    assert estimate.chosen
    assert 0 < estimate.seconds_per_step < 60


@pytest.mark.parametrize("name", ["ease", "knn"])
def test_each_split_is_evaluated_once(
    name: str, graphs: dict[str, TypedGraph], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = type(ALL[name].build(graphs[name])[1])
    evaluate, splits = system.evaluate, []

    def counted(self: Any, model: Any, split: str, **options: Any) -> dict[str, float]:
        splits.append(split)
        return dict(evaluate(self, model, split, **options))

    monkeypatch.setattr(system, "evaluate", counted)
    report = trained(name, graphs[name], tmp_path)
    assert splits == ["valid", "test"]
    (epoch,) = restore(report["run_dir"]).run.metrics.read("epoch")
    assert len(epoch["valid"]) == 1
    assert report["metrics"].items() >= {(f"valid_{metric}", value) for metric, value in epoch["valid"].items()}


def test_it_is_exported_ranked_and_recommends(name: str, graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    result = restore(trained(name, graphs[name], tmp_path)["run_dir"])
    exported = export_run(result)
    if name == "ials":
        assert exported["rows"] == result.graph.num_nodes
    else:
        assert set(exported["files"]) == {"weights.safetensors", "relations.parquet", "nodes.parquet"}
        arrays = load_file(result.run.path / "scorer" / "weights.safetensors")
        assert set(arrays) == set(result.system.ARRAYS)  # type: ignore[attr-defined]
    assert rank_any(result)["figures"]
    assert recommend_run(result, 3)["rows"] > 0
    assert json.loads((result.run.path / "ranking.json").read_text())["kind"] == "items"


def test_a_new_user_is_scored_by_the_history_alone(name: str, graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    result = restore(trained(name, graphs[name], tmp_path)["run_dir"])
    items = result.graph.node_type("item").count
    # A user who has met two items, one who has met nothing known, and one without anything.
    met = Histories(np.array([0, 2, 3, 3]), np.array([1, 2, items]), np.full(3, -1), new_items=1)
    lists, scores, _ = result.system.fold_in(result.model, met, 4, "always")  # type: ignore[attr-defined]
    assert (lists[0] >= 0).all()
    assert not set(lists[0]) & {1, 2, items}
    assert (lists[1:] == -1).all()
    assert np.isfinite(scores[0]).all()


@pytest.mark.parametrize("name", ["ease", "item_knn", "ials", "popularity"])
def test_items_without_a_training_interaction_are_never_in_a_list(name: str, tmp_path: Path) -> None:
    if name == "ials":
        pytest.importorskip("implicit")
    pairs = [(u, i, 2 if i == 5 else 0) for u in range(12) for i in range(9) if (u + i) % 3 and i not in (7, 8)]
    result = _untuned(name, built(tmp_path / "graph", pairs, 12, 9), tmp_path)
    _, lists, _ = result.system.recommend(result.model, 9, "never")  # type: ignore[attr-defined]
    offset = result.graph.node_type("item").offset
    assert set(lists[lists >= 0] - offset) == {0, 1, 2, 3, 4, 6}


def _untuned(name: str, graph: TypedGraph, root: Path, **sections: Any) -> Restored:
    evaluation = {"evaluation": {"selection_metric": "recall@3", "top_k": [3], "baselines": []}}
    values = {"system": name, "data": str(graph.path), "preset": "none", **evaluation, **sections}
    return restore(train(values, "test", root=str(root / "runs"))["run_dir"])


@pytest.mark.parametrize("name", ["item_knn", "ease", "session_knn"])
def test_where_nothing_is_alike_a_list_goes_on_by_popularity(name: str, tmp_path: Path) -> None:
    rows = [(user, item, 0) for user in range(12) for item in range(12 - user)]  # item n has 12 − n users
    rows += [(user, 9 - user % 3, 1) for user in range(9)]
    rows += [(12, 13, 0), (12, 14, 0), (12, 15, 0)]  # shares no item with anybody
    rows = [(user, 12 - item if item < 13 else item, split) for user, item, split in rows]
    graph = built(tmp_path / "graph", rows, 13, 16, times=list(range(len(rows))))
    result = restore(trained(name, graph, tmp_path)["run_dir"])
    system: Any = result.system
    users, items, _ = system.recommend(result.model, 5, "always")
    user, item = (graph.node_type(kind).offset for kind in ("user", "item"))
    assert (items[users == 12 + user] - item).tolist() == [[12, 11, 10, 9, 8]]


def test_without_validation_a_tenth_of_train_chooses(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = [(u, int(i), 0) for u in range(80) for i in rng.permutation(np.arange(u % 3, 30, 3))[:6]]
    result = _untuned("ease", built(tmp_path / "graph", [*pairs, (0, 1, 2)], 80, 30), tmp_path)
    assert result.model.array("regularisation")[0] >= 10
    chosen = _untuned("ease", result.graph, tmp_path, model={"regularisation": 77.0})
    assert chosen.model.array("regularisation")[0] == 77


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"training": {"learning_rate": 0.1}}, "training.learning_rate is not read with ease"),
        ({"acceleration": {"batch_size": 7}}, "acceleration.batch_size is not read with ease"),
        ({"training": {"epochs": 5}}, "epochs"),
    ],
)
def test_settings_of_gradient_steps_are_refused(
    sections: dict[str, Any], message: str, graphs: dict[str, TypedGraph]
) -> None:
    with pytest.raises(SettingsError, match=message):
        CLOSED_FORMS["ease"].job(graphs["ease"], **sections)


def test_days_need_times(tmp_path: Path, graphs: dict[str, TypedGraph]) -> None:
    with pytest.raises(SettingsError, match=r"model.days: the interactions of .* have no times"):
        CLOSED_FORMS["popularity"].build(graphs["popularity"], model={"days": 3.0})
    sequences = CLOSED_FORMS["markov"].graph(tmp_path / "times")
    values = {"system": "popularity", "data": str(sequences.path), "model": {"days": 0.0005}}
    evaluation = {"evaluation": {"selection_metric": "recall@3", "top_k": [3], "baselines": []}}
    late = restore(train({**values, **evaluation}, "test", root=str(tmp_path / "runs"))["run_dir"])
    everything = late.system.view.train_by_item.counts  # type: ignore[attr-defined]
    counts = late.model.array("counts")
    assert 0 < np.floor(counts).sum() < everything.sum()
    assert ((counts > 0) == (everything > 0)).all()


def test_repeats_are_refused_where_nobody_repeats(tmp_path: Path) -> None:
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.interactions_csv import read_sequence

    path = tmp_path / "views.txt"
    path.write_text("".join(f"u{u} i{(u + n) % 20}\n" for u in range(9) for n in range(6)))
    tables = read_sequence(path)
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(), tmp_path / "graph")
    with pytest.raises(InputError, match="take the system markov or session_knn"):
        CLOSED_FORMS["repeats"].build(graph)


def test_what_cannot_be_inverted_leaves_no_run_behind(tmp_path: Path) -> None:
    twins = [(u, i, 0) for u in range(3000) for i in (0, 1, 2)] + [(u, 3, 1) for u in range(40)]
    with pytest.raises(TrainingError, match="larger regularisation"):
        _untuned("ease", built(tmp_path / "graph", twins, 3000, 4), tmp_path, model={"regularisation": 1e-9})
    assert not list((tmp_path / "runs").glob("*/report.json"))


def test_ials_says_which_package_is_missing(graphs: dict[str, TypedGraph], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SettingsError, match=r"graphmill\[ials\]"):
        CLOSED_FORMS["ials"].build(graphs["ials"])


def test_item_knn_ranks_an_item_that_nobody_took_by_its_features(tmp_path: Path) -> None:
    """Two tastes, told by a feature; items 10 and 11 are new, one of each taste."""
    pairs = [(u, i, 1 if (u + i) % 7 == 0 else 0) for u in range(20) for i in range(10) if u % 2 == i % 2]
    values = np.array([[1, 0.1 * i] if i % 2 else [-1, 0.1 * i] for i in range(12)], np.float32)
    features = {"item": feature_table(np.arange(20, 32, dtype=np.int32), values)}
    result = _untuned("item_knn", built(tmp_path / "graph", pairs, 20, 12, features=features), tmp_path)
    assert result.model.array("alike")[0] > 0
    users, lists, _ = result.system.recommend(result.model, 12, "never")  # type: ignore[attr-defined]
    items = (lists - result.graph.node_type("item").offset).tolist()
    for user, listed in zip((users - result.graph.node_type("user").offset).tolist(), items, strict=True):
        assert sorted(listed) == list(range(12))
        liked, other = (10, 11) if user % 2 == 0 else (11, 10)
        assert listed.index(liked) < listed.index(other)


def test_ease_above_the_memory_names_the_sparse_system(tmp_path: Path) -> None:
    graph = built(tmp_path / "graph", [(item % 40, item, 0) for item in range(14_000)], 40, 14_000)
    values = {"system": "ease", "data": str(graph.path), "preset": "none", "acceleration": {"memory_budget": "1GiB"}}
    with pytest.raises(SettingsError, match=r"nothing fits .*item_knn"):
        train(values, "test", root=str(tmp_path / "runs"))
    assert not list((tmp_path / "runs").rglob("report.json"))


@pytest.mark.parametrize("name", ["ease", "item_knn", "popularity"])
@pytest.mark.parametrize("items", [2, 3])
def test_a_catalogue_too_small_for_its_lists_is_a_sentence_before_anything_starts(
    name: str, items: int, tmp_path: Path
) -> None:
    graph = built(tmp_path / "graph", [(user, user % items, 0) for user in range(12)], 13, items)  # one user has none
    values = {"system": name, "data": str(graph.path), "preset": "none"}
    with pytest.raises(InputError, match=f"recall@20 looks at more items than the {items} of .*; take a cut-off of"):
        train(values, "test", root=str(tmp_path / "runs"))
