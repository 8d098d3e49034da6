"""Writes and reads one checkpoint as one safetensors file, in a single pass that also hashes it.

The layout is that of safetensors (8 bytes of header length, JSON header, data), so that any tool can read the tensors.
Nothing is pickled. Its ``__metadata__`` holds ``format``, ``format_version``, ``state``, ``info`` and ``aliases`` as
JSON texts. The safetensors library is not used here: its writer does not fsync, and its reader maps the file, so the
checksum would need a second pass. This module reads the bytes once and holds one copy of each tensor.

``checkpoint.py`` decides which checkpoints are kept and which one is loaded.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from graphmill.training.files import write_all
from graphmill.training.plain_values import decode, encode

FORMAT = "graphmill-checkpoint"
FORMAT_VERSION = 1
HASH_DIGITS = 16
_CHUNK = 8 << 20  # hashed right after it was written, while it is in the cache
_LARGEST_HEADER = 100_000_000  # safetensors' own limit

_DTYPES: dict[str, torch.dtype] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8,
    "U64": torch.uint64, "U32": torch.uint32, "U16": torch.uint16, "U8": torch.uint8,
    "BOOL": torch.bool, "C64": torch.complex64,
}  # fmt: skip
_DTYPE_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Streamed:
    """A tensor that is never in memory as a whole: ``rows(first, last)`` returns a range of its rows, on the CPU."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    rows: Callable[[int, int], Tensor]


def row_blocks(shape: Sequence[int], dtype: torch.dtype) -> Iterator[tuple[int, int]]:
    """Ranges of a few MiB that cover the rows of a tensor of this shape."""
    step = max(_CHUNK // max(math.prod(shape[1:]) * dtype.itemsize, 1), 1)
    for start in range(0, shape[0], step):
        yield start, min(start + step, shape[0])


@dataclass
class Snapshot:
    """The content of a checkpoint: tensors by name, and all other state as plain values.

    ``state`` may hold dicts with string keys, lists, tuples, str, int, float (also inf and nan), bool and None; it
    comes back exactly. Tensors that are the same view of the same memory (tied weights) come back as one tensor.
    ``streamed`` holds tensors that no process has as a whole. In the file they look like all others.
    """

    tensors: dict[str, Tensor]
    state: dict[str, Any] = field(default_factory=dict)
    streamed: dict[str, Streamed] = field(default_factory=dict)


class DamagedError(Exception):
    """The bytes differ from those that were written. Callers outside this package never see this error."""


class NewerFormatError(Exception):
    """The file is undamaged, but its format version is above ``FORMAT_VERSION``. Callers outside this package never see
    this error."""


@dataclass(frozen=True)
class Entry:
    """The position of one tensor's bytes, counted from the end of the header."""

    name: str
    dtype: torch.dtype
    shape: list[int]
    start: int
    end: int


@dataclass(frozen=True)
class Header:
    """The header of a file. It is fast to read and checked for consistency, but not verified by the checksum."""

    version: int
    info: dict[str, Any]
    state: str
    aliases: dict[str, str]
    entries: list[Entry]  # in the order of their bytes
    raw: bytes  # length prefix included


def _json(value: Any) -> str:
    return json.dumps(encode(value), allow_nan=False, separators=(",", ":"))


# -- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """The layout of a file that will be written, and its size."""

    header: bytes
    tensors: list[Tensor | Streamed]
    size: int


def plan(snapshot: Snapshot, info: Mapping[str, Any]) -> Plan:
    """Lay out a file. Equal content gives equal bytes.

    Raises:
        TypeError: a tensor or value that the format cannot hold exactly.
    """
    aliases: dict[str, str] = {}
    unique: dict[str, Tensor | Streamed] = dict(snapshot.streamed)
    seen: dict[tuple[Any, ...], str] = {}
    for name, tensor in snapshot.tensors.items():
        if tensor.layout != torch.strided or tensor.dtype not in _DTYPE_NAMES:
            raise TypeError(f"a checkpoint cannot hold '{name}': {tensor.layout}, {tensor.dtype}")
        # is_conj and is_neg are lazy views of the same memory with another value.
        view = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        identity = (*view, tensor.is_conj(), tensor.is_neg())
        if tensor.numel() and identity in seen:
            aliases[name] = seen[identity]
        else:
            seen[identity] = name
            unique[name] = tensor
    order = in_order({name: tensor.dtype for name, tensor in unique.items()})
    entries: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "format_version": str(FORMAT_VERSION),
            "info": _json(dict(info)),
            "state": _json(snapshot.state),
            "aliases": _json(aliases),
        }
    }
    offset = 0
    for name in order:
        held = unique[name]
        end = offset + math.prod(held.shape) * held.dtype.itemsize
        entries[name] = {"dtype": _DTYPE_NAMES[held.dtype], "shape": [*held.shape], "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > _LARGEST_HEADER:
        raise TypeError(f"a checkpoint's state must stay under {_LARGEST_HEADER:,} characters; put arrays into tensors")
    header = len(text).to_bytes(8, "little") + text
    return Plan(header, [unique[name] for name in order], len(header) + offset)


def in_order(dtypes: Mapping[str, torch.dtype]) -> list[str]:
    """Names in the order of their bytes: wide dtypes first, as the library does, so that all are aligned."""
    return sorted(dtypes, key=lambda name: (-dtypes[name].itemsize, name))


def write(file: BinaryIO, layout: Plan) -> str:
    """Write the planned file; returns the first ``HASH_DIGITS`` hex digits of its SHA-256."""
    digest = hashlib.sha256()
    for part in _parts(layout):
        for start in range(0, len(part), _CHUNK):
            chunk = part[start : start + _CHUNK]
            write_all(file, chunk)
            digest.update(chunk)
    return digest.hexdigest()[:HASH_DIGITS]


def _parts(layout: Plan) -> Iterator[memoryview]:
    yield memoryview(layout.header)
    for held in layout.tensors:  # one at a time, so that at most one tensor is copied
        blocks = row_blocks(held.shape, held.dtype)
        for tensor in (held.rows(*block) for block in blocks) if isinstance(held, Streamed) else (held,):
            if tensor.numel():
                plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
                yield plain.reshape(-1).view(torch.uint8).numpy().data


# -- reading ---------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> Header:
    """The header of a file, unverified. It is enough to list the checkpoints.

    Raises:
        DamagedError: the header is not valid.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        return _parse_header(file, path.stat().st_size)


def _parse_header(file: BinaryIO, size: int) -> Header:
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if len(prefix) < 8 or length > min(_LARGEST_HEADER, size - 8):
        raise DamagedError("it is cut short")
    text = file.read(length)
    try:
        content = json.loads(text)
        metadata = content.pop("__metadata__")
        if metadata["format"] != FORMAT:
            raise ValueError(metadata["format"])
        return Header(
            version=int(metadata["format_version"]),
            info=dict(decode(json.loads(metadata["info"]))),
            state=metadata["state"],
            aliases=dict(json.loads(metadata["aliases"])),
            entries=_entries(content, size - 8 - length),
            raw=prefix + text,
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise DamagedError("its header makes no sense") from None


def _entries(content: dict[str, Any], data_size: int) -> list[Entry]:
    """The entries of the header, which must leave no gap and no overlap. Sizes are checked before anything is
    allocated."""
    entries = []
    offset = 0
    for name, value in sorted(content.items(), key=lambda item: tuple(item[1]["data_offsets"])):
        (start, end), dtype, shape = value["data_offsets"], _DTYPES[value["dtype"]], value["shape"]
        if not all(isinstance(length, int) and length >= 0 for length in shape):
            raise ValueError(shape)
        if start != offset or end - start != math.prod(shape) * dtype.itemsize:
            raise ValueError(name)
        entries.append(Entry(name, dtype, shape, start, end))
        offset = end
    if offset != data_size:
        raise ValueError(offset)
    return entries


def read(path: Path, expected_hash: str, stream: Callable[[str], bool] = lambda name: False) -> Snapshot:
    """The snapshot, verified against ``expected_hash``; tensors are on the CPU.

    Tensors for whose name ``stream`` returns True stay in the file. Their rows are read on demand.

    Raises:
        DamagedError: a byte differs, is missing, or is one too many.
        NewerFormatError: undamaged, but written by a newer graphmill.
        OSError: the file cannot be read.
    """
    size = path.stat().st_size
    with open(path, "rb", buffering=0) as file:
        try:
            header = _parse_header(file, size)
            newer = header.version > FORMAT_VERSION
        except DamagedError:
            # A newer format may look like this. Only the checksum tells a newer format from damage.
            file.seek(0)
            if _hash_rest(file, hashlib.sha256()) != expected_hash:
                raise
            raise NewerFormatError("unknown") from None
        digest = hashlib.sha256(header.raw)
        tensors = {} if newer else _read_tensors(file, header, digest, stream)
        if _hash_rest(file, digest) != expected_hash:
            raise DamagedError("its checksum differs")
        if newer:
            raise NewerFormatError(str(header.version))
    streamed = {entry.name: _left(path, header, entry) for entry in header.entries if entry.name not in tensors}
    for name, original in header.aliases.items():
        if original in tensors:
            tensors[name] = tensors[original]
        else:
            streamed[name] = streamed[original]
    return Snapshot(tensors, decode(json.loads(header.state)), streamed)


def _left(path: Path, header: Header, entry: Entry) -> Streamed:
    width = math.prod(entry.shape[1:])

    def rows(first: int, last: int) -> Tensor:
        flat = torch.empty((last - first) * width, dtype=entry.dtype)
        if flat.numel():
            with open(path, "rb", buffering=0) as file:
                file.seek(len(header.raw) + entry.start + first * width * entry.dtype.itemsize)
                _read_into(file, flat.view(torch.uint8).numpy().data, hashlib.sha256())
        return flat.reshape(last - first, *entry.shape[1:])

    return Streamed(tuple(entry.shape), entry.dtype, rows)


def _read_tensors(file: BinaryIO, header: Header, digest: Any, stream: Callable[[str], bool]) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for entry in header.entries:
        if entry.shape and stream(entry.name):
            scratch = memoryview(bytearray(min(entry.end - entry.start, _CHUNK)))
            for at in range(entry.start, entry.end, _CHUNK):
                _read_into(file, scratch[: entry.end - at], digest)
            continue
        flat = torch.empty(math.prod(entry.shape), dtype=entry.dtype)
        _read_into(file, flat.view(torch.uint8).numpy().data, digest)
        tensors[entry.name] = flat.reshape(entry.shape)
    return tensors


def _read_into(file: BinaryIO, view: memoryview, digest: Any) -> None:
    while len(view):
        count = file.readinto(view[:_CHUNK])  # type: ignore[attr-defined]
        if not count:
            raise DamagedError("it is cut short")
        digest.update(view[:count])
        view = view[count:]


def _hash_rest(file: BinaryIO, digest: Any) -> str:
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return str(digest.hexdigest()[:HASH_DIGITS])
