"""One graph in every layout that is public somewhere: whichever way it is written, the tables are the same."""

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from graphmill.ingest.formats import FORMATS
from graphmill.ingest.public_readers import ingest_report, recognised
from graphmill.ingest.tables import IngestResult
from graphmill.settings import parse

HTTP = "http://example.org/"
NODES = {
    f"{HTTP}d1": ("Drug", "Aspirin, 500 mg"), f"{HTTP}x1": ("Disease", "fever"), f"{HTTP}d2": ("Drug", 'the "second"'),
    f"{HTTP}x2": ("Disease", "Ménière"), f"{HTTP}g1": ("Gene", "PTGS1"), f"{HTTP}g2": ("Gene", "PTGS2"),
}  # fmt: skip
"""In the order of their first appearance."""
EDGES = [
    ("d1", "treats", "x1"), ("d2", "treats", "x2"), ("d1", "treats", "x2"), ("d1", "binds", "g1"), ("d2", "binds", "g2"),
    ("g1", "linked", "x1"), ("g2", "linked", "x2"), ("d1", "treats", "x1"),
]  # fmt: skip
FULL = [(f"{HTTP}{h}", r, f"{HTTP}{t}") for h, r, t in EDGES]

EDGE_FRAME = pd.DataFrame(
    [(h, NODES[h][0], NODES[h][1], r, t, NODES[t][0], NODES[t][1]) for h, r, t in FULL],
    columns=["subject", "subject_type", "subject_name", "relation", "object", "object_type", "object_name"],
)
NODE_FRAME = pd.DataFrame([(i, kind, name) for i, (kind, name) in NODES.items()], columns=["id", "type", "name"])
MAP = {"relation": "relation"} | {
    f"{end}_{part}": f"{word}{suffix}"
    for end, word in (("head", "subject"), ("tail", "object"))
    for part, suffix in (("id", ""), ("type", "_type"), ("name", "_name"))
}
Written = tuple[str, Path, dict]
"""Format, path, settings."""


def text(frame: pd.DataFrame, **how: object) -> bytes:
    return frame.to_csv(index=False, **how).encode()


def one(name: str, data: bytes, **settings: object) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        (folder / name).write_bytes(data)
        return "kg_csv", folder / name, {"columns": MAP} | settings

    return write


def zipped(data: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("edges.csv", data)
    return made.getvalue()


def parquet(frame: pd.DataFrame) -> bytes:
    made = io.BytesIO()
    frame.to_parquet(made)
    return made.getvalue()


def lines(frame: pd.DataFrame) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in frame.to_dict("records")).encode()


def ogb(folder: Path) -> Written:
    """A file for each relation, in the order of the edges, without a header; node files with names."""
    edges = []
    for number, (h, r, t) in enumerate(FULL):
        (folder / f"{number}.csv").write_text(f"{h},{t}\n", encoding="utf-8")
        entry = {"file": f"{number}.csv", "header": False, "relation": r}
        edges.append(entry | {"head_type": NODES[h][0], "tail_type": NODES[t][0]})
    nodes = []
    for number, (i, (kind, name)) in enumerate(NODES.items()):
        (folder / f"n{number}.csv").write_bytes(text(pd.DataFrame([(i, name)]), header=False))
        nodes.append({"file": f"n{number}.csv", "header": False, "type": kind, "id_column": "0", "name_column": "1"})
    return "kg_files", folder, {"edges": edges, "nodes": nodes}


def graphstorm(folder: Path) -> Written:
    """Typed node files, edge files that name the types of both ends; Parquet and JSON lines."""
    (folder / "nodes.parquet").write_bytes(parquet(NODE_FRAME))
    edges = []
    for number, (h, r, t) in enumerate(FULL):
        kind = "parquet" if number % 2 else "jsonl"
        frame = pd.DataFrame([(h, t)], columns=["source_id", "dest_id"])
        (folder / f"e{number}.{kind}").write_bytes(parquet(frame) if number % 2 else lines(frame))
        columns = {"head_id": "source_id", "tail_id": "dest_id"}
        edges.append({"file": f"e{number}.{kind}", "relation": r, "columns": columns})
    return (
        "kg_files",
        folder,
        {"edges": edges, "nodes": [{"file": "nodes.parquet", "type_column": "type", "name_column": "name"}]},
    )


def kgx(kind: str, categories: bool = True, merged: bool = False) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        general = "|biolink:NamedThing" if categories else ""
        nodes = NODE_FRAME.rename(columns={"type": "category"})
        nodes["category"] = "biolink:" + nodes["category"] + general
        edges = pd.DataFrame(
            [(f"uuid:{n}", h, f"biolink:{r}", t, "infores:x") for n, (h, r, t) in enumerate(FULL)],
            columns=["id", "subject", "predicate", "object", "primary_knowledge_source"],
        )
        if merged:
            for end in ("subject", "object"):
                of = nodes.set_index("id").loc[edges[end]].reset_index()
                # Lists of categories have no order: every other row has them the other way round.
                swapped = ["|".join(reversed(c.split("|"))) if n % 2 else c for n, c in enumerate(of["category"])]
                edges[f"{end}_category"], edges[f"{end}_name"] = swapped, of["name"]
            (folder / "edges.tsv").write_bytes(text(edges, sep="\t"))
            return "kg_files", folder / "edges.tsv", {}
        for name, frame in (("my_nodes", nodes), ("my_edges", edges)):
            if kind == "jsonl":
                frame = frame.assign(**{c: frame[c].str.split("|") for c in frame if c == "category"})
                (folder / f"{name}.jsonl").write_bytes(lines(frame))
            else:
                (folder / f"{name}.tsv").write_bytes(text(frame, sep="\t"))
        return "kg_files", folder, {}

    return write


def neo4j(spaces: bool) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        for number, (i, (kind, name)) in enumerate(NODES.items()):
            header = [f":ID({kind})" if spaces else ":ID", "name", *([] if spaces else [":LABEL"])]
            row = [i, name, *([] if spaces else [kind])]
            (folder / f"a{number}.csv").write_bytes(text(pd.DataFrame([row], columns=header)))
        for number, (h, r, t) in enumerate(FULL):
            ends = [f":START_ID({NODES[h][0]})", f":END_ID({NODES[t][0]})"] if spaces else [":START_ID", ":END_ID"]
            frame = pd.DataFrame([(h, t, r)], columns=[*ends, ":TYPE"])
            (folder / f"r{number}.csv").write_bytes(text(frame))
        return "kg_files", folder, {}

    return write


def apoc(folder: Path) -> Written:
    rows = [(i, f":{kind}", name, "", "", "") for i, (kind, name) in NODES.items()]
    rows += [("", "", "", h, t, r) for h, r, t in FULL]
    frame = pd.DataFrame(rows, columns=["_id", "_labels", "name", "_start", "_end", "_type"])
    (folder / "all.csv").write_bytes(text(frame, quoting=1))
    return "kg_files", folder / "all.csv", {}


def ntriples(mark: str, packed: bool = False) -> Callable[[Path], Written]:
    def write(folder: Path) -> Written:
        rdf, label = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "http://www.w3.org/2000/01/rdf-schema#label"
        out = ["# a comment", ""]
        for i, (kind, name) in NODES.items():
            out.append(f"<{i}>{mark}<{rdf}>{mark}<{HTTP}{kind}> .")
            escaped = name.replace('"', '\\"').replace("é", "\\u00E9")
            out.append(f'<{i}>{mark}<{label}>{mark}"{escaped}"@en .')
            out.append(f'<{i}>{mark}<{HTTP}weight>{mark}"5"^^<http://www.w3.org/2001/XMLSchema#int> .')
        out += [f"<{h}>{mark}<{HTTP}{r}>{mark}<{t}> ." for h, r, t in FULL]
        data = ("\n".join(out) + "\n").encode()
        (folder / ("x.nt.gz" if packed else "x.nt")).write_bytes(gzip.compress(data) if packed else data)
        return "ntriples", folder / ("x.nt.gz" if packed else "x.nt"), {}

    return write


LAYOUTS: dict[str, Callable[[Path], Written]] = {
    "csv": one("e.csv", text(EDGE_FRAME)),
    "tab": one("e.tsv", text(EDGE_FRAME, sep="\t")),
    "csv, gzipped": one("e.csv.gz", gzip.compress(text(EDGE_FRAME))),
    "csv, zipped": one("e.zip", zipped(text(EDGE_FRAME))),
    "Excel: semicolons and sep=": one("e.csv", b"sep=;\r\n" + text(EDGE_FRAME, sep=";", lineterminator="\r\n")),
    "Excel: UTF-16 and tabs": one("e.txt", text(EDGE_FRAME, sep="\t").decode().encode("utf-16")),
    "UTF-16, big end first, no mark": one("e.txt", text(EDGE_FRAME, sep=";").decode().encode("utf-16-be")),
    "UTF-8 with a mark": one("e.csv", b"\xef\xbb\xbf" + text(EDGE_FRAME)),
    "Parquet": one("e.parquet", parquet(EDGE_FRAME)),
    "Parquet, categories": one("e.parquet", parquet(EDGE_FRAME.astype("category"))),
    "JSON lines": one("e.jsonl", lines(EDGE_FRAME)),
    "pandas' index beside": one("e.csv", EDGE_FRAME.to_csv().encode()),
    "OGB": ogb,
    "GraphStorm": graphstorm,
    "KGX": kgx("tsv"),
    "KGX, one category": kgx("tsv", categories=False),
    "KGX, JSON lines": kgx("jsonl"),
    "KGX, merged": kgx("tsv", merged=True),
    "Neo4j, labels": neo4j(spaces=False),
    "Neo4j, ID spaces": neo4j(spaces=True),
    "Neo4j, APOC": apoc,
    "N-Triples": ntriples(" "),
    "N-Triples, tabs, gzipped": ntriples("\t", packed=True),
}


def read(written: Written) -> IngestResult:
    name, path, settings = written
    format = FORMATS[name]
    assert format.read is not None
    return format.read(str(path), parse(format.settings, settings, name))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_tables_are_equal(tmp_path: Path, layout: str) -> None:
    result = read(LAYOUTS[layout](tmp_path))
    nodes = result.nodes.select(["index", "id", "type", "name"]).to_pylist()
    assert nodes == [
        {"index": n, "id": i, "type": kind, "name": name} for n, (i, (kind, name)) in enumerate(NODES.items())
    ]
    place = {i: n for n, i in enumerate(NODES)}
    edges = result.edges.select(["relation", "head", "tail"]).to_pylist()
    assert edges == [{"relation": r, "head": place[h], "tail": place[t]} for h, r, t in FULL]
    assert result.rejects.num_rows == 0
    assert result.counts["duplicate_rows"] == 1


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name not in ("OGB", "GraphStorm")])
def test_the_report_tells_the_format_by_content_and_writes_a_yaml_that_reads_it(tmp_path: Path, layout: str) -> None:
    from graphmill.ingest.sources import parse_sources, read_tables, table_names

    format, path, _ = LAYOUTS[layout](tmp_path)
    assert recognised(path)[0] == format
    result = ingest_report(path)
    assert result.problem == ""
    import yaml

    dataset = next(iter(yaml.safe_load_all(result.defs)))["attributes"]
    sources = parse_sources(dataset["sources"], tmp_path)
    assert table_names(sources) == ("nodes", "edges")
    assert read_tables(sources).edges.num_rows == len(EDGES)
