"""``neighbor_sampled``: who is a seed, what is masked, and that it is the full graph's step where the sample covers it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.resolve import fingerprint, parse_settings
from graphmill.systems.hgt.neighborhood import plan_seeds, some_positives
from graphmill.systems.hgt.recipe import HgtRecipe
from graphmill.systems.hgt.settings import HgtSettings
from tests.training.cases import CASES, typed_graph
from tests.training.test_mathematics import assert_equal, gradient_of

NAME = "hgt-neighbor-sampled"
COVERING = {"num_neighbors": [-1, -1], "node_batch_size": 100_000, "accumulation_steps": 1}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("hgt")) / "graph")


def recipe(graph: TypedGraph, case: str = NAME, **sections: dict[str, Any]) -> HgtRecipe:
    return CASES[case].build(graph, **sections)[1]  # type: ignore[return-value]


@pytest.mark.parametrize("kind", ["uniform", "budget"])
def test_with_fanouts_that_cover_everything_a_step_is_that_of_the_full_graph(graph: TypedGraph, kind: str) -> None:
    # All diseases are read by the step, so that the contrastive term has the same candidates.
    sections: dict[str, Any] = {"model": {"dropout": 0.0}, "objective": {"contrastive_anchors": 30}}
    full = recipe(graph, "hgt-full", **sections)
    sampled = recipe(graph, **sections, sampling=COVERING | {"neighbor_sampler": kind})
    batch = sampled.step(sampled.phases[0], 1, 2).micro[0]
    diseases = graph.node_type("disease")
    assert set(range(diseases.offset, diseases.offset + diseases.count)) <= set(batch.seeds().tolist())
    model = CASES[NAME].model(full, torch.float64)
    whole, losses = gradient_of(full, model)
    part, part_losses = gradient_of(sampled, model)
    assert_equal(whole, part, 1e-10)
    for name, value in losses.items():
        assert part_losses[name] == pytest.approx(value, rel=1e-12)


def test_seeds_have_the_embeddings_that_their_sample_alone_would_give_them(graph: TypedGraph) -> None:
    own = recipe(graph)
    model = CASES[NAME].model(own, torch.float64).eval()
    batch = own.step(own.phases[0], 0, 1).micro[1]
    encoded = own.encode(model, batch)
    # The same sample, given to the plain forward as one graph in which every layer computes every node.
    sample = batch.sample
    assert sample is not None
    messages = []
    for r, s, t in zip(own.data.relations, sample.source, sample.target, strict=True):
        ends = set(zip(sample.nodes[r.source_type][s].tolist(), sample.nodes[r.target_type][t].tolist(), strict=True))
        known = zip(r.src.tolist(), r.dst.tolist(), strict=True)
        messages.append(np.array([e for e, pair in enumerate(known) if pair in ends], dtype=np.int64))
    plain = own.encode(model, replace(batch, sample=None, messages=tuple(messages)))
    seeds = torch.from_numpy(batch.seeds())
    rows = [z.tensors["z"][z.tensors["lookup"][seeds]] for z in (encoded, plain)]
    assert encoded.tensors["z"].shape[0] == len(seeds)
    torch.testing.assert_close(*rows, rtol=1e-10, atol=1e-12)


def test_a_micro_batch_hears_nothing_of_the_pairs_that_it_supervises(graph: TypedGraph) -> None:
    own = recipe(graph, sampling={"num_neighbors": [-1, -1]})
    types = graph.node_types
    for micro in own.step(own.phases[0], 0, 0).micro:
        supervised = {frozenset(p) for p in zip(micro.head.tolist(), micro.tail.tolist(), strict=True)}
        sample = micro.sample
        assert sample is not None
        assert sample.num_edges > 0
        for r, s, t in zip(own.data.relations, sample.source, sample.target, strict=True):
            heads = sample.nodes[r.source_type][s] + types[r.source_type].offset
            tails = sample.nodes[r.target_type][t] + types[r.target_type].offset
            assert not supervised & {frozenset(p) for p in zip(heads.tolist(), tails.tolist(), strict=True)}


def test_held_out_edges_carry_no_messages(graph: TypedGraph) -> None:
    own = recipe(graph, sampling=COVERING)
    sample = own.step(own.phases[0], 0, 0).micro[0].sample
    assert sample is not None
    for r, s, t in zip(own.data.relations, sample.source, sample.target, strict=True):
        drawn = set(zip(sample.nodes[r.source_type][s].tolist(), sample.nodes[r.target_type][t].tolist(), strict=True))
        assert drawn <= set(zip(r.src.tolist(), r.dst.tolist(), strict=True))


@pytest.mark.parametrize("size", [40, 60, 200])
def test_a_micro_batch_has_no_more_seeds_than_asked_for(graph: TypedGraph, size: int) -> None:
    own = recipe(graph, sampling={"node_batch_size": size})
    for index in range(5):
        batch = own.step(own.phases[0], 0, index)
        assert len(batch.micro) == 3
        for micro in batch.micro:
            assert len(micro.seeds()) <= size
        assert set(np.concatenate([m.relation for m in batch.micro]).tolist()) == set(range(5))
        assert batch.weights["contrastive"] >= 3


def test_seeds_are_shared_out_by_the_contrastive_weight_and_links_by_the_size_of_their_relations() -> None:
    def settings(**objective: Any) -> HgtSettings:
        values = {"objective": objective, "sampling": {"node_batch_size": 3000, "accumulation_steps": 2}}
        return HgtSettings.model_validate(values)

    plan = plan_seeds(settings(contrastive_weight=0.5, contrastive_anchors=1000), [4000, 2000, 1, 0], 5000)
    assert plan.links == [666, 333, 1, 0]  # 1000 links a step: 2 · 1500 seeds, three to a link
    assert plan.anchors == 600  # 1500 seeds a micro-batch: 300 anchors with four positives each
    assert plan.positives == 4
    links_only = plan_seeds(settings(contrastive_weight=0.0), [4000, 2000, 1, 0], 0)
    assert (links_only.links, links_only.anchors) == ([1333, 666, 1, 0], 0)
    enough = plan_seeds(settings(contrastive_anchors=20), [40, 20], 10)
    assert (enough.links, enough.anchors) == ([40, 20], 10)
    assert enough.positives == 1500 // 5 - 1


def test_positives_are_drawn_evenly_and_all_where_they_are_few() -> None:
    indptr, positives = np.array([0, 3, 13]), np.arange(13)
    hits = np.zeros(13)
    for key in range(600):
        counts, drawn = some_positives(indptr, positives, np.array([0, 1]), 4, key)
        assert counts.tolist() == [3, 4]
        hits[drawn] += 1
    assert (hits[:3] == 600).all()
    assert np.abs(hits[3:] / 600 - 0.4).max() < 0.09


def test_fanouts_of_single_relations_are_honoured(graph: TypedGraph) -> None:
    numbers = {
        "num_neighbors": [2, 2],
        "relation_neighbors": ["protein_protein=1,0", "disease|disease_protein|gene/protein=0,0"],
    }
    own = recipe(graph, sampling=numbers)
    for micro in own.step(own.phases[0], 0, 0).micro:
        assert micro.sample is not None
        for relation, target in zip(graph.relations, micro.sample.target, strict=True):
            most = np.bincount(target, minlength=1).max()
            if relation.key == ("disease", "disease_protein", "gene/protein"):
                assert most == 0
            else:
                assert most <= (1 if relation.name == "protein_protein" else 2)


@pytest.mark.parametrize(
    ("sampling", "words"),
    [
        ({"num_neighbors": [10]}, "1 entries, and model.num_layers is 2"),
        ({"num_neighbors": [10, 0]}, "at least 1 neighbour, or -1"),
        ({"relation_neighbors": ["protein_protein=5"]}, "one fan-out for each of the 2 entries"),
        ({"relation_neighbors": ["protein_protein"]}, "'protein_protein' is not understood"),
        ({"relation_neighbors": ["protein_protein=2,2"], "neighbor_sampler": "budget"}, "draws nodes of types"),
    ],
)
def test_fanouts_that_make_no_sense_are_refused(sampling: dict[str, Any], words: str) -> None:
    values = {"model": {"num_layers": 2}, "acceleration": {"batching": "neighbor_sampled"}, "sampling": sampling}
    with pytest.raises(SettingsError, match=words):
        parse_settings({"recipe": "hgt", **values}, "x")


def test_a_relation_that_the_graph_does_not_have_is_refused_with_those_that_it_has(graph: TypedGraph) -> None:
    with pytest.raises(SettingsError, match=r"'protein_drug', which is not a relation .*drug_protein, protein_protein"):
        recipe(graph, sampling={"relation_neighbors": ["protein_drug=1,1"]})


def test_the_sampler_is_part_of_the_identity_in_its_own_mode_alone(graph: TypedGraph) -> None:
    def identity(case: str, **sampling: Any) -> str:
        return fingerprint(CASES[case].job(graph, sampling=sampling), "data", 1)

    for other in ({"num_neighbors": [4, 4]}, {"node_batch_size": 50}, {"relation_neighbors": ["protein_protein=1,1"]},
                  {"neighbor_sampler": "budget"}):  # fmt: skip
        assert identity(NAME) != identity(NAME, **other)
        assert identity("hgt-full") == identity("hgt-full", **other)
