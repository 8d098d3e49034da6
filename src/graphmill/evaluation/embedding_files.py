"""Reads exported embeddings: Parquet, or ``.npy`` with a file of ids beside it.

Columns are those of the export: node_index (optional), node_id, node_name (optional), node_type, embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from graphmill.arrays import load_npy
from graphmill.errors import InputError, listed
from graphmill.parquet import ParquetTable
from graphmill.verified_files import listed_files, verify_files

#: File names to look for in a directory, the fastest to read first.
PREFERRED = ("embeddings.parquet", "embeddings.npy")
REQUIRED, OPTIONAL = ("node_id", "node_type", "embedding"), ("node_index", "node_name")


@dataclass(frozen=True)
class ExportedNodes:
    """The nodes of an export, in the order of the graph.

    ``ids``, ``names``: object arrays of str (n); a name is "" if the file has none. ``types``: int32 codes (n) into
    ``type_names``, numbered by first appearance.
    """

    ids: NDArray[np.object_]
    names: NDArray[np.object_]
    types: NDArray[np.int32]
    type_names: tuple[str, ...]

    def rows_of(self, types: Sequence[str], ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each node (type, id), −1 if there is none. Of several rows with one key, it is the first."""
        code = {name: number for number, name in enumerate(self.type_names)}
        place: dict[tuple[int, str], int] = {}
        for row, key in enumerate(zip(self.types.tolist(), self.ids.tolist(), strict=True)):
            place.setdefault(key, row)
        wanted = ((code.get(kind, -1), node) for kind, node in zip(types, ids, strict=True))
        return np.fromiter((place.get(key, -1) for key in wanted), dtype=np.int64, count=len(ids))


@dataclass(frozen=True)
class Embeddings(ExportedNodes):
    """An embedding with the nodes of its rows.

    ``vectors``: float32 (n × d), perhaps memory-mapped. ``index``: int64 (n), the file's node_index, or row numbers.
    """

    vectors: NDArray[np.float32]
    index: NDArray[np.int64]


def read_nodes(path: Path) -> ExportedNodes:
    """The nodes of an export without vectors: a Parquet file with node_id, node_name and node_type, which is verified."""
    _require_whole(path)
    file = ParquetTable(path, path.name, remedy="export it again")
    _require_columns(path, [*file.names, "embedding"])
    table = file.read(["node_id", "node_name", "node_type"])
    _require_ids(path, table, 0)
    return _embeddings(table, np.empty((table.num_rows, 0), np.float32))


def read_embeddings(path: str | Path) -> Embeddings:
    """Read a file (``.parquet``, ``.npy``), or the directory of an export.

    A file that the manifest beside it lists is verified. Values that are not finite are kept; the health report counts
    them. Raises :class:`InputError` for anything that is not an embedding, and for a damaged file.
    """
    path = Path(path)
    if path.is_dir():
        path = _in_directory(path)
    if not path.is_file():
        raise InputError(f"there is no embedding at {path}")
    _require_whole(path)
    suffixes = path.name.lower()
    if suffixes.endswith((".parquet", ".pq")):
        return _read_parquet(path)
    if suffixes.endswith(".npy"):
        return _read_npy(path)
    raise InputError(f"{path.name} is not an embedding file: those end in .parquet or .npy")


def _in_directory(path: Path) -> Path:
    for folder in (path, path / "embeddings"):
        files, _ = listed_files(folder)
        for name in PREFERRED:
            if (folder / name).is_file() and (not files or name in files):
                return folder / name
    if (path / "scorer").is_dir() or (path / "nodes.parquet").is_file():
        raise InputError(f"{path} has no vectors of nodes: it is of a system whose export is its weights")
    raise InputError(f"{path} holds none of {', '.join(PREFERRED)} and has no embeddings folder with one")


def _require_whole(path: Path) -> None:
    """Compare a file, and that of its ids, with the manifest beside it, if that lists them."""
    try:
        known, remedy = listed_files(path.parent)
    except InputError:
        return  # the caller named a file, not the folder: a manifest that cannot be read says nothing about it
    files = {name: known[name] for name in (path.name, path.with_suffix(".ids.txt").name) if name in known}
    verify_files(path.parent, files, remedy)


def _read_parquet(path: Path) -> Embeddings:
    file = ParquetTable(path, path.name, mapped=True, remedy="export it again")
    _require_columns(path, file.names)
    kind = file.schema.field("embedding").type
    is_list = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_floating(kind.value_type):
        raise InputError(f"column embedding of {path.name} is {kind}, not a list of floats")
    columns = [name for name in (*OPTIONAL, *REQUIRED) if name in file.names]
    parts, vectors, row = list[pa.Table](), np.empty((file.rows, 0), np.float32), 0
    for number in range(file.groups):  # so that the vectors are held once
        block = file.group(number, columns)
        if block.num_rows:
            _require_ids(path, block, row)
            result = _vectors(path, block, row, vectors.shape[1])
            vectors = vectors if parts else np.empty((file.rows, result.shape[1]), np.float32)
            vectors[row : row + len(result)] = result
            parts.append(block.drop_columns(["embedding"]))
            row += block.num_rows
    if not parts:
        raise InputError(f"{path.name} holds no rows")
    return _embeddings(pa.concat_tables(parts), vectors)


def _embeddings(table: pa.Table, vectors: NDArray[np.float32]) -> Embeddings:
    """``table``: the columns other than the vectors."""
    types = table.column("node_type").cast(pa.string()).combine_chunks().dictionary_encode()
    named = "node_name" in table.column_names
    index = table.column("node_index").to_numpy() if "node_index" in table.column_names else np.arange(len(vectors))
    return Embeddings(
        ids=_strings(table.column("node_id")),
        names=_strings(table.column("node_name").fill_null("")) if named else np.full(len(vectors), "", dtype=object),
        types=types.indices.to_numpy().astype(np.int32),
        type_names=tuple(types.dictionary.to_pylist()),
        vectors=vectors,
        index=index.astype(np.int64),
    )


def _require_ids(path: Path, block: pa.Table, row: int) -> None:
    for name in ("node_id", "node_type", "node_index"):
        if name in block.column_names and block.column(name).null_count:
            place = int(np.argmax(block.column(name).is_null().to_numpy()))
            raise InputError(f"{path.name}: {name} is missing in row {row + place + 1}")
    if "node_index" in block.column_names and not pa.types.is_integer(block.column("node_index").type):
        raise InputError(f"{path.name}: node_index must be whole numbers, it is {block.column('node_index').type}")


def _vectors(path: Path, block: pa.Table, row: int, width: int) -> NDArray[np.float32]:
    """The embedding column as float32 (rows × d); every row must have the ``width`` of the rows before (0: any)."""
    lists = block.column("embedding").combine_chunks()
    if lists.null_count:
        place = int(np.argmax(lists.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"{path.name}: the embedding is missing in row {row + place + 1}")
    lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
    width = width or int(lengths[0])
    if width == 0 or np.any(lengths != width):
        place = int(np.argmax(lengths != width)) if width else 0
        raise InputError(
            f"{path.name}: the embedding in row {row + place + 1} has {lengths[place]} numbers, others have {width}"
        )
    flat: NDArray[np.float32] = lists.flatten().cast(pa.float32()).to_numpy(zero_copy_only=False)
    return flat.reshape(-1, width)


def _strings(column: pa.ChunkedArray) -> NDArray[np.object_]:
    return np.asarray(column.cast(pa.string()).to_numpy(), dtype=object)


def _require_columns(path: Path, names: Sequence[str]) -> None:
    """Raises :class:`InputError` if a required column is not among ``names``."""
    if missing := [name for name in REQUIRED if name not in names]:
        raise InputError(f"{path.name} has no column {', '.join(missing)}; it has {listed(names)}")


def _read_npy(path: Path) -> Embeddings:
    """Read ``name.npy`` and, beside it, ``name.ids.txt`` with one line per row: ``type<TAB>id``, or an id alone."""
    ids_path = path.with_suffix(".ids.txt")
    vectors = load_npy(path, path.name, "export it again")
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or not vectors.size:
        raise InputError(f"{path.name} holds {vectors.shape} of {vectors.dtype}, not rows × dimensions of floats")
    if not ids_path.is_file():
        raise InputError(f"{path.name} needs {ids_path.name} beside it, with 'type<TAB>id' on a line for each row")
    try:
        lines = ids_path.read_bytes().decode("utf-8").removesuffix("\n").split("\n")
    except UnicodeDecodeError:
        raise InputError(f"{ids_path.name} is not text in UTF-8; export it again") from None
    if len(lines) != len(vectors):
        raise InputError(
            f"{ids_path.name} has {len(lines)} lines, {path.name} has {len(vectors)} rows: they must agree"
        )
    keys = [line.removesuffix("\r").rpartition("\t") for line in lines]
    table = pa.table({"node_id": [key[2] for key in keys], "node_type": [key[0] or "node" for key in keys]})
    return _embeddings(table, vectors.astype(np.float32, copy=False))
