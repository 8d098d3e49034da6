"""Opens input files: local or by URL, plain, gzipped or single in a zip, in UTF-8 or UTF-16. Other kinds are named and
refused.
"""

from __future__ import annotations

import codecs
import errno
import gzip
import io
import os
import re
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast
from urllib.parse import urlsplit

import fsspec
import fsspec.core
import numpy as np

from graphmill.arrays import load_npy
from graphmill.errors import GraphmillError, InputError, ResourceError, one_line
from graphmill.memory import available_memory, format_size

COMMENTS = ("#", "!", "%", "//", "--")
"""Beginnings of lines that are comments."""
PARQUET, NPY = b"PAR1", b"\x93NUMPY"
_FOREIGN = {
    PARQUET: "a Parquet file, not text; write it as CSV",
    b"BZh": "compressed with bzip2; unpack it, or compress it with gzip",
    b"\xfd7zXZ\x00": "compressed with xz; unpack it, or compress it with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it, or compress it with gzip",
    b"\x93NUMPY": "a NumPy array, not text; use the format node_features",
    b"\xff\xfe\0\0": "UTF-32 text; save it as UTF-8",
    b"\0\0\xfe\xff": "UTF-32 text; save it as UTF-8",
    b"\x89HDF": "an HDF5 file; write its tables as CSV or Parquet",
    b"ARROW1\0\0": "an Arrow (Feather) file; write it as Parquet",
    b"SQLite format": "a SQLite database; write its tables as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook of the old kind (.xls); save the sheet as CSV",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
    b"Rar!": "a rar archive; unpack it",
    b"%PDF": "a PDF document; find the data as a table",
    b"version https://git-lfs": "a pointer of git-lfs, not the data; run git lfs pull",
    b"<?xml": "XML (RDF/XML, GraphML, GEXF?); write RDF as N-Triples, and other graphs as CSV with one edge a row",
    b"<rdf:RDF": "RDF/XML; write it as N-Triples (rapper -o ntriples, or rdflib)",
    b"<!DOCTYPE": "a web page (of a login or an error?), not the data; get the file again",
    b"<html": "a web page (of a login or an error?), not the data; get the file again",
    b"@prefix": "Turtle; write it as N-Triples (rapper -i turtle -o ntriples, or rdflib)",
    b"@base": "Turtle; write it as N-Triples (rapper -i turtle -o ntriples, or rdflib)",
    **{
        b"\x80" + bytes([n]): "a pickle, which may run any code when it is read; write it as CSV or Parquet"
        for n in range(2, 6)
    },
}
_ZIP = b"PK\x03\x04"
_UTF16 = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 20
LINES_BYTES = 1 << 22
LONGEST_LINE = 64 << 20
"""Bytes of the longest line (or record) of a text file. Without a bound, a small gzip file could fill the memory."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f\x85\u2028\u2029]")

T = TypeVar("T")


CALLED: dict[str, str] = {}
"""What messages call a temporary file, by its path."""


def path_text(path: str | Path) -> str:
    """The path as it may appear in messages, tables and manifests: on one line, and without user, password, token or
    query of a URL."""
    text = CALLED.get(str(path), str(path))
    text = _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
    if "://" not in text:
        return text
    parts = urlsplit(text)
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}"


def within(folder: str | Path, name: str) -> str:
    """A file's location: in the folder, unless its own path is absolute or a URL."""
    return name if "://" in name or Path(name).is_absolute() else f"{str(folder).rstrip('/')}/{name}"


def is_binary(path: str | Path) -> bool:
    """Whether the file is of a supported binary kind: Parquet or a NumPy array."""
    with Source(path, text=False) as source:
        return source.read(6).startswith((PARQUET, NPY))


def is_plain(path: str | Path, start: bytes) -> bool:
    """Whether the file is local and begins with these bytes, so that it can be memory-mapped as it is."""
    if "://" in str(path):
        return False
    with _open(path, path_text(path)) as file:
        return file.read(len(start)) == start


def lines_of(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Number (from 1) and bytes of each line of a text file, without the LF or CR LF at its end.

    Raises :class:`InputError` for a line that is longer than :data:`LONGEST_LINE`.
    """
    with Source(path) as source:
        number, rest, length = 1, list[bytes](), 0
        while block := source.read(LINES_BYTES):
            first, *lines = block.split(b"\n")
            rest.append(first)
            length += len(first)
            if length > LONGEST_LINE:
                raise InputError(f"{source.name}: {too_long(number)}; is this a text file?")
            if lines:
                for line in (b"".join(rest), *lines[:-1]):
                    yield number, line.removesuffix(b"\r")
                    number += 1
                rest, length = [lines[-1]], len(lines[-1])
        if length:
            yield number, b"".join(rest).removesuffix(b"\r")


def too_long(line: int) -> str:
    """The fault of a line without an end."""
    return f"line {line} is longer than {LONGEST_LINE >> 20} MiB"


def text_lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """Number (from 1) and text of each line. Raises :class:`InputError` if one is not UTF-8 text."""
    for number, line in lines_of(path):
        try:
            yield number, line.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(
                f"{path_text(path)}, line {number}, is not UTF-8 text; convert the file (iconv -f latin1 -t utf-8)"
            ) from None


def first_lines(data: bytes) -> list[str]:
    """The lines of the beginning of a text file that are not blank."""
    lines = data.decode("utf-8", errors="replace").split("\n")
    return [line.removesuffix("\r") for line in lines if line.strip()]


class Source(AbstractContextManager["Source"]):
    """An open input file that yields bytes; a context manager.

    ``name`` is the path to show. ``bom``: whether a byte order mark was skipped. ``text`` false: the bytes are unchanged,
    except for gzip and ``.zip``. Reading raises :class:`InputError` if the file is truncated or damaged.
    """

    def __init__(self, path: str | Path, *, text: bool = True) -> None:
        self.name = path_text(path)
        self._outer = _open(path, self.name)
        try:
            self._file = self._unpacked(text)
            self.bom = self._check_signature() if text else False
        except BaseException:
            self._outer.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._outer.close()

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes (all if negative); empty at the end of the file."""
        return self._guarded(lambda: self._file.read(size))

    def read_whole(self) -> bytes:
        """All bytes of a file that cannot be read in parts. Raises :class:`InputError` for more than a quarter of the memory
        that is available, which a small compressed file may hold."""
        return _whole(self.read, self.name)

    def _guarded(self, read: Callable[[], T]) -> T:
        try:
            return read()
        except EOFError:
            raise InputError(
                f"{self.name}: the gzip file ends in the middle (an interrupted download?); get it again"
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self.name}: the gzip file is damaged ({error}); get it again") from None
        except zipfile.BadZipFile as error:
            raise InputError(f"{self.name}: the zip archive is damaged ({error}); get it again") from None
        except UnicodeDecodeError:
            raise InputError(f"{self.name}: the UTF-16 text is damaged; save it as UTF-8") from None
        except OSError as error:
            raise InputError(f"{self.name}: reading failed ({error}); check the disk or the connection") from None

    def _unpacked(self, text: bool) -> io.BufferedReader:
        file = self._outer
        if self._guarded(lambda: file.peek(4)).startswith(_ZIP) and (text or self.name.endswith(".zip")):
            file = self._guarded(lambda: _only_member(self._outer, self.name))
        if self._guarded(lambda: file.peek(2)).startswith(b"\x1f\x8b"):
            file = io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=file)), _BUFFER)
        return file

    def _check_signature(self) -> bool:
        start = self._guarded(lambda: self._file.peek(256))
        for magic, what in _FOREIGN.items():
            if start.startswith(magic):
                raise InputError(f"{self.name} is {what}")
        if encoding := _UTF16.get(start[:2]) or _looks_like_utf16(start[:256]):
            self._file = io.BufferedReader(_AsUtf8(self._file, encoding), _BUFFER)
            start = self._guarded(lambda: self._file.peek(8))
        bom = start.startswith(_BOM)
        if bom:
            self.read(len(_BOM))
        return bom


class _AsUtf8(io.RawIOBase):
    """The bytes in UTF-8 of a text in another encoding, which is decoded block by block."""

    def __init__(self, file: io.BufferedReader, encoding: str) -> None:
        self._file, self._decoder, self._rest = file, codecs.getincrementaldecoder(encoding)(), b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            block = self._file.read(_BUFFER)
            self._rest = self._decoder.decode(block, final=not block).encode()
            if not block:
                break
        data, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def load_matrix(path: str | Path) -> np.ndarray:
    """Read the array of numbers [n, f] in a ``.npy`` file, plain or gzipped, as float32. Raises :class:`InputError` for
    anything else."""
    if is_plain(path, NPY):
        matrix = load_npy(Path(path), path_text(path), "write it with numpy.save")
    else:
        with Source(path, text=False) as source:
            matrix = load_npy(io.BytesIO(source.read_whole()), path_text(path), "write it with numpy.save")
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise InputError(
            f"{path_text(path)} has the shape {matrix.shape}; expected two dimensions, a row for each node"
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(matrix, dtype=np.float32)


def _whole(read: Callable[[int], bytes], name: str) -> bytes:
    most, parts, size = available_memory() // 4, list[bytes](), 0
    while part := read(_BUFFER):
        parts.append(part)
        size += len(part)
        if size > most:
            raise InputError(
                f"{name} holds more than {format_size(most)}, a quarter of the memory that is available: use a machine with "
                "more, or unpack it on a local disk, from where it need not be in memory"
            )
    return b"".join(parts)


def _looks_like_utf16(start: bytes) -> str:
    """The encoding of text in UTF-16 without a byte order mark: every other byte of plain letters is zero."""
    even, odd = start[0::2], start[1::2]
    if len(odd) < 4:
        return ""
    zeros = even.count(0) / len(even), odd.count(0) / len(odd)
    return (
        "utf-16-le" if zeros[1] > 0.7 and zeros[0] < 0.1 else "utf-16-be" if zeros[0] > 0.7 and zeros[1] < 0.1 else ""
    )


def _only_member(file: io.BufferedReader, name: str) -> io.BufferedReader:
    """Open the only file of a zip archive. Raises :class:`InputError` if there are others, or if it cannot be unpacked."""
    archive = zipfile.ZipFile(io.BytesIO(_whole(file.read, name)) if "://" in name else file)
    members = [m for m in archive.namelist() if not m.endswith("/") and not m.startswith("__MACOSX")]
    if "[Content_Types].xml" in members:
        raise InputError(f"{name} is an Excel workbook (or another document); save the sheet as CSV (UTF-8)")
    if len(members) != 1:
        listed = ", ".join(members[:5]) + (", …" if len(members) > 5 else "")
        raise InputError(f"{name} is a zip archive of {len(members)} files ({listed}); unpack it, and name the file")
    try:
        return io.BufferedReader(cast(io.RawIOBase, archive.open(members[0])), _BUFFER)
    except (RuntimeError, NotImplementedError) as error:  # a password, or an unknown compression
        raise InputError(f"{name} cannot be unpacked ({error}); unpack it yourself") from None


def _open(path: str | Path, name: str) -> io.BufferedReader:
    try:
        if "://" in str(path):
            return _open_url(str(path), name)
        if not stat.S_ISREG(kind := os.stat(path).st_mode) and not stat.S_ISDIR(kind):
            raise InputError(
                f"{name} is a pipe or a device, and files are read more than once; write it to a file first"
            )
        return io.BufferedReader(io.FileIO(path), _BUFFER)
    except FileNotFoundError:
        raise InputError(f"{name} does not exist; check the path") from None
    except IsADirectoryError:
        raise InputError(f"{name} is a directory; name the file in it") from None
    except PermissionError:
        raise InputError(f"{name} may not be read; check its permissions") from None
    except OSError as error:
        raise InputError(f"{name} cannot be opened: {error.strerror or type(error).__name__}") from None


def _open_url(url: str, name: str) -> io.BufferedReader:
    with clear_of_client(f"{name} cannot be opened"):
        system, inner = fsspec.core.url_to_fs(url)
        return io.BufferedReader(system.open(inner, "rb"), _BUFFER)


@contextmanager
def clear_of_client(problem: str) -> Iterator[None]:
    """Errors of a file system's client, whose text may contain a URL with a password or token, become :class:`InputError`
    with only their kind. Errors of the system and :class:`InputError` stay."""
    try:
        yield
    except (OSError, InputError):
        raise
    except ImportError as error:
        raise InputError(f"{problem}: {error}") from None
    except Exception as error:
        raise InputError(
            f"{problem} ({type(error).__name__}); check the address and the environment's credentials"
        ) from None


P = ParamSpec("P")
R = TypeVar("R")


def guarded(read: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``read``, whose first argument is the path: errors of libraries become :class:`InputError`."""

    @wraps(read)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        file = path_text(str(args[0])) if args else "the source"
        try:
            return read(*args, **kwargs)
        except GraphmillError:
            raise
        except MemoryError as error:
            raise InputError(f"{file} cannot be read: it asks for more memory than there is; is it whole?") from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise ResourceError(
                    f"{file} cannot be read: {tempfile.gettempdir()} has no room for its temporary files; set TMPDIR "
                    "to a folder with more"
                ) from error
            raise InputError(f"{file} cannot be read ({one_line(error)}); is it whole, and of this format?") from error

    return inside
