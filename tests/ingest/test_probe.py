"""What a table is told to be by its header and its first rows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from graphmill import read_edges, read_interactions
from graphmill.errors import InputError, SettingsError
from graphmill.ingest.names import has_header, numbered_pair
from graphmill.ingest.public_readers import ingest_report

ROWS = {
    "letters that are nodes": ("A", "B", [("B", "C"), ("A", "C")], False),
    "words of two kinds": ("drug", "disease", [("d1", "x1"), ("d2", "x1")], True),
    "numbered words": ("Gene 1", "Gene 2", [("114787", "375519")], True),
    "ids that are numbered": ("n1", "n2", [("n3", "n4"), ("n5", "n6")], False),
    "numbers": ("1", "2", [("2", "3")], False),
    "names of people": ("ann", "bob", [("carl", "dora")], None),
    "known words": ("source", "target", [("A", "B")], True),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_header_is_told_from_a_row(name: str) -> None:
    first, second, rows, header = ROWS[name]
    assert has_header((first, second), rows) is header


def test_a_series_of_features_is_no_pair_of_ends() -> None:
    assert numbered_pair(["id", "x1", "x2", "x3"]) is None
    assert numbered_pair(["Interactor A", "Interactor B", "System"]) == ("Interactor A", "Interactor B")


PAIRS = "".join(f"P{i:03d}{{0}}P{j:03d}{{0}}{(i * j) % 900 + 100}\n" for i in range(12) for j in range(i))
EDGES: dict[str, str] = {
    "header, blanks": "protein1 protein2 combined_score\n" + PAIRS.format(" "),
    "header in a comment": "# from a database\n#Interactor A\tInteractor B\tscore\n" + PAIRS.format("\t"),
    "no header": PAIRS.format("\t"),
    "comment of words only": "! made by hand\n" + PAIRS.format(" "),
    "commas": "Protein 1,Protein 2,note\n" + PAIRS.format(","),
}


@pytest.mark.parametrize("name", EDGES)
def test_two_columns_of_one_name_space_are_edges_of_one_kind(tmp_path: Path, name: str) -> None:
    (tmp_path / "x.txt").write_text(EDGES[name], encoding="utf-8")
    result = ingest_report(tmp_path / "x.txt")
    assert (result.format, result.problem, len(result.node_types)) == ("kg_csv", "", 1)
    assert sum(result.node_types.values()) == 12, "neither a header nor a comment is a node"
    assert result.counts["edges"] == 66
    nodes = read_edges(tmp_path / "x.txt").nodes
    assert sorted(nodes["id"].to_pylist()) == [f"P{i:03d}" for i in range(12)], "the notebook reads the same"


def test_a_pair_of_numbers_without_a_header_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("1 2\n2 3\n3 1\n4 2\n", encoding="utf-8")
    assert "--format sequence or --format kg_csv" in ingest_report(tmp_path / "x.txt").problem
    assert ingest_report(tmp_path / "x.txt", "kg_csv").node_types == {"node": 4}
    assert ingest_report(tmp_path / "x.txt", "sequence").node_types == {"user": 4, "item": 3}


def test_ids_of_two_kinds_with_a_time_are_interactions(tmp_path: Path) -> None:
    rows = "".join(f"c{i % 5},s{i % 7},2024-01-{i % 28 + 1:02d}\n" for i in range(40))
    (tmp_path / "x.csv").write_text("shopper,thing,bought_at\n" + rows, encoding="utf-8")
    result = ingest_report(tmp_path / "x.csv")
    assert (result.format, result.problem) == ("interactions_csv", "")
    assert [c["part"] for c in result.columns] == ["user", "item", "timestamp"]
    assert "timestamp" in read_interactions(tmp_path / "x.csv").edges.column_names


def test_columns_are_named_for_either_kind(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b,c\nu1,i1,3\nu2,i2,4\nu1,i2,5\n", encoding="utf-8")
    as_users = ingest_report(tmp_path / "x.csv", columns={"user": "a", "item": "b", "weight": "c"})
    assert (as_users.format, as_users.node_types) == ("interactions_csv", {"user": 2, "item": 2})
    as_edges = ingest_report(tmp_path / "x.csv", columns={"head_id": "b", "tail_id": "a", "relation": "c"})
    assert (as_edges.format, set(as_edges.relations)) == ("kg_csv", {"3", "4", "5"})
    with pytest.raises(SettingsError, match="'who' is no role"):
        ingest_report(tmp_path / "x.csv", columns={"who": "a"})
    assert "'nowhere'" in ingest_report(tmp_path / "x.csv", columns={"user": "nowhere", "item": "b"}).problem


def test_columns_without_a_header_are_named_by_number(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("DB\tP1\tinvolved_in\tG1\nDB\tP2\tinvolved_in\tG1\nDB\tP3\tpart_of\tG2\n", "utf-8")
    result = ingest_report(tmp_path / "x.tsv", columns={"head_id": "1", "tail_id": "3", "relation": "2"})
    assert (result.problem, result.relations) == ("", {"involved_in": 2, "part_of": 1})


def test_a_file_of_mostly_refused_rows_is_not_used_without_force(tmp_path: Path) -> None:
    rows = "".join(f"a{n},r,b{n}\n" for n in range(8)) + "a,b\n" * 2
    (tmp_path / "x.csv").write_text("head,relation,tail\n" + rows, encoding="utf-8")
    assert "2 of 10 rows cannot be used" in ingest_report(tmp_path / "x.csv").problem
    assert ingest_report(tmp_path / "x.csv", force=True).problem == ""


class Streamed:
    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


FRAME = pd.DataFrame({"user": ["u1", "u2", "u1"], "item": ["i1", "i1", "i2"], "rating": [5, 4, 5]})
TABLES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas": lambda frame: frame,
    "any with Arrow's interface, as polars": lambda frame: Streamed(pa.Table.from_pandas(frame, preserve_index=False)),
    "Arrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
    "pandas with an index": lambda frame: frame.set_index(pd.Index([7, 8, 9])),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_in_memory_are_read_as_files_are(tmp_path: Path, kind: str) -> None:
    FRAME.to_csv(tmp_path / "x.csv", index=False)
    of_file, of_table = read_interactions(tmp_path / "x.csv"), read_interactions(TABLES[kind](FRAME))
    assert of_table.edges.equals(of_file.edges)
    assert of_table.nodes.drop(["source"]).equals(of_file.nodes.drop(["source"]))


def test_an_object_that_is_no_table_is_a_mistake() -> None:
    with pytest.raises(InputError, match="object is no path and no readable table"):
        read_interactions(object())


def test_a_message_about_a_table_names_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^table") as raised:
        read_interactions(pd.DataFrame({"a": [1.5], "b": ["x" * 5000]}))
    assert len(str(raised.value)) < 500
