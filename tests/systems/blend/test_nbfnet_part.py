"""NBFNet as a part of a blend: from its training to the answers of a version, with new nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from starlette.testclient import TestClient

import graphmill
from graphmill.errors import InputError
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import link_queries
from graphmill.graph.training_links import TrainingLinks
from graphmill.graph.typed_graph import TypedGraph
from graphmill.promotion.promote import promote_run
from graphmill.promotion.versions import Versions
from graphmill.runs.export import Restored, export_run, restore
from graphmill.runs.planning import estimate_run, parts_of
from graphmill.runs.resolve import merge, resolve
from graphmill.runs.train import train
from graphmill.serving.application import application
from graphmill.systems import registry
from graphmill.systems.blend import trained as nbfnet_part
from graphmill.systems.blend.trained import NBFNET, chosen_parts, nbfnet_arrays, nbfnet_scorer
from graphmill.systems.nbfnet.settings import NbfnetSettings
from graphmill.usage.embed import grown_link_model
from graphmill.usage.explain import explain_link
from tests.systems.nbfnet.test_later_edges import COLUMNS, written
from tests.training.cases import CASES, typed_graph


@pytest.fixture(scope="module", autouse=True)
def short_training() -> Iterator[None]:
    values = nbfnet_part.nbfnet_values

    def short(graph: TypedGraph, seed: int, device: str) -> dict[str, Any]:
        return merge(CASES["nbfnet"].settings, values(graph, seed, device))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphmill.systems.blend.system.nbfnet_values", short)
        yield


@pytest.fixture(scope="module")
def blend(tmp_path_factory: pytest.TempPathFactory) -> Restored:
    """A run in which NBFNet has a part of every score."""
    folder = tmp_path_factory.mktemp("blend") / "data" / "06_models" / "toy"
    graph = typed_graph(folder / "graph")
    values = {
        "system": "blend",
        "data": str(graph.path),
        "model": {"embedding_dim": 16, "parts": ["spectral", "paths", NBFNET]},
        "acceleration": {"device": "cpu"},
        "export": {"csv": False},
    }
    run = restore(train(values, "test", root=str(folder / "m"))["run_dir"])
    system: Any = run.system
    queries = link_queries(run.graph, "valid")
    reached = {
        name: rank_links(each, queries).macro["mrr"]
        for name, each in (("blend", system.scorer(run.model)), (NBFNET, system.parts_of(run.model)[NBFNET].scorer))
    }
    assert reached["blend"] >= reached[NBFNET]
    assert list((run.run.path / "parts" / NBFNET).glob("*/report.json"))
    assert estimate_run(run.job, run.graph, "test").seconds_per_step > 0
    run.model.mix[:, -1] = 0.5  # type: ignore[index, operator]
    export_run(run)
    return run


def test_export_version_and_explanation_score_as_the_run(blend: Restored) -> None:
    relation = blend.graph.relations[0]
    scorer: Any = blend.system.scorer(blend.model)
    heads = np.arange(3)
    scores = scorer.score_targets(relation.index, heads)
    exported = graphmill.load(blend.run.path)
    torch.testing.assert_close(exported.scorer.score_targets(relation.index, heads), scores, rtol=1e-5, atol=1e-5)

    promoted = blend.run.path.parents[3] / "07_promoted"
    promote_run(blend.run.path, Versions(promoted / "toy" / "m"), by="a test", person=True, force=True)
    client = TestClient(application(promoted), base_url="http://127.0.0.1")
    ids = blend.graph.node_table()["id"].to_pylist()
    head, first = (blend.graph.node_type(kind).offset for kind in (relation.source, relation.target))
    request = f"id={ids[head]}&relation={relation.name}&type={relation.source}&k=3"
    result = client.get(f"/v1/toy/m/current/links?{request}").json()["links"]
    assert len(result) == 3
    for link in result:
        tail = ids.index(link["id"], first) - first
        assert link["score"] == pytest.approx(float(scores[0, tail]), rel=1e-4)

    key = "|".join(relation.key)
    why = explain_link(blend, ids[head], key, ids[first + tail], verify=True)
    assert sum(why.parts.values()) == pytest.approx(float(scores[0, tail]), rel=1e-4)
    assert why.parts["NBFNet"] == pytest.approx(
        0.5 * float(blend.system.parts_of(blend.model)[NBFNET].scores(relation.index, heads)[0, tail]),
        rel=1e-4,  # type: ignore[attr-defined]
    )
    assert why.deletion["without_the_listed_edges"] != pytest.approx(why.score, rel=1e-6)


def test_its_edges_have_shares(blend: Restored) -> None:
    """Of the part alone, as of NBFNet itself: whatever the other parts are."""
    before = blend.model.mix.clone()  # type: ignore[operator]
    ids, relation = blend.graph.node_table()["id"].to_pylist(), blend.graph.relations[0]
    tail = blend.graph.node_type(relation.target).offset
    try:
        blend.model.mix[:, :-1] = 0.0  # type: ignore[index, operator]
        why = explain_link(blend, ids[0], "|".join(relation.key), ids[tail])
    finally:
        blend.model.mix.copy_(before)  # type: ignore[operator, union-attr]
    part = restore(next((blend.run.path / "parts" / NBFNET).glob("*")))
    alone = explain_link(part, ids[0], "|".join(relation.key), ids[tail])
    shares = {frozenset((e["head"], e["tail"])): 0.5 * e["share"] for e in alone.edges}
    assert shares
    assert {frozenset((e["head"], e["tail"])): e["share"] for e in why.edges} == pytest.approx(shares, rel=1e-4)


def test_a_new_node_is_scored_as_nbfnet_scores_it(blend: Restored, tmp_path: Path) -> None:
    ids, genes = blend.graph.node_table()["id"].to_pylist(), blend.graph.node_type("gene/protein").offset
    file = written(tmp_path, *(f"new,drug,drug_protein,{ids[genes + n]},gene/protein" for n in (0, 6, 12)))
    joined: Any = graphmill.load(blend.run.path).embed(file, tmp_path / "later", columns=COLUMNS)
    assert len(joined.links("new", "drug_protein", k=3)) == 3
    grown = grown_link_model(blend.run.path, file, settings={"columns": COLUMNS}).graph
    part = blend.system.trained[NBFNET]  # type: ignore[attr-defined]
    system: Any = registry.create(NBFNET, grown, part.settings, "full")
    relation = blend.graph.relation("drug", "drug_protein", "gene/protein").index
    new = np.array([0, blend.graph.node_type("drug").count])
    wanted = system.scorer(blend.model.parts[NBFNET]).score_targets(relation, new)  # type: ignore[index]
    torch.testing.assert_close(joined.scorer.parts[NBFNET].scores(relation, new), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("name", "value"), [("held_as", 99), ("nodes_per_layer", 0), ("weights.query", np.nan)])
def test_arrays_of_another_graph_are_refused(blend: Restored, name: str, value: float) -> None:
    arrays = nbfnet_arrays(blend.system.trained[NBFNET], blend.model.parts[NBFNET])  # type: ignore[attr-defined, index]
    links = TrainingLinks.of_graph(blend.graph)
    changed = arrays[name][:-1] if value != value else np.full_like(arrays[name], value)
    with pytest.raises(InputError):
        nbfnet_scorer(arrays | {name: changed}, links)


def test_by_default_it_is_a_part_where_its_training_is_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = typed_graph(tmp_path / "graph")
    values = {"system": "blend", "data": str(graph.path), "acceleration": {"device": "cpu"}}
    job = resolve(values, "test")
    assert chosen_parts(graph, job.settings.model) == ["spectral", "knn", "paths", "complex", NBFNET]
    training = NbfnetSettings.model_validate(nbfnet_part.nbfnet_values(graph, 0, "cpu")).training
    links = nbfnet_part.degrees_of(graph).edges
    queries = training.epochs * training.steps_per_epoch * NbfnetSettings.base_batch
    assert queries <= (nbfnet_part.MOST_PASSES + 1) * links
    assert training.steps_per_epoch < NbfnetSettings().training.steps_per_epoch
    assert any(part.name.startswith("NBFNet") for part in parts_of(job, graph, "full"))
    run = Path(train(values, "test", root=str(tmp_path / "runs"))["run_dir"])
    assert {path.name for path in (run / "parts").iterdir()} == {"complex", NBFNET}

    monkeypatch.setattr(nbfnet_part, "MOST_EDGES", 10)
    assert NBFNET not in chosen_parts(graph, job.settings.model)
    assert not any(part.name.startswith("NBFNet") for part in parts_of(job, graph, "full"))
    named = job.settings.model.model_copy(update={"parts": ["spectral", NBFNET]})
    assert chosen_parts(graph, named) == ["spectral", NBFNET]
