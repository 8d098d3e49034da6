"""The baselines of a run's ranking: in ranking.json, on the command line, kept for the next time, and stopped."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.cli.output import ranking_json, show_ranking
from graphmill.errors import StoppedError
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import Restored, restore
from graphmill.runs.train import train
from graphmill.systems.blend import trained as complex_part
from graphmill.usage.baselines import LinkBaselines
from graphmill.usage.ranking import rank_any
from tests.systems.conve.graphs import random_graph
from tests.training.cases import CASES, typed_graph
from tests.training.runs import Kept

NAMES = ("degree", "knn", "spectral", "complex")


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """ComplEx in a blink."""
    monkeypatch.setattr(complex_part, "EPOCHS", 4)
    monkeypatch.setattr(complex_part, "MOST_PASSES", 8)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(tmp_path_factory.mktemp("typed") / "graph")


def trained(case: str, graph: TypedGraph, root: Path, **evaluation: Any) -> Restored:
    settings = CASES[case].settings
    values = {
        **settings,
        "system": CASES[case].system,
        "data": str(graph.path),
        "preset": "none",
        "training": {**settings["training"], "epochs": 1},
        "acceleration": {**settings.get("acceleration", {})},
        "evaluation": {"eval_every": 1, **evaluation},
    }
    return restore(train(values, "test", root=str(root))["run_dir"])


def test_every_baseline_stands_beside_the_model(
    typed: TypedGraph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    restored, output = trained("hgt-full", typed, tmp_path / "hgt"), Kept()
    result = rank_any(restored, outlets=[output])
    assert set(result["mrr"]) == {"model", *NAMES}
    report = json.loads((restored.run.path / "ranking.json").read_text())["comparison"]
    assert report["against"]["best"] in NAMES
    assert set(report["against"]["ratios"]) == set(NAMES)
    assert result["against"]["mrr"]["knn"] > result["against"]["mrr"]["degree"]
    page = ranking_json(result)
    assert page["figures"]["knn"]["mrr"] == result["mrr"]["knn"]
    assert {"macro", "micro", "against", "parts", "predicted"} <= set(page)
    show_ranking("RUN", result)
    printed = capsys.readouterr().out
    for text in ("micro mrr", "training links of the head", "the best simple way"):
        assert text in printed
    # The second time everything is as it was kept, and the figures are the same.
    again = rank_any(restored, outlets=[second := Kept()])
    assert again["against"] == result["against"]
    assert sum("as kept" in note for note in second.notes) == 3
    assert sum("choosing its settings" in note for note in output.notes) == 2


def test_triples_are_held_against_them_on_both_sides(tmp_path: Path) -> None:
    graph = random_graph(tmp_path / "graph")
    result = rank_any(trained("conve-kvsall", graph, tmp_path / "conve"))
    assert set(result["mrr"]) == {"model", *NAMES}
    assert result["against"]["average"] == "micro"
    for by in ("training links of the head", "training links of the target", "relation"):
        assert result["against"]["queries"] == sum(row["queries"] for row in result["parts"] if row["by"] == by)
    figures = ranking_json(result)["figures"]
    assert figures["degree"] == result["micro"]["degree"]


def test_complex_is_no_baseline_of_itself_and_settings_leave_baselines_out(typed: TypedGraph, tmp_path: Path) -> None:
    result = rank_any(trained("complex", typed, tmp_path / "complex", baselines=["knn", "complex"]))
    assert set(result["mrr"]) == {"model", "degree", "knn"}


def baselines(graph: TypedGraph, folder: Path, **more: Any) -> LinkBaselines:
    return LinkBaselines(graph, link_queries(graph, "test"), folder, **more)


@pytest.mark.parametrize(
    "damage", [lambda b: b"damaged", lambda b: b[: len(b) // 2], lambda b: b"", lambda b: b.replace(b"0.5", b"0.6", 1)]
)
def test_what_is_kept_depends_on_graph_and_settings_and_damage_is_mended(
    damage: Callable[[bytes], bytes], typed: TypedGraph, tmp_path: Path
) -> None:
    first = baselines(typed, tmp_path, width=8)
    computed = first.rankings(["knn", "spectral"])
    kept = sorted(path.name for path in tmp_path.glob("*.json"))
    assert len(kept) == 2
    baselines(typed, tmp_path, width=4).rankings(["knn", "spectral"])
    assert len(list(tmp_path.glob("knn-*.json"))) == 1  # its rows have no width
    assert len(list(tmp_path.glob("spectral-*.json"))) == 2
    outlet = Kept()
    again = baselines(typed, tmp_path, width=8, outlets=[outlet]).rankings(["knn"])
    assert "as kept" in outlet.notes[0]
    for ranking in (again["knn"], computed["knn"]):
        assert [each.reciprocal.dtype for each in ranking.relations] == [np.float64] * len(ranking.relations)
    content = (tmp_path / kept[0]).read_bytes()
    assert damage(content) != content
    (tmp_path / kept[0]).write_bytes(damage(content))
    mended = baselines(typed, tmp_path, width=8, outlets=[outlet := Kept()]).rankings(["knn"])
    assert not any("as kept" in note for note in outlet.notes)
    for ranking in (again["knn"], mended["knn"]):
        assert ranking.to_dict() == computed["knn"].to_dict()
        for mine, theirs in zip(computed["knn"].relations, ranking.relations, strict=True):
            np.testing.assert_array_equal(mine.reciprocal, theirs.reciprocal)


@pytest.mark.parametrize("name", ["knn", "spectral"])
def test_it_stops_wherever_it_is_asked(name: str, typed: TypedGraph, tmp_path: Path) -> None:
    polls, last = 0, 0

    def poll() -> None:
        nonlocal polls
        polls += 1
        if polls == last:
            raise StoppedError("enough")

    baselines(typed, tmp_path / "whole", width=4, poll=poll).rankings([name])
    whole = polls
    assert whole > 10
    for last in (1, 4, whole // 2, whole):  # noqa: B007
        polls = 0
        with pytest.raises(StoppedError):
            baselines(typed, tmp_path / "stopped", width=4, poll=poll).rankings([name])
    assert not list((tmp_path / "stopped").glob("*.json"))
