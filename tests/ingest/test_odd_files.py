"""Oddities of real files, each in three spellings: read right, or refused in a sentence with the way out."""

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import InputError
from graphmill.ingest.interactions_csv import read_interactions_csv
from graphmill.ingest.kg_files import read_kg_files
from graphmill.ingest.kgat_files import read_kgat
from graphmill.ingest.mmrec import read_mmrec
from graphmill.ingest.node_features import NodeFeatureSettings, load_matrix, read_node_features
from graphmill.ingest.ntriples import read_ntriples
from graphmill.ingest.public_readers import ingest_report
from graphmill.ingest.triples import TriplesSettings, read_triples

FACTS = [(f"n{i % 5}", "r" if i % 2 else "s", f"n{(3 * i) % 7}") for i in range(12)]
ENTITIES, RELATIONS = {e for h, _, t in FACTS for e in (h, t)}, {"r", "s"}


def triples(tmp_path: Path, lines: list[str], end: str = "\n") -> Path:
    (tmp_path / "train.txt").write_text(end.join(lines) + end, encoding="utf-8")
    return tmp_path


class TestTriples:
    @pytest.mark.parametrize(
        "pattern",
        [
            "<{}>\t<{}>\t<{}> .",
            "<{}>\t<{}>\t<{}>\t.",
            "<{}> <{}> <{}> .",
            "<{}> <{}> <{}>.",
            "<http://x/\\u00e9{}>\t<{}>\t<http://x/\\u00e9{}> .",
            "_:{}\t<{}>\t_:{} .",
        ],
    )
    def test_ntriples_are_another_format(self, tmp_path: Path, pattern: str) -> None:
        with pytest.raises(InputError, match=r"is N-Triples, .*: read it as format: ntriples"):
            read_triples(triples(tmp_path, [pattern.format(*fact) for fact in FACTS]))

    def test_a_symbol_that_ends_in_a_dot_is_kept(self, tmp_path: Path) -> None:
        assert "St. Louis Inc." in read_triples(triples(tmp_path, ["a\tin\tSt. Louis Inc."])).nodes["id"].to_pylist()

    @pytest.mark.parametrize(
        ("header", "order"),
        [("head\trelation\ttail", (0, 1, 2)), ("subject\tpredicate\tobject", (0, 1, 2)), ("h\tr\tt", (0, 1, 2)),
         ("Subject\tObject\tPredicate", (0, 2, 1)), ("source\ttarget\trelation", (0, 2, 1))],
    )  # fmt: skip
    def test_a_header_is_skipped_and_says_the_order(
        self, tmp_path: Path, header: str, order: tuple[int, int, int]
    ) -> None:
        result = read_triples(triples(tmp_path, [header, *("\t".join(fact[i] for i in order) for fact in FACTS)]))
        assert set(result.nodes["id"].to_pylist()) == ENTITIES
        assert set(result.edges["relation"].to_pylist()) == RELATIONS
        assert (sum("is a header" in note for note in result.notes), result.counts["rows"]) == (1, len(FACTS))

    @pytest.mark.parametrize("blank", [" ", "\u00a0", "  "])
    @pytest.mark.parametrize("end", ["\n", "\r\n"])
    def test_blanks_around_symbols_make_no_others(self, tmp_path: Path, blank: str, end: str) -> None:
        lines = [f"{h}{blank * (n % 2)}\t{r}\t{t}{blank * (n % 3)}" for n, (h, r, t) in enumerate(FACTS)]
        result = read_triples(triples(tmp_path, lines, end))
        assert set(result.nodes["id"].to_pylist()) == ENTITIES
        assert result.counts["padded_ids"] == 6 + 8

    def test_with_dictionaries_as_well(self, tmp_path: Path) -> None:
        triples(tmp_path, ["a \tr\tb", "b\tr \ta"])
        (tmp_path / "node_dict.txt").write_text("a\t0\nb \t1\n", encoding="utf-8")
        assert read_triples(tmp_path, TriplesSettings()).counts["rejected_rows"] == 0


class TestKgatLists:
    TITLES = ("Heat", "Apollo 13", "Se7en", "2001: A Space Odyssey")

    def write(self, tmp_path: Path, lines: list[str]) -> Path:
        for name, text in {"train": "0 0 1\n1 2 3\n", "test": "0 2\n", "kg_final": "0 0 4\n1 0 5\n"}.items():
            (tmp_path / f"{name}.txt").write_text(text, encoding="utf-8")
        (tmp_path / "item_list.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return tmp_path

    @pytest.mark.parametrize(
        ("header", "row"),
        [("org_id\tremap_id", "{0}\t{1}"), ("remap_id\torg_id", "{1}\t{0}"),
         ("org_id\tremap_id\tfreebase_id", "{0}\t{1}\tm.{1}")],
    )  # fmt: skip
    def test_the_columns_are_those_of_the_tab(self, tmp_path: Path, header: str, row: str) -> None:
        result = read_kgat(self.write(tmp_path, [header, *(row.format(t, n) for n, t in enumerate(self.TITLES))]))
        items = [n["name"] for n in result.nodes.to_pylist() if n["type"] == "item"]
        assert items == list(self.TITLES)
        assert result.counts["entities"] == 6

    @pytest.mark.parametrize("mark", [" ", "  "])
    def test_a_line_with_more_cells_than_the_header_is_refused(self, tmp_path: Path, mark: str) -> None:
        lines = [f"org_id{mark}remap_id", *(f"{t}{mark}{n}" for n, t in enumerate(self.TITLES))]
        with pytest.raises(InputError, match=r"item_list\.txt, line 3: expected 2 fields, found 3 .*need tabs"):
            read_kgat(self.write(tmp_path, lines))


class TestRowNumbers:
    IDS = tuple(f"i{n}" for n in range(1, 9))

    def nodes(self, tmp_path: Path) -> object:
        path = tmp_path / "plays.csv"
        path.write_text("user,item\n" + "".join(f"u,{i}\n" for i in self.IDS), encoding="utf-8")
        return read_interactions_csv(path).nodes

    def frame(self) -> pd.DataFrame:
        values = np.random.default_rng(0).normal(size=(len(self.IDS), 2))
        return pd.DataFrame(values, columns=["a", "b"]).assign(id=self.IDS)

    @pytest.mark.parametrize("kind", ["csv", "twice", "reset", "parquet", "level"])
    def test_what_pandas_writes_beside_a_table_is_no_feature(self, tmp_path: Path, kind: str) -> None:
        frame, path = self.frame(), tmp_path / ("x.parquet" if kind in ("parquet", "level") else "x.csv")
        if kind == "csv":
            frame.to_csv(path)
        elif kind == "twice":
            frame.to_csv(path)
            pd.read_csv(path).to_csv(path)
        elif kind == "reset":
            frame.reset_index().to_csv(path, index=False)
        elif kind == "parquet":
            frame.sample(frac=1, random_state=1).to_parquet(path)
        else:
            frame.reset_index(names="level_0").to_parquet(path)
        result = read_node_features(path, self.nodes(tmp_path), NodeFeatureSettings(node_type="item"))
        assert result.features["item"].schema.field("values").type.list_size == 2
        assert any("row number" in note for note in result.notes)

    def test_it_is_read_where_it_is_named(self, tmp_path: Path) -> None:
        self.frame().reset_index().to_csv(tmp_path / "x.csv", index=False)
        settings = NodeFeatureSettings(node_type="item", columns=["index", "a"])
        result = read_node_features(tmp_path / "x.csv", self.nodes(tmp_path), settings)
        assert result.features["item"]["values"][1].as_py()[0] == 1.0


@pytest.mark.parametrize(
    "text",
    [",gene,disease\n0,G1,D1\n1,G2,D1\n", "gene,disease,\nG1,D1,\nG2,D1,\n", "Unnamed: 0,gene,disease\n0,G1,D1\n",
     ",gene,link,disease\n0,G1,to,D1\n", "gene,,disease\nG1,x,D1\n"],
)  # fmt: skip
def test_a_blank_header_cell_is_no_part_of_an_edge(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    report = ingest_report(path, "kg_csv")
    assert report.problem == ""
    assert {c["name"]: c["part"] for c in report.columns if "id" in c["part"]} == {
        "gene": "head_id", "disease": "tail_id",
    }  # fmt: skip


@pytest.mark.parametrize("reader", ["kgat", "mmrec"])
def test_numbers_that_are_never_met_are_gaps_and_held_out_ones_are_not(tmp_path: Path, reader: str) -> None:
    """Items 0 and 1 are trained on, 2 is held out alone, 3 is a gap, 4 is held out alone."""
    if reader == "kgat":
        (tmp_path / "train.txt").write_text("0 0 1\n", encoding="utf-8")
        (tmp_path / "test.txt").write_text("0 2 4\n", encoding="utf-8")
        result = read_kgat(tmp_path)
    else:
        path = tmp_path / "x.inter"
        path.write_text("userID\titemID\tx_label\n0\t0\t0\n0\t1\t0\n0\t2\t2\n0\t4\t1\n", encoding="utf-8")
        result = read_mmrec(path)
    assert result.counts["unused_item_numbers"] == 1


@pytest.mark.parametrize("blank", [" ", "\u00a0", "   "])
@pytest.mark.parametrize("reader", ["interactions_csv", "mmrec"])
def test_blanks_around_ids_make_no_other_users_and_items(tmp_path: Path, blank: str, reader: str) -> None:
    mark, label = (",", "x") if reader == "interactions_csv" else ("\t", "x_label")
    rows = [("1", "a", "0"), (f"1{blank}", "b", "0"), ("1", f"{blank}a", "1")]
    path = tmp_path / "x.inter"
    path.write_text("\n".join(mark.join(row) for row in [("user", "item", label), *rows]) + "\n", encoding="utf-8")
    result = read_mmrec(path) if reader == "mmrec" else read_interactions_csv(path)
    assert [n["id"] for n in result.nodes.to_pylist() if n["type"] == "item"] == ["a", "b"]
    assert result.counts["items"] == 2


class TestNothingSilent:
    """Each was found by damages of whole files (tests.ingest.damage): read before without a word."""

    def test_a_time_column_under_a_name_that_nobody_knows_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "x.csv").write_text("user,item,tmie\n" + "".join(f"u{n},i{n % 3},{n}\n" for n in range(9)))
        assert "columns that play no part were skipped: tmie" in read_interactions_csv(tmp_path / "x.csv").notes

    @pytest.mark.parametrize(
        ("nodes", "edges", "said"),
        [
            (":ID,nmae,:LABEL\n1,x,A\n2,y,A\n", ":START_ID,:END_ID,:TYPE\n1,2,T\n", "skipped: nmae of n.csv"),
            (":ID,name,:LABEL\n1,x,A\n2,y,A\n", ":START_ID,:END_ID,:TYP\n1,2,T\n", "skipped: :TYP of r.csv"),
            (":ID,name,:LABEL\n", ":START_ID,:END_ID,:TYPE\n1,2,T\n", "n.csv lists no node"),
            (":ID,name,:LABEL\n1,x,A\n2,y,\n", ":START_ID,:END_ID,:TYPE\n1,2,T\n", "1 listed nodes have no type"),
            (":ID,name,:LABEL\n1,x,A;B\n2,y,B\n", ":START_ID,:END_ID,:TYPE\n1,2,T\n", "of fewest nodes: 1 A, 1 B"),
        ],
    )
    def test_what_a_graphs_files_lack_or_have_too_much_is_said(
        self, tmp_path: Path, nodes: str, edges: str, said: str
    ) -> None:
        (tmp_path / "n.csv").write_text(nodes)
        (tmp_path / "r.csv").write_text(edges)
        assert any(said in note for note in read_kg_files(tmp_path).notes)

    def test_bytes_that_are_no_utf8_or_nul_become_no_id(self, tmp_path: Path) -> None:
        line = b"<http://a/%s> <http://a/p> <http://a/2> .\n"
        (tmp_path / "x.nt").write_bytes(b"".join(line % end for end in (b"1", b"\xd9", b"\0", b"\\u0000")))
        result = read_ntriples(tmp_path / "x.nt")
        assert result.nodes["id"].to_pylist() == ["http://a/1", "http://a/2", "http://a/\\u0000"]
        assert [reject["reason"] for reject in result.rejects.to_pylist()] == ["not UTF-8 text", "holds a NUL byte"]

    def test_relations_that_end_alike_keep_their_iri_and_it_is_said(self, tmp_path: Path) -> None:
        lines = [f"<http://a/{n}> <http://{n % 2}/p> <http://a/{n + 1}> .\n" for n in range(4)]
        (tmp_path / "x.nt").write_text("".join(lines))
        result = read_ntriples(tmp_path / "x.nt")
        assert any("2 relations or types end as another does" in n for n in result.notes)

    def test_a_matrix_with_more_bytes_than_it_says_is_refused(self, tmp_path: Path) -> None:
        np.save(tmp_path / "f.npy", np.ones((3, 2), np.float32))
        data = (tmp_path / "f.npy").read_bytes()
        (tmp_path / "f.npy").write_bytes(data[:-6] + b"\0" + data[-6:])
        with pytest.raises(InputError, match=r"f\.npy is damaged: .*1 bytes more"):
            load_matrix(tmp_path / "f.npy")

    def test_parquets_own_checksums_are_looked_at(self, tmp_path: Path) -> None:
        path = tmp_path / "x.parquet"
        table = pa.table({"user": [f"user{n}" for n in range(60)], "item": [f"item{n % 7}" for n in range(60)]})
        pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
        assert read_interactions_csv(path).counts["interactions"] == 60
        path.write_bytes(path.read_bytes().replace(b"user31", b"user13", 1))
        with pytest.raises(InputError, match="CRC"):
            read_interactions_csv(path)
