"""Inputs without an end, and lines that only seem to end: every reader is bounded, and says what it met in one sentence."""

import gzip
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import InputError
from graphmill.ingest import files, node_features
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.interactions_csv import read_interactions_csv, read_sequence
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.kgat_files import read_kgat
from graphmill.ingest.public_readers import ingest_report, read_edges, recognised
from graphmill.ingest.triples import read_triples
from graphmill.settings import parse

FILE_OF = {
    "kg_csv": ("x.csv", b"relation,"), "kg_files": ("e.csv", b"head,tail,"),
    "ntriples": ("x.nt", b"<a> <b> <"), "triples": ("train.txt", b"a\tb\t"),
    "sequence": ("x.txt", b"1 2 "), "interactions_csv": ("x.csv", b"user,item,"), "mmrec": ("x.inter", b"userID\titemID\t"),
    "kgat": ("train.txt", b"0 1 "),
}  # fmt: skip
SETTINGS = {"kg_files": {"edges": [{"file": "e.csv", "relation": "r"}]}}
ENDLESS = 200 << 20
"""Bytes without a line end, in a file of 200 kB."""


def read(name: str, path: Path) -> None:
    format = FORMATS[name]
    assert format.read is not None
    format.read(str(path), parse(format.settings, SETTINGS.get(name, {}), name))


def endless(start: bytes, data: bytes = b"7") -> bytes:
    return gzip.compress(start + data * ENDLESS, 1)


@pytest.mark.parametrize("name", FILE_OF)
def test_a_line_without_an_end_is_refused_in_little_memory(tmp_path: Path, name: str) -> None:
    """In a process of its own, whose largest memory is that of this one file."""
    file, start = FILE_OF[name]
    whole = {"kgat": b"0 1 2\n", "interactions_csv": b"user,item\n1,2\n"}.get(name, b"")
    (tmp_path / f"{file}.gz").write_bytes(endless(whole + start))
    entry = tmp_path if name in ("kg_files", "triples", "kgat") else tmp_path / f"{file}.gz"
    code = (
        "import resource; from pathlib import Path; import graphmill.ingest.formats\n"
        "from graphmill.errors import InputError; from tests.ingest import test_bounds as here\n"
        f"here.SETTINGS['kg_files']['edges'][0]['file'] = '{file}.gz'\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"try: here.read({name!r}, Path({str(entry)!r}))\n"
        "except InputError as error: print(error)\n"
        "print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)"
    )
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600, check=True)
    sentence, mebibytes = output.stdout.strip().split("\n")
    assert "longer than" in sentence, sentence
    assert file in sentence
    assert int(mebibytes) < 450


def test_a_small_file_of_an_array_or_table_larger_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory that is available is pretended to be 64 MiB."""
    for module in (files, node_features):
        monkeypatch.setattr(module, "available_memory", lambda: 64 << 20)
    array, table = tmp_path / "x.npy.gz", tmp_path / "x.parquet"
    array.write_bytes(gzip.compress(b"\x93NUMPY" + bytes(200 << 20), 1))
    with pytest.raises(InputError, match=r"x\.npy\.gz holds more than 16 MiB"):
        node_features.load_matrix(array)
    packed = tmp_path / "x.parquet.gz"
    packed.write_bytes(gzip.compress(b"PAR1" + bytes(200 << 20), 1))
    for read in (
        lambda: node_features.read_parquet(packed, "id", "", ()),
        lambda: read_interactions_csv(packed),
        lambda: read_kg_csv(packed),
    ):
        with pytest.raises(InputError, match="holds more than 16 MiB"):
            read()
    ids = pa.array([f"n{number % 7}" for number in range(20_000_000 // 8)]).dictionary_encode()
    pq.write_table(pa.table({"id": ids, **{f"f{n}": pa.repeat(1.0, len(ids)) for n in range(7)}}), table)
    assert table.stat().st_size < 2 << 20
    with pytest.raises(InputError, match=r"20,000,000 values.* 229 MiB .*64 MiB"):
        node_features.read_parquet(table, "id", "", ())


@pytest.mark.parametrize("name", FILE_OF)
def test_a_pipe_is_refused_and_never_waited_for(tmp_path: Path, name: str) -> None:
    file, _ = FILE_OF[name]
    os.mkfifo(tmp_path / file)
    entry = tmp_path if name in ("kg_files", "triples") else tmp_path / file
    with pytest.raises(InputError, match=r"is a pipe or a device|is not a folder|has no (file|train)"):
        read(name, entry)
    assert ingest_report(tmp_path / file).problem


@pytest.mark.parametrize("end", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029"])
class TestOnlyLineFeedsEndLines:
    def test_of_kgat(self, tmp_path: Path, end: str) -> None:
        (tmp_path / "train.txt").write_text(f"0 0 1\n1 2{end}5 3\n2 1\n", encoding="utf-8", newline="")
        result = read_kgat(tmp_path)
        assert result.counts["interactions"] == 4
        assert [reject["line"] for reject in result.rejects.to_pylist()] == [2]

    @pytest.mark.parametrize("mark", ["\t", ",", "::"])
    def test_of_sequences(self, tmp_path: Path, end: str, mark: str) -> None:
        lines = [mark.join(cells) for cells in (("u1", "i1"), ("u2", f"i{end}2"), ("u3", "i3"))]
        (tmp_path / "x.txt").write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
        assert f"i{end}2" in read_sequence(tmp_path / "x.txt").nodes["id"].to_pylist()

    def test_of_triples_and_tables(self, tmp_path: Path, end: str) -> None:
        (tmp_path / "train.txt").write_text(f"a\tr\tb{end}c\nb\tr\ta\n", encoding="utf-8", newline="")
        assert f"b{end}c" in read_triples(tmp_path).nodes["id"].to_pylist()
        (tmp_path / "x.csv").write_text(f"user,item\nu1,a{end}b\nu2,c\n", encoding="utf-8", newline="")
        assert f"a{end}b" in read_interactions_csv(tmp_path / "x.csv").nodes["id"].to_pylist()


def test_a_user_beyond_the_list_of_kgat_has_a_line(tmp_path: Path) -> None:
    (tmp_path / "user_list.txt").write_text("org_id remap_id\nana 0\nbob 1\n")
    (tmp_path / "train.txt").write_text("0 0 1\n1 2\n7 0\n")
    (reject,) = read_kgat(tmp_path).rejects.to_pylist()
    assert (reject["line"], reject["reason"], reject["value"]) == (3, "the user is not in user_list.txt", "7")


def test_a_header_of_a_million_columns_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(",".join(f"c{n}" for n in range(1_000_000)) + "\n" + "1," * 999_999 + "1\n")
    with pytest.raises(InputError, match="first line is longer than 1 MiB"):
        read_kg_csv(tmp_path / "x.csv")


class TestComments:
    LINES = ("# made by hand", "#head\trelation\ttail", "a\tr\tb", "! not this", "b\tr\tc", "#b\tr\tx")

    def write(self, tmp_path: Path, name: str, change: Callable[[str], str] = str) -> Path:
        (tmp_path / name).write_text("".join(change(line) + "\n" for line in self.LINES))
        return tmp_path / name

    def test_of_triples(self, tmp_path: Path) -> None:
        self.write(tmp_path, "train.txt")
        result = read_triples(tmp_path)
        assert result.nodes["id"].to_pylist() == ["a", "b", "c"]
        assert any("4 comment lines" in note for note in result.notes)

    def test_a_header_in_a_comment_says_what_triples_are(self, tmp_path: Path) -> None:
        path = tmp_path / "x.tsv"
        path.write_text("# source\ttarget\trelation\na\tb\tr\nb\tc\ts\n")
        assert read_triples(path).edges["relation"].to_pylist() == ["r", "s"]
        path.write_text("#Interactor A\tInteractor B\tSystem\na\tb\tr\nb\tc\ts\n")
        assert "triples" not in recognised(path)

    def test_of_a_table_whose_header_is_a_comment(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "x.csv", lambda line: line.replace("\t", ","))
        result = read_edges(path)
        assert result.nodes["id"].to_pylist() == ["a", "b", "c"]
        assert "3 comment lines were skipped" in result.notes

    def test_of_sequences_and_kgat(self, tmp_path: Path) -> None:
        (tmp_path / "x.txt").write_text("# users and items\n# user item\nu1 i1\nu2 i2\n")
        result = read_sequence(tmp_path / "x.txt")
        assert result.counts["interactions"] == 2
        assert any("comment line" in note for note in result.notes)
        (tmp_path / "train.txt").write_text("# x\n0 1\n1 0\n")
        assert any("1 comment lines" in note for note in read_kgat(tmp_path).notes)

    def test_a_row_that_begins_with_a_mark_is_a_row_where_the_file_has_no_comments(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("user,item\nu1,a\n#u2,b\n# a remark\nu3,c\n")
        result = read_interactions_csv(tmp_path / "x.csv")
        assert "#u2" in result.nodes["id"].to_pylist()
        assert result.rejects.num_rows == 0
        assert "1 comment lines were skipped" in result.notes


def test_a_long_text_that_a_small_parquet_file_repeats_is_bounded(tmp_path: Path) -> None:
    """Decoded, the weights would fill the memory, of a file of some kB; and one text may be no longer than a line."""
    rows = 4_000
    ids = pa.array([f"u{n}" for n in range(rows)])
    long = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["7" * (1 << 20)]))
    small = tmp_path / "x.parquet"
    pq.write_table(pa.table({"user": ids, "item": ids, "weight": long}), small, compression="zstd")
    assert small.stat().st_size < 1 << 20
    code = (
        "import resource, sys; from graphmill import read_interactions; from graphmill.errors import GraphmillError\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))\n"
        "try: read_interactions(sys.argv[1])\n"
        "except GraphmillError as error: print(error)"
    )
    process = subprocess.run([sys.executable, "-c", code, str(small)], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    huge = pa.array(["7" * (files.LONGEST_LINE + 1), "8"])
    pq.write_table(pa.table({"user": ["a", "b"], "item": huge}), small)
    with pytest.raises(InputError, match="a text is longer than 64 MiB"):
        read_interactions_csv(small)
