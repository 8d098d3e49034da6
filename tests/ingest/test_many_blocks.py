"""A table in many blocks is the table in one: the same rows, order, dictionaries and words."""

import errno
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from graphmill.errors import InputError, ResourceError
from graphmill.ingest.column_maps import KgColumns, KgCsvSettings
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.public_readers import read_edges
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.triples import read_triples
from tests.ingest.kg_text import CLEAN, DRUG, GENE, row, text, write
from tests.ingest.test_kg_csv import KINDS

Read = Callable[[], IngestResult]
MANY_BLOCKS = {
    "csv_blocks.BLOCK_BYTES": 600, "csv_blocks._HEADER_BYTES": 200, "kg_assemble._PENDING_MENTIONS": 5,
}  # fmt: skip
"""Files are read in many small blocks."""


def outcome(read: Read) -> IngestResult | str:
    """The tables, or the sentence."""
    try:
        return read()
    except InputError as error:
        return str(error)


def require_same(read: Read) -> None:
    theirs = outcome(read)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in MANY_BLOCKS.items():
            patch.setattr(f"graphmill.ingest.{name}", value)
        ours = outcome(read)
    if isinstance(theirs, str):
        assert ours == theirs
        return
    assert isinstance(ours, IngestResult)
    for name in ("nodes", "edges", "rejects"):
        a, b = getattr(ours, name), getattr(theirs, name)
        assert a.schema == b.schema
        assert a == b
        for column in a.column_names:
            if pa.types.is_dictionary(a.schema.field(column).type) and a.num_rows:
                assert a[column].chunk(0).dictionary == b[column].chunk(0).dictionary
    assert (ours.counts, ours.notes) == (theirs.counts, theirs.notes)


class TestTheSameTables:
    @pytest.mark.parametrize("kind", KINDS)
    def test_of_every_kind_of_odd_input(self, kind: str, tmp_path: Path) -> None:
        path = write(tmp_path, KINDS[kind].data)
        require_same(lambda: read_kg_csv(path, KgCsvSettings()))

    def test_of_a_file_in_many_blocks_whose_nodes_change_name_type_and_source(self, tmp_path: Path) -> None:
        blank = DRUG.replace(DRUG.split(",")[3], "")
        renamed = row(DRUG, GENE.replace(GENE.split(",")[3], "another name"))
        moved = row(DRUG, GENE.replace("gene/protein", "disease"))
        rows = [row(blank, GENE), *CLEAN * 6, renamed, *CLEAN * 4, moved, row(GENE, blank), *CLEAN * 6]
        path = write(tmp_path, text(*rows))
        require_same(lambda: read_kg_csv(path, KgCsvSettings()))
        require_same(lambda: read_kg_csv(path, KgCsvSettings(limit_nodes=2)))
        by_type = KgColumns(relation="relation", head_id="x_id", head_type="x_type", head_name="x_name",
                            head_source="x_source", tail_id="y_id", tail_type="y_type", tail_name="y_name")  # fmt: skip
        require_same(lambda: read_kg_csv(path, KgCsvSettings(columns=by_type)))

    def test_of_times_blank_wrong_and_of_two_units(self, tmp_path: Path) -> None:
        times = ["2024-01-31", "", "1700000000", "1700000000000", "soon", "86400000"] * 9
        lines = "".join(f"r\tn{i % 7}\tn{i % 11}\t{time}\n" for i, time in enumerate(times))
        path = write(tmp_path, "r\ta\tb\tt\n" + lines)
        columns = KgColumns(relation="r", head_id="a", tail_id="b", timestamp="t", head_type_constant="x",
                            tail_type_constant="x")  # fmt: skip
        require_same(lambda: read_kg_csv(path, KgCsvSettings(columns=columns)))

    def test_of_node_and_edge_files(self, tmp_path: Path) -> None:
        (tmp_path / "drug.csv").write_text("id,label\nd1,aspirin\nd2,\nd3,unused\n")
        (tmp_path / "treats.csv").write_text("head,tail\n" + "".join(f"d{i % 5},x{i % 9}\n" for i in range(90)))
        (tmp_path / "causes.csv").write_text(
            "head,tail\n" + "".join(f"x{i % 9},d{i % 4}\n" for i in range(40)) + "x1\n"
        )
        settings = {
            "nodes": [{"file": "drug.csv", "type": "drug", "name_column": "label"}],
            "edges": [{"file": "treats.csv", "relation": "treats", "tail_type": "disease"},
                      {"file": "causes.csv", "relation": "causes", "head_type": "disease"}],
        }  # fmt: skip
        require_same(lambda: read_edges(tmp_path, "kg_files", **settings))

    def test_of_triples_with_splits_repetitions_and_lines_that_cannot_be_used(self, tmp_path: Path) -> None:
        for name, size in (("train", 60), ("valid", 20), ("test", 20)):
            lines = [f"e{i % 13}\tr{i % 3}\te{i * i % 17}" for i in range(size)]
            (tmp_path / f"{name}.txt").write_text("\n".join([*lines, "only two\tcells", *lines[:4]]) + "\n")
        require_same(lambda: read_triples(tmp_path))


def test_a_disk_that_fills_up_is_told(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("graphmill.ingest.kg_assemble.Assembly.add", full)
    with pytest.raises(ResourceError, match="has no room for its temporary files; set TMPDIR"):
        read_kg_csv(repository / "data/01_raw/kg.csv")
