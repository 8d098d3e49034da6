"""The triples format: dictionaries given or made, three styles, and every bad line with its number."""

import gzip
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.ingest.interactions import EDGES_WITH_SPLIT
from graphmill.ingest.tables import NODES
from graphmill.ingest.triples import TriplesSettings, read_triples


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        (directory / f"{name}.txt").write_text(text, encoding="utf-8", newline="")
    return directory


def triples_of(result) -> list[tuple]:
    ids = result.nodes["id"].to_pylist()
    edges = result.edges.to_pydict()
    columns = (edges["head"], edges["relation"], edges["tail"], edges.get("split", [None] * len(edges["head"])))
    return [(ids[h], r, ids[t], s) for h, r, t, s in zip(*columns, strict=True)]


def rejects_of(result) -> list[tuple]:
    rows = result.rejects.to_pylist()
    return [(Path(r["file"]).name, r["line"], r["column"], r["reason"], r["value"]) for r in rows]


class TestWithoutDictionaries:
    def test_symbols_are_numbered_as_they_appear_and_splits_are_kept(self, tmp_path: Path) -> None:
        write(tmp_path, train="/m/1\tr\t/m/2\n/m/2\ts\t/m/1\n", valid="/m/3\tr\t/m/1\n", test="/m/1\ts\t/m/3\n")
        result = read_triples(tmp_path)
        assert result.nodes.schema.equals(NODES)
        assert result.edges.schema.equals(EDGES_WITH_SPLIT)
        assert result.nodes["id"].to_pylist() == ["/m/1", "/m/2", "/m/3"]
        assert set(result.nodes["type"].to_pylist()) == {"entity"}
        assert triples_of(result) == [
            ("/m/1", "r", "/m/2", 0),
            ("/m/2", "s", "/m/1", 0),
            ("/m/3", "r", "/m/1", 1),
            ("/m/1", "s", "/m/3", 2),
        ]

    def test_a_train_file_alone_has_no_split_so_that_one_is_drawn(self, tmp_path: Path) -> None:
        result = read_triples(write(tmp_path, train="a\tr\tb\n"))
        assert "split" not in result.edges.column_names

    def test_a_fourth_column_can_be_the_time(self, tmp_path: Path) -> None:
        text = "a\tr\tb\t2014-01-01\na\tr\tc\t2014-01-02\nb\tr\tc\tsoon\nc\tr\ta\t1970-01-02\n"
        write(tmp_path, train=text)
        result = read_triples(tmp_path, TriplesSettings(timed=True))
        assert result.edges["timestamp"].to_pylist() == [1388534400, 1388620800, 86400]
        reason = "neither a number nor a date such as 2024-01-31"
        assert rejects_of(result) == [("train.txt", 3, "time", reason, "soon")]
        with pytest.raises(InputError, match=r"expected 3 fields, found 4; .*timed: true"):
            read_triples(tmp_path)

    def test_without_a_valid_file_test_is_still_test(self, tmp_path: Path) -> None:
        result = read_triples(write(tmp_path, train="a\tr\tb\n", test="b\tr\ta\n"))
        assert [s for *_, s in triples_of(result)] == [0, 2]

    def test_crlf_bom_gzip_blank_lines_and_a_missing_last_line_end(self, tmp_path: Path) -> None:
        text = b"\xef\xbb\xbf" + "a\tr\tnaïve b\r\n\r\n007\tr\ta".encode()
        (tmp_path / "train.txt.gz").write_bytes(gzip.compress(text))
        result = read_triples(tmp_path)
        assert triples_of(result) == [("a", "r", "naïve b", None), ("007", "r", "a", None)]
        assert result.counts["rejected_rows"] == 0


class TestWithDictionaries:
    FILES: ClassVar[dict[str, str]] = {
        "node_dict": "UNII:U59\t0\nMONDO:5314\t2\nNCBIGene:3455\t1\nUNUSED:1\t3\n",
        "rel_dict": "predicate:27\t0\npredicate:3\t1\n",
        "node_name_dict": "asthma\t2\nasthma\t0\n",
        "train": "UNII:U59\tpredicate:27\tMONDO:5314\n",
        "valid": "NCBIGene:3455\tpredicate:3\tMONDO:5314\n",
    }

    def test_indices_and_names_are_the_dictionarys_and_an_unused_entity_is_a_node(self, tmp_path: Path) -> None:
        result = read_triples(write(tmp_path, **self.FILES))
        assert result.nodes["id"].to_pylist() == ["UNII:U59", "NCBIGene:3455", "MONDO:5314", "UNUSED:1"]
        assert result.nodes["name"].to_pylist() == ["asthma", "NCBIGene:3455", "asthma", "UNUSED:1"]
        assert triples_of(result)[1] == ("NCBIGene:3455", "predicate:3", "MONDO:5314", 1)

    def test_unknown_symbols_are_rejected_with_line_column_and_value(self, tmp_path: Path) -> None:
        train = "UNII:U59\tpredicate:27\tMONDO:5314\nX:1\tpredicate:27\tMONDO:5314\nUNII:U59\tpredicate:9\tMONDO:5314\n"
        result = read_triples(write(tmp_path, **{**self.FILES, "train": train}))
        assert rejects_of(result) == [
            ("train.txt", 2, "head", f"is not in {tmp_path}/node_dict.txt", "X:1"),
            ("train.txt", 3, "relation", f"is not in {tmp_path}/rel_dict.txt", "predicate:9"),
        ]
        assert result.counts["rows"] == 4
        assert "2 rejected rows cannot be used" in result.notes[0]

    @pytest.mark.parametrize(
        ("name", "text", "sentence"),
        [
            ("node_dict", "a\t0\nb\t2\n", "index 1 is missing (line 2 has 2)"),
            ("node_dict", "a\t0\nb\t0\n", "line 2: index 0 is on line 1, too"),
            ("node_dict", "a\t0\na\t1\n", "line 2: 'a' is on line 1, too"),
            ("node_dict", "a\t0\nb\n", "line 2: expected 2 fields, found 1"),
            ("node_dict", "a\t0\nb\t-1\n", "line 2, column index: negative"),
            ("node_dict", "a\t0\n\t1\n", "line 2, column symbol: blank"),
            ("node_dict", "", "is empty"),
            ("rel_dict", "r\t1\n", "index 0 is missing"),
            ("node_name_dict", "x\t0\ny\t9\n", "line 2: index 9, but there are 2 entities"),
            ("node_name_dict", "x\t0\ny\t0\n", "line 2: index 0 is on line 1"),
        ],
    )
    def test_a_bad_dictionary_is_refused_with_its_line(self, tmp_path: Path, name, text, sentence) -> None:
        files = {"node_dict": "a\t0\nb\t1\n", "rel_dict": "r\t0\n", "train": "a\tr\tb\n", name: text}
        with pytest.raises(InputError) as error:
            read_triples(write(tmp_path, **files))
        assert sentence in str(error.value)
        assert f"{name}.txt" in str(error.value)


class TestBadLines:
    def test_wrong_column_counts_empty_cells_and_broken_text_are_rejects(self, tmp_path: Path) -> None:
        (tmp_path / "train.txt").write_bytes(b"a\tr\tb\na b c\na\tr\tb\tx\n\na\t \tb\n\xff\tr\tb\nb\tr\ta\n")
        result = read_triples(tmp_path)
        assert [(line, column) for _, line, column, *_ in rejects_of(result)] == [
            (2, ""),
            (3, ""),
            (5, "relation"),
            (6, "head"),
        ]
        assert "expected 3 fields, found 1" in rejects_of(result)[0]
        assert len(triples_of(result)) == 2
        assert "a b c" not in result.nodes["id"].to_pylist()

    def test_line_numbers_hold_across_blocks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("graphmill.ingest.csv_blocks.BLOCK_BYTES", 7)
        monkeypatch.setattr("graphmill.ingest.csv_blocks._HEADER_BYTES", 12)
        write(tmp_path, train="a\tr\tb\n" * 9 + "bad\n" + "a\tr\tb\n" * 5 + "worse")
        assert [line for _, line, *_ in rejects_of(read_triples(tmp_path))] == [10, 16]

    def test_a_file_without_a_usable_line_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"no usable edge; .* line 1: expected 3 fields, found 1"):
            read_triples(write(tmp_path, train="head,relation,tail\n"))

    def test_a_directory_without_train_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match=r"has no train\.txt"):
            read_triples(tmp_path)


def test_repeats_and_loops_are_counted(tmp_path: Path) -> None:
    write(tmp_path, train="a\tr\tb\na\tr\tb\nc\tr\tc\n", test="a\tr\tb\nd\tr\ta\n")
    counts = read_triples(tmp_path).counts
    assert (counts["duplicate_rows"], counts["self_loops"]) == (2, 1)


def test_names_without_the_dictionary_of_their_numbers_are_not_read(tmp_path: Path) -> None:
    result = read_triples(write(tmp_path, node_name_dict="asthma\t0\n", train="a\tr\tb\n"))
    assert result.nodes["name"].to_pylist() == ["a", "b"]
    assert any("node_name_dict.txt was not read" in note for note in result.notes)


@pytest.mark.real_data
def test_fb15k_237_with_its_crlf_has_the_published_counts(datasets: Path) -> None:
    result = read_triples(datasets / "FB15k-237")
    assert (result.nodes.num_rows, len(result.edges["relation"].chunk(0).dictionary)) == (14_541, 237)
    assert np.bincount(result.edges["split"].to_numpy()).tolist() == [272_115, 17_535, 20_466]
    assert (result.counts["rejected_rows"], result.counts["self_loops"]) == (0, 1806)
