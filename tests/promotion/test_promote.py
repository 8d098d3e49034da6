"""Runs become versions: by policy and by hand, compared on the same queries, taken back, and never half."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmill.errors import CheckFailedError, InputError
from graphmill.evaluation.health.report import health_report
from graphmill.export.manifests import read_manifest
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.promotion import promote
from graphmill.promotion.compare import compare
from graphmill.promotion.contents import load_champion
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.promote import promote_run, roll_back, versions_folder
from graphmill.promotion.versions import Version, Versions
from graphmill.runs.export import restore
from tests.evaluation.health.synthetic import Size, subspace
from tests.promotion.conftest import TrainRun
from tests.reports.test_verdict import links

BY = {"by": "a test"}
ALWAYS = PromotionSettings(when="checks_pass")


@pytest.fixture(scope="module")
def first(trained: TrainRun) -> Path:
    return trained()


@pytest.fixture(scope="module")
def better(trained: TrainRun) -> Path:
    return trained(model={"inputs": "spectral"}, training={"epochs": 40, "learning_rate": 0.02})


@pytest.fixture
def store(tmp_path: Path) -> Versions:
    return Versions(tmp_path / "07_promoted" / "toy" / "hgt")


def live(store: Versions) -> Version:
    result = store.current()
    assert result is not None
    return result


def test_a_version_holds_the_export_byte_for_byte_and_says_what_it_is(store: Versions, first: Path) -> None:
    result = promote_run(first, store, ALWAYS, **BY)
    assert result["outcome"] == "promoted"
    version = live(store)
    assert (result["version"], result["path"]) == (version.name, str(version.path))
    written = (first / "embeddings" / "embeddings.parquet").read_bytes()
    assert (version.path / "embeddings.parquet").read_bytes() == written
    assert version.about["system"] == "hgt"
    assert version.about["rows"] == 114
    assert version.about["metrics"]["valid_mrr"] > 0
    assert set(version.about["graph"]["nodes"]) == {"disease", "drug", "gene/protein"}
    version.verify()


def test_runs_and_versions_lie_beside_each_other(first: Path, tmp_path: Path) -> None:
    """Of runs elsewhere, versions lie where the other commands look for them."""
    store = versions_folder(first)
    assert store.path == first.parents[3] / "07_promoted" / "toy" / "hgt"
    assert store.label == "toy/hgt"
    assert versions_folder(tmp_path / "elsewhere" / "run").path == Path("data/07_promoted", tmp_path.name, "elsewhere")


def test_a_better_candidate_goes_live_and_a_worse_one_does_not(store: Versions, first: Path, better: Path) -> None:
    settings = PromotionSettings(when="better")
    promote_run(first, store, settings, **BY)
    up = promote_run(better, store, settings, **BY)
    assert up["outcome"] == "promoted", up["reason"]
    result = up["comparison"]
    assert result["low"] > 0
    assert result["candidate"] > result["champion"]
    assert result["left_out"] == 0
    assert up["test"]["candidate"]["mrr"] != up["test"]["champion"]["mrr"]
    down = promote_run(first, store, settings, **BY)
    assert (down["outcome"], down["version"]) == ("kept", up["version"])
    assert "above 0" in down["reason"]
    again = promote_run(better, store, settings, **BY)
    assert (again["outcome"], again["version"]) == ("kept", up["version"])
    assert "is this run already" in again["reason"]
    assert len(store.all()) == 2


def test_a_promotion_that_others_overtake_is_decided_again(
    store: Versions, first: Path, better: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide, switched = promote.decide, []

    def slow(settings: PromotionSettings, facts: promote.Facts) -> promote.Decision:
        if not switched:  # while this one decides, another one goes live
            switched.append("")
            switched[0] = promote_run(first, store, ALWAYS, **BY)["version"]
        return decide(settings, facts)

    monkeypatch.setattr(promote, "decide", slow)
    result = promote_run(better, store, ALWAYS, **BY)
    assert (result["outcome"], result["champion"]) == ("promoted", switched[0])
    assert [s.after for s in store.history()] == [switched[0], result["version"]]


def test_the_candidates_figure_is_the_one_of_its_report(store: Versions, first: Path, better: Path) -> None:
    promote_run(first, store, ALWAYS, **BY)
    result = compare(restore(better), live(store))
    for run, who in ((better, "candidate"), (first, "champion")):
        assert result[who] == pytest.approx(json.loads((run / "report.json").read_text())["metrics"]["valid_mrr"])


def test_a_question_decides_on_its_own_links(store: Versions, first: Path, better: Path, tmp_path: Path) -> None:
    file = tmp_path / "question.yaml"
    file.write_text("relations: [drug_protein, disease_protein]\nmetric: hits@10\n")
    settings = PromotionSettings(when="better", question=str(file), min_gain=-1.0)
    promote_run(first, store, settings, **BY)
    result = promote_run(better, store, settings, **BY)
    assert result["outcome"] == "promoted"
    restored = restore(better)
    edges = [restored.graph.edges(r.index) for r in restored.graph.relations if r.name != "protein_protein"]
    assert result["comparison"]["queries"] == sum(int((np.asarray(stored.split) == 1).sum()) for stored in edges)
    assert result["comparison"]["metric"] == "hits@10"
    for content, sentence in (
        ("metric: hits@0", "metric 'hits@0' is not measured"),
        ("split: test", "write split: valid"),
        ("relations: [cures]", "has no relation 'cures'"),
    ):
        file.write_text(content)
        with pytest.raises(InputError, match=sentence):
            promote_run(first, store, settings, **BY)
    assert live(store).name == result["version"]


def test_what_was_rolled_back_comes_back_by_hand_only(store: Versions, first: Path, better: Path) -> None:
    settings = PromotionSettings(when="better")
    promote_run(first, store, settings, **BY)
    up = promote_run(better, store, settings, **BY)
    back = roll_back(store, by="me", why="users complained")
    assert back["before"] == up["version"]
    kept = promote_run(better, store, settings, **BY)
    assert kept["outcome"] == "kept"
    assert "by me" in kept["reason"]
    assert promote_run(better, store, person=True, **BY)["version"] == up["version"]
    assert [s.kind for s in store.history()] == ["promoted", "promoted", "rolled back", "promoted"]


def test_a_person_decides_against_the_figures_but_not_for_a_broken_embedding(
    store: Versions, first: Path, better: Path
) -> None:
    """Twelve steps leave every type a point, which fails checks of health."""
    promote_run(better, store, ALWAYS, **BY)
    with pytest.raises(CheckFailedError, match=r"not sound: .*--force"):
        promote_run(first, store, person=True, **BY)
    result = promote_run(first, store, person=True, force=True, why="older names", **BY)
    assert (result["outcome"], result["reason"]) == ("promoted", "older names")
    assert result["comparison"]["high"] < 0


@pytest.mark.parametrize("ratio", [(1.2, 1.05, 1.4), (1.2, 0.95, 1.4)])
def test_few_used_dimensions_do_not_hold_back_a_better_model(
    store: Versions,
    better: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ratio: tuple[float, float, float],
) -> None:
    """Made-up vectors and a made-up ranking stand for those of the run."""
    drawn = subspace(np.random.default_rng(0), Size())
    monkeypatch.setattr(promote, "validate", lambda *_, **__: health_report(drawn.X, drawn.types, list("abcde")))
    run = shutil.copytree(better, better.with_name(tmp_path.name))
    ranking = {"kind": "links", "epoch": read_manifest(run / "embeddings")["epoch"], **links(*ratio)}
    ranking["comparison"]["macro"] = {}
    (run / "ranking.json").write_text(json.dumps(ranking))
    if ratio[1] > 1:
        assert promote.health_failures(run) == []
        assert promote_run(run, store, person=True, **BY)["outcome"] == "promoted"
    else:
        assert "components_90" in promote.health_failures(run)
        with pytest.raises(CheckFailedError, match=r"not sound: .*--force"):
            promote_run(run, store, person=True, **BY)


def test_an_export_that_is_not_whole_is_not_promoted(store: Versions, trained: TrainRun) -> None:
    run = trained(training={"seed": 5})
    vectors = run / "embeddings" / "embeddings.parquet"
    vectors.write_bytes(vectors.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"embeddings\.parquet has changed since the export"):
        promote_run(run, store, ALWAYS, **BY)
    vectors.unlink()
    with pytest.raises(InputError, match=r"embeddings\.parquet is missing"):
        promote_run(run, store, ALWAYS, **BY)
    assert store.all() == []


def test_on_its_own_graph_the_champion_is_exactly_itself(store: Versions, first: Path, better: Path) -> None:
    promote_run(first, store, ALWAYS, **BY)
    champion, run = load_champion(live(store), restore(better)), restore(first)
    for name, tensor in run.model.state_dict().items():
        assert torch.equal(champion.model.state_dict()[name], tensor)
    assert champion.new_rows == 0


def test_on_a_grown_graph_what_the_champion_was_trained_on_is_left_out_and_counted(
    store: Versions, outputs: Path, first: Path, trained: TrainRun
) -> None:
    """Another split of the same edges: most of its validation links were training links of the champion."""
    promote_run(first, store, ALWAYS, **BY)
    old = TypedGraph.open(outputs / "toy" / "graph")
    regraph(old, outputs / "toy" / "other", seed=1, valid=0.4)
    candidate = restore(trained("other"))
    result = compare(candidate, live(store))
    was_train = 0
    for relation in candidate.graph.relations:
        edges, before = candidate.graph.edges(relation), old.edges(old.relation(*relation.key))
        split = {(s, d): p for s, d, p in zip(before.src, before.dst, before.split, strict=True)}
        request = {(s, d) for s, d, p in zip(edges.src, edges.dst, edges.split, strict=True) if p == 1}
        was_train += sum(split[pair] == 0 for pair in request)
    assert result["left_out"] == was_train > 100
    assert result["queries"] >= 30


def test_a_candidate_of_another_split_with_nothing_left_is_a_sentence(
    store: Versions, outputs: Path, first: Path, trained: TrainRun
) -> None:
    promote_run(first, store, ALWAYS, **BY)
    regraph(TypedGraph.open(outputs / "toy" / "graph"), outputs / "toy" / "few", seed=2, valid=0.1)
    result = promote_run(trained("few"), store, PromotionSettings(when="better"), **BY)
    assert result["outcome"] == "kept"
    assert "validation queries are left to compare on" in result["reason"]
    assert live(store).about["fingerprint"] == json.loads((first / "manifest.json").read_text())["fingerprint"]


def test_queries_of_a_relation_that_the_champion_does_not_know_are_left_out_and_named(
    store: Versions, outputs: Path, first: Path, trained: TrainRun
) -> None:
    """Without any other query the candidate waits for a person; the version that is live stays."""
    whole, known = TypedGraph.open(outputs / "toy" / "graph"), ["drug_protein", "protein_protein"]
    regraph(whole, outputs / "toy" / "less", seed=0, valid=0.4, only=known)
    regraph(whole, outputs / "toy" / "more", seed=0, valid=0.4)
    promote_run(trained("less"), store, ALWAYS, **BY)
    candidate = restore(trained("more"))
    result = compare(candidate, live(store))
    assert result["new_relations"] == [
        "disease | disease_protein | gene/protein",
        "gene/protein | disease_protein | disease",
    ]
    held_out = {r.key: int((np.asarray(candidate.graph.edges(r).split) == 1).sum()) for r in candidate.graph.relations}
    unknown = sum(count for (_, name, _), count in held_out.items() if name not in known)
    assert 0 < unknown <= result["left_out"] < unknown + 10, (
        "and the few pairs that the champion trained on in another relation"
    )
    assert result["left_out"] + result["queries"] == sum(held_out.values())

    regraph(whole, outputs / "toy" / "only", seed=0, valid=0.1, only=["disease_protein"])
    kept = promote_run(trained("only"), store, PromotionSettings(when="better"), **BY)
    assert kept["outcome"] == "kept"
    assert "only 0 validation queries are left" in kept["reason"]
    assert "lacks their relation" in kept["reason"]
    assert len(store.all()) == len(store.history()) == 1


def test_mistakes_are_one_sentence_and_change_nothing(store: Versions, first: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="it is not a run directory"):
        promote_run(tmp_path, store, ALWAYS, **BY)
    with pytest.raises(InputError, match="toy/hgt has no versions"):
        roll_back(store, **BY)
    promote_run(first, store, ALWAYS, **BY)
    name = live(store).name
    with pytest.raises(InputError, match="is the live version of toy/hgt already"):
        roll_back(store, "1", **BY)
    with pytest.raises(InputError, match=f"has no version 'none'; there are: {name}"):
        roll_back(store, "none", **BY)
    with pytest.raises(InputError, match="no older one"):
        roll_back(store, **BY)
    assert len(store.history()) == 1


def regraph(graph: TypedGraph, out: Path, *, seed: int, valid: float, only: Sequence[str] = ()) -> None:
    """The same nodes and edges, or those of some relations, under another split."""
    import pyarrow as pa

    heads, tails, names = [], [], []
    for relation in graph.relations:
        if only and relation.name not in only:
            continue
        edges = graph.edges(relation)
        heads.append(np.asarray(edges.src) + graph.node_type(relation.source).offset)
        tails.append(np.asarray(edges.dst) + graph.node_type(relation.target).offset)
        names += [relation.name] * relation.edges
    label = pa.array(names).dictionary_encode()
    columns = {"relation": label, "display_relation": label}
    columns |= {
        "head": pa.array(np.concatenate(heads), pa.int32()),
        "tail": pa.array(np.concatenate(tails), pa.int32()),
    }
    settings = GraphSettings.model_validate({"split": {"valid": valid, "test": 0.05, "seed": seed}})
    build_graph(graph.node_table(), pa.table(columns), settings, out)


def test_what_the_run_has_to_show_is_part_of_the_version(store: Versions, first: Path) -> None:
    promote_run(first, store, ALWAYS, **BY)
    assert {"report.html", "report.json"} <= {path.name for path in live(store).path.iterdir()}


def test_the_health_of_a_run_that_a_person_promotes_is_in_the_version(store: Versions, better: Path) -> None:
    promote_run(better, store, person=True, **BY)
    assert json.loads((live(store).path / "health.json").read_text())["status"] in ("pass", "warn")


def test_a_recommenders_version_holds_its_recommendations(tmp_path: Path) -> None:
    from graphmill.runs.export import export_run
    from graphmill.runs.train import train
    from graphmill.usage.recommendations import recommend_run
    from tests.training.cases import CASES
    from tests.training.runs import settings_of

    case = CASES["mf"]
    path = train(settings_of(case, case.graph(tmp_path / "graph")), "test", root=str(tmp_path / "runs"))["run_dir"]
    restored = restore(path)
    export_run(restored)
    store = Versions(tmp_path / "toy" / "mf")
    promote_run(path, store, PromotionSettings(when="checks_pass", recommendations=3), **BY)
    written = Path(recommend_run(restored, 3)["file"]).read_bytes()
    assert (live(store).path / "recommendations.parquet").read_bytes() == written
    none = Versions(tmp_path / "other" / "mf")
    promote_run(path, none, PromotionSettings(when="checks_pass", recommendations=0), **BY)
    assert not (live(none).path / "recommendations.parquet").exists()
