"""``kg_csv`` agrees with a plain reader on random small files, however they are cut into blocks."""

import csv
import io
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill.errors import InputError
from graphmill.ingest import csv_blocks, kg_assemble
from graphmill.ingest.column_maps import KgColumns, KgCsvSettings
from graphmill.ingest.kg_csv import read_kg_csv

INDEXED = KgColumns(
    relation="r",
    head_index="hi", head_id="h", head_type="ht", head_name="hn",
    tail_index="ti", tail_id="t", tail_type="tt", tail_name="tn",
)  # fmt: skip
KEYED = INDEXED.model_copy(update={"head_index": "", "tail_index": ""})
HEADER = "r,hi,h,ht,hn,ti,t,tt,tn"

node = st.tuples(
    st.sampled_from(["0", "1", "2", "5", "", "x"]),
    st.sampled_from(["a", "b", "a", "b", ""]),
    st.sampled_from(["drug", "drug", "drug", "gene"]),
    st.sampled_from(["n", "n", "", "m", 'q", "', "two\nlines"]),
)
rows = st.lists(st.tuples(st.sampled_from(["p", "q", "q", ""]), node, node), min_size=1, max_size=25)


def plainly(table: list[list[str]], indexed: bool) -> tuple[dict, list, list[int]]:
    """The rules, row by row: nodes by key (type, id, name), usable edges, lines of rejects."""
    first: dict = {}
    parsed, rejected, line = [], [], 2
    for cells in table:
        relation, *sides = cells[0], cells[1:5], cells[5:9]
        bad = not relation or any(not s[1] or not s[2] or (indexed and not s[0].isdigit()) for s in sides)
        if bad:
            rejected.append(line)
        else:
            keys = [int(s[0]) if indexed else (s[2], s[1]) for s in sides]
            for key, side in zip(keys, sides, strict=True):
                first.setdefault(key, (side[2], side[1]))
            parsed.append((line, relation, keys, sides))
        line += 1 + sum(cell.count("\n") for cell in cells)
    nodes: dict = {}
    edges = []
    for line, relation, keys, sides in parsed:
        if all(first[key] == (side[2], side[1]) for key, side in zip(keys, sides, strict=True)):
            edges.append((relation, *keys))
            used = list(keys)
        else:
            rejected.append(line)
            used = []
        for key in used:
            nodes.setdefault(key, [*first[key], ""])
    for _, _, keys, sides in parsed:
        for key, side in zip(keys, sides, strict=True):
            if key in nodes and first[key] == (side[2], side[1]) and not nodes[key][2]:
                nodes[key][2] = side[3]
    for values in nodes.values():
        values[2] = values[2] or values[1]
    return nodes, edges, sorted(rejected)


@pytest.mark.parametrize("indexed", [True, False])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(facts=rows, block=st.sampled_from([30, 200, 10_000]), pending=st.sampled_from([0, 5, 1000]))
def test_it_agrees_with_a_plain_reader(
    indexed: bool, facts: list, block: int, pending: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_blocks, "BLOCK_BYTES", block)
    monkeypatch.setattr(csv_blocks, "_HEADER_BYTES", max(block // 2, 40))
    monkeypatch.setattr(kg_assemble, "_PENDING_MENTIONS", pending)
    table = [[relation, *head, *tail] for relation, head, tail in facts]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([HEADER.split(","), *table])
    path = tmp_path / "kg.csv"
    path.write_text(out.getvalue())
    nodes, edges, lines = plainly(table, indexed)
    chosen = KgCsvSettings(columns=INDEXED if indexed else KEYED)
    if not edges:
        with pytest.raises(InputError, match="no usable edge"):
            read_kg_csv(path, chosen)
        return
    result = read_kg_csv(path, chosen)
    assert result.rejects["line"].to_pylist() == lines
    read = result.nodes.to_pylist()
    keys = [n["index"] if indexed else (n["type"], n["id"]) for n in read]
    assert {k: [n["type"], n["id"], n["name"]] for k, n in zip(keys, read, strict=True)} == nodes
    assert keys == (sorted(keys) if indexed else list(nodes))
    assert [(e["relation"], keys[e["head"]], keys[e["tail"]]) for e in result.edges.to_pylist()] == edges
