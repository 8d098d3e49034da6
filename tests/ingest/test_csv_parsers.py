"""The fast parser and the careful one read the same: rows, lines, and whether there is anything to reject."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from graphmill.ingest import csv_careful
from graphmill.ingest.csv_careful import read_carefully
from graphmill.ingest.csv_parsers import Column, CsvLayout, Doubt, read_fast
from graphmill.ingest.records import cut

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


def slow(data: bytes) -> tuple[list, list, list]:
    """The careful parser, every record of it read singly."""
    found = list(LAYOUT.records(data, True))
    lines_of = [5 + data.count(b"\n", 0, r.start) for r in found]
    rejects: list = []
    table, where = csv_careful._read_records(data, found, lines_of, LAYOUT, rejects)
    return table.to_pylist(), where.tolist(), rejects


class TestBothParsers:
    @settings(deadline=None)  # the first call of pyarrow imports pandas
    @given(data=files)
    @example(b"1,a,b,c\r\n\r\n2,b,c,d\r\n")
    @example(b"1,a,b,\xff\n")
    @example(b"\xef\xbb\xbf1,a,b,c\n")
    @example(b"1,\xc2\xa0,b,c\n")
    @example(b"1,\xff,b,c\n")
    @example(b"0xffffffffffffffff,a,b,c\n")
    def test_the_fast_one_agrees_with_the_careful_one_or_has_doubts(self, data: bytes) -> None:
        rows, where, rejects = slow(data)
        end, regular = cut(data, b",", True)
        assert end == len(data)
        if not regular:
            return
        try:
            table, found = read_fast(data, 5, LAYOUT)
        except Doubt:
            return
        assert not rejects
        assert table.schema == LAYOUT.schema
        assert table.to_pylist() == rows
        assert (found.tolist() or [5 + i for i in range(len(rows))]) == where

    @settings(deadline=None)
    @example(b"1,a,b,c\n\n2,b\n3,\xff,b,c\n4,c,d,e\n")
    @given(data=st.lists(lines, min_size=1, max_size=6).map(lambda found: ("\n".join(found) + "\n").encode()))
    def test_narrowing_down_changes_nothing(self, data: bytes) -> None:
        saved = csv_careful._FEW_RECORDS
        csv_careful._FEW_RECORDS = 1
        try:
            table, where, rejects = read_carefully(data, 5, LAYOUT)
        finally:
            csv_careful._FEW_RECORDS = saved
        assert (table.to_pylist(), where.tolist(), sorted(rejects)) == slow(data)
        assert table.schema == LAYOUT.schema

    def test_what_writers_write_raises_no_doubt(self) -> None:
        data = '1,a,b,c\n2,"a, ""b""",naïve,"x\ny"\n3,c,,\n'.encode()
        table, where = read_fast(data, 2, LAYOUT)
        assert table["id"].to_pylist() == ["a", 'a, "b"', "c"]
        assert where.tolist() == [2, 3, 5]

    def test_one_line_a_row_needs_no_line_numbers(self) -> None:
        assert len(read_fast(b"1,a,b,c\n2,b,c,d\n", 2, LAYOUT)[1]) == 0


class TestWholeNumbers:
    @pytest.mark.parametrize(
        ("text", "value"), [("7", 7), ("007", 7), (" 7 ", 7), ("0x1F", 31), ("-0", 0), ("0" * 5000 + "1", 1)]
    )
    def test_are_read(self, text: str, value: int) -> None:
        table, _, rejects = read_carefully(f"{text},a,b,c\n".encode(), 1, LAYOUT)
        assert (table["n"].to_pylist(), rejects) == ([value], [])

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
        table, _, rejects = read_carefully(f"{text},a,b,c\n".encode(), 1, LAYOUT)
        assert table.num_rows == 0
        assert (rejects[0].column, rejects[0].reason, rejects[0].value) == ("n", reason, text[:120])


@pytest.mark.parametrize(
    "fault", [b"bad", b"1,a\x00,b,c", b"1,\xff,b,c", b"1,a\rb,b,c", b"x,a,b,c", b'1,"a,b,c', b"1,,b,c"]
)
def test_a_bad_row_does_not_send_its_whole_block_to_the_careful_parser(
    monkeypatch: pytest.MonkeyPatch, fault: bytes
) -> None:
    singly: list[int] = []
    original = csv_careful._read_records

    def counting(data: bytes, group: list, *rest: object) -> object:
        singly.append(len(group))
        return original(data, group, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(csv_careful, "_read_records", counting)
    good = b"".join(b'%d,a,b,"c, d"\n' % i for i in range(1000))
    table, where, rejects = read_carefully(good + fault + b"\n" + good, 1, LAYOUT)
    assert (table.num_rows, len(rejects), rejects[0].line) == (2000, 1, 1001)
    assert sum(singly) <= 64
    assert np.array_equal(where, np.delete(np.arange(1, 2002), 1000))
