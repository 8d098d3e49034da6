"""What depends on the system: rankings of triples and items, recommendations, influence.

The worker is played by the test.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import SettingsError
from graphmill.training.settings import CHOSEN_ON_TEST
from tests.components.conftest import FakeWorker, Project, checks, failure
from tests.components.test_triples_and_interactions import write_triples, write_views

RUN = "data/06_models/toy/model/abc"
RESOURCES = dg.Definitions(resources={"accelerator": None, "worker": None})
SOURCES = {
    "conve": {"name": "triples", "format": "triples", "path": "data/triples"},
    "sasrec": {"name": "views", "format": "sequence", "path": "data/views.tsv"},
    "mf": {"name": "views", "format": "sequence", "path": "data/views.tsv"},
}


class System:
    """A project with one model whose graph is there and whose embeddings are said to be."""

    def __init__(self, project: Project, system: str, source: dict[str, str] | None = None, **attributes: Any) -> None:
        self.project, self.system = project, system
        write_triples(project.root / "data" / "triples")
        write_views(project.root / "data" / "views.tsv")
        self.dataset = project.dataset(sources=[source or SOURCES[system]])
        self.model = project.model(system=system, **attributes)
        assert project.materialize(self.dataset).success
        (project.root / RUN).mkdir(parents=True)
        value = {"run_dir": RUN, "graph": project.value("toy/graph"), "files": {}}
        (project.root / f"data/06_models/toy/{system}_embeddings.json").write_text(json.dumps(value))

    def run(self, part: str, config: dict[str, Any] | None = None, **replies: Any) -> dg.ExecuteInProcessResult:
        worker = FakeWorker(
            replies={mode: {"result": {"kind": "result", **result}} for mode, result in replies.items()}
        )
        typed = {f"toy__{self.system}_{part}": config} if config else {}
        only = f'key:"toy/{self.system}_{part}"'
        return self.project.materialize(self.dataset, self.model, only=only, worker=worker, **typed)

    def write(self, name: str, content: Any) -> None:
        path = self.project.root / RUN / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def names(definitions: dg.Definitions) -> set[str]:
    return {key.path[-1] for asset in definitions.assets for key in asset.keys}


@pytest.mark.parametrize(
    ("system", "parts"),
    [
        ("hgt", {"links"}),
        ("complex", {"links"}),
        ("transe", {"links"}),
        ("conve", {"influence", "links"}),
        ("sasrec", {"recommendations"}),
        ("tisasrec", {"recommendations"}),
    ],
)
def test_a_system_has_the_assets_that_make_sense_for_it(project: Project, system: str, parts: set[str]) -> None:
    common = {"model", "embeddings", "validation", "ranking", "drift", "promoted"}
    assert names(project.model(system=system)) == {f"{system}_{part}" for part in common | parts}


def test_a_system_without_vectors_has_its_weights_in_their_place(project: Project) -> None:
    parts = ("model", "scorer", "ranking", "links", "drift", "promoted")
    assert names(project.model(system="nbfnet")) == {f"nbfnet_{part}" for part in parts}


def test_a_system_in_closed_form_has_the_assets_of_its_kind(project: Project) -> None:
    ease = ("model", "scorer", "ranking", "recommendations", "drift", "promoted")
    assert names(project.model(system="ease")) == {f"ease_{part}" for part in ease}
    assert "knn_embeddings" not in names(project.model(system="knn"))


@pytest.mark.parametrize(
    ("attributes", "sentence"),
    [
        ({"system": "hgt", "influence": {"top_k": 3}}, "influence: hgt has no such asset"),
        ({"system": "conve", "recommendations": {"k": 3}}, "recommendations: conve has no such asset"),
        ({"system": "conve", "influence": {"top": 3}}, r"influence: unknown setting 'top' \(.*known here: split"),
        ({"system": "sasrec", "recommendations": {"k": 0}}, "recommendations: k = 0"),
        ({"system": "sasrec", "links": {"k": 3}}, "links: sasrec has no such asset"),
        ({"system": "hgt", "links": {"k": 0}}, "links: k = 0"),
    ],
)
def test_mistakes_in_a_systems_sections_are_one_sentence(
    project: Project, attributes: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SettingsError, match=sentence):
        project.model(**attributes)


# -- influence -------------------------------------------------------------------------------------------------------


def write_influence(system: System, split: str, checkpoints: int = 3) -> None:
    other = "ibuprofen → treats → pain"
    result: dict[str, Any] = {"test_triple": "aspirin → treats → pain"}
    for name, scores in (("top_influences", (2.5, 0.5)), ("top_opponents", (-0.25,))):
        result[name] = [{"train_triple": other, "influence": score} for score in scores]
    seen = [{"epoch": n, "learning_rate": 0.1, "loss": 1.0} for n in range(checkpoints)]
    about = {"num_test_triples": 1, "num_training_triples": 9, "checkpoints": seen, "results": [result]}
    system.write(f"influence/{split}.json", about)


def test_proponents_and_opponents_are_shown_by_name(project: Project) -> None:
    system = System(project, "conve", influence={"top_k": 3})
    write_influence(system, "test")
    result = system.run("influence", influence={})
    assert checks(result)["several_checkpoints"].passed
    output = project.metadata("toy/conve_influence")
    assert (output["dagster/row_count"], output["explained_triples"], output["checkpoints"]) == (3, 1, 3)
    assert "**ibuprofen → treats → pain** makes **aspirin → treats → pain** likelier" in output["summary"]
    assert "| aspirin → treats → pain | ibuprofen → treats → pain | 2.5 |" in output["proponents"]
    assert output["proponents"].count("aspirin") == 2
    assert "| -0.25 |" in output["opponents"]
    assert output["opponents"].count("aspirin") == 1
    assert project.value("toy/conve_influence")["json"] == f"{RUN}/influence/test.json"


def test_the_launchpad_asks_for_other_analyses(project: Project) -> None:
    system = System(project, "conve")
    write_influence(system, "valid", checkpoints=1)
    result = system.run("influence", {"split": "valid"}, influence={})
    assert not checks(result)["several_checkpoints"].passed
    assert project.value("toy/conve_influence")["json"] == f"{RUN}/influence/valid.json"


# -- items -----------------------------------------------------------------------------------------------------------


def items_ranking(figures: Mapping[str, Mapping[str, float]], best: str, metric: str) -> dict[str, Any]:
    """A ranking.json of items whose best simple way is ``best``; its interval leaves out 1."""
    ours, theirs = figures["model"][metric], figures[best][metric]
    against = {"best": best, "metric": metric, "figures": {"model": ours, best: theirs}, "queries": 90}
    against |= {"low": ours / theirs - 0.1, "high": ours / theirs + 0.1}
    return {"kind": "items", "epoch": 4, "split": "test", "figures": figures, "against": against}


@pytest.mark.parametrize(("model", "passed"), [(0.4, True), (0.2, False)])
def test_items_are_ranked_beside_the_baselines_and_by_both_protocols(
    project: Project, model: float, passed: bool
) -> None:
    system = System(project, "sasrec")
    figures = {
        "model": {"ndcg@10": model, "hr@10": 0.6, "mrr": 0.3},
        "untied": {"ndcg@10": 0.9, "hr@10": 0.95, "mrr": 0.8},
        "popularity": {"ndcg@10": 0.1, "hr@10": 0.2, "mrr": 0.1},
        "markov": {"ndcg@10": 0.25, "hr@10": 0.3, "mrr": 0.2},
    }
    system.write("ranking.json", items_ranking(figures, "markov", "ndcg@10"))
    result = system.run("ranking", rank={})
    check = checks(result)["beats_baselines"]
    assert check.passed is passed
    assert "a Markov chain" in check.description, "the best baseline, not the easiest"
    output = project.metadata("toy/sasrec_ranking")
    assert output["ndcg@10"] == model
    assert output["untied_ndcg@10"] == 0.9
    assert output["over_best_baseline"] == pytest.approx(model / 0.25)
    word, share = ("Better", "+60 %") if passed else ("Worse", "-20 %")
    assert re.match(rf"\*\*{word}\.\*\* .*ndcg@10 is {model}.* 0\.25 of a Markov chain", output["summary"])
    assert share in output["summary"]
    assert "| popularity | 0.1 | 0.2 | 0.1 |" in output["beside_the_baselines"]
    assert "| 0.9 | 0.95 | 0.8 |" in output["protocols"]
    assert "data:image/png;base64," in output["bars"]


@pytest.mark.parametrize(("model", "passed"), [(0.4, True), (0.25, False)])
def test_a_recommender_that_loses_to_a_factorisation_is_told_so(project: Project, model: float, passed: bool) -> None:
    system = System(project, "mf")
    baselines = {"popularity": 0.1, "item_knn": 0.2, "ease": 0.25, "mf": 0.3}
    figures = {name: {"recall@20": recall, "ndcg@20": 0.1} for name, recall in {"model": model, **baselines}.items()}
    system.write("ranking.json", {"kind": "items", "epoch": 4, "split": "test", "figures": figures})
    check = checks(system.run("ranking", rank={}))["beats_baselines"]
    assert check.passed is passed
    assert "matrix factorisation, bound" in check.description
    output = project.metadata("toy/mf_ranking")
    assert output["over_best_baseline"] == pytest.approx(model / 0.3, rel=1e-3)
    assert "| EASE | 0.25 | 0.1 |" in output["beside_the_baselines"]


def test_the_verdict_of_a_ranking_is_on_the_asset(project: Project) -> None:
    system = System(project, "mf")
    figures = {name: {"recall@20": recall} for name, recall in {"model": 0.25, "popularity": 0.1, "mf": 0.3}.items()}
    system.write("ranking.json", items_ranking(figures, "mf", "recall@20"))
    system.run("ranking", rank={})
    summary = project.metadata("toy/mf_ranking")["summary"]
    assert re.match(r"\*\*Worse\.\*\* .*recall@20 is 0\.25.* 0\.3 of matrix factorisation.*-17 %", summary)
    assert "`graphmill train mf`" in summary


@pytest.mark.parametrize(("recall", "passed"), [(0.3, True), (0.29, False)])
@pytest.mark.parametrize("set_to", [{}, {"baseline_severity": "error"}])
def test_a_tie_with_the_best_baseline_passes_and_a_loss_is_as_loud_as_its_severity(
    project: Project, recall: float, passed: bool, set_to: dict[str, str]
) -> None:
    system = System(project, "mf", checks=set_to)
    figures = {name: {"recall@20": value} for name, value in {"model": recall, "popularity": 0.1, "ease": 0.3}.items()}
    system.write("ranking.json", {"kind": "items", "epoch": 4, "split": "test", "figures": figures})
    check = checks(system.run("ranking", rank={}))["beats_baselines"]
    assert check.passed is passed
    assert check.severity.value == ("ERROR" if set_to else "WARN")


def test_a_ranking_whose_epoch_was_chosen_on_test_says_that_it_is_optimistic(project: Project) -> None:
    system = System(project, "mf")
    figures = {"model": {"recall@20": 0.4}, "ease": {"recall@20": 0.3}}
    for selected_on in ("valid", "test"):
        about = {"kind": "items", "epoch": 4, "split": "test", "selected_on": selected_on}
        system.write("ranking.json", {**about, "figures": figures})
        check = checks(system.run("ranking", rank={}))["beats_baselines"]
        output = project.metadata("toy/mf_ranking")
        assert output.get("optimistic", "") == (CHOSEN_ON_TEST if selected_on == "test" else "")
        assert (CHOSEN_ON_TEST in check.description) == (selected_on == "test")


def write_recommendations(system: System, items: list[str], late: bool = True) -> None:
    users = [f"u{n}" for n in range(20)] + ["late"] * late
    table = pa.table(
        {
            "user_id": pa.array(np.repeat(users, len(items))),
            "rank": pa.array(np.tile(np.arange(1, len(items) + 1, dtype=np.int32), len(users))),
            "item_id": pa.array(items * len(users)),
            "score": pa.array(np.tile(np.linspace(2, 1, len(items), dtype=np.float32), len(users))),
        }
    )
    pq.write_table(table, system.project.root / RUN / "recommendations.parquet")


def test_recommendations_are_a_file_and_a_readable_table(project: Project) -> None:
    system = System(project, "sasrec", recommendations={"k": 2})
    write_recommendations(system, ["i4", "i6"])
    reply = {"file": f"{RUN}/recommendations.parquet", "users": 21, "rows": 42, "k": 2}
    result = system.run("recommendations", recommend=reply)
    assert result.success, failure(result)
    output = project.metadata("toy/sasrec_recommendations")
    assert (output["dagster/row_count"], output["users"], output["items_recommended"]) == (42, 21, 2)
    assert output["catalogue_coverage"] == pytest.approx(2 / 7, abs=1e-4)
    assert "| u0 | i2, i5, i1 | i4 (2.00), i6 (1.00) |" in output["examples"], (
        "history in order, then the best with scores"
    )
    assert output["examples"].count("\n") == 9
    assert checks(result)["users_have_items"].passed
    varied = checks(result)["users_differ"]
    assert not varied.passed
    assert "2 of 7 items" in varied.description


def test_without_an_order_recommendations_do_not_say_what_was_met_last(project: Project) -> None:
    plays = project.root / "data" / "plays.csv"
    plays.parent.mkdir(parents=True, exist_ok=True)
    plays.write_text("user,item\n" + "".join(f"u{u},i{i}\n" for u in range(20) for i in range(7) if (u + i) % 3))
    source = {"name": "plays", "format": "interactions_csv", "path": "data/plays.csv"}
    system = System(project, "mf", source, recommendations={"k": 1})
    write_recommendations(system, ["i4"], late=False)
    reply = {"file": f"{RUN}/recommendations.parquet", "users": 20, "rows": 20, "k": 1}
    result = system.run("recommendations", recommend=reply)
    assert result.success, failure(result)
    assert "has met, among others" in project.metadata("toy/mf_recommendations")["examples"]


# -- predicted links -------------------------------------------------------------------------------------------------


def write_link_report(system: System, top_tail_share: float = 0.2, ece: float = 0.02, rows: int = 6) -> None:
    texts = {"head_name": "metformin", "relation": "indication", "tail_name": "diabetes"}
    row = {"rank": 1, "probability": 0.25, "median_rank": 40.2, **texts}
    row["paths"] = "metformin –targets– AMPK –part of– insulin –causes– diabetes ; metformin –treats– x –like– diabetes"
    diversity = {"distinct_tails": 9, "top_10_share": 0.9}
    relation = {
        "relation": "drug | indication | disease",
        **{"heads": 40, "rows": 80, "candidates": 40, "known_rows": 0, "looked_for_paths": 80, "supported_rows": 60},
        "diversity": [{"n": n, "top_tail_share": top_tail_share, **diversity} for n in (1, 2)],
        "calibration": {"valid_links": 30, "negatives": "open tails", "base_rate": 0.01, "ece_top": ece},
    }
    few = {"valid_links": 3, "negatives": "open tails", "why": "fewer than 20 validation links"}
    other = relation | {"relation": "disease | indication | drug", "calibration": few}
    system.write("links/links.json", {"rows": 160, "relations": [relation, other], "shown": [row] * rows})
    pq.write_table(pa.table({"head_id": ["a"], "score": [1.0]}), system.project.root / RUN / "links/links.parquet")


def test_predicted_links_are_a_readable_table_and_figures(project: Project) -> None:
    system = System(project, "conve", links={"k": 2})
    write_link_report(system, rows=12)
    result = system.run("links", links={})
    assert result.success, failure(result)
    output = project.metadata("toy/conve_links")
    assert output["dagster/row_count"] == 1
    assert (output["ece_top"], output["supported_share"]) == (0.02, 0.75)
    head, _, _, _, first, *rest = output["links"].splitlines()
    assert head == "**metformin**"
    assert first == "| indication | diabetes | 0.25 | 40 | –targets– AMPK –part of– insulin –causes– |"
    assert len(rest) == 11
    errors = [row.data["calibration error"] for row in output["by_relation"].records]
    assert errors == ["0.02", "fewer than 20 validation links"]
    assert all(evaluation.passed for evaluation in checks(result).values())


@pytest.mark.parametrize(
    ("report", "failing"),
    [({"top_tail_share": 0.9}, {"tails_differ"}), ({"ece": 0.3}, {"probabilities_hold"})],
)
def test_links_that_cannot_be_trusted_fail_a_check(
    project: Project, report: dict[str, float], failing: set[str]
) -> None:
    system = System(project, "conve", links={"k": 2})
    write_link_report(system, **report)
    result = checks(system.run("links", links={}))
    assert {name for name, evaluation in result.items() if not evaluation.passed} == failing


def test_the_worker_is_told_what_the_launchpad_says_of_links(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    run = FakeWorker.run

    def spy(self: FakeWorker, context: Any, *, extras: dict[str, Any], **rest: Any) -> Any:
        seen.append(extras)
        return run(self, context, extras=extras, **rest)

    monkeypatch.setattr(FakeWorker, "run", spy)
    system = System(project, "conve", links={"relations": ["treats"], "k": 2})
    write_link_report(system)
    assert system.run("links", {"k": 7}, links={}).success
    assert (seen[0]["mode"], seen[0]["links"]["relations"], seen[0]["links"]["k"]) == ("links", ["treats"], 7)
