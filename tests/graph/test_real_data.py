"""The public data sets: known leaks are found in exactly their number, and a real biomedical graph keeps its shape."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from graphmill.graph.splits import SPLIT_NAMES
from tests.graph.audit import audit_edges, audit_leakage, overlap
from tests.graph.tables import CATEGORY, nodes_table

pytestmark = pytest.mark.real_data

FIVE_TYPES = ["drug", "disease", "gene/protein", "pathway", "biological_process"]


def triples_tables(folder: Path) -> tuple[pa.Table, pa.Table]:
    """The tables of ``{train,valid,test}.txt.gz``, with the split as given."""
    rows = []
    for number, name in enumerate(SPLIT_NAMES):
        with gzip.open(folder / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
            rows += [(*line.rstrip("\r\n").split("\t"), number) for line in file]
    head, relation, tail, split = zip(*rows, strict=True)
    ids = sorted({*head, *tail})
    number_of = {name: i for i, name in enumerate(ids)}
    edges = pa.table(
        {
            "relation": pa.array(relation).cast(CATEGORY),
            "head": pa.array([number_of[name] for name in head], pa.int32()),
            "tail": pa.array([number_of[name] for name in tail], pa.int32()),
            "split": pa.array(split, pa.uint8()),
        }
    )
    return nodes_table(["entity"] * len(ids), ids), edges


def audit_table(edges: pa.Table):
    relation = edges["relation"].unify_dictionaries().combine_chunks()
    columns = [edges[name].to_numpy() for name in ("head", "tail")]
    return audit_edges(
        *columns, relation.indices.to_numpy(), edges["split"].to_numpy(), relation.dictionary.to_pylist()
    )


@pytest.mark.parametrize(
    ("name", "test_triples", "leaked"), [("UMLS", 661, 421), ("Nations", 201, 201), ("FB15k-237", 20466, 0)]
)
def test_the_audit_finds_the_known_leaks_of_benchmarks(datasets, name, test_triples, leaked):
    result = overlap(audit_table(triples_tables(datasets / name)[1]), "test")
    assert (result.edges, result.leaked) == (test_triples, leaked)


def test_a_graph_of_umls_has_the_same_leaks_and_none_after_a_new_draw(datasets, build):
    nodes, edges = triples_tables(datasets / "UMLS")
    as_given = build(nodes, edges, add_reverse="never")
    assert [len(as_given.node_table()), as_given.num_edges, len(as_given.relations)] == [135, 6529, 46]
    given = audit_leakage(as_given)
    assert overlap(given, "test").leaked == 421
    completed = build(nodes, edges)
    assert overlap(audit_leakage(completed), "test").pairs.tolist() == overlap(given, "test").pairs.tolist()
    redrawn = build(nodes, edges, split={"valid": 0.1, "test": 0.1, "given": "redraw"})
    assert audit_leakage(redrawn).clean
    assert redrawn.describe()["split"]["test"] / redrawn.num_edges == pytest.approx(0.1, abs=0.02)


def hetionet_tables(path: Path) -> tuple[pa.Table, pa.Table]:
    """The tables of a file in PrimeKG's columns, whose node numbers have no gaps."""
    text = {f"{side}_{column}": pa.string() for side in "xy" for column in ("id", "type", "name", "source")}
    table = pa.csv.read_csv(path, convert_options=pa.csv.ConvertOptions(column_types=text))
    ends = {side: table[f"{side}_index"].to_numpy() for side in "xy"}
    count = 1 + int(max(ends["x"].max(), ends["y"].max()))
    columns = {"index": pa.array(np.arange(count))}
    for column in ("id", "type", "name", "source"):
        values = np.empty(count, object)
        for side in "xy":
            values[ends[side]] = table[f"{side}_{column}"].to_numpy()
        columns[column] = pa.array(values, pa.string())
    edges = {name: table[name].cast(CATEGORY) for name in ("relation", "display_relation")}
    edges |= {name: pa.array(ends[side], pa.int32()) for name, side in (("head", "x"), ("tail", "y"))}
    return pa.table(columns), pa.table(edges)


def test_hetionet_keeps_its_counts_and_its_split_does_not_leak(datasets, build):
    nodes, edges = hetionet_tables(datasets / "hetionet" / "kg_5k.csv.gz")
    graph = build(nodes, edges, include_node_types=FIVE_TYPES)
    assert [t.name for t in graph.node_types] == FIVE_TYPES
    assert (graph.num_nodes, graph.num_edges) == (22020, 123372)
    report = graph.manifest["report"]
    assert sum(report["isolated_nodes"].values()) == 22020 - 19862
    assert report["cold_nodes"] == report["isolated_nodes"]
    assert (report["added_edges"], report["duplicates"], report["self_loops"]) == (0, 0, 0)
    assert graph.relation("drug", "indication", "disease").edges == 755
    assert audit_leakage(graph).clean
    for relation in graph.manifest["relations"]:
        for name in ("valid", "test"):
            share = relation["split"][name] / relation["edges"]
            assert share == pytest.approx(0.05, abs=0.01), (relation["name"], name)
    assert build(nodes, edges, include_node_types=FIVE_TYPES, isolated_nodes="drop").num_nodes == 19862
