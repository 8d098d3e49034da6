"""HGT's softmax and its spectral vectors: what the loss is, that a link never gives itself away, what an export scores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.spectral import shortened
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import fingerprint, parse_settings
from graphmill.runs.train import train
from graphmill.systems.hgt import losses
from graphmill.systems.hgt.losses import RelationLinks, side_by_side
from graphmill.systems.hgt.system import HgtSystem
from tests.training.cases import CASES, typed_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("hgt")) / "graph")


def built(graph: TypedGraph, **sections: object) -> tuple[HgtSystem, Any]:
    _, system = CASES["hgt-softmax"].build(graph, **sections)  # type: ignore[arg-type]
    assert isinstance(system, HgtSystem)
    return system, CASES["hgt-softmax"].model(system, torch.float64).eval()


@pytest.mark.parametrize("inputs", ["spectral", "tables"])
def test_a_score_is_simple_of_the_two_embeddings_and_the_popularity(graph: TypedGraph, inputs: str) -> None:
    system, model = built(graph, model={"inputs": inputs})
    z = np.concatenate([block.vectors for block in system.embeddings(model)]).astype(float)
    assert z.shape == (graph.num_nodes, 16)
    relation = 1
    r = system.data.relations[relation]
    scores = system.scorer(model).score_targets(relation, np.arange(5)).numpy()
    weights = model.decoder.weights()[relation].detach().numpy()
    for head in range(5):
        for tail in range(0, r.num_targets, 7):
            z_h, z_t = z[head + r.source_offset] * weights, z[tail + r.target_offset]
            expected = z_h[:8] @ z_t[8:] + z_h[8:] @ z_t[:8] + float(model.decoder.offset[relation].detach())
            expected += float(model.decoder.popularities()[relation].detach()) * np.log1p((r.dst == tail).sum())
            assert scores[head, tail] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("together", [False, True])
def test_the_loss_is_a_mean_over_relations_of_the_softmax_among_what_is_not_known(
    together: bool, graph: TypedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One relation after the other, as on the CPU, or all of them padded to one size, as on an accelerator."""
    if together:
        monkeypatch.setattr(losses, "side_by_side", lambda parts, device: [parts])
    system, model = built(graph)
    batch = system.step(system.phases[0], 0, 1)
    with torch.no_grad():
        encoded = system.encode(model, batch)
        (term,) = system.terms(model, batch, encoded)
    z, lookup = encoded.tensors["z"], encoded.tensors.get("lookup", torch.arange(graph.num_nodes))
    means = []
    for number in np.unique(batch.relation):
        r, result = system.data.relations[number], []
        known = set(zip(r.src.tolist(), r.dst.tolist(), strict=True))
        inside = (batch.candidate >= r.target_offset) & (batch.candidate < r.target_offset + r.num_targets)
        for link in np.flatnonzero(batch.relation == number):
            head, tail = batch.head[link], batch.tail[link]
            others = [c for c in batch.candidate[inside] if (head - r.source_offset, c - r.target_offset) not in known]
            # The scored link is not counted among its target's.
            degree = [max(r.degree[tail - r.target_offset], 1), *(r.degree[np.array(others) - r.target_offset] + 1)]
            with torch.no_grad():
                ends = z[lookup[head]][None], z[lookup[torch.tensor([tail, *others])]]
                scores = model.decoder.against_all(ends[0], int(number), ends[1], torch.from_numpy(np.log(degree)))[0]
            result.append(float(torch.logsumexp(scores, 0) - scores[0]))
        means.append(np.mean(result))
    assert float(term.sum) / batch.weights["link"] == pytest.approx(np.mean(means), rel=1e-6)


def test_relations_of_about_one_size_go_together_off_the_cpu() -> None:
    def parts(*sizes: tuple[int, int]) -> list[RelationLinks]:
        return [RelationLinks(n, *(np.zeros(k, int) for k in (b, b, b, c))) for n, (b, c) in enumerate(sizes)]

    def groups(*sizes: tuple[int, int], device: str = "cuda") -> list[list[int]]:
        return [[a.relation for a in group] for group in side_by_side(parts(*sizes), torch.device(device))]

    assert groups((3, 5), (40, 7), (9, 0)) == [[1, 2, 0]], "where there is little, padding costs nothing"
    large = (4000, 1000)
    assert groups(large, (20, 1000), (20, 1000)) == [[0, 1], [2]], "of much, half is real"
    assert groups(*[large] * 5) == [[0, 1, 2, 3], [4]], "and not more than memory is kept for"
    assert groups(large, large, device="cpu") == [[0], [1]]


@pytest.mark.parametrize("some", [0, 1, 10, 10_000])
def test_a_link_of_the_step_is_in_nothing_that_it_is_scored_with(graph: TypedGraph, some: int) -> None:
    """Vectors of a step are those of the graph without its pairs, in the same basis."""
    system, model = built(graph)
    masked = np.zeros(graph.num_pairs, bool)
    masked[system.data.relations[0].mask[:some]] = True
    result = system.spectral(model, torch.from_numpy(masked))
    expected = shortened(system.vectors(model).source.all(masked))
    np.testing.assert_allclose(result, expected, atol=1e-5)


def test_other_weights_have_other_spectral_vectors(graph: TypedGraph) -> None:
    system, model = built(graph)
    before = system.spectral(model)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    state["left"], state["values"] = state["left"].roll(1, 1), state["values"].roll(1)
    model.load_state_dict(state)
    assert not torch.allclose(system.spectral(model), before)


def test_what_the_loss_reads_is_part_of_what_a_run_is(graph: TypedGraph) -> None:
    def digest(case: str, **objective: object) -> str:
        return fingerprint(CASES[case].job(graph, objective=objective), graph.content_hash, 7)

    softmax, other = "hgt-softmax", "hgt-full"
    different = {digest(softmax), digest(softmax, candidates=7), digest(other), digest(other, contrastive_weight=0.2)}
    assert len(different) == 4


@pytest.mark.parametrize(
    ("objective", "words"),
    [
        ({"contrastive_weight": 0.2}, "contrastive_weight is not read .* set objective.loss: link_contrastive"),
        ({"loss": "softmax", "contrastive_type": "drug"}, "contrastive_type is not read with .*softmax"),
        ({"loss": "link_contrastive", "candidates": 9}, "candidates is not read .* set objective.loss: softmax"),
    ],
)
def test_a_setting_of_the_other_loss_is_refused(objective: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse_settings({"system": "hgt", "objective": objective}, "settings.yaml")


def test_an_export_scores_links_as_the_ranking_does(graph: TypedGraph, tmp_path: Path) -> None:
    values = CASES["hgt-softmax"].job(graph, training={"epochs": 1}).settings.model_dump() | {"preset": "none"}
    result = train(values, "test", root=str(tmp_path))
    restored = restore(result["run_dir"])
    manifest = export_run(restored)
    run = graphmill.load(result["run_dir"])
    assert manifest["files"]["relations.safetensors"]["bytes"] > 0
    relation = graph.relations[0]
    expected = restored.system.scorer(restored.model).score_targets(0, np.arange(8)).numpy()
    ids = graph.node_table().column("id").to_pylist()
    first, second = graph.node_type(relation.source).offset, graph.node_type(relation.target).offset
    name = "|".join(relation.key)
    for head in range(8):
        answer = run.score([ids[first + head]] * 20, name, ids[second : second + 20])
        np.testing.assert_allclose(answer, expected[head, :20], atol=1e-5)
    best = run.links(ids[first], name, 5, known=True)
    assert best["score"].tolist() == pytest.approx(sorted(expected[0], reverse=True)[:5], abs=1e-5)
    known = {ids[second + t] for t in restored.system.data.relations[0].dst[restored.system.data.relations[0].src == 0]}
    assert not known & set(run.links(ids[first], name, 1000)["tail_id"])
    with pytest.raises(InputError, match="no relation of this model"):
        run.score(ids[first : first + 1], "cures", ids[second : second + 1])
    (Path(result["run_dir"]) / "embeddings" / "relations.safetensors").unlink()
    with pytest.raises(InputError, match="is missing; run"):
        graphmill.load(result["run_dir"]).score(["n0"], "disease_protein", ["n1"])
