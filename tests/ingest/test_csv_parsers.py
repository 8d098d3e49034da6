"""A block read in one go and one read record by record are the same: rows, lines, and rejects."""

import csv

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphmill.ingest import csv_parsers
from graphmill.ingest.cells import Column, RowBlock, checked_block
from graphmill.ingest.csv_parsers import CsvLayout, cut, read_texts

LAYOUT = CsvLayout(
    (Column("n", "whole", required=True), Column("id", "text", required=True), Column("kind", "category")),
    ",",
    ("n", "id", "kind", "unused"),
)

cells = st.one_of(
    st.sampled_from(
        ["7", "007", " 7", "-0", "-3", "0x1F", "0X", "9223372036854775807", "9223372036854775808", "1.0", "+1"]
    ),
    st.sampled_from(
        ["", " ", "\u00a0", "\t", "NA", "null", "é", "a\x00b", '"a,b"', '"a\nb"', '"a""b"', '"a\r\nb"', '""']
    ),
    st.sampled_from(['a"b', "a\rb", '"a"b', '"a', "\ufeffx", '"a\rb"']),
    st.text(alphabet="xyz09", max_size=4),
)
lines = st.lists(cells, min_size=1, max_size=6).map(",".join) | st.tuples(
    st.sampled_from(["1", "22", "0x0a"]), st.sampled_from(["a", "ü", "0"]), cells, cells
).map(",".join)
files = st.tuples(st.lists(lines, max_size=6), st.sampled_from(["\n", "\r\n"]), st.booleans()).map(
    lambda t: (t[1].join(t[0]) + (t[1] if t[2] else "")).encode()
)


def read(data: bytes, first_line: int = 5, regular: bool | None = None) -> RowBlock:
    """The block; ``regular`` False: read record by record."""
    whole, quotes = cut(data, b",", True)
    assert whole == len(data)
    texts, where, broken = read_texts(data, first_line, quotes if regular is None else regular, LAYOUT)
    block = checked_block(texts, where, LAYOUT.columns)
    block.rejects.extend(broken)
    return block


class TestBothWays:
    @settings(deadline=None)  # the first call of pyarrow imports pandas
    @given(data=files)
    @example(b"1,a,b,c\r\n\r\n2,b,c,d\r\n")
    @example(b"1,a,b,\xff\n")
    @example(b"\xef\xbb\xbf1,a,b,c\n")
    @example(b"1,\xc2\xa0,b,c\n")
    @example(b"1,\xff,b,c\n")
    @example(b"0xffffffffffffffff,a,b,c\n")
    @example(b"1,a,b,c\n\n2,b\n3,\xff,b,c\n4,c,d,e\n")
    def test_a_block_in_one_go_is_that_of_its_records(self, data: bytes) -> None:
        whole, single = read(data), read(data, regular=False)
        assert whole.table.to_pylist() == single.table.to_pylist()
        assert whole.lines.tolist() == single.lines.tolist()
        assert sorted(whole.rejects) == sorted(single.rejects)
        assert whole.table.schema.names == ["n", "id", "kind"]
        result = [*whole.lines.tolist(), *(reject.line for reject in whole.rejects)]
        assert len(set(result)) == len(result)

    @settings(deadline=None)
    @given(data=files)
    def test_rows_are_those_of_the_standard_library(self, data: bytes) -> None:
        block = read(data)
        theirs = {}
        for record in LAYOUT.records(data, True):
            raw = data[record.start : record.end]
            if not record.fault and raw.strip(b"\r\n") and b"\r" not in raw.rstrip(b"\r\n"):
                cells_of = next(csv.reader([raw.decode(errors="surrogateescape")]))
                theirs[5 + data.count(b"\n", 0, record.start)] = cells_of
        for line, row in zip(block.lines.tolist(), block.table.to_pylist(), strict=True):
            if line in theirs:
                assert [row["id"], row["kind"]] == theirs[line][1:3]

    def test_quoted_fields_and_line_breaks_are_read_in_one_go(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(csv_parsers, "_read_singly", None)
        block = read('1,a,b,c\n2,"a, ""b""",naïve,"x\ny"\n3,c,,\n'.encode(), 2)
        assert block.table["id"].to_pylist() == ["a", 'a, "b"', "c"]
        assert block.lines.tolist() == [2, 3, 5]


class TestWholeNumbers:
    @pytest.mark.parametrize(
        ("text", "value"), [("7", 7), ("007", 7), (" 7 ", 7), ("0x1F", 31), ("-0", 0), ("0" * 5000 + "1", 1)]
    )
    def test_are_read(self, text: str, value: int) -> None:
        block = read(f"{text},a,b,c\n".encode())
        assert (block.table["n"].to_pylist(), block.rejects) == ([value], [])

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("1.0", "not a whole number"),
            ("+1", "not a whole number"),
            ("1_000", "not a whole number"),
            ("１", "not a whole number"),
            ("-1", "negative"),
            ("9" * 5000, "larger than 9223372036854775807"),
            ("0x8000000000000000", "larger than 9223372036854775807"),
            ("", "blank"),
        ],
    )
    def test_anything_else_is_rejected(self, text: str, reason: str) -> None:
        block = read(f"{text},a,b,c\n".encode())
        assert block.table.num_rows == 0
        assert (block.rejects[0].column, block.rejects[0].reason, block.rejects[0].value) == ("n", reason, text[:120])


@pytest.mark.parametrize(
    "fault", [b"bad", b"1,a\x00,b,c", b"1,\xff,b,c", b"1,a\rb,b,c", b"x,a,b,c", b'1,"a,b,c', b"1,,b,c"]
)
def test_a_bad_row_costs_itself_alone(fault: bytes) -> None:
    good = b"".join(b'%d,a,b,"c, d"\n' % i for i in range(1000))
    block = read(good + fault + b"\n" + good, 1)
    assert (block.table.num_rows, len(block.rejects), block.rejects[0].line) == (2000, 1, 1001)
    assert np.array_equal(block.lines, np.delete(np.arange(1, 2002), 1000))
