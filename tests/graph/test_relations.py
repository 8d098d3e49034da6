"""Duplicates, parallel edges, and reverse edges by the three rules."""

import dataclasses

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.graph.relations import RelationDraft, sort_unique
from graphmill.ingest.tables import NO_TIME
from tests.graph.conftest import triples_of
from tests.graph.tables import both_directions, edges_table, nodes_table, random_tables

DRUGS_AND_GENES = nodes_table(["drug", "drug", "gene", "gene", "gene"])
"""Indices 100 and 101 are drugs, 102 to 104 genes."""

PRIME_KG = {  # the five types of PrimeKG, a hundredth of its nodes and edges; 12 relations, 7 of them between two types
    "protein_protein": ("gene/protein", "gene/protein", 3210),
    "drug_drug": ("drug", "drug", 2700),
    "bioprocess_protein": ("biological_process", "gene/protein", 1448),
    "disease_protein": ("disease", "gene/protein", 804),
    "bioprocess_bioprocess": ("biological_process", "biological_process", 528),
    "pathway_protein": ("pathway", "gene/protein", 426),
    "disease_disease": ("disease", "disease", 321),
    "contraindication": ("drug", "disease", 306),
    "drug_protein": ("drug", "gene/protein", 256),
    "indication": ("drug", "disease", 93),
    "off-label use": ("drug", "disease", 25),
    "pathway_pathway": ("pathway", "pathway", 25),
}
PRIME_KG_NODES = {"drug": 80, "disease": 171, "gene/protein": 277, "pathway": 25, "biological_process": 286}


def edges_of(graph):
    return [edge[:3] for edge in triples_of(graph)]


def test_missing_adds_nothing_to_a_table_that_holds_both_directions_and_one_that_holds_one_gets_the_same_graph(build):
    nodes, one_way = random_tables(0, PRIME_KG_NODES, PRIME_KG)
    both = both_directions(one_way)
    as_written, completed = build(nodes, both), build(nodes, one_way)
    assert as_written.num_edges == len(both) == 20284
    assert len(as_written.relations) == 19
    assert as_written.manifest["report"]["added_edges"] == 0
    assert completed.manifest["report"]["added_edges"] == len(one_way) == 10142
    assert triples_of(completed) == triples_of(as_written)  # splits included
    assert len(completed.relations) == 19


def test_missing_completes_only_the_edges_whose_reverse_the_table_lacks(build):
    edges = edges_table([("targets", 0, 2), ("targets", 2, 0), ("targets", 1, 3), ("targets", 4, 1)])
    graph = build(DRUGS_AND_GENES, edges)
    both_ways = {(100, 102), (101, 103), (101, 104)}
    assert {(a, b) for a, _, b in edges_of(graph)} == both_ways | {(b, a) for a, b in both_ways}
    assert {r.key: (r.edges, r.added_edges, r.added_reverse) for r in graph.relations} == {
        ("drug", "targets", "gene"): (3, 1, False),
        ("gene", "targets", "drug"): (3, 1, False),
    }


def test_missing_looks_for_the_reverse_under_the_same_relation_name_only(build):
    graph = build(DRUGS_AND_GENES, edges_table([("binds", 0, 2), ("bound by", 2, 0)]))
    assert edges_of(graph) == [
        (100, "binds", 102),
        (100, "bound by", 102),
        (102, "binds", 100),
        (102, "bound by", 100),
    ]
    assert [r.added_reverse for r in graph.relations] == [False, False, True, True]


def test_missing_does_not_double_a_self_loop(build):
    graph = build(nodes_table(["gene"] * 2), edges_table([("r", 0, 0), ("r", 0, 1)]))
    assert edges_of(graph) == [(100, "r", 100), (100, "r", 101), (101, "r", 100)]
    assert graph.manifest["report"]["self_loops"] == 1


def test_never_leaves_the_edges_as_given(build):
    graph = build(DRUGS_AND_GENES, edges_table([("targets", 0, 2), ("targets", 4, 1)]), add_reverse="never")
    assert edges_of(graph) == [(100, "targets", 102), (104, "targets", 101)]


def test_equal_rows_become_one_with_the_largest_weight_and_are_counted(build):
    edges = edges_table(
        [("r", 0, 2), ("r", 1, 3), ("r", 0, 2), ("s", 0, 2), ("r", 0, 2)], weight=[1.0, 2.0, 3.0, 4.0, 5.0]
    )
    graph = build(DRUGS_AND_GENES, edges, add_reverse="never")
    assert edges_of(graph) == [(100, "r", 102), (100, "s", 102), (101, "r", 103)]
    assert graph.manifest["report"]["duplicates"] == 2
    assert graph.manifest["report"]["duplicates_by_relation"] == {"drug | r | gene": 2}
    assert graph.edges(0).weight.tolist() == [5.0, 2.0]


def test_edges_that_differ_in_display_relation_are_two_statements(build):
    edges = edges_table([("drug_protein", 0, 2)] * 3, display_relation=["target", "enzyme", "target"])
    kept = build(DRUGS_AND_GENES, edges)
    assert edges_of(kept) == [(100, "drug_protein", 102)] * 2 + [(102, "drug_protein", 100)] * 2
    assert (kept.manifest["report"]["duplicates"], kept.manifest["report"]["parallel_edges"]) == (1, 2)
    assert kept.num_pairs == 1


def test_relations_come_in_order_of_appearance_with_their_names_as_they_are(build):
    graph = build(DRUGS_AND_GENES, edges_table([("off-label use", 0, 2), ("a | b\té", 2, 3)]))
    assert [r.name for r in graph.relations] == ["off-label use", "a | b\té", "off-label use"]
    assert [r.index for r in graph.relations] == [0, 1, 2]


def test_node_types_too_large_for_64_bit_pair_numbers_are_refused():
    one = np.zeros(1, np.int32)
    draft = RelationDraft(("a", "r", "b"), 2**31, 2**31, {"src": one, "dst": one, "display": one})
    with pytest.raises(InputError, match="split the node type"):
        sort_unique(draft)
    assert len(sort_unique(dataclasses.replace(draft, num_source=2**30))) == 1


@pytest.mark.parametrize(
    ("merge", "weight", "confidence", "timestamp"),
    [
        ("max", [5, 1], [0.5, 0.1], [20, NO_TIME]),
        ("sum", [9, 1], [0.5, 0.1], [20, NO_TIME]),
        ("last", [2, 1], [0.5, 0.1], [30, NO_TIME]),
    ],
)
def test_equal_edges_become_one_by_the_rule(
    merge: str, weight: list[float], confidence: list[float], timestamp: list[int]
) -> None:
    columns = {
        "weight": np.array([2, 5, 2, 1], np.float32),
        "confidence": np.array([0.2, np.nan, 0.5, 0.1], np.float32),
        "timestamp": np.array([NO_TIME, 20, 30, NO_TIME]),
    }
    ends = np.array([0, 0, 0, 1], np.int32)
    arrays = {"src": ends, "dst": ends, "display": ends * 0, **columns}
    merged = sort_unique(RelationDraft(("a", "r", "b"), 2, 2, arrays), merge)
    assert merged.duplicates == 2
    assert merged.arrays["weight"].tolist() == weight
    assert merged.arrays["confidence"] == pytest.approx(np.float32(confidence))
    assert merged.arrays["timestamp"].tolist() == timestamp
