"""The split by groups: held-out groups lose every link of the chosen relations, others keep theirs, nothing leaks."""

import numpy as np
import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.graph.leakage import links_of_held_out
from graphmill.graph.settings import GraphSettings, SplitSettings
from graphmill.settings import parse
from tests.graph.audit import audit_leakage
from tests.graph.conftest import triples_of
from tests.graph.tables import edges_table, nodes_table

DRUGS, DISEASES = range(6), range(6, 18)
NODES = nodes_table(["drug"] * 6 + ["disease"] * 12)
TRIPLES = [
    *(("treats", drug, disease) for drug in DRUGS for disease in DISEASES if (drug + disease) % 2),
    *(("harms", drug, disease) for drug in DRUGS for disease in DISEASES if (drug + disease) % 3 == 0),
    *(("near", a, a + 1) for a in DISEASES if a + 1 in DISEASES),
]
EDGES = edges_table(TRIPLES)
OWN = {"method": "by_group", "group_type": "disease", "group_relations": ["treats"]}


def groups_file(tmp_path, rows):
    (tmp_path / "areas.tsv").write_text("group\tid\tnote\n" + "".join(f"{g}\tid{i}\t-\n" for i, g in rows))
    return {**OWN, "group_file": "areas.tsv"}


def touched(graph, relation, split):
    """Diseases that have an edge of the relation in the split, as rows of the table."""
    return {
        node - 100 for a, name, b, part in triples_of(graph) if name == relation and part == split for node in (a, b)
    } & set(DISEASES)


def test_named_groups_lose_their_links_and_nothing_else(build, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    areas = groups_file(
        tmp_path, [(d, "heart" if d < 9 else "skin" if d < 12 else "lung") for d in DISEASES if d != 17]
    )
    graph = build(NODES, EDGES, split={**areas, "test_groups": ["heart"], "valid_groups": ["skin"]})
    assert touched(graph, "treats", 2) == {6, 7, 8}
    assert touched(graph, "treats", 1) == {9, 10, 11}
    assert touched(graph, "treats", 0) == set(range(12, 18)), "what has no group is in train"
    assert touched(graph, "near", 0) == set(DISEASES), "the model knows the nodes by other relations"
    pairs: dict[frozenset[int], set[int]] = {}
    for a, _, b, split in triples_of(graph):
        pairs.setdefault(frozenset((a, b)), set()).add(split)
    assert all(len(splits) == 1 for splits in pairs.values())
    report = graph.manifest["report"]
    assert report["split_source"] == "by_group"
    assert report["groups"] == {
        "valid": {"groups": 1, "nodes": 3, "links": 9},
        "test": {"groups": 1, "nodes": 3, "links": 9},
        "nodes_without_group": 1,
        "unknown_ids": 0,
    }
    assert set(report["leakage"]["group_links"].values()) == {0}
    assert audit_leakage(graph).clean


def test_without_a_file_nodes_are_drawn_until_their_links_are_the_share(build):
    split = {**OWN, "group_relations": ["treats", "harms"], "valid": 0.2, "test": 0.2}
    graph = build(NODES, EDGES, split=split)
    test, valid = touched(graph, "treats", 2), touched(graph, "treats", 1)
    assert not test & valid
    assert test.isdisjoint(touched(graph, "treats", 0) | touched(graph, "harms", 0))
    report = graph.manifest["report"]["groups"]
    for part in ("valid", "test"):
        assert 0.15 * 48 <= report[part]["links"] <= 0.35 * 48
    assert audit_leakage(graph).clean
    again = build(NODES, EDGES.take(np.arange(len(TRIPLES))[::-1]), split=split)
    assert touched(again, "treats", 2) == test, "the draw does not depend on the order of rows"
    other = build(NODES, EDGES, split={**split, "seed": 1})
    assert touched(other, "treats", 2) != test


def test_links_between_grouped_nodes_are_held_out_from_both_sides(build):
    graph = build(
        NODES, EDGES, split={**OWN, "group_relations": ["near"], "test_groups": ["id8"], "valid_groups": ["id9"]}
    )
    near = {(a - 100, b - 100, split) for a, name, b, split in triples_of(graph) if name == "near" and a < b}
    assert {(7, 8, 2), (8, 9, 2), (9, 10, 1)} <= near
    assert sum(split > 0 for _, _, split in near) == 3


def test_the_audit_finds_a_link_that_a_held_out_node_kept(build):
    graph = build(NODES, EDGES, split={**OWN, "test_groups": ["id6"]}, add_reverse="never")
    edges = graph.edges(graph.relation("drug", "treats", "disease"))
    split = np.array(edges.split)
    split[np.flatnonzero(split == 2)[0]] = 0
    keys = [("drug", "treats", "disease")]
    arguments = (edges.src, edges.dst + 6, np.zeros(len(split), np.int64))
    request = SplitSettings(**OWN)
    assert links_of_held_out(*arguments, split, keys, request) == (0, 1, 0)
    assert links_of_held_out(*arguments, np.array(edges.split), keys, request) == (0, 0, 0)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"method": "by_group"}, "by_group needs split.group_type and split.group_relations"),
        ({"group_type": "disease"}, "split.group_type belongs to split.method: by_group, but method is auto"),
        ({**OWN, "test_groups": ["a"], "valid_groups": ["a"]}, "group 'a' is in test_groups and in valid_groups"),
        ({**OWN, "valid_groups": ["a"]}, "valid_groups without test_groups"),
    ],
)
def test_settings_that_do_not_fit_are_refused(split, message):
    with pytest.raises(SettingsError, match=message):
        parse(GraphSettings, {"split": split}, "defs.yaml")


@pytest.mark.parametrize(
    ("split", "error", "message"),
    [
        (
            {**OWN, "group_type": "gene"},
            SettingsError,
            "split.group_type: there is no 'gene'; there are 'disease', 'drug'",
        ),
        ({**OWN, "group_relations": ["cures"]}, SettingsError, "split.group_relations: there is no 'cures'"),
        ({**OWN, "test_groups": ["id99"]}, SettingsError, "split.test_groups: there is no 'id99'"),
        (
            {**OWN, "group_type": "drug", "group_relations": ["near"]},
            InputError,
            "no edge of near has an end of type 'drug'",
        ),
        ({**OWN, "test_groups": [f"id{d}" for d in DISEASES]}, InputError, "leaves no link of the chosen relations"),
    ],
)
def test_what_the_graph_does_not_have_is_refused(build, split, error, message):
    with pytest.raises(error, match=message):
        build(NODES, EDGES, split=split)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id\tarea\nid6\theart\n", "has no column 'group'; it has id, area"),
        ("id\tgroup\nid6\theart\nid6\tskin\n", "id 'id6' has the group 'heart' and the group 'skin'"),
        ("id\tgroup\nid6\t\n", "line 2"),
        ("id\tgroup\nMONDO:1\theart\n", "none of its 1 ids is a node of type 'disease'"),
    ],
)
def test_a_file_of_groups_that_cannot_be_used_is_refused(build, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "areas.tsv").write_text(text)
    with pytest.raises(InputError, match=message):
        build(NODES, EDGES, split={**OWN, "group_file": "areas.tsv"})
