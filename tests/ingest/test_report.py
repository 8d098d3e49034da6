"""The ingest report: columns, guesses, first bad rows, counts, and a defs.yaml that reads the file."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from graphmill.errors import InputError, SettingsError
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.column_maps import KgColumns, KgCsvSettings
from graphmill.ingest.kg_csv import guess_columns, read_kg_csv
from graphmill.ingest.public_readers import ingest_report
from graphmill.settings import parse
from tests.ingest.kg_text import CLEAN, GENE, row, text, write


def source_of(defs: str) -> dict:
    """The source in the first document of a defs.yaml."""
    dataset = next(iter(yaml.safe_load_all(defs)))
    assert dataset["type"] == "graphmill.components.GraphDataset"
    (source,) = dataset["attributes"]["sources"]
    return dict(source)


class TestPrimeKg:
    def test_columns_counts_and_kinds(self, tmp_path: Path) -> None:
        result = ingest_report(write(tmp_path, text(*CLEAN)))
        assert [c["part"] for c in result.columns][:4] == ["relation", "display_relation", "head_index", "head_id"]
        assert result.columns[3]["example"] == "DB00997"
        assert result.node_types == {"gene/protein": 2, "drug": 1, "disease": 1}
        assert result.relations == {"drug_protein": 2, "protein_protein": 2, "disease_protein": 2}
        assert result.counts["ids_in_two_types"] == 1

    def test_first_bad_rows(self, tmp_path: Path) -> None:
        path = write(tmp_path, text(*CLEAN, *[row(GENE, f"-{i},a,drug,a,x") for i in range(1, 15)]))
        result = ingest_report(path)
        assert len(result.rejects) == 10
        assert result.rejects[0] == {
            "file": str(path), "line": 8, "column": "y_index", "reason": "negative", "value": "-1",
        }  # fmt: skip
        assert "8     y_index  negative  -1" in result.text()

    def test_the_defs_yaml_is_understood_by_the_components(self, tmp_path: Path) -> None:
        from graphmill.ingest.sources import parse_sources

        result = ingest_report(write(tmp_path, text(*CLEAN), "my kg.csv"))
        dataset, model = yaml.safe_load_all(result.defs)
        assert dataset["attributes"]["name"] == model["attributes"]["dataset"] == "my_kg"
        assert dataset["attributes"]["graph"]["include_node_types"] == ["gene/protein", "drug", "disease"]
        (source,) = parse_sources(dataset["attributes"]["sources"], tmp_path)
        assert isinstance(source.settings, KgCsvSettings)
        assert read_kg_csv(source.location, source.settings).edges.num_rows == 6

    def test_json_has_the_same(self, tmp_path: Path) -> None:
        result = ingest_report(write(tmp_path, text(*CLEAN)))
        assert json.loads(json.dumps(result.to_dict()))["counts"] == result.counts


class TestOtherEdgeFiles:
    def test_the_guess_is_shown_and_reads_the_file(self, tmp_path: Path) -> None:
        path = write(tmp_path, "Subject;Predicate;Object;Object Category\na;treats;b;disease\n", "edges.csv")
        answer = ingest_report(path)
        assert [c["part"] for c in answer.columns] == ["head_id", "relation", "tail_id", "tail_type"]
        separator, kind = answer.remarks
        assert "';'" in separator
        assert "type of heads" in kind
        source = source_of(answer.defs)
        assert (source.pop("name"), source.pop("format"), source.pop("path")) == ("edges", "kg_csv", str(path))
        result = read_kg_csv(path, parse(KgCsvSettings, source, "defs.yaml"))
        assert result.nodes["type"].to_pylist() == ["node", "disease"]

    @pytest.mark.parametrize(
        ("header", "expected"),
        [
            ("head,relation,tail", {"head_id": "head", "relation": "relation", "tail_id": "tail"}),
            ("source,metaedge,target", {"head_id": "source", "relation": "metaedge", "tail_id": "target"}),
            (":START_ID,:TYPE,:END_ID", {"head_id": ":START_ID", "relation": ":TYPE", "tail_id": ":END_ID"}),
            ("who,whom", {"head_id": "who", "tail_id": "whom", "relation_constant": "related_to"}),
            (
                "from_id,from_label,to_id,to_label,edge_type",
                {"head_id": "from_id", "head_name": "from_label", "tail_name": "to_label", "relation": "edge_type"},
            ),
            ("x_index,x_id,y_id,relation", {"head_index": "", "head_id": "x_id"}),
            (
                "drug,drug_type,relation,target,target_type",
                {"head_id": "drug", "head_type": "drug_type", "tail_id": "target", "tail_type": "target_type"},
            ),
            (
                "gene_name,gene_id,gene_kind,edge,edge_type,term_id,term_kind",
                {"head_id": "gene_id", "head_name": "gene_name", "tail_id": "term_id", "tail_type": "term_kind"},
            ),
        ],
    )
    def test_common_headers_are_guessed(self, header: str, expected: dict[str, str]) -> None:
        columns, _ = guess_columns(tuple(header.split(",")))
        assert columns is not None
        assert {name: getattr(columns, name) for name in expected} == expected

    @pytest.mark.parametrize(
        "header", ["id,name,name_type,synonym,synonym_type", "a,a_type,b,b_type,c,c_type,relation"]
    )
    def test_columns_with_a_type_are_no_ends_without_a_relation_or_in_threes(self, header: str) -> None:
        assert guess_columns(tuple(header.split(",")))[0] is None

    def test_given_ends_leave_the_rest_to_the_header(self) -> None:
        header = ("drug", "drug_type", "note", "note_type", "relation", "target", "target_type")
        columns, _ = guess_columns(header, {"head_id": "drug", "tail_id": "target"})
        assert columns is not None
        assert (columns.relation, columns.head_type, columns.tail_type) == ("relation", "drug_type", "target_type")
        columns, remarks = guess_columns(("a", "b", "c", "d"), {"head_id": "a", "tail_id": "b"})
        assert columns is not None
        assert (columns.relation, columns.relation_constant) == ("", "related_to")
        assert any("no column for the relation" in remark for remark in remarks)

    def test_primekgs_own_columns_need_no_map(self, tmp_path: Path) -> None:
        result = ingest_report(write(tmp_path, text(*CLEAN)))
        assert guess_columns(tuple(c["name"] for c in result.columns)) == (KgColumns(), [])
        assert "columns" not in source_of(result.defs)

    def test_what_cannot_be_guessed_is_said(self, tmp_path: Path) -> None:
        result = ingest_report(write(tmp_path, "alpha,beta,gamma,delta\n1,2,3,4\n"))
        assert "no two columns could be told" in result.problem
        assert "CANNOT BE USED" in result.text()
        assert result.defs == ""


class TestNodeFeatures:
    def test_csv(self, tmp_path: Path) -> None:
        result = ingest_report(write(tmp_path, "node_id\ta\n d1\t1\nd2\tx\n", "f.tsv"), "node_features")
        assert [c["part"] for c in result.columns] == ["key", "feature"]
        assert (result.counts["rows"], result.counts["width"], result.rejects[0]["reason"]) == (2, 1, "not a number")
        source = yaml.safe_load(result.defs)["sources"][0]
        assert (source["key_column"], source["delimiter"]) == ("node_id", "tab")

    def test_npy(self, tmp_path: Path) -> None:
        np.save(tmp_path / "f.npy", np.zeros((2, 5)))
        (tmp_path / "f.ids.txt").write_text("a\nb\n")
        assert ingest_report(tmp_path / "f.npy", "node_features").counts["width"] == 5


class TestWhatCannotBeRead:
    def test_a_problem_is_part_of_the_report(self, tmp_path: Path) -> None:
        result = ingest_report(write(tmp_path, text()))
        assert "no usable edge" in result.problem
        assert result.columns

    def test_a_missing_file_too(self, tmp_path: Path) -> None:
        assert "does not exist" in ingest_report(tmp_path / "no.csv").problem

    def test_an_unknown_format_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(SettingsError, match="format 'kg'; choose one of auto, "):
            ingest_report(tmp_path / "no.csv", "kg")

    def test_a_password_in_a_url_is_not_repeated(self) -> None:
        try:
            said = ingest_report("nosuch://me:secret@host/kg.csv").text()
        except InputError as error:
            said = str(error)
        assert "secret" not in said


class TestOtherFormats:
    """Every format with a reader: what it finds, and a defs.yaml that the components understand."""

    @staticmethod
    def files(folder: Path) -> dict[str, Path]:
        (folder / "views.tsv").write_text("u1 i1 3 10\nu1 i2 4 20\nu2 i1 5 5\n")
        (folder / "plays.csv").write_text(
            "listener_id,user,item,date\nx,1,a,2024-01-01\nx,1,b,2024-01-02\nx,2,a,never\n"
        )
        (folder / "untimed.csv").write_text("user,item\n1,a\n1,b\n2,a\n")
        (folder / "semicolons.csv").write_text("user;item;a,b,c,d\n1;a;x\n1;b;y\n")
        (folder / "bars.csv").write_text("user|item\n1|a\n1|b\n")
        (folder / "m.inter").write_text("userID\titemID\tx_label\n0\t0\t0\n0\t1\t2\n1\t1\t7\n")
        for name, texts in {
            "kgat": {"train": "0 0 1\n1 1\n", "test": "1 0\n", "kg_final": "0 0 2\n"},
            "whole": {"train": "0 0 1\n1 1\n", "kg_final": "0 0 2\n"},
            "triples": {"train": "a\tlikes\tb\nb\tlikes\tc\n", "valid": "a\tlikes\tc\n", "test": "c\tlikes\ta\n"},
        }.items():
            (folder / name).mkdir()
            for part, content in texts.items():
                (folder / name / f"{part}.txt").write_text(content)
        return {p.name: p for p in folder.iterdir()}

    @pytest.mark.parametrize(
        ("file", "format", "predicts", "graph", "rejects"),
        [
            ("views.tsv", "sequence", "recommendations", {}, 0),
            ("plays.csv", "interactions_csv", "recommendations", {}, 1),
            ("untimed.csv", "interactions_csv", "recommendations", {"split": {"method": "random"}}, 0),
            ("semicolons.csv", "interactions_csv", "recommendations", {"split": {"method": "random"}}, 0),
            ("bars.csv", "interactions_csv", "recommendations", {"split": {"method": "random"}}, 0),
            ("m.inter", "mmrec", "recommendations", {}, 1),
            ("whole", "kgat", "recommendations", {"split": {"given": "redraw", "method": "random"}}, 0),
            ("kgat", "kgat", "recommendations", {"split": {"given": "add_valid"}}, 0),
            ("triples", "triples", "links", {}, 0),
        ],
    )
    def test_the_readers_figures_and_a_defs_yaml(
        self, tmp_path: Path, file: str, format: str, predicts: str, graph: dict[str, object], rejects: int
    ) -> None:
        from graphmill.ingest.sources import graph_settings, parse_sources, read_tables

        path = self.files(tmp_path)[file]
        assert ("--force" in ingest_report(path, format).problem) == bool(rejects), "more than a tenth is refused"
        result = ingest_report(path, format, force=True)
        assert not result.problem
        assert sum(result.relations.values()) > 1
        assert len(result.rejects) == rejects
        dataset, model = yaml.safe_load_all(result.defs)
        assert (model["attributes"]["system"], model["attributes"][predicts]) == ("auto", {})
        assert dataset["attributes"].get("graph", {}) == graph
        written = [{**source, "force": True} for source in dataset["attributes"]["sources"]]
        sources = parse_sources(written, tmp_path)
        assert graph_settings(parse(GraphSettings, graph, "defs.yaml"), sources).add_reverse == "never"
        assert read_tables(sources).edges.num_rows == sum(result.relations.values())

    def test_columns_of_interactions_are_shown(self, tmp_path: Path) -> None:
        result = ingest_report(self.files(tmp_path)["plays.csv"], "interactions_csv")
        assert [(c["name"], c["part"]) for c in result.columns] == [
            ("listener_id", ""), ("user", "user"), ("item", "item"), ("date", "timestamp"),
        ]  # fmt: skip
        assert "4     date    neither a number nor a date such as 2024-01-31  never" in result.text()

    def test_a_folder_that_cannot_be_used_is_a_problem(self, tmp_path: Path) -> None:
        assert "has no train.txt" in ingest_report(tmp_path, "kgat").problem
        path = self.files(tmp_path)["kgat"]
        assert next(yaml.safe_load_all(ingest_report(f"{path}/", "kgat").defs))["attributes"]["name"] == "kgat"
        (tmp_path / "x.csv").write_text("a,b\n1,2\n")
        assert "which column is the user" in ingest_report(tmp_path / "x.csv", "interactions_csv").problem
