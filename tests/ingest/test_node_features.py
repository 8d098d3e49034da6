"""``node_features``: what becomes of each kind of input."""

import gzip
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.node_features import NodeFeatureSettings, read_node_features, with_features
from graphmill.ingest.tables import NODES, REJECTS, IngestResult
from graphmill.settings import parse
from tests.ingest.kg_text import CLEAN, text, write

DRUGS = NodeFeatureSettings(node_type="drug")


@pytest.fixture(scope="module")
def nodes() -> pa.Table:
    """Three drugs, d1, 007 and d3 (rows 0, 2 and 3), and a gene that has the id d1 too."""
    kinds = pa.array(["drug", "gene", "drug", "drug"]).dictionary_encode()
    ids = ["d1", "d1", "007", "d3"]
    return pa.table([[10, 11, 12, 13], ids, kinds, ids, kinds], NODES)


def features(result: IngestResult, kind: str = "drug") -> dict[int, list[float]]:
    table = result.features[kind]
    return dict(zip(table["node"].to_pylist(), table["values"].to_pylist(), strict=True))


def rejects(result: IngestResult) -> list[tuple[int, str, str]]:
    return [(r["line"], r["column"], r["reason"]) for r in result.rejects.to_pylist()]


def csv_file(directory: Path, *lines: str) -> Path:
    return write(directory, "\n".join(["id,a,b", *lines, ""]), "features.csv")


def npy_file(directory: Path, matrix: object, ids: str) -> Path:
    np.save(directory / "f.npy", np.asarray(matrix))
    (directory / "f.ids.txt").write_text(ids)
    return directory / "f.npy"


def parquet_file(directory: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), directory / "f.parquet")
    return directory / "f.parquet"


class TestCsv:
    def test_rows_find_their_nodes_within_the_type(self, tmp_path: Path, nodes: pa.Table) -> None:
        result = read_node_features(csv_file(tmp_path, "d3,1,2", "007,3,4.5", "d1,-1e2,0"), nodes, DRUGS)
        assert features(result) == {0: [-100, 0], 2: [3, 4.5], 3: [1, 2]}
        assert result.rejects.schema == REJECTS
        assert result.counts["nodes_without_features"] == 0

    @pytest.mark.parametrize(
        ("line", "column", "reason"),
        [
            ("d9,1,2", "id", "no node of type 'drug' has this id"),
            ("7,1,2", "id", "no node of type 'drug' has this id"),
            (",1,2", "id", "blank"),
            ("d3,1,x", "b", "not a number"),
            ("d3,,2", "a", "blank"),
            ("d3,1,nan", "id", "a value is not finite as a 32-bit number"),
            ("d3,1e39,2", "id", "a value is not finite as a 32-bit number"),
            ("d3,1", "", "expected 3 fields, found 2"),
            ("d3,1,2,3", "", "expected 3 fields, found 4"),
            ("d1,9,9", "id", "a second row for this node; the first is on line 2"),
        ],
    )
    def test_a_row_that_cannot_be_used_is_rejected(
        self, tmp_path: Path, nodes: pa.Table, line: str, column: str, reason: str
    ) -> None:
        result = read_node_features(csv_file(tmp_path, "d1,1,2", line, "007,3,4"), nodes, DRUGS)
        assert rejects(result) == [(3, column, reason)]
        assert features(result) == {0: [1, 2], 2: [3, 4]}

    def test_a_row_that_is_not_finite_does_not_stand_in_the_way_of_a_good_one(
        self, tmp_path: Path, nodes: pa.Table
    ) -> None:
        assert features(read_node_features(csv_file(tmp_path, "d1,inf,2", "d1,1,2"), nodes, DRUGS)) == {0: [1, 2]}

    def test_key_by_index_and_chosen_columns(self, tmp_path: Path, nodes: pa.Table) -> None:
        path = write(tmp_path, "label\tnode\tx\n?\t13\t1.5\n", "f.tsv")
        settings = NodeFeatureSettings(node_type="drug", key="index", key_column="node", columns=["x"], delimiter="tab")
        assert features(read_node_features(path, nodes, settings)) == {3: [1.5]}

    def test_rows_of_other_types_are_left_out(self, tmp_path: Path, nodes: pa.Table) -> None:
        path = write(tmp_path, "id,kind,x\nd1,gene,1\nd1,drug,2\n", "f.csv")
        result = read_node_features(path, nodes, NodeFeatureSettings(node_type="drug", type_column="kind"))
        assert features(result) == {0: [2]}
        assert (result.counts["rows_of_other_types"], result.rejects.num_rows) == (1, 0)

    def test_zero_rows_and_missing_nodes_are_reported(self, tmp_path: Path, nodes: pa.Table) -> None:
        result = read_node_features(csv_file(tmp_path, "d1,0,0"), nodes, DRUGS)
        assert (result.counts["zero_rows"], result.counts["nodes_without_features"]) == (1, 2)
        assert "2 of 3 nodes of type 'drug' have no features" in result.notes

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            ("", "is empty"),
            ("id,a\n", "has no usable row for nodes of type 'drug'$"),
            ("id,name\nd1,Aspirin\n", "the first on line 2, column name: not a number"),
            ("key,a\nd1,1\n", "column id is missing; there are key, a"),
            ("id\nd1\n", "has no feature columns besides id"),
        ],
    )
    def test_a_file_that_cannot_be_used_is_refused(
        self, tmp_path: Path, nodes: pa.Table, content: str, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            read_node_features(write(tmp_path, content, "f.csv"), nodes, DRUGS)


class TestNpy:
    @pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int64", "bool"])
    def test_any_numbers_become_float32(self, tmp_path: Path, nodes: pa.Table, dtype: str) -> None:
        path = npy_file(tmp_path, np.eye(3, 4, dtype=dtype), "d3\n007\nd1\n")
        result = read_node_features(path, nodes, DRUGS)
        assert features(result) == {3: [1, 0, 0, 0], 2: [0, 1, 0, 0], 0: [0, 0, 1, 0]}
        assert result.features["drug"].schema.field("values").type == pa.list_(pa.float32(), 4)

    def test_ids_may_name_their_type(self, tmp_path: Path, nodes: pa.Table) -> None:
        path = npy_file(tmp_path, [[1.0], [2.0]], "gene\td1\ndrug\td1\n")
        assert features(read_node_features(path, nodes, DRUGS)) == {0: [2]}

    def test_ids_may_be_elsewhere_and_the_matrix_gzipped(self, tmp_path: Path, nodes: pa.Table) -> None:
        packed = gzip.compress(npy_file(tmp_path, [[1.0]], "").read_bytes())
        (tmp_path / "ids.txt").write_text("d1\r\n")
        settings = NodeFeatureSettings(node_type="drug", ids_path="ids.txt")
        assert features(read_node_features(write(tmp_path, packed, "m.npy.gz"), nodes, settings)) == {0: [1]}

    def test_a_row_that_is_not_finite_is_rejected(self, tmp_path: Path, nodes: pa.Table) -> None:
        result = read_node_features(npy_file(tmp_path, [[1.0], [np.nan]], "d1\nd3\n"), nodes, DRUGS)
        assert rejects(result) == [(2, "id", "a value is not finite as a 32-bit number")]

    @pytest.mark.parametrize(
        ("matrix", "message"),
        [
            ([[1.0], [2.0]], r"has 2 rows, but .*f.ids.txt has 1 ids; there must be one for each row"),
            ([1.0], r"has the shape \(1,\); expected two dimensions"),
            (np.zeros((1, 0)), r"has the shape \(1, 0\); expected two dimensions"),
            ([["a"]], "holds <U1; expected one array of numbers"),
        ],
    )
    def test_a_matrix_that_does_not_fit_is_refused(
        self, tmp_path: Path, nodes: pa.Table, matrix: object, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            read_node_features(npy_file(tmp_path, matrix, "d1\n"), nodes, DRUGS)

    def test_pickled_objects_are_never_loaded(self, tmp_path: Path, nodes: pa.Table) -> None:
        np.save(tmp_path / "f.npy", np.array([[{}]], dtype=object), allow_pickle=True)
        (tmp_path / "f.ids.txt").write_text("d1\n")
        with pytest.raises(InputError, match=r"not a readable .npy file"):
            read_node_features(tmp_path / "f.npy", nodes, DRUGS)

    def test_a_broken_file_and_missing_ids_are_refused(self, tmp_path: Path, nodes: pa.Table) -> None:
        path = npy_file(tmp_path, [[1.0]], "d1\n")
        path.write_bytes(path.read_bytes()[:-3])
        with pytest.raises(InputError, match=r"not a readable .npy file"):
            read_node_features(path, nodes, DRUGS)
        npy_file(tmp_path, [[1.0]], "")
        (tmp_path / "f.ids.txt").unlink()
        with pytest.raises(InputError, match=r"f.ids.txt does not exist"):
            read_node_features(path, nodes, DRUGS)

    def test_a_decimal_comma_is_one_where_cells_are_divided_otherwise(self, tmp_path: Path, nodes: pa.Table) -> None:
        path = write(tmp_path, "id;a;b\nd3;1,5;2\n007;3;-0,25\n", "features.csv")
        assert features(read_node_features(path, nodes, DRUGS)) == {2: [3, -0.25], 3: [1.5, 2]}


class TestParquet:
    def test_columns_of_numbers(self, tmp_path: Path, nodes: pa.Table) -> None:
        path = parquet_file(tmp_path, id=["d1", "d3"], name=["x", "y"], a=[1, 2], b=[0.5, None])
        result = read_node_features(path, nodes, DRUGS)
        assert features(result) == {0: [1, 0.5]}
        assert rejects(result) == [(2, "b", "blank")]

    def test_decimals_are_numbers_and_what_is_skipped_is_named(self, tmp_path: Path, nodes: pa.Table) -> None:
        columns = {"title": ["x", "y"], "price": [Decimal("1.25"), None], "new": [True, False]}
        result = read_node_features(parquet_file(tmp_path, id=["d1", "d3"], **columns), nodes, DRUGS)
        assert features(result) == {0: [1.25, 1]}
        assert rejects(result) == [(2, "price", "blank")]
        assert "columns that play no part were skipped: title" in result.notes

    def test_a_column_of_lists(self, tmp_path: Path, nodes: pa.Table) -> None:
        vectors = [[1.0, 2.0], [3.0], None, [5.0, None], [6.0, 7.0]]
        path = parquet_file(tmp_path, id=["d1", "d3", "d3", "d3", "007"], vector=vectors)
        result = read_node_features(path, nodes, DRUGS)
        assert features(result) == {0: [1, 2], 2: [6, 7]}
        assert rejects(result) == [
            (2, "vector", "1 values; most rows have 2"),
            (3, "vector", "blank"),
            (4, "vector", "a value is missing"),
        ]

    def test_exported_embeddings_read_back_as_features(self, tmp_path: Path, nodes: pa.Table) -> None:
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(4, dtype=np.float32)), 2)
        path = parquet_file(
            tmp_path, index=[10, 11], id=["d1", "d1"], name=["n", "n"], node_type=["drug", "gene"], embedding=vectors
        )
        settings = NodeFeatureSettings(node_type="gene", type_column="node_type")
        assert features(read_node_features(path, nodes, settings), "gene") == {1: [2, 3]}

    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"id": ["d1"], "name": ["x"]}, "of id, name, none can be used"),
            ({"id": ["d1"], "a": [[1.0]], "b": [[2.0]]}, "a, b cannot be used. Name the right ones in `columns`"),
            ({"a": [1.0]}, "column id is missing; there are a"),
        ],
    )
    def test_columns_that_do_not_fit_are_refused(
        self, tmp_path: Path, nodes: pa.Table, columns: dict, message: str
    ) -> None:
        with pytest.raises(InputError, match=message):
            read_node_features(parquet_file(tmp_path, **columns), nodes, DRUGS)

    def test_what_is_no_parquet_is_refused(self, tmp_path: Path, nodes: pa.Table) -> None:
        with pytest.raises(InputError, match="not a readable Parquet file"):
            read_node_features(write(tmp_path, "id,a\n", "f.parquet"), nodes, DRUGS)


class TestMatching:
    def test_an_unknown_type_is_refused_with_those_there_are(self, tmp_path: Path, nodes: pa.Table) -> None:
        with pytest.raises(InputError, match="no nodes of type 'drugs'; the types are 'drug', 'gene'"):
            read_node_features(csv_file(tmp_path), nodes, NodeFeatureSettings(node_type="drugs"))

    def test_ids_that_two_nodes_of_the_type_have_need_the_index(self, tmp_path: Path, nodes: pa.Table) -> None:
        with pytest.raises(InputError, match=r"'drug' are not unique .*key: index"):
            read_node_features(csv_file(tmp_path, "d1,1,2"), pa.concat_tables([nodes, nodes]), DRUGS)

    def test_an_unknown_ending_is_refused(self, tmp_path: Path, nodes: pa.Table) -> None:
        with pytest.raises(InputError, match=r"are read from .npy, .parquet, .csv"):
            read_node_features(tmp_path / "f.xlsx", nodes, DRUGS)

    def test_the_type_must_be_given(self) -> None:
        with pytest.raises(SettingsError, match="a source of node features needs node_type"):
            parse(NodeFeatureSettings, {}, "defs.yaml")


class TestWithFeatures:
    def test_joins_edges_and_features(self, tmp_path: Path) -> None:
        graph = read_kg_csv(write(tmp_path, text(*CLEAN)))
        joined = with_features(graph, csv_file(tmp_path, "DB00997,1,2", "x,3,4"), DRUGS)
        assert joined.edges is graph.edges
        assert features(joined) == {2: [1, 2]}
        assert joined.counts["drug features: rejected_rows"] == joined.rejects.num_rows == 1
        with pytest.raises(InputError, match="'drug' already have features"):
            with_features(joined, tmp_path / "features.csv", DRUGS)
