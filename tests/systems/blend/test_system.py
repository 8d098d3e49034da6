"""A blend: parts that are baselines, amounts by validation, one run for ComplEx, export and explanation."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from graphmill.api import build_graph, read_edges
from graphmill.errors import InputError, SettingsError
from graphmill.evaluation.baselines.neighbours import TUNING_QUERIES
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.explain.explanation import NOT_SHARED
from graphmill.explain.links import explainer_of
from graphmill.graph.later_nodes import LaterNodes
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs import parts
from graphmill.runs.export import Restored, restore
from graphmill.runs.resolve import parse_settings
from graphmill.runs.train import train
from graphmill.systems.blend import trained as complex_part
from graphmill.systems.blend.exported import scorer_of
from graphmill.systems.blend.mix import (
    BEST,
    FOLDS,
    CrossFittedScorer,
    _mean_of_best,
    _mixtures,
    choices_of,
    fitted_mixes,
    folds_of,
    mix_for_few_links,
)
from graphmill.systems.blend.part import BlendScorer, FeatureSimilarity
from graphmill.training.contract import OldRows
from graphmill.usage.baselines import LinkBaselines
from graphmill.usage.ranking import rank_any
from graphmill.usage.shared_queries import all_of_them, shared_queries
from tests.training.cases import CASES, featured_graph, typed_graph
from tests.training.runs import Kept, assert_same, outcome

BASELINES = ("knn", "spectral", "complex")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("blend") / "data" / "graph")


def values_of(graph: TypedGraph, **sections: Any) -> dict[str, Any]:
    """Without NBFNet, which has a file of its own (``test_nbfnet_part.py``)."""
    shared = CASES["blend"].settings | {"acceleration": {"device": "cpu"}}
    return {"system": "blend", "data": str(graph.path), **shared, **sections}


@pytest.fixture(scope="module")
def blend(graph: TypedGraph) -> Restored:
    return restore(train(values_of(graph), "test")["run_dir"])


def mrr(restored: Restored, scorer: Any, split: str = "valid") -> float:
    return rank_links(scorer, link_queries(restored.graph, split)).macro["mrr"]


def test_its_parts_rank_as_the_baselines_do_and_are_trained_once(blend: Restored, tmp_path: Path) -> None:
    rival = LinkBaselines(blend.graph, link_queries(blend.graph, "test"), blend.run.path.parent / "baselines", width=16)
    system: Any = blend.system
    for name, scorer in system.baselines(blend.model).items():
        assert mrr(blend, scorer, "test") == pytest.approx(rival.ranking(name)[0].macro["mrr"], rel=1e-6), name
    assert not list((blend.run.path.parent / "baselines").glob("complex/*")), "the part's run is the baseline's"
    [part] = (blend.run.path / "parts").glob("*/*")
    seconds = [json.loads((path / "report.json").read_text())["seconds"] for path in (blend.run.path, part)]
    assert seconds[0] > seconds[1] > 0, "the time of a training has that of its parts"


def ranked_alone(restored: Restored) -> dict[str, float]:
    """The validation MRR of each part, features and popularity among them, with the amounts that make it a baseline."""
    system: Any = restored.system
    every = system.parts_of(restored.model)
    alone, mix = choices_of(every)[0], np.ones((len(restored.graph.relations), 1), np.float32)
    scorers = {name: BlendScorer(system.links, every, mix * np.float32([amounts])) for name, amounts in alone.items()}
    return {name: mrr(restored, scorer) for name, scorer in scorers.items()}


def test_on_validation_links_it_is_never_below_a_part(blend: Restored) -> None:
    system: Any = blend.system
    ranked = {name: mrr(blend, scorer) for name, scorer in system.baselines(blend.model).items()}
    assert set(ranked) == set(BASELINES)
    alone = ranked_alone(blend)
    assert {name: alone[name] for name in ranked} == pytest.approx(ranked, rel=1e-6)
    assert mrr(blend, system.scorer(blend.model)) >= max(alone.values())


def test_with_features_too(tmp_path: Path) -> None:
    graph = featured_graph(tmp_path / "graph")
    values = values_of(graph, model={"embedding_dim": 16, "parts": ["spectral", "knn", "paths", "features"]})
    result = restore(train(values, "test", root=str(tmp_path / "runs"))["run_dir"])
    alone = ranked_alone(result)
    assert "features" in alone
    assert mrr(result, result.system.scorer(result.model)) >= max(alone.values())


def test_features_that_say_nothing_do_not_take_it_below_a_part(
    blend: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even if a relation may lose any share of its MRR for targets with few links."""
    monkeypatch.setattr("graphmill.systems.blend.mix.KEPT", 0.0)
    monkeypatch.setattr("graphmill.systems.blend.mix.FEW_LINKS", 1)
    system: Any = blend.system
    valid, alone, rng = system.ranking_queries("valid", TUNING_QUERIES), ranked_alone(blend), np.random.default_rng(1)
    best = max(alone, key=lambda name: alone[name])
    for _ in range(3):
        noise = rng.normal(size=(blend.graph.num_nodes, 4)).astype(np.float32)
        every = system.parts_of(blend.model) | {"features": FeatureSimilarity(system.links, noise)}
        mix = np.tile(np.float32([choices_of(every)[0][best]]), (len(blend.graph.relations), 1))
        scorer = BlendScorer(system.links, every, mix)
        assert mrr(blend, scorer) == pytest.approx(alone[best])
        assert (
            mrr(blend, BlendScorer(system.links, every, mix_for_few_links(scorer, valid, 0, "features"))) >= alone[best]
        )


def test_a_part_that_alone_is_best_is_taken_alone(blend: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if every mixture is worse, as where each of the averaged ones errs in another way."""
    system: Any = blend.system
    monkeypatch.setattr("graphmill.systems.blend.mix._mean_of_best", lambda choices, *_: 0 * choices[0] - 1)
    model = system.build(system.step_sizes)
    model.load_state_dict(blend.model.state_dict())
    system.solve(model, lambda: None)
    best = max(mrr(blend, scorer) for scorer in system.baselines(model).values())
    assert mrr(blend, system.scorer(model)) >= best
    assert len(torch.unique(model.mix, dim=0)) == 1


def test_its_figure_of_validation_links_is_by_amounts_chosen_on_others(
    blend: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    system: Any = blend.system
    valid, folds, links = system.ranking_queries("valid", TUNING_QUERIES), system.folds, system.links
    every = system.parts_of(blend.model)
    empty = BlendScorer(links, every, np.ones(tuple(blend.model.mix.shape), np.float32))
    assert np.array_equal(blend.model.cross_fitted.numpy(), fitted_mixes(empty, valid, folds, 0)[1:])
    popularity = {"popularity": choices_of(every)[0]["popularity"]}  # a mixture is not below it
    monkeypatch.setattr("graphmill.systems.blend.mix.choices_of", lambda parts: (popularity, choices_of(parts)[1]))
    mixes = fitted_mixes(empty, valid, folds, 0)
    assert len(mixes) == 1 + FOLDS
    assert len(np.unique(mixes, axis=0)) > 2
    for fold in (0, 3):
        rows = [folds[each.relation][each.heads] != fold for each in valid.relations]
        kept = [
            replace(each, heads=each.heads[left], tails=each.tails[left])
            for each, left in zip(valid.relations, rows, strict=True)
        ]
        of_others = fitted_mixes(empty, replace(valid, relations=tuple(kept)), folds, 0)
        assert np.array_equal(of_others[0], mixes[1 + fold])
    scorer, heads = system.scorer_for(blend.model, "valid"), np.arange(20)
    cross_fitted = blend.model.cross_fitted.numpy()
    scores = torch.stack([BlendScorer(links, every, mix).score_targets(0, heads) for mix in cross_fitted])
    assert torch.equal(scorer.score_targets(0, heads), scores[folds[0][:20], heads])
    other = CrossFittedScorer(links, every, mixes[1:], folds)
    scores = torch.stack([BlendScorer(links, every, mix).score_targets(0, heads) for mix in mixes[1:]])
    assert torch.equal(other.score_targets(0, heads), scores[folds[0][:20], heads])


def test_validation_alone_is_ranked_by_them(blend: Restored) -> None:
    system: Any = blend.system
    other = restore(blend.run.path)
    other.model.cross_fitted.zero_()  # all scores are equal
    alike = mrr(other, system.scorer_for(other.model, "valid"))
    plain = mrr(blend, system.scorer(blend.model))
    assert alike < plain / 2
    for split, figure in (("valid", alike), ("test", mrr(blend, system.scorer(blend.model), "test"))):
        metrics = system.evaluate(other.model, split, final=True, poll=lambda: None)
        assert metrics["mrr"] == pytest.approx(figure)
        values = shared_queries(blend.graph, split).values(system, other.model, all_of_them, lambda: None)
        assert values.mean == pytest.approx(figure)
        assert rank_any(other, split)["mrr"]["model"] == pytest.approx(figure)


def test_a_live_blend_of_other_parts_is_not_ranked_on_a_newer_graph(blend: Restored) -> None:
    system: Any = blend.system
    old = OldRows(np.arange(1), np.arange(1), same_relations=True)
    tensors = {name: each for name, each in blend.model.state_dict().items() if not name.startswith("parts.knn.")}
    with pytest.raises(InputError, match="would have other parts: name them"):
        system.carry_over(blend.model, tensors, old)


def test_a_node_stays_in_its_fold_when_the_graph_grows(tmp_path: Path) -> None:
    """So the amounts of a live version are measured on the links that they were not chosen on."""
    lines = [f"n{head},likes,n{head + 1}" for head in range(40)]
    folds = []
    for number, more in enumerate(([], ["a,likes,b", "n7,likes,n3"])):
        file = tmp_path / f"{number}.csv"
        file.write_text("\n".join(["head,relation,tail", *more, *lines]) + "\n", encoding="utf-8")
        graph = build_graph(read_edges(file), tmp_path / f"graph{number}")
        folds.append(dict(zip(graph.node_table()["id"].to_pylist(), folds_of(graph)[0].tolist(), strict=True)))
    assert set(folds[1]) - set(folds[0]) == {"a", "b"}
    assert {node: fold for node, fold in folds[1].items() if node in folds[0]} == folds[0]
    assert len(set(folds[0].values())) > FOLDS // 2


def test_ranking_it_trains_and_chooses_nothing(blend: Restored, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("graphmill.usage.baselines.train", never)
    monkeypatch.setattr("graphmill.systems.neighbours.system.choose", never)
    result = rank_any(blend)
    assert set(result["mrr"]) == {"model", "degree", *BASELINES}


def test_score_export_and_explanation_are_one(blend: Restored) -> None:
    system: Any = blend.system
    model: Any = blend.model
    before = model.mix.clone()
    try:
        model.mix.copy_(torch.tensor([0.9, 2.0, 3.0, 0.8, 0.5]))
        _one(system, model)
    finally:
        model.mix.copy_(before)


def _one(system: Any, model: Any) -> None:
    score = system.scorer(model).score_targets(1, np.array([2]))
    pairs = system.scorer(model).score(1, np.array([2, 2]), np.array([3, 8]))
    torch.testing.assert_close(pairs, score[0, [3, 8]], rtol=1e-5, atol=1e-5)
    vectors = np.concatenate([block.vectors for block in system.embeddings(model)])
    exported = scorer_of(system.scoring(model), vectors).score_targets(1, np.array([2]))
    torch.testing.assert_close(exported, score, rtol=1e-5, atol=1e-5)
    first, second = system.links.offsets[1]
    for tail in (3, 8):
        explainer = explainer_of(system, model)
        (why,) = explainer.named([explainer.explain(1, first + 2, second + tail)])
        assert why.score == pytest.approx(float(score[0, tail]), rel=1e-4)
        shares = sum(e.share for e in (*why.evidence, *why.against)) + why.other
        assert shares == pytest.approx(sum(v for n, v in why.parts.items() if n not in NOT_SHARED), rel=1e-4, abs=1e-5)
        whole = explainer_of(system, model).score_without(1, first + 2, second + tail, np.zeros(0, np.int64))
        assert whole == pytest.approx(float(score[0, tail]), rel=1e-4)


def test_a_new_node_with_a_known_nodes_edges_is_near_it(blend: Restored) -> None:
    graph, system = blend.graph, blend.system
    kinds = [t.name for t in graph.node_types]
    known, relations = 4, []
    for relation in graph.relations:
        matrix = system.links.outgoing[relation.index].tocoo()  # type: ignore[attr-defined]
        new = graph.node_type("disease").count
        ends = (np.zeros(0, np.int64), np.zeros(0, np.int64))
        if relation.source == "disease":
            ends = (np.full((matrix.row == known).sum(), new), matrix.col[matrix.row == known].astype(np.int64))
        elif relation.target == "disease":
            ends = (matrix.row[matrix.col == known].astype(np.int64), np.full((matrix.col == known).sum(), new))
        relations.append(ends)
    later = LaterNodes([int(kind == "disease") for kind in kinds], relations)
    vectors, arrays = system.embed_later(blend.model, later)  # type: ignore[attr-defined]
    table = np.concatenate([block.vectors for block in system.embeddings(blend.model)])
    row = graph.node_type("disease").offset + known
    cosine = table @ vectors[0] / np.maximum(np.linalg.norm(table, axis=1) * np.linalg.norm(vectors[0]), 1e-9)
    assert cosine.argmax() == row
    offset = graph.node_type("disease").offset + graph.node_type("disease").count
    grown = np.insert(table, offset, vectors[0], axis=0)
    scores = scorer_of(arrays, grown).score_targets(0, np.array([known, graph.node_type("disease").count]))
    assert np.corrcoef(scores.numpy())[0, 1] > 0.8


# -- runs of parts -------------------------------------------------------------------------------------------------------


def test_a_finished_part_of_another_run_is_copied(blend: Restored, graph: TypedGraph) -> None:
    fewer = values_of(graph, model={"embedding_dim": 16, "parts": ["spectral", "complex"]})
    other = Path(train(fewer, "test")["run_dir"])
    assert other != blend.run.path
    (one,), (two,) = (list((run / parts.PARTS / "complex").glob("*/report.json")) for run in (blend.run.path, other))
    assert one.read_bytes() == two.read_bytes()
    assert restore(other).system.name == "blend"


def test_a_finished_run_of_complex_with_the_parts_settings_is_copied(graph: TypedGraph, tmp_path: Path) -> None:
    part_values = complex_part.complex_values(graph, 0, "cpu")
    alone = Path(train(part_values, "test", root=str(tmp_path / "complex"))["run_dir"])
    defaults = {"system": "complex", "data": str(graph.path), "acceleration": {"device": "cpu"}}
    other = parse_settings(defaults | {"preset": "none"}, "x").objective.relation_weight
    assert other != part_values["objective"]["relation_weight"]
    values = values_of(graph, model={"embedding_dim": 16, "parts": ["spectral", "complex"]})
    result = Path(train(values, "test", root=str(tmp_path / "blend"))["run_dir"])
    (copied,) = (result / parts.PARTS / "complex").glob("*")
    assert copied.name == alone.name
    assert (copied / "report.json").read_bytes() == (alone / "report.json").read_bytes()


def test_a_blend_that_was_killed_in_a_part_goes_on_with_it(blend: Restored, graph: TypedGraph, tmp_path: Path) -> None:
    settings = tmp_path / "settings.yaml"
    settings.write_text(yaml.safe_dump(values_of(graph)))
    slow = "import graphmill.training.engine as e, time; f = e.Engine._finish_epoch\n"
    slow += "e.Engine._finish_epoch = lambda self: (f(self), time.sleep(0.5))\n"
    code = f"{slow}from graphmill.runs.train import train; import yaml, sys\n"
    code += "train(yaml.safe_load(open(sys.argv[1])), 'test', root=sys.argv[2])"
    # Its own parent folder: no finished run is near.
    root = tmp_path / "far" / "blend"
    process = subprocess.Popen([sys.executable, "-c", code, str(settings), str(root)], env=dict(os.environ))
    end = time.monotonic() + 120
    while not (saved := list(root.glob("*/parts/complex/*/checkpoints/*.safetensors"))) and process.poll() is None:
        assert time.monotonic() < end
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert saved
    assert not list(root.glob("*/checkpoints/*.safetensors"))
    part = saved[0].parent.parent
    epochs = part / "metrics.jsonl"
    before = epochs.read_text().count('"epoch"')
    again = train(values_of(graph), "test", root=str(root), outlets=[Kept()])
    assert not (part / "report.json").samefile(blend.run.path)
    assert before
    assert_same(outcome(again), outcome(train(values_of(graph), "test")))


def test_starting_over_starts_its_parts_over(graph: TypedGraph, tmp_path: Path) -> None:
    first = Path(train(values_of(graph), "test", root=str(tmp_path / "a" / "blend"))["run_dir"])
    (part,) = (first / parts.PARTS / "complex").glob("*/report.json")
    before = part.stat().st_mtime_ns
    never = values_of(graph, acceleration={"device": "cpu", "resume": "never"})
    train(never, "test", root=str(tmp_path / "a" / "blend"))
    assert part.stat().st_mtime_ns > before


# -- settings and amounts ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"model": {"parts": ["knn"]}}, "lacks spectral"),
        ({"model": {"parts": ["spectral", "knn", "knn"]}}, "names a part twice"),
        ({"acceleration": {"processes": 2}}, "processes"),
        ({"acceleration": {"batch_size": 8}}, "batch_size"),
        ({"training": {"epochs": 3}}, "epochs"),
    ],
)
def test_what_it_cannot_honour_is_refused(section: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        parse_settings({"system": "blend", **section}, "x")


@pytest.mark.parametrize(("links", "nodes", "n3"), [(99_999, 2_000, 0.1), (100_000, 2_000, 0.05), (700, 10, 0.02)])
def test_the_more_links_the_less_norm(links: int, nodes: int, n3: float) -> None:
    assert complex_part.n3_of(links, nodes) == n3


def test_the_complex_of_a_small_graph_makes_few_passes(graph: TypedGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    training = complex_part.complex_values(graph, 0, "cpu")["training"]
    edges = sum(relation["split"]["train"] for relation in graph.manifest["relations"])
    assert training["steps_per_epoch"] * training["epochs"] * 1024 <= (complex_part.MOST_PASSES + 7) * max(edges, 1024)
    monkeypatch.setattr(complex_part, "MINUTES", 1e-6)
    assert complex_part.complex_values(graph, 0, "cpu")["training"]["steps_per_epoch"] == 1


def test_amounts_are_the_mean_of_the_best_choices() -> None:
    choices = np.random.default_rng(0).random((9, 5)).astype(np.float32)
    values = np.array([0.2, 0.9, 0.1, 0.8, 0.7, 0.6, 0.5, 0.1, 0.1])
    np.testing.assert_allclose(_mean_of_best(choices, values, BEST), choices[[1, 3, 4, 5, 6]].mean(0))
    assert BEST == 5


def test_mixtures_are_the_sums_of_their_amounts() -> None:
    """What neighbouring choices share is summed once; the sum itself is the same, bit for bit."""
    scores = [torch.randn(3, 5, generator=torch.Generator().manual_seed(n)) for n in range(3)]
    choices = [choice for choice in product((1.0, 0.0), (0.0, 0.3), (0.0, 5.0, 20.0)) if any(choice)]
    result = list(_mixtures(scores, choices))
    assert len(result) == len(choices)
    for choice, mixture in zip(choices, result, strict=True):
        assert torch.equal(mixture, sum(a * s for a, s in zip(choice, scores, strict=True)))
