"""What chooses the best epoch: validation, the test split where a publication did so, or nothing, and that it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from graphmill.errors import InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import evaluate_run, restore
from graphmill.runs.resolve import merge, parse_settings
from graphmill.runs.train import prepare, train
from graphmill.systems import registry
from graphmill.training.run_directory import RunDirectory
from graphmill.training.settings import CHOSEN_ON_TEST
from graphmill.usage.ranking import rank_any
from tests.graph.test_interactions import built
from tests.training.cases import CASES
from tests.training.runs import Hooks, Kept, outcome, run, settings_of

EMPTY = "nothing is held out in the valid split, so no epoch is chosen: "
ON_TEST = {"evaluation": {"selection_split": "test"}}
EPOCHS, PATIENCE = 40, 4


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    """As KGAT's data: train and test, and no validation."""
    pairs = [(u, i, 2 if (3 * u + i) % 5 == 0 else 0) for u in range(40) for i in range(30) if (u + i) % 4 == 0]
    return built(tmp_path_factory.mktemp("no-validation") / "graph", pairs, 40, 30)


@pytest.fixture(scope="module")
def values(graph: TypedGraph) -> dict[str, Any]:
    """KGAT's published protocol, sooner over: an evaluation every other epoch, over after two without a better one."""
    short = {
        "training": {"epochs": EPOCHS, "patience_epochs": PATIENCE, "learning_rate": 0.02, "steps_per_epoch": 3},
        "evaluation": {"eval_every": 2, "top_k": [5], "selection_metric": "recall@5", "baselines": []},
        "acceleration": {"device": "cpu", "batch_size": 50},
    }
    model = {"embedding_dim": 8, "layer_dims": [8]}
    return {"system": "kgat", "data": str(graph.path), "preset": "paper", "model": model, **short}


@pytest.fixture(scope="module")
def published(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return run(values, tmp_path_factory.mktemp("published"))


def test_the_papers_protocol_stops_and_chooses_by_the_test_split(published: dict[str, Any]) -> None:
    assert evaluate_run(restore(published["run_dir"]))["selected_on"] == "test"
    best, process = published["best_epoch"], published["epochs_done"]
    assert published["reason"] == f"no better recall@5 for {PATIENCE} epochs"
    assert 0 < best == process - PATIENCE < EPOCHS - PATIENCE
    assert published["exported_epoch"] == best
    # The best epoch's weights are those that are kept, and its figure is the best of all that were seen: hence "optimistic".
    assert published["metrics"]["test_recall@5"] == published["best_metric"]
    records = RunDirectory(published["run_dir"]).metrics.read("epoch")
    seen = {r["epoch"]: r["valid"]["recall@5"] for r in records if "valid" in r}
    assert sorted(seen) == list(range(2, process + 1, 2))
    assert max(seen.values()) == seen[best] == published["best_metric"]
    assert not [name for name in published["metrics"] if name.startswith("valid_")], "there is no such split"


def test_a_run_whose_epoch_was_chosen_on_test_says_so_everywhere(published: dict[str, Any]) -> None:
    assert published["selected_on"] == "test"
    assert published["notes"] == [CHOSEN_ON_TEST]
    assert "optimistic" in CHOSEN_ON_TEST
    folder = Path(published["run_dir"])
    assert CHOSEN_ON_TEST in (folder / "train.log").read_text()
    assert all("(test split)" in line for line in (folder / "val.log").read_text().splitlines())
    assert all(r["split"] == "test" for r in RunDirectory(folder).metrics.read("epoch") if "valid" in r)
    restored = restore(folder)
    assert restored.epoch == published["best_epoch"]
    rank_any(restored)
    assert restored.run.read_json("ranking.json")["selected_on"] == "test"


def test_it_resumes_to_the_same_choice_and_is_reused_when_done(
    values: dict[str, Any], published: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # To an epoch that the longer run evaluates as well, so that both see the same.
    run(merge(values, {"training": {"epochs": 4}}), tmp_path)
    continued = run(values, tmp_path)
    assert outcome(continued).tensors.keys() == outcome(published).tensors.keys()
    for name in ("reason", "epochs_done", "best_epoch", "best_metric", "selected_on", "notes"):
        assert continued[name] == published[name], name
    assert outcome(continued).steps == outcome(published).steps
    hooks = Hooks().install(monkeypatch)
    again = run(values, tmp_path)
    assert (again["reused"], hooks.step, again["run_dir"]) == (True, 0, continued["run_dir"])


def test_a_run_chosen_on_test_is_never_taken_for_one_chosen_on_validation(graphs: dict[str, TypedGraph]) -> None:
    values = settings_of(CASES["mf"], graphs["mf"])
    plain, written, on_test = (
        prepare(merge(values, more), "test").fingerprint
        for more in ({}, {"evaluation": {"selection_split": "valid"}}, ON_TEST)
    )
    assert plain == written
    assert on_test != plain


def test_validation_chooses_unless_said_otherwise(graphs: dict[str, TypedGraph], tmp_path: Path) -> None:
    values = settings_of(CASES["kgat"], graphs["kgat"])
    result = {name: run(merge(values, more), tmp_path / name) for name, more in (("valid", {}), ("test", ON_TEST))}
    for split, report in result.items():
        assert report["selected_on"] == split
        assert report["best_metric"] == report["metrics"][f"{split}_recall@5"]
    assert result["valid"]["notes"] == []
    assert all("(test split)" not in line for line in (Path(result["valid"]["run_dir"]) / "val.log").open())


def test_where_nothing_is_held_out_to_choose_by_a_run_says_so_at_its_start(
    values: dict[str, Any], tmp_path: Path
) -> None:
    said = Kept()
    honest = merge(values, {"evaluation": {"selection_split": "valid"}, "training": {"epochs": PATIENCE + 4}})
    report = train(honest, "test", root=str(tmp_path), outlets=[said])
    (note,) = report["notes"]
    assert note.startswith(EMPTY + f"training.patience_epochs: {PATIENCE} never ends the run, all training.epochs are")
    assert note in said.notes
    log = (Path(report["run_dir"]) / "train.log").read_text()
    assert log.index(note) < log.index("epoch 1/"), "before the first step"
    assert (report["reason"], report["best_metric"], report["selected_on"]) == ("all epochs done", None, "")
    assert report["exported_epoch"] == PATIENCE + 4
    # Going on does not say it twice.
    assert train(merge(honest, {"training": {"epochs": PATIENCE + 5}}), "test", root=str(tmp_path))["notes"] == [note]


def test_without_patience_the_sentence_is_of_the_choice_alone(values: dict[str, Any], tmp_path: Path) -> None:
    patient = {"evaluation": {"selection_split": "valid"}, "training": {"epochs": 1, "patience_epochs": 0}}
    (note,) = run(merge(values, patient), tmp_path)["notes"]
    assert note.startswith(EMPTY + "all training.epochs are trained and the last one counts")


def test_links_without_a_validation_split_are_refused_before_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [(u, i, 2 if i % 5 == 0 else 0) for u in range(12) for i in range(10)]
    graph = built(tmp_path / "graph", pairs, 12, 10)
    hooks = Hooks().install(monkeypatch)
    with pytest.raises(InputError, match="no link in its valid split"):
        run(settings_of(CASES["conve-kvsall"], graph), tmp_path / "runs")
    assert hooks.step == 0


@pytest.mark.parametrize("name", list(CASES))
def test_every_system_knows_what_is_held_out(name: str, graphs: dict[str, TypedGraph]) -> None:
    _, system = CASES[name].build(graphs[name])
    assert system.held_out("valid") > 0
    assert system.held_out("test") > 0


def test_only_kgats_published_protocol_chooses_on_test() -> None:
    for system in registry.SYSTEMS:
        for preset in registry.presets(system):
            settings: Any = parse_settings({"system": system, "preset": preset}, "test")
            assert (settings.evaluation.selected_on == "test") == ((system, preset) == ("kgat", "paper"))
    paper: Any = parse_settings({"system": "kgat", "preset": "paper"}, "test")
    assert (paper.training.epochs, paper.training.patience_epochs, paper.evaluation.eval_every) == (1000, 100, 10)
