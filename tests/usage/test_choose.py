"""The choice of a system: real trainings by defaults on tiny data, its table, and going on after a kill."""

from __future__ import annotations

import json
import math
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import InputError, ResourceError, SettingsError, StoppedError, TrainingError
from graphmill.evaluation.ranking.per_query import QueryValues
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.train import train
from graphmill.systems import registry
from graphmill.systems.auto import FILE, seconds_of
from graphmill.training.engine import Engine
from graphmill.training.run_directory import RunDirectory
from graphmill.training.signals import StopRequest
from graphmill.usage.choice import FASTER, LEVEL, SHORTEST, Candidate, Choice, chosen_of
from graphmill.usage.choose import choose
from graphmill.usage.compare import compare_runs
from graphmill.usage.shared_queries import SharedQueries, shared_queries
from tests.graph.test_interactions import Triple, built
from tests.runs.test_tracking import Remembered
from tests.training.cases import typed_graph

USERS, ITEMS = 200, 48
CPU = {"acceleration": {"device": "cpu"}}


def taste(valid: int = 1, items: int = ITEMS, each: int = 8) -> list[Triple]:
    """Users of four kinds, each with some items of its kind, one of them in each held-out split."""
    rng, out = np.random.default_rng(0), []
    for user in range(USERS):
        chosen = rng.permutation(np.arange(user % 4, items, 4))[:each]
        out += [(user, int(item), split) for item, split in zip(chosen, [0] * (each - 2) + [valid, 2], strict=True)]
    return out


@pytest.fixture
def interactions(tmp_path: Path) -> TypedGraph:
    return built(tmp_path / "graph", taste(), USERS, ITEMS)


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(registry, "SYSTEMS", {name: registry.SYSTEMS[name] for name in names})


def by_system(choice: Choice) -> dict[str, str]:
    """Of each system the state of its best settings."""
    return {each.system: each.state for each in reversed(choice.candidates)}


def test_interactions(interactions: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "mf", "ease", "popularity", "markov", "dragon", "complex")
    lines: list[str] = []
    result = choose(interactions.path, "10min", overrides=CPU, tell=lines.append)
    assert by_system(result) == {
        "ease": "finished",
        "mf": "finished",
        "popularity": "finished",
        "markov": "does not suit",
        "dragon": "does not suit",
    }
    assert lines[-1].startswith("mf (objective.regularisation="), "what is cheap comes first, and λ is tried"
    assert (result.metric, result.queries) == ("recall@20", USERS)
    first, *_, popularity = (each for each in result.candidates if each.figure is not None)
    assert popularity.system == "popularity", "a taste is no popularity"
    assert popularity.below is not None
    assert popularity.below[0] > 0
    assert popularity.low is not None
    assert popularity.low < (popularity.figure or 0) < (popularity.high or 0)
    level = [
        e for e in result.candidates if e.below and e.below[0] <= 0 and (e.figure or 0) >= LEVEL * (first.figure or 0)
    ]
    (chosen,) = (each for each in level if each.run == result.run)
    assert chosen.seconds <= max(FASTER * min(each.seconds for each in level), SHORTEST)
    assert result.system in result.sentence
    assert result.test["recall@20"] > 0.8
    for each in result.candidates:
        if not each.run:
            assert each.reason
            continue
        tests = [name for name in json.loads((Path(each.run) / "report.json").read_text())["metrics"] if "test" in name]
        assert bool(tests) == (each.run == result.run), "the test split is read for the chosen run alone"
    runs = [each.run for each in result.candidates if each.run]
    assert "valid_recall@20" in {figure["name"] for figure in compare_runs(*runs[:2])["figures"]}
    assert graphmill.load(result.run).path == Path(result.run)
    assert json.loads((Path(result.folder) / FILE).read_text())["sentence"] == result.sentence
    assert len(result.rows()) == len(result.candidates) == 6


@pytest.mark.parametrize(
    ("seconds", "chosen", "why"),
    [
        ((0.033, 0.026), "ease", "not much cheaper."),
        ((3.0, 59.0), "ease", "not much cheaper."),
        ((70.0, 690.0), "ease", "not much cheaper."),
        ((690.0, 70.0), "ease", "not much cheaper."),
        ((70.0, 710.0), "popularity", "10 times cheaper."),
        ((0.1, 62.0), "popularity", "62 times cheaper."),
    ],
)
def test_only_what_is_much_cheaper_is_taken_before_the_best(
    seconds: tuple[float, float], chosen: str, why: str
) -> None:
    """Both are level, EASE a little better; popularity is taken where it is much cheaper."""
    queries = np.arange(400)
    hits = np.where(queries % 2, 1.0, 0.0), np.where((queries % 2) | (queries == 0), 1.0, 0.0)
    values = [QueryValues("recall@20", each, np.zeros(400, np.int64), queries, 0) for each in hits]
    tried = [
        Candidate(name, "finished", "", each.mean, 0.0, 1.0, None, took, run=name)
        for name, took, each in zip(("popularity", "ease"), seconds, values, strict=True)
    ]
    choice = chosen_of(tried, {each.run: result for each, result in zip(tried, values, strict=True)})
    assert choice.candidates[0].system == "ease"
    assert choice.system == chosen
    assert choice.sentence.endswith(why)


def test_of_level_systems_the_best_that_is_not_dear_is_taken() -> None:
    queries = np.arange(400)
    figures = {"popularity": (1, 20.0), "item_knn": (2, 190.0), "ease": (3, 210.0)}
    hits = {name: np.where((queries % 2) | (queries < 2 * few), 1.0, 0.0) for name, (few, _) in figures.items()}
    values = {n: QueryValues("recall@20", each, np.zeros(400, np.int64), queries, 0) for n, each in hits.items()}
    tried = [
        Candidate(name, "finished", "", values[name].mean, 0.0, 1.0, None, took, run=name)
        for name, (_, took) in figures.items()
    ]
    choice = chosen_of(tried, values)
    assert choice.system == "item_knn"
    assert choice.sentence.endswith("a little cheaper.")


@pytest.mark.parametrize(
    ("hits", "parts"),
    [
        ({"popularity": 1.0, "ease": 1.0, "mf (0.3)": 1.0}, ["Use popularity:", "all 3 systems have recall@3 1.0000"]),
        ({"popularity": 0.0, "mf (0.3)": 0.0}, ["Use popularity:", "all 2 systems have recall@3 0.0000"]),
        ({"popularity": 0.2, "item_knn": 1.0, "ease": 1.0}, ["Use item_knn:", "2 of 3 systems have recall@3 1.0000"]),
        ({"ease": 0.2, "mf (0.3)": 0.5, "mf (0.1)": 0.5}, ["Use mf (0.3): the best of 2", "ease has 0.2000"]),
    ],
)
def test_the_sentence_compares_systems(hits: dict[str, float], parts: list[str]) -> None:
    """Other settings of the chosen system are no rival, and equal figures say so."""
    queries = np.arange(400)
    tried, measured = [], {}
    for name, hit in hits.items():
        system, _, settings = name.removesuffix(")").partition(" (")
        tried.append(Candidate(system, "finished", "", hit, 0.0, 1.0, None, 0.1, run=name, settings=settings))
        values = np.where(queries < 400 * hit, 1.0, 0.0)
        measured[name] = QueryValues("recall@3", values, np.zeros(400, np.int64), queries, 0)
    sentence = chosen_of(tried, measured).sentence
    assert all(part in sentence for part in parts), sentence


def test_a_bad_training_ends_early_by_validation_and_each_goes_to_the_tracker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a rate of 10⁻⁹ vectors stay random, and so do their lists."""
    graph = built(tmp_path / "graph", taste(items=240, each=24), USERS, 240)
    monkeypatch.setattr(
        "graphmill.systems.mf.settings.TRIES", {"mf": ({"training": {"learning_rate": 1e-9, "patience_epochs": 0}},)}
    )
    monkeypatch.setattr(Remembered, "runs", {})
    monkeypatch.setattr("graphmill.runs.tracker.MlflowTracker", Remembered)
    monkeypatch.setattr("graphmill.errors.find_spec", lambda name: name)
    tracker = {"tracker": {"writer": "mlflow"}}
    choice = choose(graph.path, systems=["mf", "popularity"], overrides={**CPU, **tracker})
    states = {each.name: each.state for each in choice.candidates}
    bad = "mf (training.learning_rate=1e-09, training.patience_epochs=0)"
    assert states == {"mf": "finished", "popularity": "finished", bad: "ended early"}
    (reason,) = (each.reason for each in choice.candidates if each.name == bad)
    assert re.search(r"recall@20 0\.\d+ at epoch \d+; the best has 0\.\d+", reason)
    runs = {each["tags"]["graphmill.run_dir"] for each in Remembered.runs.values()}
    assert {str(Path(each.run).resolve()) for each in choice.candidates if each.run} < runs


def test_few_items_are_asked_for_shorter_lists(tmp_path: Path) -> None:
    rows = [(user, (user + step) % 9, split) for user in range(40) for step, split in enumerate([0, 0, 0, 1, 2])]
    graph = built(tmp_path / "graph", rows, 41, 9)  # one user has no item
    result = choose(graph.path, overrides=CPU, systems=["popularity", "item_knn", "ease"])
    assert (result.metric, result.queries) == ("recall@2", 40)
    assert all(each.state == "finished" for each in result.candidates)
    assert "recall@2" in result.test


def test_links_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "knn", "complex", "conve", "ease")
    graph = typed_graph(tmp_path / "graph")
    result = graphmill.choose(graph, "40s", device="cpu", progress=False)
    states = by_system(result)
    assert states.pop("conve") in ("no time", "finished"), "it depends on the machine"
    assert states == {"knn": "finished", "complex": "finished"}
    only(monkeypatch, "knn", "conve")
    short = graphmill.choose(typed_graph(tmp_path / "short" / "graph"), "2s", device="cpu", progress=False)
    assert by_system(short)["conve"] == "no time"
    assert result.metric == "mrr"
    assert "links" in result.candidates[0].abilities
    assert math.isfinite(result.test["mrr"])


def test_nothing_is_estimated_after_the_budget(interactions: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmill.usage.choose.estimate_run", lambda *job: pytest.fail("estimated"))
    choice = choose(interactions.path, "0.01s", overrides=CPU, systems=["popularity", "ease", "mf"])
    states = by_system(choice)
    assert states.pop(choice.system) == "finished", "the first closed form does not count"
    assert states.pop("mf") == "no time"
    assert set(states.values()) == {"no time"}


@pytest.mark.parametrize(("budget", "finished"), [(250, 1), (450, 2)])
def test_the_budget_has_time_for_the_test(
    interactions: TypedGraph, monkeypatch: pytest.MonkeyPatch, budget: int, finished: int
) -> None:
    """A clock stands for the time: 100 s for each measurement on validation or on test."""
    clock = SimpleNamespace(now=0.0)

    def slow(graph: TypedGraph, split: str = "valid") -> SharedQueries:
        queries = shared_queries(graph, split)

        def values(system: Any, model: Any, leave_out: Any, poll: Any) -> QueryValues:
            for _ in range(100):
                clock.now += 1
                poll()
            return queries.values(system, model, leave_out, poll)

        return replace(queries, values=values)

    monkeypatch.setattr("graphmill.usage.choose.shared_queries", slow)
    monkeypatch.setattr("graphmill.usage.choose.time", SimpleNamespace(monotonic=lambda: clock.now))
    choice = choose(interactions.path, f"{budget}s", overrides=CPU, systems=["popularity", "item_knn", "ease"])
    assert sorted(by_system(choice).values()) == ["finished"] * finished + ["no time"] * (3 - finished)
    assert clock.now <= budget


@pytest.mark.parametrize("name", ["ease", "ials"])
def test_a_slow_closed_form_starts_only_within_the_budget(
    interactions: TypedGraph, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    pytest.importorskip("implicit")
    kind = type(registry.create(name, interactions, registry.settings_model(name)(), "full"))
    estimate, estimated = kind.sampled_seconds, []
    monkeypatch.setattr(kind, "sampled_seconds", lambda system: estimated.append(estimate(system)) or 7200.0)
    choice = choose(interactions.path, "1h", overrides=CPU, systems=["popularity", name])
    assert by_system(choice) == {"popularity": "finished", name: "no time"}
    assert all(0 < seconds < 3600 for seconds in estimated)
    alone = choose(interactions.path, "1h", overrides=CPU, systems=[name], root=str(interactions.path / "alone"))
    assert by_system(alone) == {name: "finished"}, "the first closed form does not count"


@pytest.mark.parametrize("name", ["complex", "distmult", "rotate", "transe"])
def test_the_norm_is_tried_where_the_score_has_one(tmp_path: Path, name: str) -> None:
    short = {**CPU, "training": {"epochs": 1}}
    choice = choose(typed_graph(tmp_path / "graph").path, overrides=short, systems=[name])
    tried = {"objective.n3=0.02", "objective.n3=0.1"} if name in ("complex", "distmult") else set()
    assert {each.settings for each in choice.candidates} == {""} | tried
    assert all(each.state == "finished" for each in choice.candidates), [each.reason for each in choice.candidates]


def test_the_time_of_a_blend_has_that_of_its_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A blend has one step; ComplEx and NBFNet, its parts, have hundreds."""
    monkeypatch.setattr("graphmill.training.engine.Engine.seconds_per_step", lambda engine: 60.0)
    choice = choose(typed_graph(tmp_path / "graph").path, "30min", overrides=CPU, systems=["knn", "blend"])
    assert by_system(choice) == {"knn": "finished", "blend": "no time"}


def test_all_are_asked_for_the_next_item_where_interactions_have_an_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each item is followed by the next number, so only a model of order knows what comes."""
    rows = [(user, (user + step) % 24, split) for user in range(60) for step, split in enumerate([0] * 6 + [1, 2])]
    graph = built(tmp_path / "graph", rows, 60, 24, times=[60 * step for step in range(len(rows))])
    only(monkeypatch, "markov", "ease", "popularity")
    result = choose(graph.path, overrides=CPU)
    assert (result.metric, result.queries, result.system) == ("ndcg@10", 60, "markov")
    days = {f"popularity (model.days={count})" for count in (1, 7, 30, 365)}
    assert {each.name for each in result.candidates if each.system == "popularity"} == {"popularity"} | days
    metrics = json.loads((Path(result.run) / "report.json").read_text())["metrics"]
    assert result.candidates[0].figure == pytest.approx(metrics["valid_ndcg@10"])
    assert all((each.figure or 0.0) > 0 for each in result.candidates)
    # EASE itself is measured by Recall@20, and the test is read by what chose, too.
    ease = choose(graph.path, overrides=CPU, systems=["ease"], root=str(tmp_path / "ease"))
    assert 0 < ease.test["ndcg@10"] < result.test["ndcg@10"]


@pytest.mark.parametrize("name", ["item_knn", "ease", "mf"])
def test_on_test_all_systems_know_the_validation_item(tmp_path: Path, name: str) -> None:
    """Items come in pairs, and the held-out items are one: only who reads the first knows the second."""
    rng, rows = np.random.default_rng(0), list[Triple]()
    for user in range(120):
        *pairs, last = rng.permutation(20)[:4].tolist()
        rows += [(user, 2 * pair + side, 0) for pair in pairs for side in (0, 1)]
        rows += [(user, 2 * last, 1), (user, 2 * last + 1, 2)]
    graph = built(tmp_path / "graph", rows, 120, 40, times=[60 * step for step in range(len(rows))])
    result = choose(graph.path, overrides=CPU, systems=[name])
    assert result.test["ndcg@10"] > 0.8


def test_items_that_a_list_never_has_do_not_count(tmp_path: Path) -> None:
    """Most users take two items in turn, which lists of EASE and item-kNN, of new items alone, never have."""
    takes = {user: [f"a{user}", f"b{user}"] * 3 for user in range(50)}
    takes |= {user: [f"{'ab'[step % 2]}{user % 7}" for step in range(4)] + ["a8", "b9"] for user in range(50, 60)}
    file = tmp_path / "taken.tsv"
    file.write_text("".join(f"{user}\t{item}\n" for user, items in takes.items() for item in items))
    graph = graphmill.build_graph(graphmill.read_interactions(file, "sequence"), tmp_path / "graph")
    choice = choose(graph.path, overrides=CPU, systems=["markov", "repeats", "ease", "item_knn"])
    figures = {each.system: each.figure for each in choice.candidates if each.figure is not None}
    assert 0 < max(figures["ease"], figures["item_knn"]) <= 10 / 60
    assert figures["markov"] > 0.7
    assert choice.system in ("markov", "repeats")


def test_few_items_in_order_are_for_all_systems(tmp_path: Path) -> None:
    rows = [(user, (user + step) % 9, split) for user in range(40) for step, split in enumerate([0, 0, 0, 1, 2])]
    graph = built(tmp_path / "graph", rows, 40, 9, times=[60 * step for step in range(len(rows))])
    result = choose(graph.path, overrides=CPU, systems=["markov", "ease", "item_knn"])
    assert by_system(result) == dict.fromkeys(("markov", "ease", "item_knn"), "finished")


@pytest.mark.parametrize("name", ["popularity", "item_knn", "ease", "markov", "session_knn", "mf"])
def test_one_item_is_refused(tmp_path: Path, name: str) -> None:
    rows = [(user, 0, split) for user in range(9) for split in [0, 0, 1, 2]]
    graph = built(tmp_path / "graph", rows, 9, 1, times=[60 * step for step in range(len(rows))])
    with pytest.raises(InputError, match="has 1 item"):
        graphmill.train(graph, name, progress=False)
    with pytest.raises(InputError, match="has 1 item"):
        choose(graph.path, systems=[name])


KILLED = """
import os, signal, sys
from pathlib import Path
from graphmill.training.checkpoint import CheckpointStore
from graphmill.usage.choose import choose

data = Path(sys.argv[1])
save = CheckpointStore.save

def save_and_end(store, *snapshot, **details):
    save(store, *snapshot, **details)
    if list((data.parent / "auto").glob("*/report.json")):  # popularity has finished
        os.kill(os.getpid(), signal.SIGKILL)

CheckpointStore.save = save_and_end
choose(data, overrides={"acceleration": {"device": "cpu"}}, systems=["popularity", "mf"])
"""
"""A choice that is killed at the first checkpoint of ``mf``."""


def test_it_goes_on_after_a_kill(interactions: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(interactions.path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    (before,) = (interactions.path.parent / "auto").glob("*/report.json")
    seconds = json.loads(before.read_text())["seconds"]
    (begun,) = {each.parent.parent for each in before.parent.parent.glob("*/checkpoints/*")} - {before.parent}
    stop, resumed, resume = StopRequest(), [], Engine.resume

    def noted(engine: Engine, which: str | int = "last") -> list[str]:
        notes = resume(engine, which)
        resumed.append((engine.system.name, engine.state.epoch, engine.state.steps > 0))
        return notes

    def interrupt(line: str) -> None:
        if line.startswith("popularity:"):
            stop.request("SIGINT")

    monkeypatch.setattr(Engine, "resume", noted)
    names = ["popularity", "mf"]
    with pytest.raises(StoppedError, match="goes on"):
        choose(interactions.path, overrides=CPU, tell=interrupt, stop=stop, systems=names)
    result = choose(interactions.path, overrides=CPU, systems=names)
    popularity, factorisation = (
        next(each for each in result.candidates if each.name == name and each.figure is not None) for name in names
    )
    assert (Path(popularity.run), popularity.seconds) == (before.parent, seconds), "the finished run is reused"
    assert Path(factorisation.run) == begun
    assert resumed == [("mf", 1, True)], "the unfinished one goes on after its checkpoint"
    steps = [record["step"] for record in RunDirectory(begun).metrics.read("step")]
    assert steps == list(range(steps[0], steps[0] + len(steps))), "no step is made twice"


def test_what_failed_is_tried_again(interactions: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    def without_memory(values: Any, *rest: Any, **more: Any) -> Any:
        if values["system"] == "ease":
            raise ResourceError("memory ran out")
        return train(values, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr("graphmill.usage.choose.train", without_memory)
        first = choose(interactions.path, overrides=CPU, systems=["popularity", "ease"])
    assert by_system(first) == {"popularity": "finished", "ease": "failed"}
    lines: list[str] = []
    second = choose(interactions.path, overrides=CPU, systems=["popularity", "ease"], tell=lines.append)
    assert by_system(second) == {"popularity": "finished", "ease": "finished"}
    third = choose(interactions.path, overrides=CPU, systems=["popularity", "ease"], tell=lines.append)
    assert third.run == second.run
    assert lines[-1].endswith("the data have not changed since it was chosen")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["auto"], "--set data=GRAPH"),
        (["auto", "--set", "data=graph", "--force"], "--set, --output and --json"),
        (["auto", "--set", "data=graph", "--set", "budget=soon"], "10min"),
        (["auto", "--set", "data=graph", "--set", "model.embedding_dim=8"], "model"),
    ],
)
def test_the_command_refuses_what_it_would_ignore(arguments: list[str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        CliRunner().invoke(app, ["train", *arguments], catch_exceptions=False)


def test_a_settings_file_may_say_auto(interactions: TypedGraph) -> None:
    file, values = interactions.path.parent / "settings.yaml", {"data": str(interactions.path), **CPU}
    file.write_text(json.dumps({"system": "auto", "budget": 60, "systems": ["popularity"], **values}))
    output = CliRunner().invoke(app, ["train", str(file)], catch_exceptions=False)
    assert "Use popularity: it alone has finished" in output.stdout
    with pytest.raises(SettingsError, match="auto is for trainings"):
        CliRunner().invoke(app, ["estimate", str(file)], catch_exceptions=False)


def test_what_cannot_be_chosen_is_one_sentence(tmp_path: Path, interactions: TypedGraph) -> None:
    with pytest.raises(SettingsError, match="10min"):
        choose(interactions.path, "soon")
    assert [seconds_of(text) for text in ("90s", "10min", "2h", "600", "1.5 min")] == [90, 600, 7200, 600, 90]
    with pytest.raises(SettingsError, match="unknown"):
        graphmill.choose(interactions, 60, systems="eese")  # a number is seconds, and one name is a list
    with pytest.raises(SettingsError, match="should be 'auto', 'cuda'"):
        graphmill.choose(interactions, device="tpu")
    with pytest.raises(SettingsError, match="modell"):
        choose(interactions.path, overrides={"modell": {"x": 1}})
    with pytest.raises(SettingsError, match="no answer for these data"):
        choose(interactions.path, systems=["complex"])
    with pytest.raises(InputError, match="validation"):
        choose(built(tmp_path / "none", taste(valid=2), USERS, ITEMS).path)
    (tmp_path / "once.csv").write_text("user,item\n" + "".join(f"u{n},i{n % 2}\n" for n in range(20)))
    once = graphmill.build_graph(graphmill.read_interactions(tmp_path / "once.csv"), tmp_path / "once")
    with pytest.raises(InputError, match="3 interactions"):
        choose(once.path)
    assert not (tmp_path / "auto").exists(), "nothing is half-written"


def test_what_fits_into_no_memory_is_too_large(tmp_path: Path) -> None:
    graph, lines = typed_graph(tmp_path / "graph"), []
    tight = {"acceleration": {"device": "cpu", "memory_budget": "100MB"}}
    with pytest.raises(TrainingError, match=r"(?s)^no system has finished: .*nothing fits .* and 2 more") as caught:
        choose(graph.path, systems=["kNN", "spectral", "complex", "DistMult"], overrides=tight, tell=lines.append)
    assert [line.split(":")[0] for line in lines] == [
        f"{name} too large" for name in ("knn", "spectral", "complex", "distmult")
    ]
    assert str(caught.value).count("nothing fits") == 2
