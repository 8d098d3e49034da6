"""HGT's steps: how much is supervised, what is masked, and that it depends on the position alone."""

from pathlib import Path

import numpy as np
import pytest

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.triples import read_triples
from graphmill.systems.hgt.settings import SAMPLES, SIMILARITY, SUPERVISED
from graphmill.systems.hgt.system import HgtSystem
from tests.training.cases import CASES, typed_graph


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    return typed_graph(Path(tmp_path_factory.mktemp("hgt")) / "graph")


def system(graph: TypedGraph, case: str = "hgt-full", **sections: dict[str, object]) -> HgtSystem:
    return CASES[case].build(graph, **sections)[1]  # type: ignore[return-value]


def test_a_step_supervises_the_fraction_of_each_relation_and_no_more(graph: TypedGraph) -> None:
    hgt = system(graph, sampling={"edge_sample_size": 6})
    batch = hgt.step(hgt.phases[0], 0, 0)
    for number, relation in enumerate(hgt.data.relations):
        assert (batch.relation == number).sum() == min(6, int(SUPERVISED * len(relation.src)))


def test_every_link_is_supervised_before_any_is_supervised_twice(graph: TypedGraph) -> None:
    hgt = system(graph)
    relation = hgt.data.relations[0]
    steps = len(relation.src) // hgt.sampler.links[0]
    seen = [
        (h, t)
        for index in range(steps)
        for r, h, t in zip(*(lambda b: (b.relation, b.head, b.tail))(hgt.step(hgt.phases[0], 2, index)), strict=True)
        if r == 0
    ]
    assert len(seen) == len(set(seen))


def test_the_pairs_of_a_step_carry_no_message_in_any_direction_or_relation(graph: TypedGraph) -> None:
    hgt = system(graph)
    batch = hgt.step(hgt.phases[0], 1, 3)
    supervised = {frozenset(p) for p in zip(batch.head.tolist(), batch.tail.tolist(), strict=True)}
    masked = set(batch.masked.tolist())
    for relation in hgt.data.relations:
        heads, tails = relation.src + relation.source_offset, relation.dst + relation.target_offset
        for head, tail, pair in zip(heads.tolist(), tails.tolist(), relation.mask.tolist(), strict=True):
            assert (frozenset((head, tail)) in supervised) == (pair in masked)


def test_sampled_messages_are_disjoint_from_the_supervision_of_their_micro_batch(graph: TypedGraph) -> None:
    hgt = system(graph, "hgt-edge-sampled")
    batch = hgt.step(hgt.phases[0], 0, 1)
    assert len(batch.micro) == SAMPLES
    for micro in batch.micro:
        assert micro.messages is not None
        for relation, rows in zip(hgt.data.relations, micro.messages, strict=True):
            assert not set(relation.mask[rows].tolist()) & set(micro.masked.tolist())
            assert len(rows) <= 80 // SAMPLES
            assert (np.diff(rows) > 0).all()
    # The micro-batches share the step's supervision out among them.
    whole = [(r, h, t) for m in batch.micro for r, h, t in zip(m.relation, m.head, m.tail, strict=True)]
    assert len(whole) == len(set(whole))


def test_negatives_are_no_training_links_and_of_the_target_type(graph: TypedGraph) -> None:
    hgt = system(graph)
    batch = hgt.step(hgt.phases[0], 0, 2)
    for number, relation in enumerate(hgt.data.relations):
        mine = batch.relation == number
        known = set(zip(relation.src.tolist(), relation.dst.tolist(), strict=True))
        for head, row in zip(batch.head[mine] - relation.source_offset, batch.negative[mine], strict=True):
            for tail in row - relation.target_offset:
                assert 0 <= tail < relation.num_targets
                assert (int(head), int(tail)) not in known


def test_held_out_links_are_neither_messages_nor_supervision_nor_filter(graph: TypedGraph) -> None:
    hgt = system(graph)
    for relation, edges in zip(graph.relations, hgt.data.relations, strict=True):
        stored = graph.edges(relation.index)
        held = np.asarray(stored.split) != 0
        assert len(edges.src) == (~held).sum()
        gone = {(int(h), int(t)) for h, t in zip(stored.src[held], stored.dst[held], strict=True)}
        assert not gone & set(zip(edges.src.tolist(), edges.dst.tolist(), strict=True))


def test_the_degree_of_a_supervised_target_leaves_its_own_link_out(graph: TypedGraph) -> None:
    hgt = system(graph)
    batch = hgt.step(hgt.phases[0], 0, 0)
    for number, tail, output in zip(batch.relation, batch.tail, batch.tail_degree, strict=True):
        relation = hgt.data.relations[number]
        degree = relation.degree[tail - relation.target_offset]
        assert output == pytest.approx(np.log(1 + degree - 1), abs=1e-6)


def test_at_least_seventy_percent_of_the_edges_carry_messages(graph: TypedGraph) -> None:
    assert system(graph).message_coverage() >= 0.7


def test_contrastive_positives_share_enough_genes(graph: TypedGraph) -> None:
    hgt = system(graph)
    assert hgt.data.similar is not None
    genes: dict[int, set[int]] = {}
    relation = next(r for r in hgt.data.relations if r.source_offset == 0)
    for disease, gene in zip(relation.src.tolist(), relation.dst.tolist(), strict=True):
        genes.setdefault(disease, set()).add(gene)
    batch = hgt.step(hgt.phases[0], 0, 0)
    starts = batch.positive_indptr
    for row, anchor in enumerate(batch.anchor.tolist()):
        for other in batch.positive[starts[row] : starts[row + 1]].tolist():
            a, b = genes[anchor], genes[other]
            assert len(a & b) / len(a | b) > SIMILARITY


def test_files_that_split_the_relations_of_a_pair_mask_a_link_and_its_reverse_alone(tmp_path: Path) -> None:
    """Other relations of the two nodes are there when a held-out link is ranked, so they are in a step as well."""
    rng = np.random.default_rng(0)
    pairs = np.unique(np.sort(rng.integers(0, 40, (150, 2)), axis=1), axis=0)
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    rows = [(f"n{a}", name, f"n{b}") for a, b in pairs.tolist() for name in ("p", "q")]
    held_out = set(range(0, len(rows), 10))
    for file, kept in (("train", set(range(len(rows))) - held_out), ("valid", held_out), ("test", held_out)):
        lines = ("\t".join(rows[n]) for n in sorted(kept))
        (tmp_path / f"{file}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    triples = read_triples(tmp_path)
    built = build_graph(triples.nodes, triples.edges, GraphSettings(), tmp_path / "graph")
    hgt = system(built, "hgt-softmax")
    batch = hgt.step(hgt.phases[0], 0, 0)
    masked = set(batch.masked.tolist())
    links = {
        (hgt.data.groups[r], frozenset(ends))
        for r, *ends in zip(batch.relation.tolist(), batch.head.tolist(), batch.tail.tolist(), strict=True)
    }
    others = 0
    for number, relation in enumerate(hgt.data.relations):
        for head, tail, mask in zip(relation.src.tolist(), relation.dst.tolist(), relation.mask.tolist(), strict=True):
            assert ((hgt.data.groups[number], frozenset((head, tail))) in links) == (mask in masked)
            others += mask not in masked and any(frozenset((head, tail)) == ends for _, ends in links)
    assert others, "the other relation of a supervised pair carries messages"
    everything = hgt.data.masks_of(np.arange(built.num_pairs))
    assert len(everything) == hgt.data.masks > built.num_pairs
