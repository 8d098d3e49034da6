"""Node files and edge files: types by rule, ends that are looked up, and what is refused."""

from pathlib import Path
from typing import Any

import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.kg_files import KgFilesSettings, read_kg_files
from graphmill.ingest.ntriples import read_ntriples
from graphmill.ingest.tables import NO_TIME, IngestResult
from graphmill.settings import parse

DRUGS = "id,label,weight,logp\nd1,aspirin,180,1.2\nd2,ibuprofen,206,\nd3,unused,1,1\n"
GENES = "gene\tkind\nd1\tgene\ng1\tgene\n"
TREATS = "drug,disease\nd1,x1\nd2,x2\n"


def files(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text, encoding="utf-8")
    return folder


def read(folder: Path, **settings: Any) -> IngestResult:
    return read_kg_files(folder, parse(KgFilesSettings, settings, "defs.yaml"))


def nodes(result: IngestResult) -> list[tuple[str, str]]:
    return [(n["type"], n["id"]) for n in result.nodes.to_pylist()]


TREATS_FILE = {"file": "treats.csv", "relation": "treats", "head_type": "drug", "tail_type": "disease",
               "columns": {"head_id": "drug", "tail_id": "disease"}}  # fmt: skip
DRUG_FILE = {"file": "drugs.csv", "type": "drug", "name_column": "label"}


class TestKgFiles:
    def test_listed_nodes_come_first_and_are_nodes_without_an_edge_too(self, tmp_path: Path) -> None:
        result = read(files(tmp_path, drugs_csv=DRUGS, treats_csv=TREATS), edges=[TREATS_FILE], nodes=[DRUG_FILE])
        listed = [("drug", "d1"), ("drug", "d2"), ("drug", "d3")]
        assert nodes(result) == [*listed, ("disease", "x1"), ("disease", "x2")]
        assert result.nodes["name"].to_pylist() == ["aspirin", "ibuprofen", "unused", "x1", "x2"]
        assert result.counts["listed_nodes_without_edge"] == 1
        assert result.counts["nodes_without_a_row"] == 2

    def test_an_id_of_several_types_needs_the_type_of_the_end(self, tmp_path: Path) -> None:
        folder = files(tmp_path, drugs_csv=DRUGS, genes_tsv=GENES, links_csv="head,tail\nd1,g1\nd2,g1\n")
        listed = [DRUG_FILE, {"file": "genes.tsv", "id_column": "gene", "type_column": "kind"}]
        edge = {"file": "links.csv", "relation": "targets"}
        result = read(folder, edges=[edge], nodes=listed)
        (reject,) = result.rejects.to_pylist()
        assert (reject["line"], reject["value"]) == (2, "d1")
        assert "name the type of this end" in reject["reason"]
        result = read(folder, edges=[edge | {"head_type": "drug"}], nodes=listed)
        assert (result.edges.num_rows, result.rejects.num_rows) == (2, 0)

    def test_ids_that_no_file_lists_get_the_missing_type(self, tmp_path: Path) -> None:
        folder = files(tmp_path, treats_csv=TREATS)
        edge = {"file": "treats.csv", "relation": "treats", "columns": {"head_id": "drug", "tail_id": "disease"}}
        assert {kind for kind, _ in nodes(read(folder, edges=[edge]))} == {"node"}

    def test_of_several_types_the_one_of_fewest_nodes(self, tmp_path: Path) -> None:
        folder = files(tmp_path, n_csv="id,kinds\n1,a|b\n2,a\n3,a\n", e_csv="head,tail\n1,2\n2,3\n")
        result = read(folder, edges=[{"file": "e.csv", "relation": "r"}],
                      nodes=[{"file": "n.csv", "type_column": "kinds"}])  # fmt: skip
        assert nodes(result)[0] == ("b", "1")
        assert result.counts["nodes_of_several_types"] == 1

    def test_positions_in_a_file_without_a_header(self, tmp_path: Path) -> None:
        folder = files(tmp_path, e_csv="0,7\n7,0\n")
        edge = {"file": "e.csv", "header": False, "relation": "next", "head_type": "a", "tail_type": "b"}
        result = read(folder, edges=[edge])
        assert nodes(result) == [("a", "0"), ("b", "7"), ("a", "7"), ("b", "0")]

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"edges": [{"file": "no.csv", "relation": "r"}]}, "no.csv does not exist"),
            ({"edges": [{"file": "treats.csv"}]}, "which columns are head and tail"),
            ({"edges": [{"file": "treats.csv", "columns": {"head_id": "drug", "tail_id": "disease"}}]}, "which relation"),
            ({"edges": [{"file": "treats.csv", "relation": "r", "columns": {"head_id": "medicine", "tail_id": "disease"}}]},
             "column medicine is missing; the header has drug, disease"),
            ({"edges": [TREATS_FILE], "nodes": [DRUG_FILE | {"id_column": "code"}]},
             "column code is missing; the header has id, label"),
        ],
    )  # fmt: skip
    def test_what_cannot_be_read_says_the_way_out(self, tmp_path: Path, settings: dict, message: str) -> None:
        folder = files(tmp_path, drugs_csv=DRUGS, treats_csv=TREATS.replace("drug,disease", "drug,disease,x"))
        (folder / "treats.csv").write_text("drug,disease\nd1,x1\n" if "head" in str(settings) or "nodes" in settings
                                           else "drug,disease,dose,day\nd1,x1,5,1\n")  # fmt: skip
        with pytest.raises(InputError, match=message):
            read(folder, **settings)

    def test_nodes_without_edges_are_refused(self) -> None:
        with pytest.raises(SettingsError, match="edges: list the edge files, too"):
            parse(KgFilesSettings, {"nodes": [DRUG_FILE]}, "defs.yaml")


class TestKgx:
    EDGES = "subject\tpredicate\tobject\nA:1\tbiolink:treats\tB:1\nA:2\tbiolink:treats\tB:1\n"
    NODES = (
        "id\tcategory\tname\n"
        "A:1\tbiolink:SmallMolecule|biolink:NamedThing\tone\n"
        "A:2\tbiolink:NamedThing|biolink:SmallMolecule\ttwo\n"
        "B:1\tbiolink:Disease|biolink:NamedThing\tthree\n"
    )

    def test_the_rarest_category_whatever_the_order_of_the_list(self, tmp_path: Path) -> None:
        result = read_kg_files(files(tmp_path, my_nodes_tsv=self.NODES, my_edges_tsv=self.EDGES))
        assert nodes(result) == [("SmallMolecule", "A:1"), ("SmallMolecule", "A:2"), ("Disease", "B:1")]
        assert result.edges["relation"].to_pylist() == ["treats", "treats"]
        assert any("3 nodes have several types" in note for note in result.notes)

    def test_the_edge_file_finds_its_nodes_beside_it(self, tmp_path: Path) -> None:
        files(tmp_path, my_nodes_tsv=self.NODES, my_edges_tsv=self.EDGES)
        assert nodes(read_kg_files(tmp_path / "my_edges.tsv"))[2] == ("Disease", "B:1")
        files(tmp_path, other_nodes_tsv=self.NODES)
        assert {kind for kind, _ in nodes(read_kg_files(tmp_path / "my_edges.tsv"))} == {"node"}

    def test_nodes_alone_are_refused_with_the_way_out(self, tmp_path: Path) -> None:
        files(tmp_path, my_nodes_tsv=self.NODES)
        with pytest.raises(InputError, match=r"only nodes: .*file of edges"):
            read_kg_files(tmp_path / "my_nodes.tsv")


class TestNeo4j:
    def test_ids_of_two_spaces_are_two_nodes(self, tmp_path: Path) -> None:
        folder = files(tmp_path, a_csv=":ID(Drug),name\n1,x\n", b_csv=":ID(Gene),name\n1,y\n",
                       r_csv=":START_ID(Drug),:END_ID(Gene),:TYPE\n1,1,BINDS\n")  # fmt: skip
        result = read_kg_files(folder)
        assert nodes(result) == [("Drug", "1"), ("Gene", "1")]
        assert result.edges.select(["head", "tail"]).to_pylist() == [{"head": 0, "tail": 1}]

    def test_a_file_without_types_names_its_relation(self, tmp_path: Path) -> None:
        folder = files(
            tmp_path, n_csv="id:ID,mass:float,:LABEL\n1,5,Drug\n2,6,Drug\n", KNOWS_csv=":START_ID,:END_ID\n1,2\n"
        )
        assert read_kg_files(folder).edges["relation"].to_pylist() == ["KNOWS"]

    def test_edges_alone_have_their_spaces_for_types(self, tmp_path: Path) -> None:
        files(tmp_path, r_csv=":START_ID(Drug),:END_ID(Disease),:TYPE\nd,x,TREATS\n")
        assert nodes(read_kg_files(tmp_path / "r.csv")) == [("Drug", "d"), ("Disease", "x")]

    def test_headers_in_files_of_their_own_are_refused_with_the_way_out(self, tmp_path: Path) -> None:
        files(tmp_path, header_csv=":START_ID,:END_ID,:TYPE\n", data_csv="1,2,T\n")
        with pytest.raises(InputError, match=r"data\.csv .*no header .*cat header\.csv data\.csv"):
            read_kg_files(tmp_path)

    def test_a_folder_without_such_files_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="two ends of an edge"):
            read_kg_files(files(tmp_path, a_csv="p,q\n1,2\n"))


class TestNTriples:
    def test_names_that_do_not_tell_relations_apart_stay_whole(self, tmp_path: Path) -> None:
        path = files(tmp_path, x_nt="<a:1> <http://p/is> <a:2> .\n<a:1> <http://q#is> <a:2> .\n") / "x.nt"
        assert read_ntriples(path).edges["relation"].to_pylist() == ["http://p/is", "http://q#is"]

    def test_quads_and_blank_nodes(self, tmp_path: Path) -> None:
        path = files(tmp_path, x_nq="_:b1 <http://p/is> <a:2> <http://graph> .\n") / "x.nq"
        result = read_ntriples(path)
        assert nodes(result) == [("node", "_:b1"), ("node", "a:2")]
        assert result.edges["relation"].to_pylist() == ["is"]

    def test_a_line_that_is_no_statement_is_a_reject(self, tmp_path: Path) -> None:
        path = files(tmp_path, x_nt="<a:1> <p:is> <a:2> .\n<a:1> <p:is> <a:2>\n") / "x.nt"
        (reject,) = read_ntriples(path).rejects.to_pylist()
        assert (reject["line"], reject["reason"]) == (2, "no statement of N-Triples")

    def test_an_empty_iri_is_a_reject(self, tmp_path: Path) -> None:
        whole = "<a:1> <p:is> <a:2> .\n"
        lines = [whole, whole.replace("a:1", ""), whole.replace("p:is", ""), whole.replace("a:2", "")]
        rejects = read_ntriples(files(tmp_path, x_nt="".join(lines)) / "x.nt").rejects.to_pylist()
        assert [(r["line"], r["reason"]) for r in rejects] == [(n, "no statement of N-Triples") for n in (2, 3, 4)]

    def test_iris_know_escapes_by_number_alone(self, tmp_path: Path) -> None:
        path = files(tmp_path, x_nt="<file:C:\\new\\table> <p:is> <a:\\u00e9> .\n") / "x.nt"
        assert nodes(read_ntriples(path)) == [("node", "file:C:\\new\\table"), ("node", "a:é")]

    def test_literals_alone_are_no_graph(self, tmp_path: Path) -> None:
        path = files(tmp_path, x_nt='<a:1> <p:is> "one" .\n') / "x.nt"
        with pytest.raises(InputError, match="has no usable edge"):
            read_ntriples(path)


def test_edges_have_times_where_a_file_has_them(tmp_path: Path) -> None:
    folder = files(tmp_path, a_csv="head,tail,year\n1,2,2001\n2,3,\n3,1,soon\n", b_csv="head,tail\n1,3\n")
    columns = {"head_id": "head", "tail_id": "tail", "timestamp": "year"}
    result = read(
        folder, edges=[{"file": "a.csv", "relation": "r", "columns": columns}, {"file": "b.csv", "relation": "s"}]
    )
    assert result.edges["timestamp"].to_pylist() == [2001, NO_TIME, NO_TIME]
    assert result.counts["edges_without_time"] == 2
    (reject,) = result.rejects.to_pylist()
    assert (reject["line"], reject["column"], reject["value"]) == (4, "year", "soon")
