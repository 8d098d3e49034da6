"""The asset ``<dataset>/raw_<source>``: the files are there, readable, and have this content."""

import csv
import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from graphmill.components.plan import TablePlan
from graphmill.components.sources import SourceFile
from graphmill.errors import InputError
from graphmill.ingest.csv_blocks import read_header
from graphmill.ingest.files import Source, shown
from graphmill.ingest.sequence import SequenceSettings, first_rows
from graphmill.orchestration import files
from graphmill.orchestration.defaults import STORE
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.metadata import records

CODE_VERSION = "2"
PREVIEW_ROWS = 5
BINARY = (".npy", ".parquet", ".pq", ".zip")
# Roles of files whose lines are the data; the lines of dictionaries are not counted as rows.
_DATA = ("", "interactions", "train", "valid", "test", "knowledge")
_TRIPLE = ("head", "relation", "tail")
_PREVIEW_BYTES = 1 << 16
_BLOCK_BYTES = 1 << 20

Reference = dict[str, Any]


def raw_asset(plan: TablePlan, source: SourceFile) -> dg.AssetsDefinition:
    """The asset of one source. Its value says which content the tables are to be made of."""
    key = plan.key(f"raw_{source.name}")

    @dg.asset(
        key=key,
        io_manager_key=STORE,
        group_name=f"{plan.dataset}_ingest",
        kinds={Path(source.path.removesuffix(".gz")).suffix[1:].lower() or source.format, "file"},
        owners=list(plan.owners),
        description=f"`{shown(source.path)}` ({source.format}). The data version is the hash of its content.",
        code_version=CODE_VERSION,
    )
    def raw(context: dg.AssetExecutionContext) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            found = source.files()
            size, version = _state(found)
            digest, about = _content(source, found)
        yield dg.MaterializeResult(
            asset_key=key,
            value={"digest": digest, "size": size, "version": version},
            data_version=dg.DataVersion(digest),
            metadata={"file": dg.MetadataValue.path(shown(source.path)), "bytes": size, **about},
        )

    return raw


def require_unchanged(source: SourceFile, raw: Mapping[str, Any]) -> None:
    """Raise :class:`InputError` where the content is no longer that of the raw asset's value ``raw``."""
    found = source.files()
    if _state(found) == (raw["size"], raw["version"]):
        return
    if _content(source, found)[0] != raw["digest"]:
        raise InputError(
            f"{shown(source.path)} has changed since raw_{source.name} was materialized; materialize raw_{source.name} "
            "together with the tables"
        )


def _state(found: Mapping[str, str]) -> tuple[int, str]:
    states = {role: files.state(location) for role, location in found.items()}
    version = "|".join(f"{role}:{state.version}" if role else state.version for role, state in states.items())
    return sum(state.size for state in states.values()), version


def _content(source: SourceFile, found: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Digest of the files' content (text: unpacked), and what the UI shows of it."""
    binary = {role: files.digest(at) for role, at in found.items() if at.lower().endswith(BINARY)}
    texts = {role: _text(at) for role, at in found.items() if role not in binary}
    digest = _digest(binary | {role: digest for role, (digest, _, _) in texts.items()})
    about: dict[str, Any] = {}
    if len(found) > 1:
        listed = [{"role": role, "file": Path(shown(at)).name} for role, at in found.items()]
        sizes = {role: {"bytes": size, "lines": lines} for role, (_, size, lines) in texts.items()}
        plain = {"bytes": 0, "lines": 0}
        about["files"] = records([{**row, **(sizes.get(row["role"]) or plain)} for row in listed])
    data = [role for role in _DATA if role in texts]
    if data:
        (names, preview), header_lines = _preview(source, found[data[0]], data[0])
        about |= {
            "bytes_unpacked": sum(size for _, size, _ in texts.values()),
            # Records with line breaks in quoted fields span several lines; the tables have the exact number.
            "dagster/row_count": max(sum(texts[role][2] for role in data) - header_lines, 0),
            "dagster/column_schema": dg.TableSchema(columns=[dg.TableColumn(n, "string") for n in names]),
            "first_rows": records(preview),
        }
    return digest, about


def _digest(by_role: Mapping[str, str]) -> str:
    if set(by_role) == {""}:
        return by_role[""]
    text = "\n".join(f"{role} {digest}" for role, digest in sorted(by_role.items()))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _text(location: str) -> tuple[str, int, int]:
    """Digest, bytes and lines of a text file's unpacked content."""
    hasher, size, lines, last = hashlib.blake2b(digest_size=16), 0, 0, b"\n"
    with Source(location) as file:
        while block := file.read(_BLOCK_BYTES):
            hasher.update(block)
            size += len(block)
            lines += block.count(b"\n")
            last = block[-1:]
    return hasher.hexdigest(), size, lines + (last != b"\n")


def _preview(source: SourceFile, location: str, role: str) -> tuple[tuple[tuple[str, ...], list[dict[str, str]]], int]:
    """Column names and the first rows, before anything is checked; and how many lines are no rows."""
    if source.format in ("triples", "kgat"):
        names, mark, most = (_TRIPLE, "\t", 2) if source.format == "triples" else (("user", "items"), None, 1)
        if role == "knowledge":
            names, most = _TRIPLE, 2
        with Source(location, text=not location.endswith(".zip")) as file:
            lines = file.read(_PREVIEW_BYTES).decode("utf-8", errors="replace").splitlines()
        return (names, [dict(zip(names, line.split(mark, most), strict=False)) for line in lines[:PREVIEW_ROWS]]), 0
    if isinstance(source.reading, SequenceSettings):
        with Source(location) as file:
            rows = first_rows(file.read(_PREVIEW_BYTES), source.reading, file.name, PREVIEW_ROWS)
        return (tuple(rows[0]) if rows else (), rows), 0
    delimiter = "\t" if source.format == "mmrec" else str(getattr(source.reading, "delimiter", ","))
    return _csv_preview(location, delimiter), 1


def _csv_preview(location: str, delimiter: str) -> tuple[tuple[str, ...], list[dict[str, str]]]:
    if delimiter == "auto":
        with Source(location) as file:
            first = file.read(_PREVIEW_BYTES).lstrip(b"\r\n").partition(b"\n")[0]
        delimiter = next((mark for mark in ("\t", ";", ",") if mark.encode() in first), ",")
    with Source(location) as file:
        header, rest = read_header(file, delimiter)
    text = rest[:_PREVIEW_BYTES].decode("utf-8", errors="replace").rpartition("\n")[0]
    rows = csv.reader(io.StringIO(text), delimiter=delimiter)
    shown_rows = [row for row, _ in zip(rows, range(PREVIEW_ROWS), strict=False)]
    return header.names, [dict(zip(header.names, row, strict=False)) for row in shown_rows]
