"""``kg_csv``: what becomes of each kind of input. docs/reference/ingestion.md has the same table in words."""

import gzip
import io
import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.column_maps import KgColumns, KgCsvSettings
from graphmill.ingest.csv_parsers import MAX_FIELD_BYTES
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.tables import EDGES, NO_TIME, NODES, REJECTS, IngestResult
from graphmill.settings import parse
from tests.ingest.kg_text import CLEAN, DRUG, GENE, OTHER_GENE, row, text, write
from tests.samples.biomed import HEADER


def edges(result: IngestResult) -> list[tuple[str, str, str]]:
    """(relation, head's name, tail's name) of each edge."""
    names = result.nodes["name"].to_pylist()
    columns = (result.edges[c].to_pylist() for c in ("relation", "head", "tail"))
    return [(r, names[h], names[t]) for r, h, t in zip(*columns, strict=True)]


def rejects(result: IngestResult) -> list[tuple[int, str, str]]:
    """(line, column, reason) of each reject."""
    columns = (result.rejects[c].to_pylist() for c in ("line", "column", "reason"))
    return list(zip(*columns, strict=True))


class TestACleanFile:
    def test_tables_keep_their_schemas(self, tmp_path: Path) -> None:
        result = read_kg_csv(write(tmp_path, text(*CLEAN)))
        assert result.nodes.schema == NODES
        assert result.edges.schema == EDGES
        assert result.rejects.schema == REJECTS

    def test_nodes_have_their_index_and_edges_point_at_rows(self, tmp_path: Path) -> None:
        result = read_kg_csv(write(tmp_path, text(*CLEAN)))
        assert result.nodes["index"].to_pylist() == [0, 1, 2, 3]
        assert result.nodes["id"].to_pylist() == ["9796", "56992", "DB00997", "9796"]
        assert edges(result)[0] == ("drug_protein", "Doxorubicin", "PHYHIP")
        assert result.edges["display_relation"].to_pylist()[0] == "target"

    def test_rows_stay_as_given_both_directions_included(self, tmp_path: Path) -> None:
        result = read_kg_csv(write(tmp_path, text(*CLEAN)))
        assert edges(result)[:2] == [
            ("drug_protein", "Doxorubicin", "PHYHIP"),
            ("drug_protein", "PHYHIP", "Doxorubicin"),
        ]
        assert result.counts["rows"] == result.counts["edges"] == 6

    def test_ids_that_collide_across_types_stay_apart(self, tmp_path: Path) -> None:
        result = read_kg_csv(write(tmp_path, text(*CLEAN)))
        same_id = [
            t for i, t in zip(*(result.nodes[c].to_pylist() for c in ("id", "type")), strict=True) if i == "9796"
        ]
        assert same_id == ["gene/protein", "disease"]
        assert result.counts["ids_in_two_types"] == 1

    def test_the_committed_sample_is_clean_even_to_strict(self, repository: Path) -> None:
        result = read_kg_csv(repository / "data/01_raw/kg.csv")
        assert (result.nodes.num_rows, result.edges.num_rows, result.rejects.num_rows) == (2000, 12_000, 0)

    def test_gzipped_and_by_url_it_reads_the_same(self, tmp_path: Path) -> None:
        plain = read_kg_csv(write(tmp_path, text(*CLEAN)))
        packed = write(tmp_path, gzip.compress(text(*CLEAN)), "kg.csv.gz")
        for path in (packed, f"file://{packed}"):
            result = read_kg_csv(path)
            assert result.nodes == plain.nodes
            assert result.edges == plain.edges

    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_the_last_line_may_lack_its_line_break(self, tmp_path: Path, end: str) -> None:
        result = read_kg_csv(write(tmp_path, text(*CLEAN, end=end).rstrip()))
        assert edges(result) == edges(read_kg_csv(write(tmp_path, text(*CLEAN))))

    def test_a_result_does_not_depend_on_how_the_file_is_cut(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        whole = read_kg_csv(repository / "data/01_raw/kg.csv")
        monkeypatch.setattr("graphmill.ingest.csv_blocks.BLOCK_BYTES", 50_000)
        monkeypatch.setattr("graphmill.ingest.csv_blocks._HEADER_BYTES", 3_000)
        monkeypatch.setattr("graphmill.ingest.kg_assemble._PENDING_MENTIONS", 500)
        cut = read_kg_csv(repository / "data/01_raw/kg.csv")
        assert cut.nodes.cast(NODES) == whole.nodes
        assert cut.counts == whole.counts
        assert edges(cut) == edges(whole)


# ---- the kinds of input that are not clean


@dataclass(frozen=True)
class Kind:
    """What is written, and what must come of it."""

    data: bytes
    outcome: str
    check: Callable[[IngestResult], bool] | None = None
    message: str = ""


def kept(number: int, **counts: int) -> Callable[[IngestResult], bool]:
    """``number`` edges are read, and the counts named are as given."""
    return lambda r: r.edges.num_rows == number and {k: r.counts[k] for k in counts} == counts


def only_reject(line: int, column: str, reason: str) -> Callable[[IngestResult], bool]:
    """One row is rejected, for this reason; all clean rows are there."""
    return lambda r: rejects(r) == [(line, column, reason)] and r.edges.num_rows == len(CLEAN)


def named(name: str) -> Callable[[IngestResult], bool]:
    """One node has this name."""
    return lambda r: r.nodes["name"].to_pylist().count(name) == 1


def odd(line: str) -> bytes:
    """The clean rows with ``line`` after the second: it is line 4 of the file."""
    return text(*CLEAN[:2], line, *CLEAN[2:])


def with_column(name: str) -> bytes:
    """The clean rows with a thirteenth column."""
    header, *lines = text(*CLEAN).decode().splitlines()
    return "\n".join([f"{header},{name}", *(f"{line},0.5" for line in lines)]).encode()


NEW = "4,DB01,drug,Aspirin,DrugBank"
LONG = "x" * (MAX_FIELD_BYTES + 1)


def zipped(**members: bytes) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return made.getvalue()


KINDS = {
    "empty file": Kind(b"", "refuse", message="is empty; expected a header line"),
    "header only": Kind(HEADER.encode(), "refuse", message="has no usable edge$"),
    "missing column": Kind(
        text(*CLEAN).replace(b"x_index", b"x_idx"),
        "refuse",
        message="column x_index is missing; the header has .*x_idx",
    ),
    "extra column": Kind(with_column("weight"), "report", kept(6, ignored_columns=1)),
    "column named twice": Kind(with_column("x_id"), "refuse", message="column x_id more than once; rename one"),
    "another delimiter": Kind(text(*CLEAN).replace(b",", b";"), "normalise", lambda r: kept(6)(r)),
    "first line sep=;": Kind(b"sep=;\r\n" + text(*CLEAN).replace(b",", b";"), "normalise", lambda r: kept(6)(r)),
    "byte order mark": Kind(b"\xef\xbb\xbf" + text(*CLEAN), "normalise", lambda r: "byte order mark" in str(r.notes)),
    "CRLF line ends": Kind(
        text(*CLEAN, end="\r\n"), "normalise", lambda r: named("KIF15")(r) and "CR LF" in str(r.notes) and kept(6)(r)
    ),
    "CR line ends": Kind(text(*CLEAN, end="\r"), "refuse", message="lines end in CR alone"),
    "blank lines": Kind(text(CLEAN[0], "", "", *CLEAN[1:], ""), "normalise", kept(6, rejected_rows=0)),
    "quoted fields": Kind(
        odd(row(GENE, '4,DB01,drug,"Insulin, ""human""",DrugBank')), "normalise", named('Insulin, "human"')
    ),
    "embedded newline": Kind(odd(row(GENE, '4,DB01,drug,"two\nlines",DrugBank')), "report", named("two\nlines")),
    "quote within an unquoted field": Kind(
        odd(row(GENE, '4,DB01,drug,5" tube,DrugBank')), "normalise", named('5" tube')
    ),
    "unbalanced quote": Kind(
        odd(row(GENE, '4,DB01,drug,"never closed,DrugBank')),
        "reject",
        only_reject(4, "", "a quote opens a field here and does not close before the end of the file"),
    ),
    "unbalanced quote, another later": Kind(
        odd(row(GENE, '4,DB01,drug,"never closed,DrugBank')) + (row(GENE, '5,DB5,drug,"a, b",x') + "\n").encode(),
        "reject",
        lambda r: (
            rejects(r) == [(4, "", "text after the closing quote of a field (or a quote that was never closed)")]
            and r.edges.num_rows == len(CLEAN) + 1
        ),
    ),
    "too few fields": Kind(odd("drug_protein,target,0"), "reject", only_reject(4, "", "expected 12 fields, found 3")),
    "too many fields": Kind(odd(row(GENE, NEW) + ",x"), "reject", only_reject(4, "", "expected 12 fields, found 13")),
    "not UTF-8": Kind(
        odd(row(GENE, NEW)).replace(b"Aspirin", b"na\xefve"),
        "reject",
        only_reject(4, "y_name", "not UTF-8 text; convert the file (for Latin-1: iconv -f latin1 -t utf-8)"),
    ),
    "UTF-16": Kind(text(*CLEAN).decode().encode("utf-16"), "normalise", lambda r: kept(6)(r)),
    "UTF-16 without a mark": Kind(text(*CLEAN).decode().encode("utf-16-be"), "normalise", lambda r: kept(6)(r)),
    "UTF-16, damaged": Kind(text(*CLEAN).decode().encode("utf-16")[:-1], "refuse", message="UTF-16 text is damaged"),
    "zip with one member": Kind(zipped(**{"kg.csv": text(*CLEAN)}), "normalise", lambda r: kept(6)(r)),
    "zip with several": Kind(zipped(a=b"1", b=b"2"), "refuse", message=r"a zip archive of 2 files \(a, b\); unpack it"),
    "Excel workbook": Kind(
        zipped(**{"[Content_Types].xml": b"", "xl/workbook.xml": b""}), "refuse", message="save the sheet as CSV"
    ),
    "truncated gzip": Kind(gzip.compress(text(*CLEAN))[:-20], "refuse", message="ends in the middle"),
    "damaged gzip": Kind(
        gzip.compress(text(*CLEAN))[:-8] + b"\0" * 8, "refuse", message="the gzip file is damaged .*; get it again"
    ),
    "other archive": Kind(b"BZh9" + bytes(100), "refuse", message="is compressed with bzip2; unpack it"),
    "zip, damaged": Kind(b"PK\x03\x04" + bytes(100), "refuse", message="the zip archive is damaged .*; get it again"),
    "blank id": Kind(odd(row(GENE, "4,,drug,Aspirin,DrugBank")), "reject", only_reject(4, "y_id", "blank")),
    "blank type": Kind(odd(row(GENE, "4,DB01,  ,Aspirin,DrugBank")), "reject", only_reject(4, "y_type", "blank")),
    "blank relation": Kind(odd(row(GENE, NEW, "")), "reject", only_reject(4, "relation", "blank")),
    "blank name": Kind(odd(row(GENE, "4,DB01,drug,,DrugBank")), "report", named("DB01")),
    "node with two types": Kind(
        odd(row(GENE, "2,DB00997,disease,Doxorubicin,DrugBank")),
        "reject",
        only_reject(4, "y_type", "index 2 is disease 'DB00997' here, but drug 'DB00997' on line 2"),
    ),
    "node with two ids": Kind(
        odd(row(GENE, "2,DB1,drug,Doxorubicin,DrugBank")),
        "reject",
        only_reject(4, "y_id", "index 2 is drug 'DB1' here, but drug 'DB00997' on line 2"),
    ),
    "node with two names": Kind(
        odd(row(OTHER_GENE, "2,DB00997,drug,Adriamycin,DrugBank")),
        "report",
        lambda r: r.counts["nodes_with_two_names"] == 1 and named("Doxorubicin")(r) and not named("Adriamycin")(r),
    ),
    "node with two sources": Kind(
        odd(row(OTHER_GENE, "2,DB00997,drug,Doxorubicin,ATC")), "report", kept(7, nodes_with_two_sources=1)
    ),
    "duplicate row": Kind(odd(CLEAN[0]), "report", kept(7, duplicate_rows=1)),
    "reversed duplicate": Kind(text(*CLEAN), "normalise", kept(6, duplicate_rows=0)),
    "one direction missing": Kind(odd(row(OTHER_GENE, DRUG)), "normalise", kept(7, duplicate_rows=0)),
    "self loop": Kind(odd(row(GENE, GENE)), "report", kept(7, self_loops=1)),
    "non-numeric index": Kind(
        odd(row(GENE, NEW.replace("4", "four", 1))), "reject", only_reject(4, "y_index", "not a whole number")
    ),
    "fractional index": Kind(
        odd(row(GENE, NEW.replace("4", "4.0", 1))), "reject", only_reject(4, "y_index", "not a whole number")
    ),
    "blank index": Kind(odd(row(NEW.replace("4", "", 1), GENE)), "reject", only_reject(4, "x_index", "blank")),
    "negative index": Kind(odd(row(GENE, "-" + NEW)), "reject", only_reject(4, "y_index", "negative")),
    "index beyond int64": Kind(
        odd(row(GENE, NEW.replace("4", "9223372036854775808", 1))),
        "reject",
        only_reject(4, "y_index", "larger than 9223372036854775807"),
    ),
    "index gaps": Kind(
        odd(row(GENE, NEW.replace("4", "9", 1))),
        "normalise",
        lambda r: r.nodes["index"].to_pylist() == [0, 1, 2, 3, 9] and edges(r)[2][2] == "Aspirin",
    ),
    "leading-zero ids": Kind(
        odd(row(GENE, "4,00123,drug,Aspirin,x")), "normalise", lambda r: r.nodes["id"].to_pylist()[4] == "00123"
    ),
    "numeric-looking ids": Kind(
        odd(row(GENE, "4,1e5,drug,Aspirin,x")), "normalise", lambda r: r.nodes["id"].to_pylist()[4] == "1e5"
    ),
    "ids that read as missing": Kind(
        odd(row(GENE, "4,NA,drug,null,x")),
        "normalise",
        lambda r: r.nodes["id"].to_pylist()[4] == "NA" and named("null")(r),
    ),
    "id with white space": Kind(odd(row(GENE, "4, DB01,drug,Aspirin,x")), "report", kept(7, spaced_ids=1)),
    "ids equal but for Unicode composition": Kind(
        odd(row("4,Café,drug,a,x", "5,Cafe\u0301,drug,b,x")), "report", kept(7, lookalike_ids=1)
    ),
    "very long field": Kind(
        odd(row(GENE, f"4,DB01,drug,{LONG},x")),
        "reject",
        lambda r: rejects(r)[0][::2] == (4, "longer than 131,072 bytes"),
    ),
    "NUL byte": Kind(odd(row(GENE, "4,DB01,drug,a\0b,x")), "reject", only_reject(4, "y_name", "holds a NUL byte")),
    "carriage return in a row": Kind(
        odd(row(GENE, "4,DB01,drug,a\rb,x")), "reject", only_reject(4, "", "a carriage return within the row")
    ),
    "zero usable rows": Kind(
        text(row(GENE, ",DB01,drug,a,x"), "x"),
        "refuse",
        message="no usable edge; 2 rows were rejected, the first on line 2, column y_index: blank",
    ),
}


class TestKindsOfInput:
    @pytest.mark.parametrize("kind", KINDS)
    def test_has_its_outcome(self, kind: str, tmp_path: Path) -> None:
        case = KINDS[kind]
        path = write(tmp_path, case.data)
        if case.outcome == "refuse":
            with pytest.raises(InputError, match=case.message) as caught:
                read_kg_csv(path)
            assert "kg.csv" in str(caught.value)
        else:
            assert case.check is not None
            result = read_kg_csv(path)
            assert case.check(result), (result.counts, rejects(result), edges(result))
            assert (result.rejects.num_rows > 0) == (case.outcome == "reject")

    def test_a_missing_file_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"nowhere.csv does not exist; check the path"):
            read_kg_csv(tmp_path / "nowhere.csv")

    def test_a_directory_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="is a directory; name the file in it"):
            read_kg_csv(tmp_path)

    def test_every_kind_is_in_the_docs_with_the_same_outcome(self, repository: Path) -> None:
        page = (repository / "docs/reference/ingestion.md").read_text()
        table = [line.split("|") for line in page.splitlines() if "|" in line]
        documented = {cells[1].strip(): cells[2].strip() for cells in table if len(cells) >= 4}
        expected = {kind: case.outcome for kind, case in KINDS.items()} | {
            "missing file": "refuse",
            "directory": "refuse",
        }
        assert {kind: documented.get(kind) for kind in expected} == expected
        assert len(expected) >= 30


class TestRejects:
    def test_lines_count_embedded_newlines_and_blank_lines(self, tmp_path: Path) -> None:
        first = row(GENE, '4,DB01,drug,"two\nlines, and\nthree",DrugBank')
        path = write(tmp_path, text(first, "", "x", *CLEAN, "y"))
        assert [line for line, _, _ in rejects(read_kg_csv(path))] == [6, 13]

    def test_they_keep_the_file_and_the_value(self, tmp_path: Path) -> None:
        path = write(tmp_path, odd(row(GENE, "four,DB01,drug,a,x")))
        result = read_kg_csv(path).rejects.to_pylist()
        assert result == [
            {"file": str(path), "line": 4, "column": "y_index", "reason": "not a whole number", "value": "four"}
        ]

    def test_a_bad_row_far_into_a_large_file_is_found_at_its_line(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graphmill.ingest.csv_blocks.BLOCK_BYTES", 40_000)
        lines = [row(GENE, f"{i},D{i},drug,n{i},x") for i in range(4, 3000)]
        lines[2000] += ",extra"
        result = read_kg_csv(write(tmp_path, text(*lines)))
        assert rejects(result) == [(2002, "", "expected 12 fields, found 13")]
        assert result.edges.num_rows == len(lines) - 1

    def test_of_many_the_first_are_kept_and_all_are_counted(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graphmill.ingest.tables.MOST_KEPT", 2)
        result = read_kg_csv(write(tmp_path, text(*CLEAN, *["x"] * 5)))
        assert (result.counts["rejected_rows"], result.counts["rows"]) == (5, len(CLEAN) + 5)
        assert [line for line, *_ in rejects(result)] == [8, 9]
        monkeypatch.setattr("graphmill.ingest.tables.MOST_REFUSED", 5)
        with pytest.raises(InputError, match=r"5 rows .*line 8"):
            read_kg_csv(tmp_path / "kg.csv")

    def test_an_index_that_contradicts_itself_in_a_later_block_is_rejected(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("graphmill.ingest.csv_blocks.BLOCK_BYTES", 400)
        monkeypatch.setattr("graphmill.ingest.kg_assemble._PENDING_MENTIONS", 3)
        bad = row(GENE, "2,DB9,drug,Doxorubicin,DrugBank")
        result = read_kg_csv(write(tmp_path, text(*CLEAN * 5, bad, *CLEAN * 5)))
        assert rejects(result) == [(32, "y_id", "index 2 is drug 'DB9' here, but drug 'DB00997' on line 2")]
        assert result.nodes.num_rows == 4

    def test_nodes_that_only_rejected_rows_mention_are_left_out(self, tmp_path: Path) -> None:
        result = read_kg_csv(write(tmp_path, odd(row("2,DB9,drug,x,x", NEW))))
        assert "Aspirin" not in result.nodes["name"].to_pylist()


class TestNames:
    def test_the_first_name_that_is_not_blank_counts(self, tmp_path: Path) -> None:
        lines = [row(GENE, "4,DB01,drug,,"), row(GENE, "4,DB01,drug,Aspirin,DrugBank")]
        result = read_kg_csv(write(tmp_path, text(*lines, *CLEAN)))
        assert named("Aspirin")(result)
        assert result.nodes["source"].to_pylist()[4] == "DrugBank"
        assert result.counts["nodes_with_two_names"] == result.counts["nodes_without_name"] == 0

    def test_first_means_first_in_the_file_whichever_end_it_is_at(self, tmp_path: Path) -> None:
        blank, first, second = ("4,DB01,drug,,x", "4,DB01,drug,Aspirin,x", "4,DB01,drug,ASA,x")
        result = read_kg_csv(write(tmp_path, text(row(blank, GENE), row(GENE, first), row(second, GENE))))
        assert named("Aspirin")(result)
        assert result.counts["nodes_with_two_names"] == 1

    def test_a_second_name_is_noticed_across_blocks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graphmill.ingest.csv_blocks.BLOCK_BYTES", 300)
        monkeypatch.setattr("graphmill.ingest.kg_assemble._PENDING_MENTIONS", 1)
        renamed = [line.replace("KIF15", "KLP") for line in CLEAN]
        result = read_kg_csv(write(tmp_path, text(*CLEAN * 3, *renamed)))
        assert result.counts["nodes_with_two_names"] == 1
        assert named("KIF15")(result)


class TestLimitNodes:
    def test_keeps_the_first_nodes_of_the_file_and_the_edges_among_them(self, tmp_path: Path) -> None:
        path = write(tmp_path, text(*CLEAN))
        result = read_kg_csv(path, KgCsvSettings(limit_nodes=2))
        assert sorted(result.nodes["name"].to_pylist()) == ["Doxorubicin", "PHYHIP"]
        assert edges(result) == [("drug_protein", "Doxorubicin", "PHYHIP"), ("drug_protein", "PHYHIP", "Doxorubicin")]
        assert (result.counts["nodes_left_out"], result.counts["edges_left_out"]) == (2, 4)

    def test_first_is_counted_row_by_row_head_before_tail(self, tmp_path: Path) -> None:
        path = write(tmp_path, text(row(GENE, DRUG), row(OTHER_GENE, "9,x,drug,x,x")))
        result = read_kg_csv(path, KgCsvSettings(limit_nodes=2))
        assert result.nodes["name"].to_pylist() == ["PHYHIP", "Doxorubicin"]

    def test_more_than_there_are_changes_nothing(self, tmp_path: Path) -> None:
        path = write(tmp_path, text(*CLEAN))
        assert read_kg_csv(path, KgCsvSettings(limit_nodes=99)).edges == read_kg_csv(path).edges

    def test_too_few_for_an_edge_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="raise limit_nodes"):
            read_kg_csv(write(tmp_path, text(*CLEAN)), KgCsvSettings(limit_nodes=1))


BY_TIME = {"split": {"method": "by_time", "valid": 0.3, "test": 0.3}}


class TestColumnMap:
    def mapped(self, **columns: str) -> KgCsvSettings:
        return KgCsvSettings(columns=KgColumns(**columns), delimiter="tab")

    def test_any_edge_file_reads_with_a_map(self, tmp_path: Path) -> None:
        path = write(tmp_path, "subject\tkind\tpredicate\tobject\n007\tdrug\ttreats\tD1\n007\tgene\tcauses\tD1\n")
        settings = self.mapped(
            relation="predicate", head_id="subject", head_type="kind", tail_id="object", tail_type_constant="disease"
        )
        result = read_kg_csv(path, settings)
        assert result.nodes.to_pylist() == [
            {"index": 0, "id": "007", "type": "drug", "name": "007", "source": ""},
            {"index": 1, "id": "D1", "type": "disease", "name": "D1", "source": ""},
            {"index": 2, "id": "007", "type": "gene", "name": "007", "source": ""},
        ]
        assert result.edges.to_pylist() == [
            {"relation": "treats", "display_relation": "treats", "head": 0, "tail": 1},
            {"relation": "causes", "display_relation": "causes", "head": 2, "tail": 1},
        ]

    def test_a_constant_relation_and_constant_types(self, tmp_path: Path) -> None:
        settings = self.mapped(
            relation_constant="cites", head_id="a", head_type_constant="paper", tail_id="b", tail_type_constant="paper"
        )
        result = read_kg_csv(write(tmp_path, "a\tb\nx\ty\ny\tz\n"), settings)
        assert result.nodes["id"].to_pylist() == ["x", "y", "z"]
        assert set(result.edges["relation"].to_pylist()) == {"cites"}

    def test_one_column_may_be_id_and_name(self, tmp_path: Path) -> None:
        settings = self.mapped(
            relation="r", head_id="a", head_name="a", head_type="t", tail_id="b", tail_name="b", tail_type="t"
        )
        result = read_kg_csv(write(tmp_path, "r\ta\tb\tt\nr\tx\ty\tgene\n"), settings)
        assert result.nodes["name"].to_pylist() == ["x", "y"]

    def test_times_are_numbers_or_dates_blank_is_none_and_anything_else_is_a_reject(self, tmp_path: Path) -> None:
        path = write(
            tmp_path,
            "a\tb\tt\nx\ty\t1546300800\nx\tz\t2024-01-31\ny\tz\t\nz\tw\tsoon\nw\tx\t1700000000000\n",
        )
        ends = {"head_id": "a", "head_type_constant": "n", "tail_id": "b", "tail_type_constant": "n"}
        settings = self.mapped(relation_constant="cites", timestamp="t", **ends)
        result = read_kg_csv(path, settings)
        assert result.edges["timestamp"].to_pylist() == [1546300800, 1706659200, NO_TIME, 1700000000]
        assert result.counts["edges_without_time"] == 1
        (reject,) = result.rejects.to_pylist()
        assert (reject["line"], reject["column"], reject["value"]) == (5, "t", "soon")
        assert reject["reason"] == "neither a number nor a date such as 2024-01-31"
        hexadecimal = write(tmp_path, "a\tb\tt\nx\ty\t0x1F\nx\tz\t31\n", "hexadecimal.tsv")
        assert [each["value"] for each in read_kg_csv(hexadecimal, settings).rejects.to_pylist()] == ["0x1F"]
        few = read_kg_csv(path, settings.model_copy(update={"limit_nodes": 3}))
        assert few.edges["timestamp"].to_pylist() == [1546300800, 1706659200, NO_TIME]
        graph = build_graph(result.nodes, result.edges, GraphSettings.model_validate(BY_TIME), tmp_path / "graph")
        assert {r.name: r.edges for r in graph.relations} == {"cites": 8}
        assert graph.manifest["report"]["test_from"] == "1706659200 (2024-01-31)"

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"relation": "r"}, "lacks head_type: name its column, or set head_type_constant"),
            ({"head_id": "a"}, "lacks relation: name its column, or set relation_constant"),
            ({"relation": "r", "relation_constant": "x"}, "both relation and relation_constant are set; remove one"),
            ({"relation": "r", "head_type": "t", "tail_type": "t"}, "lacks head_id: name the column"),
            (
                {
                    "relation": "r",
                    "head_type": "t",
                    "tail_type": "t",
                    "head_id": "a",
                    "tail_id": "b",
                    "head_index": "i",
                },
                "set both head_index and tail_index, or neither",
            ),
        ],
    )
    def test_an_incomplete_map_is_refused(self, columns: dict[str, str], message: str) -> None:
        with pytest.raises(SettingsError, match=message):
            parse(KgCsvSettings, {"columns": columns}, "defs.yaml")

    @pytest.mark.parametrize("delimiter", ["", ",,", "x", '"', "é"])
    def test_an_unusable_delimiter_is_refused(self, delimiter: str) -> None:
        with pytest.raises(SettingsError, match="one ASCII character"):
            parse(KgCsvSettings, {"delimiter": delimiter}, "defs.yaml")


@pytest.mark.real_data
class TestHetionet:
    def test_the_sample_has_the_published_counts(self, datasets: Path) -> None:
        result = read_kg_csv(datasets / "hetionet/kg_5k.csv.gz")
        assert (result.nodes.num_rows, result.edges.num_rows, result.rejects.num_rows) == (26_574, 199_348, 0)
        odd = ("duplicate_rows", "self_loops", "nodes_with_two_names")
        assert [result.counts[name] for name in odd] == [0] * 3


class TestEdgesOfMoreThanTwoEnds:
    HEADER = "head,head_type,relation,tail,tail_type,weight,confidence\n"
    ROWS = (("2", "0.9"), ("", "0.2"), ("3", ""), ("1", "many"), ("inf", "0.5"))

    def read(self, folder: Path, **settings: Any) -> IngestResult:
        rows = [f"d{n},drug,treats,e{n},disease,{weight},{sure}\n" for n, (weight, sure) in enumerate(self.ROWS)]
        (folder / "edges.csv").write_text(self.HEADER + "".join(rows))
        columns = {each: each for each in ("head_type", "relation", "tail_type", "weight", "confidence")}
        columns |= {"head_id": "head", "tail_id": "tail"}
        return read_kg_csv(folder / "edges.csv", parse(KgCsvSettings, {"columns": columns, **settings}, "test"))

    def test_numbers_are_kept_and_wrong_ones_refused(self, tmp_path: Path) -> None:
        result = self.read(tmp_path)
        assert result.edges["weight"].to_pylist() == [2, 1, 3]
        assert result.edges["confidence"].to_numpy() == pytest.approx([0.9, 0.2, math.nan], nan_ok=True)
        assert rejects(result) == [(5, "confidence", "not a finite number"), (6, "weight", "not a finite number")]

    def test_unsure_edges_are_left_out_and_counted(self, tmp_path: Path) -> None:
        result = self.read(tmp_path, min_confidence=0.5)
        assert [name for _, name, _ in edges(result)] == ["d0", "d2"]
        assert result.counts["unsure_rows"] == 1
        assert result.counts["rows"] == 5
        assert any("below min_confidence" in note for note in result.notes)

    def test_min_confidence_without_confidence_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "edges.csv").write_text("head,relation,tail\na,treats,b\n")
        with pytest.raises(InputError, match=r"edges\.csv: min_confidence needs a column of confidence"):
            graphmill.read_edges(tmp_path / "edges.csv", "kg_csv", min_confidence=0.5)
        (tmp_path / "kg").mkdir()
        (tmp_path / "edges.csv").rename(tmp_path / "kg" / "edges.csv")
        with pytest.raises(InputError, match="min_confidence needs a column of confidence"):
            graphmill.read_edges(tmp_path / "kg", "kg_files", min_confidence=0.5, edges=[{"file": "edges.csv"}])
