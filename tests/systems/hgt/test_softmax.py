"""HGT's softmax: what a score is, that a link never gives itself away, and that an export scores as the ranking does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import fingerprint, merge, parse_settings
from graphmill.runs.train import train
from graphmill.systems.hgt import softmax as softmax
from graphmill.systems.hgt.softmax import HgtSoftmaxSystem
from graphmill.systems.hgt.softmax_ends import LinkEnds, LinkEndsOnDevice
from graphmill.systems.hgt.softmax_links import Asked, side_by_side
from graphmill.systems.hgt.system import HgtSystem
from tests.training.cases import CASES, typed_graph
from tests.training.test_mathematics import gradient_of


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("hgt")) / "graph")


def built(graph: TypedGraph, **sections: object) -> tuple[HgtSoftmaxSystem, torch.nn.Module]:
    _, system = CASES["hgt-softmax"].build(graph, **sections)  # type: ignore[arg-type]
    assert isinstance(system, HgtSoftmaxSystem)
    return system, CASES["hgt-softmax"].model(system, torch.float64).eval()


def test_a_score_is_the_sum_over_the_other_links_of_both_ends(graph: TypedGraph) -> None:
    system, model = built(graph)
    scorer, decoder = system.scorer(model), model.decoder
    relation = 1
    r = system.data.relations[relation]
    spectral, learned = scorer.spectral.astype(float), scorer.learned.astype(float)
    scores = scorer.score_targets(relation, np.arange(5)).numpy()
    a, b = decoder.sums[relation].tolist()
    alpha, beta = decoder.exponents[relation].tolist()
    for head in range(5):
        for tail in range(0, r.num_targets, 7):
            s_h, s_t = spectral[head + r.source_offset], spectral[tail + r.target_offset]
            targets, heads = r.dst[r.src == head], r.src[r.dst == tail]
            expected = a * (1 + len(targets)) ** -alpha * spectral[targets + r.target_offset].sum(0) @ s_t
            expected += b * (1 + len(heads)) ** -beta * spectral[heads + r.source_offset].sum(0) @ s_h
            y_h, y_t = learned[head + r.source_offset], learned[tail + r.target_offset]
            expected += (y_h * decoder.relation[relation].detach().numpy()) @ y_t
            expected += float(decoder.popularity[relation].detach()) * np.log1p(len(heads))
            assert scores[head, tail] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(("together", "ends"), [(False, LinkEnds), (True, LinkEnds), (True, LinkEndsOnDevice)])
def test_the_loss_is_a_mean_over_relations_of_the_softmax_among_what_is_not_known(
    together: bool, ends: type[LinkEnds], graph: TypedGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One relation after the other, as on the CPU, or all of them padded to one size, as on an accelerator; there the ends
    are made on the device, which here is the CPU as well.
    """
    if together:
        monkeypatch.setattr(softmax, "side_by_side", lambda asked, device: [asked])
    monkeypatch.setattr(softmax, "LinkEnds", ends)
    system, model = built(graph)
    on_host = LinkEnds(system.data, system.sums, graph.num_pairs, torch.device("cpu"), with_sums=True)
    batch = system.step(system.phases[0], 0, 1)
    with torch.no_grad():
        encoded = system.encode(model, batch)
        (term,) = system.terms(model, batch, encoded)
    masked = np.zeros(graph.num_pairs, bool)
    masked[batch.masked] = True
    means = []
    for number in np.unique(batch.relation):
        r, losses = system.data.relations[number], []
        known = set(zip(r.src.tolist(), r.dst.tolist(), strict=True))
        inside = (batch.candidate >= r.target_offset) & (batch.candidate < r.target_offset + r.num_targets)
        for link in np.flatnonzero(batch.relation == number):
            head, tail = batch.head[link] - r.source_offset, batch.tail[link] - r.target_offset
            others = [c for c in batch.candidate[inside] - r.target_offset if (head, c) not in known]
            asked = Asked(int(number), *(np.array(part) for part in ([link], [head], [tail], others)))
            fields = [torch.from_numpy(np.concatenate(part))[None] for part in on_host._of(asked, encoded, masked)]
            left, own, wrong = system._split(encoded, fields, (1, 1, len(others)))
            # The asked link is not counted among its target's.
            degree = torch.from_numpy(np.log([max(r.degree[tail], 1), *(r.degree[others] + 1)]))
            with torch.no_grad():
                right = model.decoder.pairs(int(number), left, own, degree[:1])
                scores = torch.cat([right[0], model.decoder(int(number), left, wrong, degree[1:])[0, 0]])
            losses.append(float(torch.logsumexp(scores, 0) - scores[0]))
        means.append(np.mean(losses))
    assert isinstance(system.ends, ends)
    assert float(term.sum) / batch.weights["link"] == pytest.approx(np.mean(means), rel=1e-6)
    expected = system.spectral(model).all(masked)
    np.testing.assert_allclose(encoded.tensors["spectral"].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_relations_of_about_one_size_go_together_off_the_cpu() -> None:
    def asked(*sizes: tuple[int, int]) -> list[Asked]:
        return [Asked(n, *(np.zeros(k, int) for k in (b, b, b, c))) for n, (b, c) in enumerate(sizes)]

    def groups(*sizes: tuple[int, int], device: str = "cuda") -> list[list[int]]:
        return [[a.relation for a in group] for group in side_by_side(asked(*sizes), torch.device(device))]

    assert groups((3, 5), (40, 7), (9, 0)) == [[1, 2, 0]], "where there is little, padding costs nothing"
    large = (4000, 1000)
    assert groups(large, (20, 1000), (20, 1000)) == [[0, 1], [2]], "of much, half is real"
    assert groups(*[large] * 5) == [[0, 1, 2, 3], [4]], "and not more than memory is kept for"
    assert groups(large, large, device="cpu") == [[0], [1]]


@pytest.mark.parametrize("some", [1, 10, 10_000])
def test_a_link_of_the_step_is_in_nothing_that_it_is_scored_with(graph: TypedGraph, some: int) -> None:
    """Vectors of a step are those of the graph without its pairs, in the same basis."""
    system, model = built(graph)
    vectors = system.spectral(model)
    masked = np.zeros(graph.num_pairs, bool)
    masked[system.data.relations[0].pair[:some]] = True
    kept = system.entries.matrix.copy()
    kept.data[masked[system.entries.pair]] = 0
    rows = np.asarray(kept @ vectors.columns)
    length = np.sqrt(np.asarray(kept.multiply(kept).sum(1)) + 3.0)
    norm = np.linalg.norm(rows / length, axis=1, keepdims=True)
    np.testing.assert_allclose(
        vectors.all(masked), rows / length / np.maximum(np.sqrt(norm * (norm + 0.3)), 1e-6), atol=1e-5
    )
    sums, counts = system.sums.of(0, np.arange(30), vectors.all(), masked)
    r = system.data.relations[0]
    for head in range(30):
        targets = r.dst[(r.src == head) & ~masked[r.pair]] + r.target_offset
        assert counts[head] == len(targets)
        np.testing.assert_allclose(sums[head], vectors.all()[targets].sum(0), atol=1e-5)


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_vectors_may_be_spectral_alone_or_learned_alone(graph: TypedGraph, share: float) -> None:
    system, model = built(graph, model={"learned_share": share})
    vectors = np.concatenate([block.vectors for block in system.embeddings(model)])
    assert vectors.shape == (graph.num_nodes, 16)
    assert np.isfinite(system.scorer(model).score_targets(0, np.arange(4)).numpy()).all()
    batch = system.step(system.phases[0], 0, 0)
    (term,) = system.terms(model, batch, system.encode(model, batch))
    assert float(term.sum) > 0


def test_what_the_loss_reads_is_part_of_what_a_run_is(graph: TypedGraph) -> None:
    def digest(case: str, **objective: object) -> str:
        return fingerprint(CASES[case].job(graph, objective=objective), graph.content_hash, 7)

    softmax, other = "hgt-softmax", "hgt-full"
    different = {digest(softmax), digest(softmax, candidates=7), digest(other), digest(other, contrastive_weight=0.2)}
    assert len(different) == 4


@pytest.mark.parametrize(
    ("section", "name", "value"),
    [
        ("model", "num_heads", 4),
        ("model", "dropout", 0.7),
        ("model", "layer_norm", False),
        ("acceleration", "gradient_checkpointing", True),
    ],
)
def test_without_layers_what_only_layers_read_changes_nothing_and_is_no_part_of_what_a_run_is(
    graph: TypedGraph, section: str, name: str, value: object
) -> None:
    case, other = CASES["hgt-softmax-edge-sampled"], {section: {name: value}}

    def digest(layers: int, more: dict[str, Any]) -> str:
        return fingerprint(case.job(graph, **merge({"model": {"num_layers": layers}}, more)), "data", 7)

    def gradient(more: dict[str, Any]) -> dict[str, torch.Tensor]:
        _, system = case.build(graph, **merge({"model": {"num_layers": 0}}, more))
        torch.manual_seed(0)
        return gradient_of(system, case.model(system))[0]

    assert digest(0, {}) == digest(0, other)
    assert section == "acceleration" or digest(2, {}) != digest(2, other)
    plain, changed = gradient({}), gradient(other)
    assert plain.keys() == changed.keys()
    assert all(torch.equal(plain[of], changed[of]) for of in plain)
    described = type(getattr(case.job(graph).settings, section)).model_fields[name].description
    assert "only with layers" in str(described).lower()


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        (
            {"objective": {"loss": "softmax", "negatives_per_positive": 4}},
            "negatives_per_positive is not read with .*softmax",
        ),
        (
            {"objective": {"loss": "link_contrastive", "candidates": 9}},
            "candidates is not read .* set objective.loss: softmax",
        ),
        ({"objective": {"temperature": 0.1}}, "objective.temperature is not read"),
        (
            {"objective": {"loss": "link_contrastive"}, "model": {"neighbour_sums": False}},
            "model.neighbour_sums is not",
        ),
    ],
)
def test_a_setting_of_the_other_loss_is_refused(sections: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        parse_settings({"system": "hgt", **sections}, "settings.yaml")


def test_the_old_loss_has_the_system_of_before(graph: TypedGraph) -> None:
    _, system = CASES["hgt-full"].build(graph)
    assert type(system) is HgtSystem


@pytest.mark.parametrize("case", ["hgt-softmax", "hgt-softmax-complex"])
def test_an_export_scores_links_as_the_ranking_does(graph: TypedGraph, tmp_path: Path, case: str) -> None:
    values = CASES[case].job(graph, training={"epochs": 1}).settings.model_dump() | {"preset": "none"}
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
        found = run.score([ids[first + head]] * 20, name, ids[second : second + 20])
        np.testing.assert_allclose(found, expected[head, :20], atol=1e-5)
    best = run.links(ids[first], name, 5, known=True)
    assert best["score"].tolist() == pytest.approx(sorted(expected[0], reverse=True)[:5], abs=1e-5)
    known = {ids[second + t] for t in restored.system.data.relations[0].dst[restored.system.data.relations[0].src == 0]}
    assert not known & set(run.links(ids[first], name, 1000)["tail_id"])
    with pytest.raises(InputError, match="no relation of this model"):
        run.score(ids[first : first + 1], "cures", ids[second : second + 1])


def test_an_export_whose_scoring_is_gone_cannot_score_and_says_what_to_do(graph: TypedGraph, tmp_path: Path) -> None:
    values = CASES["hgt-no-messages"].job(graph, training={"epochs": 1}).settings.model_dump() | {"preset": "none"}
    result = train(values, "test", root=str(tmp_path))
    export_run(restore(result["run_dir"]))
    (Path(result["run_dir"]) / "embeddings" / "relations.safetensors").unlink()
    with pytest.raises(InputError, match="is missing; run"):
        graphmill.load(result["run_dir"]).score(["n0"], "disease_protein", ["n1"])
