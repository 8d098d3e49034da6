"""Embeddings are read back from every format as they were written, and what is not one is refused in a sentence."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings

IDS = ["DB00997", "007", "MONDO:1, or so", 'say "hi"', "línea\nnueva"]
TYPES = ["drug", "gene/protein", "disease", "disease", "drug"]
NAMES = ["Doxorubicin", "", "a, b", "[c]", "[1, 2]"]
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def write_parquet(path: Path, vectors: pa.Array | None = None, **columns: object) -> Path:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 4) if vectors is None else vectors
    table = {
        "node_index": pa.array([10, 11, 12, 13, 99]),
        "node_id": pa.array(IDS),
        "node_name": pa.array(NAMES),
        "node_type": pa.array(TYPES).dictionary_encode(),
        "embedding": lists,
    } | columns
    pq.write_table(
        pa.table({name: column for name, column in table.items() if column is not None}), path, row_group_size=2
    )
    return path


def assert_as_written(embeddings: Embeddings) -> None:
    assert embeddings.ids.tolist() == IDS
    assert embeddings.names.tolist() == NAMES
    assert [embeddings.type_names[code] for code in embeddings.types] == TYPES
    assert embeddings.type_names == ("drug", "gene/protein", "disease")
    assert embeddings.index.tolist() == [10, 11, 12, 13, 99]
    assert embeddings.vectors.dtype == np.float32
    np.testing.assert_array_equal(embeddings.vectors, X)


def test_parquet_of_an_export(tmp_path: Path) -> None:
    assert_as_written(read_embeddings(write_parquet(tmp_path / "e.parquet")))


@pytest.mark.parametrize("kind", [pa.list_(pa.float32()), pa.large_list(pa.float64()), pa.list_(pa.float16(), 4)])
def test_parquet_with_other_lists_of_floats(tmp_path: Path, kind: pa.DataType) -> None:
    wide = pa.array([row.astype(kind.value_type.to_pandas_dtype()) for row in X], type=kind)
    result = read_embeddings(write_parquet(tmp_path / "e.parquet", wide))
    np.testing.assert_allclose(result.vectors, X, atol=2e-3 if kind.value_type == pa.float16() else 0)


def test_npy_with_ids_beside_it(tmp_path: Path) -> None:
    np.save(tmp_path / "e.npy", X)
    lines = [f"{kind}\t{node}" for kind, node in zip(TYPES, ["a", "b", "c", "d", "e"], strict=True)]
    (tmp_path / "e.ids.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    result = read_embeddings(tmp_path / "e.npy")
    assert result.ids.tolist() == ["a", "b", "c", "d", "e"]
    assert [result.type_names[code] for code in result.types] == TYPES
    np.testing.assert_array_equal(result.vectors, X)
    (tmp_path / "e.ids.txt").write_text("a\nb\n")
    with pytest.raises(InputError, match=r"2 lines, e\.npy has 5 rows"):
        read_embeddings(tmp_path / "e.npy")
    (tmp_path / "e.ids.txt").unlink()
    with pytest.raises(InputError, match=r"needs e\.ids\.txt beside it"):
        read_embeddings(tmp_path / "e.npy")


def test_a_run_directory_is_searched_for_its_embeddings(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds none of embeddings\.parquet"):
        read_embeddings(tmp_path)
    (tmp_path / "embeddings").mkdir()
    write_parquet(tmp_path / "embeddings" / "embeddings.parquet")
    assert_as_written(read_embeddings(tmp_path))
    assert_as_written(read_embeddings(str(tmp_path / "embeddings")))


def test_what_is_no_embedding_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no embedding at"):
        read_embeddings(tmp_path / "none.parquet")
    for name, fault in (
        ("bad.parquet", "is not a readable Parquet file"),
        ("bad.npy", r"is not a readable \.npy file"),
    ):
        (tmp_path / name).write_bytes(b"no such thing")
        with pytest.raises(InputError, match=f"{name} {fault}"):
            read_embeddings(tmp_path / name)
    (tmp_path / "bad.txt").write_text("x")
    with pytest.raises(InputError, match="is not an embedding file"):
        read_embeddings(tmp_path / "bad.txt")
    np.save(tmp_path / "flat.npy", np.zeros(4))
    with pytest.raises(InputError, match=r"holds \(4,\)"):
        read_embeddings(tmp_path / "flat.npy")


def test_parquet_that_is_no_embedding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "e.parquet"
    with pytest.raises(InputError, match="no column node_type"):
        read_embeddings(write_parquet(path, node_type=None))
    with pytest.raises(InputError, match="is int64, not a list of floats"):
        read_embeddings(write_parquet(path, pa.array([1, 2, 3, 4, 5])))
    ragged = pa.array([[1.0, 2.0], [1.0, 2.0], [1.0], [1.0, 2.0], [1.0, 2.0]])
    with pytest.raises(InputError, match="row 3 has 1 numbers, others have 2"):
        read_embeddings(write_parquet(path, ragged))
    with pytest.raises(InputError, match="embedding is missing in row 4"):
        read_embeddings(write_parquet(path, pa.array([[1.0], [1.0], [1.0], None, [1.0]])))
    with pytest.raises(InputError, match="node_id is missing in row 2"):
        read_embeddings(write_parquet(path, node_id=pa.array(["a", None, "c", "d", "e"])))
    pq.write_table(pq.read_table(write_parquet(path)).slice(0, 0), path)
    with pytest.raises(InputError, match="holds no rows"):
        read_embeddings(path)
    whole = write_parquet(path).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read_embeddings(path)


def test_rows_are_found_by_type_and_id(tmp_path: Path) -> None:
    result = read_embeddings(write_parquet(tmp_path / "e.parquet"))
    rows = result.rows_of(["disease", "drug", "gene/protein", "no such type"], ['say "hi"', "007", "007", "007"])
    assert rows.tolist() == [3, -1, 1, -1]  # an id belongs to its type
