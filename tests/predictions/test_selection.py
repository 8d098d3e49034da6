"""Relations and heads by name, by id, all, a list or a file; what cannot be meant is one sentence."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.graph.node_names import NodeNames
from graphmill.graph.typed_graph import TypedGraph
from graphmill.predictions.selection import Nodes, selected_links
from graphmill.predictions.settings import LinkSettings


def chosen(graph: TypedGraph, **settings: Any) -> list[tuple[str, str, list[int]]]:
    result = selected_links(Nodes(graph), LinkSettings(**settings))
    return [(each.relation.source, each.relation.name, each.heads.tolist()) for each in result]


def test_all_relations_and_all_heads_by_default(graph: TypedGraph) -> None:
    result = chosen(graph)
    assert [name for _, name, _ in result] == [each.name for each in graph.relations]
    assert all(heads == list(range(graph.node_type(kind).count)) for kind, _, heads in result)


def test_heads_choose_the_direction_of_a_relation(graph: TypedGraph) -> None:
    assert chosen(graph, relations=["drug_protein"], heads=["n90", "Node 92"]) == [("drug", "drug_protein", [0, 2])]
    both = chosen(graph, relations=["drug_protein"], heads=["n90", "node 30"])
    assert both == [("drug", "drug_protein", [0]), ("gene/protein", "drug_protein", [0])]
    key = "gene/protein|drug_protein|drug"
    assert [each[:2] for each in chosen(graph, relations=[key])] == [("gene/protein", "drug_protein")]
    only = chosen(graph, relations=["drug_protein"], head_type="drug")
    assert only == [("drug", "drug_protein", list(np.arange(24)))]


def test_heads_come_from_a_file(graph: TypedGraph, tmp_path: Path) -> None:
    (tmp_path / "heads.txt").write_text("\ufeffn90\n\n# the second\nnode 92\n", encoding="utf-8")
    result = chosen(graph, relations=["drug_protein"], heads_file=str(tmp_path / "heads.txt"))
    assert result == [("drug", "drug_protein", [0, 2])]


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            {"relations": ["cures"]},
            r"has no relation 'cures' \(it has disease_protein, drug_protein, protein_protein\)",
        ),
        ({"heads": ["aspirin"]}, "has no node 'aspirin'; .*ids are such as 'n"),
        (
            {"relations": ["disease_protein"], "heads": ["n90"]},
            "the relation needs heads of type disease, gene/protein, and 'n90' is of type drug",
        ),
        ({"head_type": "cell"}, "the graph has no node type 'cell'; it has"),
        ({"relations": ["drug_protein"], "head_type": "disease"}, "no chosen relation begins at nodes of type disease"),
        ({"heads": ["n1"], "heads_file": "heads.txt"}, "are both given; give one of them"),
        ({"heads_file": "nowhere.txt"}, "heads_file nowhere.txt cannot be read: No such file"),
        ({"heads_file": "/dev/null"}, "heads_file /dev/null names no head"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(graph: TypedGraph, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        chosen(graph, **settings)


def test_a_name_that_two_nodes_have_must_be_told_apart(graph: TypedGraph) -> None:
    nodes = Nodes(graph)
    names = list(nodes.names)
    names[91] = "node 90"
    nodes.__dict__["_known"] = NodeNames(nodes.ids, names)
    with pytest.raises(InputError, match=r"2 nodes are called 'node 90': n90 \(drug\), n91 \(drug\); choose one"):
        nodes.find("node 90", ["drug"])
