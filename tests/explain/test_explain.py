"""Why a link: planted reasons are found, shares add up to the score, and a score falls without the edges that carried it."""

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import InputError, SettingsError
from graphmill.explain.explanation import NOT_SHARED, ExplainSettings, Explanation, strongest_paths
from graphmill.explain.links import explainer_of
from graphmill.explain.neighbourhood import neighbourhood
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.usage.explain import explain_link, pairs_around
from tests.explain.planted import COUNTS, planted_graph
from tests.training.cases import CASES
from tests.training.runs import settings_of

LINKS = 10
Explained = Callable[[str], list[Explanation]]
GENE = COUNTS["drug"]
GENES = COUNTS["gene"]
DISEASE = COUNTS["drug"] + COUNTS["gene"]
SYSTEMS: dict[str, dict[str, Any]] = {
    "blend": {"model": {"embedding_dim": 32, "parts": ["spectral", "knn", "paths"]}},
    "hgt": {
        "model": {"embedding_dim": 32, "hidden_dim": 32, "num_heads": 2},
        "training": {"epochs": 15, "steps_per_epoch": 10, "learning_rate": 0.01, "warmup_steps": 10},
        "acceleration": {"batching": "full"},
        "evaluation": {"eval_every": 15},
    },
}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Restored]:
    """A run of either system on the planted graph, trained once."""
    folder = tmp_path_factory.mktemp("planted")
    graph, known = planted_graph(folder / "graph"), {}

    def trained(system: str) -> Restored:
        if system not in known:
            settings = {"system": system, "data": str(graph.path), "preset": "none", "export": {"csv": False}}
            values = merge({**settings, "acceleration": {"device": "cpu"}}, SYSTEMS[system])
            path = train(values, "test", root=str(folder / system))["run_dir"]
            export_run(restore(path))
            known[system] = restore(path)
        return known[system]

    return trained


def indication(restored: Restored) -> int:
    return restored.graph.relation("drug", "indication", "disease").index


def unknown_links(restored: Restored) -> list[tuple[int, int]]:
    """Drug and disease (rows) with a gene in common and no known link, all of whose planted edges are in training."""
    graph = restored.graph

    def train_edges(*key: str) -> set[tuple[int, int]]:
        edges = graph.edges(graph.relation(*key))
        kept = np.asarray(edges.split) == 0
        return set(zip(edges.src[kept].tolist(), edges.dst[kept].tolist(), strict=True))

    targets, associated = train_edges("drug", "targets", "gene"), train_edges("disease", "associated", "gene")
    known = train_edges("drug", "indication", "disease")
    result = [
        (i, DISEASE + j)
        for i in range(COUNTS["drug"])
        for j in range(i % GENES, COUNTS["disease"], GENES)
        if i != j and {(i, i), (j, j)} <= known and (i, i % GENES) in targets and (j, j % GENES) in associated
    ]
    return result[:: len(result) // LINKS][:LINKS]


@pytest.fixture(scope="module")
def explained(planted: Callable[[str], Restored]) -> Callable[[str], list[Explanation]]:
    """Of a run of either system, explained once."""

    @functools.cache
    def of(system: str) -> list[Explanation]:
        restored = planted(system)
        links = unknown_links(restored)
        explainer = explainer_of(restored.system, restored.model)
        return explainer.named([explainer.explain(indication(restored), head, tail) for head, tail in links])

    return of


def score_of(restored: Restored, why: Explanation, *pairs: int) -> float:
    """By the whole model, without these pairs."""
    without = np.array(pairs, np.int64)
    return explainer_of(restored.system, restored.model).score_without(why.relation, why.head, why.tail, without)


@pytest.mark.parametrize("system", SYSTEMS)
def test_planted_paths_are_recovered(explained: Explained, system: str) -> None:
    result = explained(system)
    assert len(result) == LINKS
    through = [GENE + why.head % GENES in why.paths[0][0].nodes for why in result if why.paths]
    planted_path = [(why.head, GENE + why.head % GENES, why.tail) for why in result]
    listed = [path in [p.nodes for p, _ in why.paths] for path, why in zip(planted_path, result, strict=True)]
    assert sum(through) >= 0.9 * LINKS
    assert sum(listed) >= 0.9 * LINKS
    first = listed.index(True)
    named = {path.nodes: relations for path, relations in result[first].paths}
    assert named[planted_path[first]] == ("targets", "associated")


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_score_falls_more_without_its_edges_than_without_others(
    planted: Callable[[str], Restored], explained: Explained, system: str
) -> None:
    restored, rng = planted(system), np.random.default_rng(0)
    falls, others = [], []
    for why in explained(system):
        listed = [e.pair for e in why.evidence[:3]]
        around = np.setdiff1d(pairs_around(restored.graph, why.head, why.tail), listed)
        drawn = rng.choice(around, len(listed), replace=False).tolist()
        whole = score_of(restored, why)
        falls.append(whole - score_of(restored, why, *listed))
        others.append(whole - score_of(restored, why, *drawn))
    assert np.mean(falls) > 3 * abs(np.mean(others))
    assert np.mean(np.array(falls) > np.array(others)) >= 0.9


@pytest.mark.parametrize("system", SYSTEMS)
def test_parts_add_up_to_the_models_score_and_shares_to_their_parts(
    planted: Callable[[str], Restored], explained: Explained, system: str
) -> None:
    restored = planted(system)
    scorer = restored.system.scorer(restored.model)
    for why in explained(system)[:3]:
        assert why.whole
        true = float(scorer.score_targets(why.relation, np.array([why.head]))[0, why.tail - DISEASE])
        assert why.score == pytest.approx(true, rel=1e-4, abs=1e-4)
        assert score_of(restored, why) == pytest.approx(true, rel=1e-4, abs=1e-4)
        shares = sum(e.share for e in (*why.evidence, *why.against)) + why.other
        # The sums are shared out exactly, the layers' part by a numerical integral.
        assert shares == pytest.approx(sum(v for n, v in why.parts.items() if n not in NOT_SHARED), abs=0.02)


def test_a_neighbourhood_keeps_to_its_bound_and_says_so(planted: Callable[[str], Restored]) -> None:
    restored = planted("hgt")
    system: Any = restored.system
    graph = restored.graph
    seeds = [np.array([0]) if n == 0 else np.zeros(0, np.int64) for n in range(len(graph.node_types))]
    all_of_it = neighbourhood(graph, seeds, 2, neighbors=64, max_edges=10_000)
    assert all_of_it.whole
    for most in (1, 7, 30):
        cut = neighbourhood(graph, seeds, 2, neighbors=64, max_edges=most)
        assert sum(map(len, cut.target)) <= most
        assert not cut.whole
        assert set(cut.pairs) <= set(all_of_it.pairs)
    every, two = (neighbourhood(graph, seeds, 1, neighbors=most, max_edges=10_000).target for most in (64, 2))
    for all_of_node, some in zip(every, two, strict=True):
        assert len(some) == min(len(all_of_node), 2)
    head, tail = unknown_links(restored)[0]
    few = ExplainSettings(max_edges=10)
    why = explainer_of(system, restored.model, few).explain(indication(restored), head, tail)
    assert not why.whole


def test_a_path_is_as_strong_as_its_weakest_edge() -> None:
    ends = {0: (1, 5), 1: (5, 2), 2: (1, 6), 3: (6, 7), 4: (7, 2), 5: (1, 2), 6: (5, 7)}
    shares = {0: 0.5, 1: 0.2, 2: 0.9, 3: 0.8, 4: 0.7, 5: 9.0, 6: -1.0}
    result = strongest_paths(ends, shares, 1, 2, 10)
    assert [(p.nodes, p.strength) for p in result] == [((1, 6, 7, 2), 0.7), ((1, 5, 2), 0.2)]


# -- by id and name ------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["explain", *arguments], catch_exceptions=True)


def test_commands_and_python(planted: Callable[[str], Restored]) -> None:
    restored = planted("blend")
    h, t = unknown_links(restored)[0]
    run, names = str(restored.run.path), (f"drug {h}", f"disease {t - DISEASE}")
    request = (run, "--relation", "indication", "--head", names[0], "--tail", names[1])
    result = json.loads(command(*request, "--json", "--verify").stdout)
    assert (result["head"], result["tail"]) == names
    assert result["deletion"]["without_the_listed_edges"] < result["deletion"]["without_as_many_others"]
    assert [e["share"] for e in result["edges"]] == sorted((e["share"] for e in result["edges"]), reverse=True)
    output = command(*request)
    assert "The score is the sum of" in output.stdout
    assert f"gene {h % GENES}" in output.stdout
    why = graphmill.load(run).explain(names[0], "drug|indication|disease", names[1], edges=4)
    assert why.score == pytest.approx(result["score"])
    assert sum(e["share"] > 0 for e in why.edges) == 4


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"relation": "cures"}, "has no relation 'cures' (it has "),
        ({"head": "nobody"}, "no drug or disease 'nobody'"),
        ({"tail": "drug 1"}, "does not lead from 'drug 0' to 'drug 1'"),
    ],
)
def test_a_mistake_is_one_sentence(planted: Callable[[str], Restored], changed: dict[str, str], said: str) -> None:
    request = {"relation": "indication", "head": "drug 0", "tail": "disease 1"} | changed
    result = command(str(planted("blend").run.path), *(word for n, v in request.items() for word in (f"--{n}", v)))
    assert isinstance(result.exception, InputError)
    assert said in str(result.exception)


def test_conve_is_explained_by_its_training_triples_and_others_are_refused(tmp_path: Path) -> None:
    case = CASES["conve-kvsall"]
    graph = case.graph(tmp_path / "graph")
    values = settings_of(case, graph, {"acceleration": {"keep_influence": 2}, "export": {"csv": False}})
    restored = restore(train(values, "test", root=str(tmp_path / "conve"))["run_dir"])
    relation = graph.relations[0]
    ids = graph.node_table().column("id").to_pylist()
    edges = graph.edges(relation)
    head = ids[graph.node_type(relation.source).offset + int(edges.src[0])]
    tail = ids[graph.node_type(relation.target).offset + int(edges.dst[0])]
    why = explain_link(restored, head, "|".join(relation.key), tail, ExplainSettings(edges=3))
    assert "TracIn" in why.method
    assert len(why.edges) == 6
    assert not list((restored.run.path / "influence").glob("*"))
    case = CASES["complex"]
    _, system = case.build(graph)
    with pytest.raises(SettingsError, match="by its vectors alone"):
        explainer_of(system, torch.nn.Linear(1, 1))


@pytest.mark.parametrize("system", ["conve", "nbfnet"])
def test_edges_of_every_kind_of_explanation_say_what_is_known_of_them(system: str, tmp_path: Path) -> None:
    lines = ["head,head_type,relation,tail,tail_type,weight,confidence,evidence,timestamp"]
    lines += [
        f"g{n},gene,meets,g{(n + step) % 12},gene,{n + 1},0.5,paper {n},2020-01-{n + 1:02}"
        for n in range(12)
        for step in (1, 2, 5)
    ]
    (tmp_path / "kg.csv").write_text("\n".join(lines) + "\n")
    graph = graphmill.build_graph(graphmill.read_edges(tmp_path / "kg.csv"), tmp_path / "graph", split={"valid": 0.1})
    sections = {"acceleration": {"device": "cpu", "keep_influence": 2}} if system == "conve" else {}
    run = graphmill.train(graph, system, progress=False, output=tmp_path, training={"epochs": 2}, **sections)
    edges = run.explain("g1", "meets", "g2", edges=4).edges
    assert edges
    weights = {frozenset((f"g{n}", f"g{(n + step) % 12}")): (n + 1, n) for n in range(12) for step in (1, 2, 5)}
    for edge in edges:
        weight, paper = weights[frozenset((edge["head"], edge["tail"]))]
        assert (edge["weight"], edge["confidence"], edge["evidence"]) == (weight, 0.5, f"paper {paper}")
        assert edge["time"] > 0
