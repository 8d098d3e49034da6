"""Writes embeddings to tables of databases that can search them: a DuckDB file, or a PostgreSQL table. The drivers are
extras, imported when used.

Columns: node_index, node_id, node_name, node_type, embedding. A table is replaced in one transaction, and a file by one
rename.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from graphmill.atomic_files import PartFile
from graphmill.errors import InputError, ResourceError, one_line, require
from graphmill.export.writers import COLUMNS

POSTGRES_VARIABLE = "GRAPHMILL_POSTGRES"
TABLE = "embeddings"
MOST_INDEXED = 2000
"""Largest number of dimensions of an HNSW index of pgvector."""
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,50}(\.[a-z_][a-z0-9_]{0,50})?")


class DuckDbEmbeddings:
    """A DuckDB file with the table ``embeddings``, its vectors FLOAT[d], and the table macro ``neighbors(id, k)``.

    If the extension VSS is available (installed in DuckDB, or as the package duckdb-extension-vss; it is never
    downloaded), there is an HNSW index on cosine, for ``ORDER BY array_cosine_distance(embedding, …) LIMIT k``.
    Otherwise a search reads every row. ``note`` says which.
    """

    def __init__(self, path: Path, dim: int) -> None:
        require("duckdb", "duckdb", "duckdb")
        import duckdb

        self.part, self.note = PartFile(path), ""
        self.database = self.part.path.with_name(f"{self.part.path.name}.duckdb")  # DuckDB makes it itself
        self.connection = duckdb.connect(str(self.database), config={"autoinstall_known_extensions": False})
        self.connection.execute(
            f"CREATE TABLE {TABLE} (node_index BIGINT, node_id VARCHAR, node_name VARCHAR, node_type VARCHAR, "
            f"embedding FLOAT[{dim}])"
        )

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """Append rows."""
        flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
        columns = [nodes.column(name) for name in ("index", "id", "name", "type")]
        columns[3] = columns[3].cast(pa.string())
        block = pa.table([*columns, pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])], names=COLUMNS)
        self.connection.register("block", block)
        self._run(f"INSERT INTO {TABLE} SELECT * FROM block")
        self.connection.unregister("block")

    def commit(self) -> None:
        """Build the index, close the file and rename it."""
        import duckdb

        self._run(
            "CREATE MACRO neighbors(wanted, k) AS TABLE SELECT other.node_id, other.node_name, other.node_type, "
            f"array_cosine_similarity(other.embedding, own.embedding) AS cosine FROM {TABLE} other, {TABLE} own "
            "WHERE own.node_id = wanted AND other.node_index <> own.node_index ORDER BY cosine DESC LIMIT k"
        )
        try:
            self.connection.execute(f"LOAD {_vss()}; SET hnsw_enable_experimental_persistence = true")
            self.connection.execute(f"CREATE INDEX nearest ON {TABLE} USING HNSW (embedding) WITH (metric = 'cosine')")
            self.note = "with an HNSW index of the extension VSS"
        except (duckdb.IOException, duckdb.HTTPException, duckdb.CatalogException):
            self.note = (
                "the extension VSS is not installed for this DuckDB, so a search looks at every row "
                '(array_cosine_similarity); pip install "graphmill[vss]" has it'
            )
        self._run("CHECKPOINT")
        self.connection.close()
        self.part.commit(made=self.database)

    def _run(self, statement: str) -> None:
        """Raises :class:`ResourceError` if DuckDB cannot write."""
        import duckdb

        try:
            self.connection.execute(statement)
        except duckdb.Error as error:
            raise ResourceError(
                f"{self.part.target} cannot be written: {one_line(error)}; free some space, and run the same command again"
            ) from None

    def abort(self) -> None:
        """Remove the temporary file."""
        import duckdb

        with contextlib.suppress(duckdb.Error):  # what is left in its buffer does not fit on a full disk
            self.connection.close()
        self.part.abort()


def _vss() -> str:
    """The argument of LOAD: the package's file for this version of DuckDB, or the extension's name."""
    import duckdb

    result = importlib.util.find_spec("duckdb_extension_vss")
    for folder in (result.submodule_search_locations or []) if result else []:
        file = Path(folder) / "extensions" / f"v{duckdb.__version__}" / "vss.duckdb_extension"
        if file.is_file():
            return "'" + str(file).replace("'", "''") + "'"
    return "vss"


class PostgresEmbeddings:
    """A table of PostgreSQL, which is replaced at :meth:`commit`. ``GRAPHMILL_POSTGRES`` (a libpq URL or keywords), or
    libpq's own PGHOST, PGUSER, …, name the server.

    With the extension pgvector, the vectors are vector(d), with an HNSW index on cosine for up to 2,000 dimensions.
    Without it they are real[]. ``note`` says which.
    """

    def __init__(self, table: str, dim: int) -> None:
        require("psycopg2", "psycopg2-binary", "pgvector")
        import psycopg2

        if not _NAME.fullmatch(table):
            raise InputError(
                f"'{table}' is not a table name: write TABLE or SCHEMA.TABLE in a-z, 0-9 and _, such as live.drugs"
            )
        self.table, self.note = table, ""
        try:
            self.connection = psycopg2.connect(os.environ.get(POSTGRES_VARIABLE, ""))
        except (psycopg2.OperationalError, psycopg2.ProgrammingError) as error:
            why = " ".join(str(error).split())[:300]
            raise ResourceError(
                f"PostgreSQL cannot be reached ({why}); set {POSTGRES_VARIABLE}, such as postgresql://user@host/database"
            ) from None
        self.vector = self._has_vector()
        column = f"vector({dim})" if self.vector else "real[]"
        self._run(
            f"CREATE TEMPORARY TABLE incoming (node_index bigint PRIMARY KEY, node_id text, node_name text, node_type text, "
            f"embedding {column}) ON COMMIT DROP"
        )
        self.dim = dim

    def _has_vector(self) -> bool:
        """Whether pgvector is available. If the server has it and permits it, it is created in the database."""
        import psycopg2

        with self.connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'")
            if cursor.fetchone() is None:
                return False
            try:
                cursor.execute("SAVEPOINT before; CREATE EXTENSION IF NOT EXISTS vector; RELEASE before")
            except psycopg2.Error as error:
                why = str(error).splitlines()[0]
                raise ResourceError(f"pgvector is installed but cannot be created in this database: {why}") from None
        return True

    def write(self, nodes: pa.Table, vectors: np.ndarray) -> None:
        """Copy rows."""
        columns = [nodes.column(name).to_pylist() for name in ("index", "id", "name", "type")]
        ends = ("[", "]") if self.vector else ("{", "}")
        lines = io.StringIO()
        for *about, vector in zip(*columns, np.ascontiguousarray(vectors, dtype=np.float32), strict=True):
            numbers = orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY).decode()[1:-1]
            lines.write("\t".join(map(_escaped, about)) + f"\t{ends[0]}{numbers}{ends[1]}\n")
        lines.seek(0)
        with self.connection.cursor() as cursor, _in_a_sentence(self.table):
            cursor.copy_expert(f"COPY incoming ({', '.join(COLUMNS)}) FROM STDIN", lines)

    def commit(self) -> None:
        """Replace the table by the rows and build its index, in one transaction."""
        schema, _, name = self.table.rpartition(".")
        if schema:
            self._run(f"CREATE SCHEMA IF NOT EXISTS {schema}")
        self._run(f"DROP TABLE IF EXISTS {self.table}")
        self._run(f"CREATE TABLE {self.table} (LIKE incoming INCLUDING INDEXES)")
        self._run(f"INSERT INTO {self.table} SELECT * FROM incoming")
        self._run(f"CREATE INDEX {name}_node_id ON {self.table} (node_id)")
        if self.vector and self.dim <= MOST_INDEXED:
            self._run(f"CREATE INDEX {name}_nearest ON {self.table} USING hnsw (embedding vector_cosine_ops)")
            self.note = "with an HNSW index of pgvector on cosine"
        elif self.vector:
            self.note = f"vector({self.dim}) without an index: pgvector's HNSW takes {MOST_INDEXED:,} dimensions"
        else:
            self.note = "this server has no extension pgvector, so the vectors are real[] and cannot be searched there"
        with _in_a_sentence(self.table):
            self.connection.commit()
        self.connection.close()

    def _run(self, statement: str) -> None:
        with self.connection.cursor() as cursor, _in_a_sentence(getattr(self, "table", "")):
            cursor.execute(statement)

    def abort(self) -> None:
        """Leave the table as it was."""
        self.connection.close()


class _in_a_sentence:  # noqa: N801 - used as a statement
    """Turns an error of the database into a :class:`ResourceError`."""

    def __init__(self, table: str) -> None:
        self.table = table

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        import psycopg2

        if isinstance(error, psycopg2.Error):
            why = str(error).strip().splitlines()[0]
            raise ResourceError(f"PostgreSQL refused the table {self.table}, which has not changed: {why}") from None


def _escaped(value: Any) -> str:
    text = str(value).replace("\x00", "")
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
