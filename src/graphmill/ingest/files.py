"""Opening an input file: local or by URL, plain or gzipped, and refusing what is no text in UTF-8 at first sight.

Anything about the content beyond its first bytes belongs to the readers.
"""

import gzip
import io
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import fsspec
import fsspec.core

from graphmill.errors import InputError

_FOREIGN = {
    b"PK\x03\x04": "a zip archive (or an Excel workbook); unpack it, or save it as CSV",
    b"PAR1": "a Parquet file, not text; write it as CSV",
    b"BZh": "compressed with bzip2; unpack it, or compress it with gzip",
    b"\xfd7zXZ\x00": "compressed with xz; unpack it, or compress it with gzip",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; unpack it, or compress it with gzip",
    b"\x93NUMPY": "a NumPy array, not text; use the format node_features",
    b"\xff\xfe": "UTF-16 text; save it as UTF-8",
    b"\xfe\xff": "UTF-16 text; save it as UTF-8",
}
_BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 20


def shown(path: str | Path) -> str:
    """The path as it may appear in messages, tables and manifests: without user, password, token or query of a URL."""
    text = str(path)
    if "://" not in text:
        return text
    parts = urlsplit(text)
    place = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{place}{parts.path}"


class Source:
    """An open input file that yields bytes; a context manager.

    ``name`` is the path to show. ``bom`` says whether a byte order mark was skipped. Reading raises :class:`InputError`
    where the file breaks off or its compression is damaged. ``text`` false: the first bytes are not looked at.
    """

    def __init__(self, path: str | Path, *, text: bool = True) -> None:
        self.name = shown(path)
        self._outer = _open(path, self.name)
        try:
            self._file = self._unpacked()
            self.bom = self._check_signature() if text else False
        except BaseException:
            self._outer.close()
            raise

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_: object) -> None:
        self._outer.close()

    def read(self, size: int = -1) -> bytes:
        """Up to ``size`` bytes (all where negative); empty at the end of the file."""
        return self._guarded(lambda: self._file.read(size))

    def _guarded(self, read: Callable[[], bytes]) -> bytes:
        try:
            return read()
        except EOFError:
            raise InputError(
                f"{self.name}: the gzip file ends in the middle (an interrupted download?); get it again"
            ) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{self.name}: the gzip file is damaged ({error}); get it again") from None
        except OSError as error:
            raise InputError(f"{self.name}: reading failed ({error}); check the disk or the connection") from None

    def _unpacked(self) -> io.BufferedReader:
        if self._guarded(lambda: self._outer.peek(2)).startswith(b"\x1f\x8b"):
            return io.BufferedReader(cast(io.RawIOBase, gzip.GzipFile(fileobj=self._outer)), _BUFFER)
        return self._outer

    def _check_signature(self) -> bool:
        start = self._guarded(lambda: self._file.peek(8))
        for magic, what in _FOREIGN.items():
            if start.startswith(magic):
                raise InputError(f"{self.name} is {what}")
        bom = start.startswith(_BOM)
        if bom:
            self.read(len(_BOM))
        return bom


class _Remote(io.RawIOBase):
    """A file of any fsspec file system, which may know ``read`` and nothing else, as a raw stream."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def _open(path: str | Path, name: str) -> io.BufferedReader:
    try:
        if "://" in str(path):
            return _open_url(str(path), name)
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
    try:
        system, inner = fsspec.core.url_to_fs(url)
        return io.BufferedReader(_Remote(system.open(inner, "rb")), _BUFFER)
    except OSError:
        raise
    except ImportError as error:
        raise InputError(f"{name} cannot be opened: {error}") from None
    except Exception as error:
        # Whatever a file system's client may raise. Its text may repeat the URL, and with it a password or a token.
        raise InputError(
            f"{name} cannot be opened ({type(error).__name__}); check the address and the environment's credentials"
        ) from None
