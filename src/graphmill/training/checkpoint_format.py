"""Writes and reads one checkpoint as one safetensors file, and hashes it.

The layout is that of safetensors (8 bytes of header length, JSON header, data), so that any tool can read the tensors.
Nothing is pickled. Its ``__metadata__`` holds ``format``, and ``state`` and ``info`` as JSON texts, with Python's NaN and
Infinity. Its version is that of the run (:data:`graphmill.training.run_files.RUN_FORMAT`).

The library reads, after the checksum was compared. It does not write: that takes all tensors at once, and those that are
divided between processes exist a block at a time.

``checkpoint.py`` decides which checkpoints are kept and which one is loaded.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

FORMAT = "graphmill-checkpoint"
HASH_DIGITS = 16
_CHUNK = 8 << 20  # hashed right after it was written, while it is in the cache
_LARGEST_HEADER = 100_000_000  # safetensors' own limit

_DTYPE_NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL",
}  # fmt: skip
_DTYPES = {name: dtype for dtype, name in _DTYPE_NAMES.items()}


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

    ``state`` may hold dicts with string keys, lists, str, int, float (also inf and nan), bool and None; it comes back
    exactly. ``streamed`` holds tensors that no process has as a whole. In the file they look like all others.
    """

    tensors: dict[str, Tensor]
    state: dict[str, Any] = field(default_factory=dict)
    streamed: dict[str, Streamed] = field(default_factory=dict)


class DamagedError(Exception):
    """The bytes differ from those that were written. Callers outside this package never see this error."""


# -- writing ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Layout:
    """The layout of a file that will be written, and its size."""

    header: bytes
    tensors: list[Tensor | Streamed]
    size: int


def layout_of(snapshot: Snapshot, info: Mapping[str, Any]) -> Layout:
    """Lay out a file. Equal content gives equal bytes.

    Raises:
        TypeError: a tensor or value that the format cannot hold exactly.
    """
    held: dict[str, Tensor | Streamed] = {**snapshot.streamed, **snapshot.tensors}
    for name, tensor in snapshot.tensors.items():
        if tensor.layout != torch.strided or tensor.dtype not in _DTYPE_NAMES:
            raise TypeError(f"a checkpoint cannot hold '{name}': {tensor.layout}, {tensor.dtype}")
    order = in_order({name: tensor.dtype for name, tensor in held.items()})
    entries: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "info": json.dumps(dict(info)),
            "state": json.dumps(snapshot.state),
        }
    }
    offset = 0
    for name in order:
        one = held[name]
        end = offset + math.prod(one.shape) * one.dtype.itemsize
        entries[name] = {"dtype": _DTYPE_NAMES[one.dtype], "shape": [*one.shape], "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > _LARGEST_HEADER:
        raise TypeError(f"a checkpoint's state must stay under {_LARGEST_HEADER:,} characters; put arrays into tensors")
    header = len(text).to_bytes(8, "little") + text
    return Layout(header, [held[name] for name in order], len(header) + offset)


def in_order(dtypes: Mapping[str, torch.dtype]) -> list[str]:
    """Names in the order of their bytes: wide dtypes first, as the library does, so that all are aligned."""
    return sorted(dtypes, key=lambda name: (-dtypes[name].itemsize, name))


def write(file: IO[bytes], layout: Layout) -> str:
    """Write the planned file; returns the first ``HASH_DIGITS`` hex digits of its SHA-256."""
    digest = hashlib.sha256()
    for part in _parts(layout):
        for start in range(0, len(part), _CHUNK):
            chunk = part[start : start + _CHUNK]
            file.write(chunk)
            digest.update(chunk)
    return digest.hexdigest()[:HASH_DIGITS]


def _parts(layout: Layout) -> Iterator[memoryview]:
    yield memoryview(layout.header)
    for held in layout.tensors:  # one at a time, so that at most one tensor is copied
        blocks = row_blocks(held.shape, held.dtype)
        for tensor in (held.rows(*block) for block in blocks) if isinstance(held, Streamed) else (held,):
            if tensor.numel():
                plain = tensor.detach().cpu().contiguous()
                yield plain.reshape(-1).view(torch.uint8).numpy().data


# -- reading ---------------------------------------------------------------------------------------------------------


def read_header(path: Path) -> tuple[dict[str, Any], str]:
    """``info`` and the text of ``state`` of a file, not verified by the checksum. The first is enough to list checkpoints.

    Raises:
        DamagedError: the header is not valid.
        OSError: the file cannot be read.
    """
    try:
        with safe_open(path, "np") as file:
            metadata = file.metadata() or {}
        if metadata["format"] != FORMAT:
            raise ValueError(metadata["format"])
        return dict(json.loads(metadata["info"])), metadata["state"]
    except (SafetensorError, ValueError, KeyError, TypeError, RecursionError):
        raise DamagedError("its header makes no sense") from None


def read(path: Path, expected_hash: str, stream: Callable[[str], bool] = lambda name: False) -> Snapshot:
    """The snapshot, verified against ``expected_hash``; tensors are on the CPU.

    Tensors for whose name ``stream`` returns True stay in the file. Their rows are read on demand.

    Raises:
        DamagedError: a byte differs, is missing, or is one too many.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as content:
        if hashlib.file_digest(content, "sha256").hexdigest()[:HASH_DIGITS] != expected_hash:
            raise DamagedError("its checksum differs")
    _, state = read_header(path)
    tensors, streamed = dict[str, Tensor](), dict[str, Streamed]()
    file = safe_open(path, "pt")  # mapped for as long as one of the streamed tensors exists
    for name in file.keys():  # noqa: SIM118 - the file is no dict
        if stream(name) and (shape := (rows := file.get_slice(name)).get_shape()):
            streamed[name] = Streamed(tuple(shape), _DTYPES[rows.get_dtype()], partial(_rows, rows))
        else:
            tensors[name] = file.get_tensor(name).clone()
    return Snapshot(tensors, json.loads(state), streamed)


def _rows(tensor: Any, first: int, last: int) -> Tensor:
    rows: Tensor = tensor[first:last]
    return rows.clone()
