"""Nodes and statements that were withdrawn: left out and counted by every reader that can carry it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from graphmill import read_edges
from graphmill.errors import InputError
from graphmill.ingest.tables import IngestResult

NODES = pd.DataFrame(
    [(f"n{n}", "gene" if n % 2 else "drug", f"name {n}", "true" if n in (3, 8) else "") for n in range(10)],
    columns=["id", "category", "name", "deprecated"],
)
EDGES = pd.DataFrame(
    [(f"n{n}", "treats", f"n{(n + 1) % 10}", "x") for n in range(10)] + [("n5", "causes", "n0", "x")],
    columns=["subject", "predicate", "object", "provided_by"],
)
LEFT = [(2, 3), (3, 4), (7, 8), (8, 9)]


def _kgx_tsv(folder: Path) -> str:
    NODES.to_csv(folder / "a_nodes.tsv", sep="\t", index=False)
    EDGES.to_csv(folder / "a_edges.tsv", sep="\t", index=False)
    return "kg_files"


def _kgx_jsonl(folder: Path) -> str:
    nodes = NODES.assign(deprecated=NODES["deprecated"] == "true")
    nodes.to_json(folder / "a_nodes.jsonl", orient="records", lines=True)
    EDGES.to_json(folder / "a_edges.jsonl", orient="records", lines=True)
    return "kg_files"


def _kgx_parquet(folder: Path) -> str:
    nodes = NODES.assign(is_obsolete=NODES["deprecated"] == "true").drop(columns="deprecated")
    nodes.to_parquet(folder / "a_nodes.parquet")
    EDGES.to_parquet(folder / "a_edges.parquet")
    return "kg_files"


def _neo4j(folder: Path) -> str:
    nodes = NODES.rename(columns={"id": "id:ID", "category": ":LABEL", "deprecated": "obsolete:boolean"})
    edges = EDGES.rename(columns={"subject": ":START_ID", "predicate": ":TYPE", "object": ":END_ID"})
    nodes.to_csv(folder / "nodes.csv", index=False)
    edges.to_csv(folder / "edges.csv", index=False)
    return "kg_files"


def _apoc(folder: Path) -> str:
    nodes = NODES.rename(columns={"id": "_id", "category": "_labels"})
    edges = EDGES.rename(columns={"subject": "_start", "predicate": "_type", "object": "_end"})
    pd.concat([nodes, edges]).to_csv(folder / "all.csv", index=False)
    return "kg_files"


def _kg_files(folder: Path) -> str:
    NODES.rename(columns={"category": "type", "deprecated": "status"}).replace({"true": "Deprecated"}).to_csv(
        folder / "things.csv", index=False
    )
    EDGES.to_csv(folder / "links.csv", index=False)
    return "kg_files"


def _ntriples(folder: Path) -> str:
    owl, rdf = "http://www.w3.org/2002/07/owl#", "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
    lines = [
        f"<http://a/{n}> <{rdf}type> <http://a/{kind}> ."
        for n, kind in zip(NODES["id"], NODES["category"], strict=True)
    ]
    lines += [f"<http://a/{s}> <http://a/{p}> <http://a/{o}> ." for s, p, o, _ in EDGES.itertuples(index=False)]
    lines += [
        f'<http://a/{n}> <{owl}deprecated> "true"^^<http://www.w3.org/2001/XMLSchema#boolean> .' for n in ("n3", "n8")
    ]
    lines.append(f'<http://a/n1> <{owl}deprecated> "false" .')
    (folder / "a.nt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return "ntriples"


WRITERS: dict[str, Callable[[Path], str]] = {
    "KGX, TSV": _kgx_tsv, "KGX, JSON lines": _kgx_jsonl, "KGX, Parquet": _kgx_parquet, "Neo4j": _neo4j, "APOC": _apoc,
    "kg_files": _kg_files, "N-Triples": _ntriples,
}  # fmt: skip


def read(folder: Path, format: str, **settings: Any) -> IngestResult:
    path = folder / "a.nt" if format == "ntriples" else folder / "all.csv" if (folder / "all.csv").exists() else folder
    if (folder / "things.csv").exists():
        nodes = [{"file": "things.csv", "type_column": "type"}]
        settings |= {"nodes": nodes, "edges": [{"file": "links.csv"}]}
    return read_edges(path, format, **settings)


@pytest.mark.parametrize("name", WRITERS)
def test_withdrawn_nodes_and_their_links_are_left_out(tmp_path: Path, name: str) -> None:
    format = WRITERS[name](tmp_path)
    result = read(tmp_path, format)
    ids = [str(id).rpartition("/")[2] for id in result.nodes["id"].to_pylist()]
    ends = {
        (int(ids[head][1:]), int(ids[tail][1:]))
        for head, tail in zip(result.edges["head"].to_pylist(), result.edges["tail"].to_pylist(), strict=True)
    }
    assert set(ids) == {f"n{n}" for n in range(10)} - {"n3", "n8"}
    assert ends == {(n, (n + 1) % 10) for n in range(10)} - set(LEFT) | {(5, 0)}
    assert (result.counts["withdrawn_nodes"], result.counts["negated_rows"]) == (2, 4)
    assert result.counts["rows"] == 11 == result.counts["edges"] + 4
    assert any("2 nodes are deprecated" in note and "keep_negated" in note for note in result.notes)
    kept = read(tmp_path, format, keep_negated=True)
    assert (kept.nodes.num_rows, kept.edges.num_rows) == (10, 11)


def test_a_mark_on_an_edge_is_not_one_on_its_ends(tmp_path: Path) -> None:
    """KGX without a node file: the categories of the ends are columns of the edges."""
    frame = EDGES.assign(subject_category="drug", object_category="gene", deprecated=["true"] + [""] * 10)
    frame.to_csv(tmp_path / "a_edges.tsv", sep="\t", index=False)
    result = read_edges(tmp_path / "a_edges.tsv", "kg_files")
    assert (result.counts["withdrawn_nodes"], result.counts["negated_rows"], result.nodes.num_rows) == (0, 1, 10)


def test_statements_about_statements_negate_them(tmp_path: Path) -> None:
    """OWL: a deprecated axiom and a negative assertion. KGX in RDF: a negated association."""
    owl, rdf, biolink = (
        "http://www.w3.org/2002/07/owl#",
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
        "https://w3id.org/biolink/vocab/",
    )
    lines = [f"<http://a/n{n}> <http://a/treats> <http://a/n{n + 1}> ." for n in range(6)]
    about = [
        (1, owl, ("annotatedSource", "annotatedProperty", "annotatedTarget"), f'<{owl}deprecated> "true"'),
        (
            2,
            owl,
            ("sourceIndividual", "assertionProperty", "targetIndividual"),
            f"<{rdf}type> <{owl}NegativePropertyAssertion>",
        ),
        (3, rdf, ("subject", "predicate", "object"), f'<{biolink}negated> "true"'),
        (4, rdf, ("subject", "predicate", "object"), f'<{biolink}negated> "false"'),
    ]
    for n, space, names, mark in about:
        parts = (f"<http://a/n{n}>", "<http://a/treats>", f"<http://a/n{n + 1}>")
        lines += [f"_:b{n} <{space}{name}> {part} ." for name, part in zip(names, parts, strict=True)]
        lines.append(f"_:b{n} {mark} .")
    (tmp_path / "a.nt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = read_edges(tmp_path / "a.nt", "ntriples")
    ids, relations = result.nodes["id"].to_pylist(), result.edges["relation"].to_pylist()
    heads = [
        ids[head][-1]
        for head, name in zip(result.edges["head"].to_pylist(), relations, strict=True)
        if name == "treats"
    ]
    assert heads == ["0", "4", "5"]
    assert read_edges(tmp_path / "a.nt", "ntriples", keep_negated=True).counts["negated_rows"] == 0


@pytest.mark.parametrize(
    ("column", "values"),
    [("invalid_reason", ("D", "")), ("active", (0, 1)), ("status", ("Obsolete", "current")), ("owl:deprecated", (1, 0)),
     ("isObsolete", (True, False)), ("qualifier", ("not", "up")), ("withdrawn", ("Y", "N"))],
)  # fmt: skip
def test_the_ways_to_say_it_of_an_edge(tmp_path: Path, column: str, values: tuple[Any, Any]) -> None:
    frame = EDGES.drop(columns="provided_by").assign(**{column: [values[0]] * 2 + [values[1]] * 9})
    frame.to_csv(tmp_path / "x.csv", index=False)
    assert read_edges(tmp_path / "x.csv", "kg_csv").counts["negated_rows"] == 2
    frame.to_parquet(tmp_path / "x.parquet")
    assert read_edges(tmp_path / "x.parquet", "kg_csv").counts["negated_rows"] == 2


def test_a_graph_of_withdrawn_statements_is_refused_with_the_reason(tmp_path: Path) -> None:
    EDGES.assign(negated=True).to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(InputError, match="11 say that a link does not hold \\(keep_negated: true keeps them"):
        read_edges(tmp_path / "x.csv", "kg_csv")


def test_triples_keep_what_is_negated_on_demand(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a\tNOT|is\tb\na\tis\tc\nb\tis\tc\n", encoding="utf-8")
    assert read_edges(tmp_path, "triples").counts["negated_rows"] == 1
    assert read_edges(tmp_path, "triples", keep_negated=True).edges.num_rows == 3


def _gaf(row: int, qualifier: str) -> str:
    return "\t".join(
        ["UniProtKB", f"P{row % 9}", f"GEN{row % 9}", qualifier, f"GO:{row % 7:07d}", "PMID:1", "IDA", "", "FPC"[row % 3],
         "", "", "protein", "taxon:9606", "20200131", "UniProt"]
    )  # fmt: skip


@pytest.mark.parametrize("qualifiers", [("involved_in", "NOT|involved_in"), ("", "NOT")])
@pytest.mark.parametrize("start", ["", "!gaf-version: 2.2\n"])
def test_annotations_of_genes_are_read_without_a_header(
    tmp_path: Path, start: str, qualifiers: tuple[str, str]
) -> None:
    rows = [_gaf(row, qualifiers[row % 10 == 0]) for row in range(30)]
    (tmp_path / "x.gaf").write_text(start + "\n".join(rows) + "\n", encoding="utf-8")
    result = read_edges(tmp_path / "x.gaf")
    assert (result.edges.num_rows, result.counts["negated_rows"]) == (27, 3)
    assert set(result.nodes["type"].to_pylist()) == {"protein", "term"}
    assert set(result.edges["relation"].to_pylist()) == ({"involved_in"} if qualifiers[0] else {"F", "P", "C"})


def test_a_qualifier_without_a_name_negates_whichever_columns_are_named(tmp_path: Path) -> None:
    lines = [f"g{n}\tNOT\tp{n % 3}" if n < 2 else f"g{n}\t\tp{n % 3}" for n in range(12)]
    (tmp_path / "x.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    columns = {
        "head_id": "0",
        "tail_id": "2",
        "relation_constant": "in",
        "head_type_constant": "g",
        "tail_type_constant": "p",
    }
    result = read_edges(tmp_path / "x.tsv", "kg_csv", columns=columns, header=False)
    assert result.counts["negated_rows"] == 2
    assert result.counts["edges"] == 10
