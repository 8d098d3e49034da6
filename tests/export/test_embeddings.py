"""Exports are whole or absent, aligned with the node table, and equal in every format."""

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.errors import InputError, ResourceError, TrainingError
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.export.embeddings import export_embeddings
from graphmill.export.manifests import read_manifest
from graphmill.training.contract import EmbeddingBlock
from graphmill.training.settings import ExportSettings

NODES = pa.table(
    {
        "index": pa.array([10, 11, 12, 40, 41], pa.int64()),
        "id": ["007", "DB1", "9796", "9796", "x y"],
        "type": pa.array(["drug", "drug", "gene/protein", "disease", "disease"]).dictionary_encode(),
        "name": ["bond", 'a "b", c', "naïve", "same id", "last"],
        "source": pa.array(["s"] * 5).dictionary_encode(),
    }
)
VECTORS = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
ABOUT = {"fingerprint": "abc", "system": "hgt", "epoch": 1}
ALL = ExportSettings(csv=True)


def blocks(vectors: np.ndarray = VECTORS) -> list[EmbeddingBlock]:
    return [EmbeddingBlock(0, vectors[:2]), EmbeddingBlock(2, vectors[2:])]


def test_parquet_reads_back_to_the_same_rows(tmp_path: Path) -> None:
    export_embeddings(blocks(), NODES, 3, tmp_path, ALL, {"fingerprint": "f"})
    result = read_embeddings(tmp_path / "embeddings.parquet")
    assert np.array_equal(np.asarray(result.vectors), VECTORS)
    assert [str(i) for i in result.ids] == NODES.column("id").to_pylist()
    assert [result.type_names[t] for t in result.types] == NODES.column("type").to_pylist()


def test_the_csv_is_the_origins(tmp_path: Path) -> None:
    export_embeddings(blocks(), NODES, 3, tmp_path, ALL, {})
    rows = list(csv.DictReader((tmp_path / "embeddings.csv").open(encoding="utf-8", newline="")))
    assert list(rows[0]) == ["node_index", "node_id", "node_name", "node_type", "embedding"]
    assert rows[1]["node_name"] == 'a "b", c'
    assert rows[0]["node_id"] == "007"
    assert np.array_equal(np.array(json.loads(rows[3]["embedding"]), dtype=np.float32), VECTORS[3])


def test_the_parquet_schema_is_typed(tmp_path: Path) -> None:
    export_embeddings(blocks(), NODES, 3, tmp_path, ALL, {})
    schema = pq.read_schema(tmp_path / "embeddings.parquet")
    assert schema.field("embedding").type == pa.list_(pa.float32(), 3)
    assert schema.field("node_index").type == pa.int64()


def test_the_manifest_names_files_with_hashes_and_what_made_them(tmp_path: Path) -> None:
    import hashlib

    export_embeddings(blocks(), NODES, 3, tmp_path, ALL, ABOUT)
    manifest = read_manifest(tmp_path)
    assert manifest["fingerprint"] == "abc"
    assert manifest["rows"] == 5
    for name, about in manifest["files"].items():
        assert hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() == about["sha256"]


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([EmbeddingBlock(0, VECTORS[:2])], "2 embeddings for 5 nodes"),
        ([EmbeddingBlock(1, VECTORS)], "out of order"),
        (blocks(np.where(np.arange(5)[:, None] == 3, np.nan, VECTORS)), "row 3 is not finite"),
    ],
)
def test_a_bad_embedding_is_refused_and_leaves_nothing(tmp_path: Path, bad: list[EmbeddingBlock], words: str) -> None:
    with pytest.raises(TrainingError, match=words):
        export_embeddings(bad, NODES, 3, tmp_path, ALL, {})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match="no finished export"):
        read_manifest(tmp_path)


def test_a_failed_export_does_not_pass_off_the_old_files_as_new(tmp_path: Path) -> None:
    export_embeddings(blocks(), NODES, 3, tmp_path, ALL, {})
    with pytest.raises(TrainingError):
        export_embeddings([EmbeddingBlock(0, VECTORS[:2])], NODES, 3, tmp_path, ALL, {})
    with pytest.raises(InputError):
        read_manifest(tmp_path)


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    with pytest.raises(ResourceError, match="out cannot be written: File exists"):
        export_embeddings(blocks(), NODES, 3, tmp_path / "out", ALL, {})
