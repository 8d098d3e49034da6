"""Embeddings in files: whole or not at all, read back as they were."""

import csv
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.export.writers import write_to
from tests.runs.processes import in_own_mounts


@pytest.fixture(scope="module")
def embeddings() -> Embeddings:
    count, dim = 60, 8
    return Embeddings(
        ids=np.array([f"n{n}" for n in range(count)], dtype=object),
        names=np.array(
            ["a\ttab, a \\ and a\nline", "O'Brien; DROP TABLE x", *[f"Node {n}" for n in range(2, count)]], dtype=object
        ),
        types=(np.arange(count) % 3).astype(np.int32),
        type_names=("drug", "disease", "gene/protein"),
        vectors=np.random.default_rng(0).normal(size=(count, dim)).astype(np.float32),
        index=np.arange(count, dtype=np.int64),
    )


def test_files_read_back_as_they_were(embeddings: Embeddings, tmp_path: Path) -> None:
    assert write_to(str(tmp_path / "out.parquet"), embeddings)["rows"] == 60
    result = read_embeddings(tmp_path / "out.parquet")
    assert np.array_equal(result.vectors, embeddings.vectors)
    assert result.ids.tolist() == embeddings.ids.tolist()
    assert write_to(str(tmp_path / "out.csv"), embeddings)["rows"] == 60
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert np.array_equal(np.array([json.loads(row["embedding"]) for row in rows], np.float32), embeddings.vectors)
    assert [row["node_id"] for row in rows] == embeddings.ids.tolist()
    assert [row["node_name"] for row in rows] == embeddings.names.tolist()


def test_a_mistake_is_one_sentence(embeddings: Embeddings) -> None:
    with pytest.raises(InputError, match=r"'live.xlsx' is not a target: use a file ending in "):
        write_to("live.xlsx", embeddings)


FULL = """
import sys
from pathlib import Path

import numpy as np

from graphmill import build_graph, read_edges
from graphmill.arrays import save_safetensors
from graphmill.errors import GraphmillError
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.export.writers import write_to
from graphmill.promotion.versions import Versions

disk, rows = Path(sys.argv[1]), 20_000
edges = "head,relation,tail\\n" + "".join(f"a{n},r,b{n % 7000}\\n" for n in range(100_000))
Path(sys.argv[2]).write_text(edges)
names = np.array([str(number) for number in range(rows)], dtype=object)
values = np.random.default_rng(0).normal(size=(rows, 32)).astype(np.float32)
found = Embeddings(names, names, np.zeros(rows, np.int32), ("n",), values, np.arange(rows))


def version(folder: Path) -> dict:
    save_safetensors(folder / "weights.safetensors", {"w": values}, "numpy")
    return {}


def add() -> None:
    with Versions(disk / "toy" / "m").lock():
        Versions(disk / "toy" / "m").add(version)


uses = [lambda ending=ending: write_to(str(disk / f"vectors.{ending}"), found) for ending in ("parquet", "csv")]
uses += [add, lambda: build_graph(read_edges(sys.argv[2]), disk / "graph")]
for use in uses:
    try:
        use()
    except GraphmillError as error:
        print("exit", error.exit_code, error)
    else:
        print("written")
print([path.name for path in disk.rglob("*") if path.is_file() and path.name not in (".lock", ".graph.lock")])
"""


def test_a_full_disk_ends_in_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FULL)
    (tmp_path / "disk").mkdir()
    script = 'mount -t tmpfs -o size=1m none "$1"\n"$2" "$3" "$1" "$4"'
    paths = (str(tmp_path / "disk"), sys.executable, str(tmp_path / "program.py"), str(tmp_path / "edges.csv"))
    out = in_own_mounts(script, *paths).splitlines()
    assert [line.partition(" cannot be ")[0].rpartition("/")[2] for line in out[:2]] == [
        "vectors.parquet", "vectors.csv",
    ]  # fmt: skip
    assert all(line.startswith("exit 2 ") for line in out[:4])
    assert out[2].startswith("exit 2 no version could be written to ")
    assert "graph cannot be" in out[3]
    assert out[4] == "[]"
