"""Table files of every kind give the same blocks, with a reject for each row that breaks its columns' rules."""

import json
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import InputError
from graphmill.ingest.cells import Column
from graphmill.ingest.interactions import node_table, numbers
from graphmill.ingest.node_features import NodeFeatureSettings, read_node_features
from graphmill.ingest.public_readers import ingest_report
from graphmill.ingest.row_files import RowFile

COLUMNS = (Column("id", required=True), Column("kind", "category"), Column("number", "whole"))
ROWS = [("a", "x", "7"), ("", "x", "8"), ("b", "", "-1"), ("c", "y", "0x10"), ("d", "y", "x"), ("e\0", "y", "1")]
GOOD = [("a", "x", 7), ("c", "y", 16)]
REASONS = ["blank", "negative", "not a whole number", "holds a NUL byte"]


def write(tmp_path: Path, kind: str) -> Path:
    path, frame = tmp_path / f"x.{kind}", pd.DataFrame(ROWS, columns=[c.name for c in COLUMNS])
    if kind == "csv":
        frame.to_csv(path, index=False)
    elif kind == "parquet":
        frame.to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in frame.to_dict("records")), encoding="utf-8")
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_rows_and_rejects_are_the_same(tmp_path: Path, kind: str) -> None:
    with RowFile(write(tmp_path, kind)) as file:
        result = list(file.blocks(COLUMNS, lambda block: block.table))
    rows = [tuple(row.values()) for table, _ in result for row in table.to_pylist()]
    rejects = sorted(reject for _, rejects in result for reject in rejects)
    assert rows == GOOD
    assert [reject.reason for reject in rejects] == REASONS
    first = 2 if kind == "csv" else 1
    assert [reject.line for reject in rejects] == [first + n for n in (1, 2, 4, 5)]


def test_values_of_parquet_become_text(tmp_path: Path) -> None:
    table = pa.table({
        "whole": pa.array([1, None], pa.int32()), "float": pa.array([7.0, 1.5]), "bytes": pa.array([b"a", b"b"]),
        "list": pa.array([["a", "b"], None]), "category": pa.array(["x", "y"]).dictionary_encode(),
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    with RowFile(tmp_path / "x.parquet") as file:
        assert file.first(2) == [
            {"whole": "1", "float": "7", "bytes": "a", "list": "a|b", "category": "x"},
            {"whole": "", "float": "1.5", "bytes": "b", "list": "", "category": "y"},
        ]


def test_half_a_surrogate_pair_in_json_is_a_reject(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text(
        '{"id": "a\\ud800"}\n{"id": ["b", "\\udc00"]}\n{"id": "\\ud83e\\udd16", "\\ud800": 1}\n'
    )
    with RowFile(tmp_path / "x.jsonl") as file:
        assert file.names == ("id",)
        ((ids, rejects),) = file.blocks([Column("id")], lambda block: block.table["id"].to_pylist())
    assert ids == ["\U0001f916"]
    assert [(reject.line, reject.reason) for reject in rejects] == [(1, "half a character"), (2, "half a character")]


def test_a_header_that_names_two_columns_alike_is_told_in_the_report(tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("head\ttail\ttail\na\tb\tc\n")
    assert "names column tail more than once; rename one" in ingest_report(tmp_path / "x.tsv", "kg_csv").problem


def test_a_header_with_an_endless_name_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(f"relation,x_id,{'y' * 5000}_id\nr,a,b\n")
    with pytest.raises(InputError, match="a name of 5,003 characters"):
        RowFile(tmp_path / "x.csv")
    assert "a name of 5,003 characters" in ingest_report(tmp_path / "x.csv").problem


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_names_of_columns_keep_a_message_short_and_on_one_line(tmp_path: Path, kind: str) -> None:
    frame = pd.DataFrame({"a\nb": [1], "x" * 500: [2]} | {f"gene {n}": [n] for n in range(500)})
    frame.to_csv(tmp_path / "x.csv", index=False) if kind == "csv" else frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(InputError, match=rf"there are a b, {'x' * 60}…, gene 0, .*, gene 27 and 472 more$") as caught:
        read_node_features(
            tmp_path / f"x.{kind}", node_table([("item", numbers(1))], "x"), NodeFeatureSettings(node_type="item")
        )
    assert "\n" not in str(caught.value)


def test_a_nested_column_that_is_read_is_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [{"a": 1}], "x": [1]}), tmp_path / "x.parquet")
    with RowFile(tmp_path / "x.parquet") as file, pytest.raises(InputError, match="column 'id' holds struct"):
        list(file.blocks([Column("id")], lambda block: block.table))


def test_lines_that_are_no_objects_are_rejects_and_numbers_stay_as_written(tmp_path: Path) -> None:
    text = '{"id": 1.50}\nnonsense\n\n{"id": {"a": 1}}\n{"id": ["a", "b"], "more": 1}\n[1]\n{"other": 1}\n'
    (tmp_path / "x.jsonl").write_text(text, encoding="utf-8")
    with RowFile(tmp_path / "x.jsonl") as file:
        assert file.names == ("id", "more", "other")
        ((table, rejects),) = file.blocks([Column("id")], lambda block: block.table)
    assert table["id"].to_pylist() == ["1.50", "a|b", ""]
    assert [(r.line, r.reason) for r in sorted(rejects)] == [
        (2, "no JSON object"), (4, "neither text nor a number"), (6, "no JSON object"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "mark", "names"),
    [("a;b\n1;2\n", ";", ("a", "b")), ("sep=|\na|b\n", "|", ("a", "b")), ('"sep=;"\r\na;b,c\r\n', ";", ("a", "b,c")),
     ("a\tb, c, d\n1\t2\n", "\t", ("a", "b, c, d")), ("one\n1\n", ",", ("one",))],
)  # fmt: skip
def test_the_delimiter_is_told_by_header_and_rows(tmp_path: Path, text: str, mark: str, names: tuple[str, ...]) -> None:
    (tmp_path / "x.csv").write_bytes(text.encode())
    with RowFile(tmp_path / "x.csv") as file:
        assert (file.delimiter, file.names) == (mark, names)


def test_a_wrong_delimiter_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a;b\n1;2\n", encoding="utf-8")
    with (
        RowFile(tmp_path / "x.csv", ",") as file,
        pytest.raises(InputError, match=r"b is missing; the header has a;b\. Its fields have another separator"),
    ):
        file.require(["b"])


def test_a_column_named_twice_is_refused_where_it_is_read(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b,a\n1,2,3\n", encoding="utf-8")
    with RowFile(tmp_path / "x.csv") as file:
        assert [table["b"].to_pylist() for table, _ in file.blocks([Column("b")], lambda block: block.table)] == [["2"]]
        with pytest.raises(InputError, match="names column a more than once; rename one"):
            list(file.blocks([Column("a")], lambda block: block.table))
