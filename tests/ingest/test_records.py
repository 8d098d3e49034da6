"""Where a CSV record ends: the fast cut agrees with the exact rules, wherever the bytes happen to be cut."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphmill.ingest import csv_parsers as module
from graphmill.ingest.csv_parsers import MAX_FIELD_BYTES, cut, records

ragged = st.text(alphabet='a,"\n\r', max_size=60).map(str.encode)
"""Anything at all made of the characters that matter."""

fields = st.text(alphabet='ab, "\n\r;', max_size=8)
tables = st.lists(st.lists(fields, min_size=2, max_size=4), max_size=8)


def written(rows: list[list[str]], end: str) -> bytes:
    """``rows`` as a CSV writer writes them."""
    out = io.StringIO()
    csv.writer(out, lineterminator=end).writerows(rows)
    return out.getvalue().encode()


def spans(data: bytes, final: bool = True) -> list[tuple[int, int, bool]]:
    return [(r.start, r.end, bool(r.fault)) for r in records(data, b",", final)]


class TestRecords:
    @given(rows=tables, end=st.sampled_from(["\n", "\r\n"]))
    def test_what_a_writer_wrote_is_one_record_a_row(self, rows: list[list[str]], end: str) -> None:
        # The writer of Python 3.11 leaves a lone CR unquoted where lines end in LF.
        rows = [[cell if end == "\r\n" else cell.replace("\r", "") for cell in row] for row in rows]
        data = written(rows, end)
        result = list(records(data, b",", True))
        assert not any(r.fault for r in result)
        parsed = [next(csv.reader([data[r.start : r.end].decode()], strict=True)) for r in result]
        assert parsed == rows

    @given(data=ragged)
    def test_records_tile_the_data(self, data: bytes) -> None:
        result = spans(data)
        assert [start for start, _, _ in result] == [0, *(end for _, end, _ in result)][: len(result)]
        assert (result[-1][1] if result else 0) == len(data)

    @given(data=ragged, more=ragged)
    def test_a_whole_record_stays_the_same_whatever_follows(self, data: bytes, more: bytes) -> None:
        whole = spans(data, final=False)
        assert spans(data + more)[: len(whole)] == whole

    @pytest.mark.parametrize(
        ("data", "lines"),
        [
            (b'a,"b\nc,d\n', [b'a,"b\n', b"c,d\n"]),
            (b'a,"b\nc,"d"\n', [b'a,"b\n', b'c,"d"\n']),
            (b'a,"b"x\nc,d\n', [b'a,"b"x\n', b"c,d\n"]),
        ],
    )
    def test_a_broken_quote_costs_one_line(self, data: bytes, lines: list[bytes]) -> None:
        result = list(records(data, b",", True))
        assert [data[r.start : r.end] for r in result] == lines
        assert [bool(r.fault) for r in result] == [True, False]

    def test_a_quote_that_closes_too_late_is_broken(self) -> None:
        data = b'"' + b"x\n" * (MAX_FIELD_BYTES // 2 + 1) + b'",y\n'
        first = next(iter(records(data, b",", False)))
        assert (first.end, first.fault) == (
            3,
            f"a quote opens a field here and does not close within {MAX_FIELD_BYTES:,} bytes",
        )

    def test_an_open_quote_waits_for_more_bytes(self) -> None:
        assert spans(b'a\n"b\n', final=False) == [(0, 2, False)]


class TestCut:
    @given(data=ragged, final=st.booleans())
    def test_the_fast_cut_equals_the_exact_one(self, data: bytes, final: bool) -> None:
        exact = max((end for _, end, _ in spans(data, final)), default=0)
        end, regular = cut(data, b",", final)
        assert end == exact
        assert not (regular and any(fault for _, _, fault in spans(data[:end])))

    @given(rows=tables)
    def test_files_as_writers_write_them_are_regular(self, rows: list[list[str]]) -> None:
        data = written(rows, "\r\n")
        assert cut(data, b",", True) == (len(data), True)

    def test_a_long_quoted_field_is_looked_at_exactly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_FIELD_BYTES", 10)
        data = b'a,"01234""56789\n"\nb,c\n'
        assert cut(data, b",", True) == (len(data), False)
        assert [fault for _, _, fault in spans(data)] == [True, True, False]
