"""MF as a baseline: how its form and its number of epochs are chosen, and how long it may take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.errors import InputError, RunLockedError
from graphmill.evaluation.baselines.recommendation import take_out
from graphmill.graph.interactions import interaction_view
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import parse_settings
from graphmill.systems.recommenders.evaluate import known
from graphmill.systems.recommenders.settings import RecommenderSettings
from graphmill.usage import recommender_baseline as recommender_baseline
from graphmill.usage.recommender_baseline import best_mf, first_epochs, most_epochs
from tests.graph.test_interactions import Triple, built

USERS, ITEMS = 600, 24
FORMS = {
    "held at zero": {"regularisation": 1000.0},
    "free": {"regularisation": 0.01},
    "held down": {"regularisation": 10.0},
}


def taste(held_out: int) -> list[Triple]:
    """Users of four kinds, each with five of the six items of its kind; the last one is in the split ``held_out``."""
    rng, out = np.random.default_rng(0), []
    for user in range(USERS):
        own = rng.permutation(np.arange(user % 4, ITEMS, 4))[:5]
        out += [(user, int(item), 0) for item in own[:4]] + [(user, int(own[4]), held_out)]
    return out


def settings_on(graph: TypedGraph, evaluation: dict[str, Any]) -> RecommenderSettings:
    values = {
        "system": "mf",
        "data": str(graph.path),
        "preset": "none",
        "acceleration": {"device": "cpu"},
        "evaluation": {"top_k": [5], "selection_metric": "recall@5"} | evaluation,
    }
    settings = parse_settings(values, "test")
    assert isinstance(settings, RecommenderSettings)
    return settings


def baseline(graph: TypedGraph, folder: Path, **evaluation: Any) -> tuple[str, dict[str, Any]]:
    return best_mf(settings_on(graph, evaluation), interaction_view(graph), folder)


def reports(folder: Path) -> dict[str, list[int]]:
    """Epochs done of each training, by the folder that it is in."""
    out: dict[str, list[int]] = {}
    for path in sorted(folder.glob("*/*/*/report.json")):
        out.setdefault(path.parents[1].name, []).append(json.loads(path.read_text(encoding="utf-8"))["epochs_done"])
    return out


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recommender_baseline, "FORMS", FORMS)
    monkeypatch.setattr(recommender_baseline, "MOST_EPOCHS", 40)


def test_without_validation_form_and_length_are_chosen_on_a_tenth_of_train(tmp_path: Path, short: None) -> None:
    """The first form is the worst, so that choosing none of them would be seen."""
    graph = built(tmp_path / "graph", taste(2), USERS, ITEMS)
    form, result = baseline(graph, tmp_path / "baseline")
    assert form == "free"
    (tuned,) = (json.loads(p.read_text(encoding="utf-8")) for p in (tmp_path / "baseline").glob("*/free/*/report.json"))
    assert not [name for name in tuned["metrics"] if name.startswith("test_")], "choosing must not see the test"
    assert 0 < tuned["best_epoch"] == result["epochs_done"]
    manifest = json.loads((Path(result["run_dir"]) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["data"]["content_hash"] == graph.content_hash, "the baseline itself has all training items"
    assert result["metrics"]["test_recall@5"] > 0.8

    left, held_out = take_out(known(interaction_view(graph).train))
    (path,) = (tmp_path / "baseline").glob("tenth_held_out_*[0-9a-f]")
    view = interaction_view(TypedGraph.open(path))
    assert len(held_out.items)
    assert view.train.columns.tolist() == left.items.tolist()
    assert view.valid.columns.tolist() == held_out.items.tolist()


def test_baselines_of_two_data_sets_and_of_two_rankings_at_once_do_not_meet(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One folder for all of them; while another ranking writes the graph, this one waits for it."""
    counts = (USERS, USERS - 100)
    graphs = [built(tmp_path / str(n), [row for row in taste(2) if row[0] < n], n, ITEMS) for n in counts]
    write, asked = recommender_baseline.write_interactions, []

    def busy_at_first(*arguments: Any) -> TypedGraph:
        asked.append(arguments)
        if len(asked) == 1:
            raise RunLockedError("another process is building the graph")
        return write(*arguments)

    monkeypatch.setattr(recommender_baseline, "write_interactions", busy_at_first)
    for graph in graphs:
        baseline(graph, tmp_path / "baseline")
    assert len(asked) == 3
    assert len(list((tmp_path / "baseline").glob("tenth_held_out_*[0-9a-f]"))) == 2


def test_a_metric_that_looks_at_more_items_than_there_are_is_refused(tmp_path: Path, short: None) -> None:
    graph = built(tmp_path / "graph", taste(2), USERS, ITEMS)
    with pytest.raises(
        InputError, match=rf"recall@{ITEMS + 5} looks at more items than the {ITEMS} of .* evaluation.top_k"
    ):
        baseline(graph, tmp_path / "baseline", top_k=[ITEMS + 5], selection_metric=f"recall@{ITEMS + 5}")


def test_a_baseline_is_found_again(tmp_path: Path, short: None) -> None:
    graph = built(tmp_path / "graph", taste(2), USERS, ITEMS)
    first, found = baseline(graph, tmp_path / "baseline"), reports(tmp_path / "baseline")
    again = baseline(graph, tmp_path / "baseline")
    assert again[1]["reused"]
    assert (again[0], again[1]["run_dir"]) == (first[0], first[1]["run_dir"])
    assert reports(tmp_path / "baseline") == found


def test_only_the_best_forms_of_a_short_round_go_on(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recommender_baseline, "FIRST_EPOCHS", 10)
    monkeypatch.setattr(recommender_baseline, "FIRST_STEPS", 5)
    monkeypatch.setattr(recommender_baseline, "FINALISTS", 1)
    form, result = baseline(built(tmp_path / "graph", taste(1), USERS, ITEMS), tmp_path / "baseline")
    assert form == "free"
    assert reports(tmp_path / "baseline") == {"free": [40], "held at zero": [10], "held down": [10]}
    assert result["best_epoch"] > 10, "the longer training is what counts"


def test_where_nothing_can_be_held_out_it_is_the_first_form_to_the_end(tmp_path: Path, short: None) -> None:
    graph = built(tmp_path / "graph", [*((user, user, 0) for user in range(6)), (0, 3, 2)], 6, 6)
    form, result = baseline(graph, tmp_path / "baseline")
    assert (form, result["epochs_done"]) == ("held at zero", 40)


def test_a_longer_training_of_before_is_not_taken_for_the_chosen_length(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = built(tmp_path / "graph", taste(2), USERS, ITEMS)
    done = []
    for epochs in (6, 3):
        chosen = ("free", {"best_epoch": epochs})
        monkeypatch.setattr(recommender_baseline._Trainings, "choose", lambda *_, chosen=chosen: chosen)
        done.append(baseline(graph, tmp_path / "baseline")[1]["epochs_done"])
    assert done == [6, 3]


def test_trainings_of_other_bounds_are_not_taken_for_these(
    tmp_path: Path, short: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = built(tmp_path / "graph", taste(1), USERS, ITEMS)
    done = []
    for epochs in (10, 5):
        monkeypatch.setattr(recommender_baseline, "MOST_EPOCHS", epochs)
        monkeypatch.setattr(recommender_baseline, "LEAST_EPOCHS", 1)
        done.append(baseline(graph, tmp_path / "baseline")[1]["epochs_done"])
    assert done == [10, 5]


def test_a_baseline_takes_no_more_threads_than_its_run(tmp_path: Path, short: None) -> None:
    result = baseline(built(tmp_path / "graph", taste(1), USERS, ITEMS), tmp_path / "baseline")[1]
    manifest = json.loads((Path(result["run_dir"]) / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["resolved"]["threads"] == 1


@pytest.mark.parametrize(
    ("pairs", "least"),
    [(59_541, 200), (119_674, 200), (650_000, 30), (4_000_000, 10), (10**9, 10)],
    ids=["tiktok", "baby", "amazon-book", "Music4All", "huge"],
)
def test_large_data_has_fewer_epochs_but_never_too_few(pairs: int, least: int) -> None:
    assert least <= most_epochs(pairs) <= recommender_baseline.MOST_EPOCHS
    assert most_epochs(pairs) * pairs <= max(
        recommender_baseline.LARGEST_WORK, recommender_baseline.LEAST_EPOCHS * pairs
    )


@pytest.mark.parametrize(
    ("pairs", "steps_an_epoch", "epochs"),
    [(17_645, 9, 45), (59_541, 30, 15), (119_674, 59, 10), (4_000_000, 1954, 5), (10, 1, 100)],
    ids=["last-fm", "tiktok", "baby", "Music4All", "tiny"],
)
def test_the_first_round_has_enough_steps_to_tell_forms_apart(pairs: int, steps_an_epoch: int, epochs: int) -> None:
    """After 90 steps of last-fm the softmax, which is far ahead in the end, is the last of the five."""
    first = first_epochs(pairs, most_epochs(pairs))
    assert first == epochs
    assert first * steps_an_epoch >= 400 or first == most_epochs(pairs) // 2
