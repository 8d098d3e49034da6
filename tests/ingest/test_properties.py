"""What every reader of tables promises, on tables that hypothesis draws: each row is used, refused, merged or left out;
the same table in another file format, and in another order, gives the same graph; ids stay what they are."""

import io
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmill import build_graph, read_edges, read_interactions
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.public_readers import Tables

QUICK = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
LETTERS = st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zs", "Zl", "Zp"], exclude_characters="#!")
IDS = st.text(LETTERS, min_size=1, max_size=6)
WICKED = [
    *("007", "7", "1e5", "NA", "null", "None", "true", "=1+1", "a,b", 'say "x"', "a/b", "..", "%20", "é", "e\u0301"),
    *("\U0001f916", "日本", "x" * 300, "0x1F", "-1", "a;b", "a|b", "O'Hara", "<b>", "&amp;", "{}", "$HOME", "1_000"),
]


def excel(frame: pd.DataFrame, path: Path) -> None:
    """As Excel saves "CSV UTF-8" in a country with decimal commas: a byte order mark, semicolons, CR LF."""
    path.write_bytes(b"\xef\xbb\xbf" + frame.to_csv(index=False, sep=";", lineterminator="\r\n").encode())


WRITERS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "excel.csv": excel,
    "parquet": lambda frame, path: frame.to_parquet(path),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True, force_ascii=False),
}
TABLES: dict[str, tuple[tuple[str, ...], Callable[[Any], Tables]]] = {
    "kg_csv": (
        ("head_id", "head_type", "relation", "tail_id", "tail_type"),
        lambda source: read_edges(source, "kg_csv"),
    ),
    "interactions_csv": (("user", "item"), lambda source: read_interactions(source, "interactions_csv")),
}
"""Formats that read one table with named columns, and the columns that are drawn for them."""


def tables(name: str) -> st.SearchStrategy[pd.DataFrame]:
    """Tables of 3 to 12 rows for a format; types and relations are of a few."""
    columns = TABLES[name][0]
    few = st.sampled_from(["drug", "gene"])
    cells = [
        few if "type" in column else st.sampled_from(["r", "s"]) if column == "relation" else IDS for column in columns
    ]
    rows = st.lists(st.tuples(*cells), min_size=3, max_size=12)
    return rows.map(lambda drawn: pd.DataFrame(drawn, columns=list(columns), dtype=str))


def with_ids(columns: Sequence[str], ids: Sequence[str]) -> pd.DataFrame:
    """A table with these ids in each column of ids, and the column's own name in the others."""
    of_ids = [column for column in columns if column.endswith("_id") or column in ("user", "item")]
    return pd.DataFrame({column: ids if column in of_ids else [column] * len(ids) for column in columns})


@contextmanager
def folder() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp())
    yield made
    shutil.rmtree(made, ignore_errors=True)


def content(read: Tables) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """Nodes and edges by their ids, whatever their order."""
    nodes = list(zip(read.nodes["type"].to_pylist(), read.nodes["id"].to_pylist(), strict=True))
    ends = [[nodes[row] for row in read.edges[end].to_pylist()] for end in ("head", "tail")]
    return sorted(nodes), sorted(zip(read.edges["relation"].to_pylist(), *ends, strict=True))


@pytest.mark.parametrize("name", TABLES)
@QUICK
@given(data=st.data())
def test_every_row_is_accounted_for(name: str, data: st.DataObject) -> None:
    frame = data.draw(tables(name))
    blank = data.draw(st.lists(st.tuples(st.integers(0, len(frame) - 1), st.integers(0, 1)), max_size=2))
    for row, column in blank:
        frame.iloc[row, -1 if column else 0] = ""
    usable = int((frame != "").all(axis=1).sum())
    if usable:
        with folder() as place:
            frame.to_csv(place / "x.csv", index=False)
            read = TABLES[name][1](place / "x.csv")
        assert read.counts["rows"] == len(frame)
        assert read.edges.num_rows == usable
        assert read.rejects.num_rows == len(frame) - usable


@pytest.mark.parametrize("name", TABLES)
@QUICK
@given(data=st.data())
def test_one_table_is_one_graph_in_every_file_format(name: str, data: st.DataObject) -> None:
    frame = data.draw(tables(name))
    read = TABLES[name][1]
    with folder() as place:
        hashes = {}
        for kind, write in WRITERS.items():
            write(frame, place / f"x.{kind}")
            result = read(place / f"x.{kind}")
            result.nodes.validate(full=True)
            hashes[kind] = content(result)
        hashes["pandas"] = content(read(frame))
        hashes["Arrow"] = content(read(pa.Table.from_pandas(frame, preserve_index=False)))
    assert all(result == hashes["csv"] for result in hashes.values()), {
        k: v for k, v in hashes.items() if v != hashes["csv"]
    }


@pytest.mark.parametrize("name", TABLES)
@QUICK
@given(data=st.data())
def test_the_order_of_rows_and_columns_means_nothing(name: str, data: st.DataObject) -> None:
    frame = data.draw(tables(name))
    rows = data.draw(st.permutations(range(len(frame))))
    columns = data.draw(st.permutations(list(frame.columns)))
    read = TABLES[name][1]
    assert content(read(frame)) == content(read(frame.iloc[rows][columns]))


INSERTED: dict[str, Callable[[str], str]] = {
    "a byte order mark": lambda text: "\ufeff" + text,
    "a comment before the header": lambda text: "# made by hand\n" + text,
    "a comment within": lambda text: text.replace("\n", "\n# checked until here\n", 2),
    "blank lines": lambda text: text.replace("\n", "\n\n"),
    "CR LF": lambda text: text.replace("\n", "\r\n"),
    "no line end at the end": lambda text: text.rstrip("\n"),
}


@pytest.mark.parametrize("what", INSERTED)
@pytest.mark.parametrize("name", TABLES)
def test_what_is_inserted_changes_nothing(tmp_path: Path, name: str, what: str) -> None:
    columns, read = TABLES[name]
    text = io.StringIO()
    with_ids(columns, [f"n{n % 3}" for n in range(6)]).to_csv(text, index=False)
    (tmp_path / "x.csv").write_text(text.getvalue(), encoding="utf-8")
    (tmp_path / "y.csv").write_text(INSERTED[what](text.getvalue()), encoding="utf-8", newline="")
    assert content(read(tmp_path / "x.csv")) == content(read(tmp_path / "y.csv"))


@pytest.mark.parametrize("name", TABLES)
def test_wicked_ids_survive_into_the_graph(tmp_path: Path, name: str) -> None:
    columns, read = TABLES[name]
    frame = with_ids(columns, WICKED)
    for kind, write in WRITERS.items():
        write(frame, tmp_path / f"x.{kind}")
        result = read(tmp_path / f"x.{kind}")
        assert set(result.nodes["id"].to_pylist()) == set(WICKED), kind
    split = {"method": "random"} if len(columns) == 2 else {"valid": 0.0, "test": 0.0}
    graph = build_graph(read(frame), tmp_path / "graph", split=split)
    assert set(graph.node_table()["id"].to_pylist()) == set(WICKED)


def test_every_format_with_named_columns_is_here() -> None:
    with_columns = {
        name for name, format in FORMATS.items() if format.read and "columns" in format.settings.model_fields
    }
    assert with_columns == set(TABLES)
