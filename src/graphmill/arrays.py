"""Reads NumPy files and reports damage.

It does not import torch.
"""

from __future__ import annotations

import io
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError, one_line

BROKEN = (
    OSError, EOFError, ValueError, MemoryError, SyntaxError, tokenize.TokenError, NotImplementedError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What :func:`numpy.load` raises at damaged files. NotImplementedError: a compression that zipfile does not know."""


def load_npy(source: Path | io.BytesIO, name: str, remedy: str) -> NDArray[np.generic]:
    """The array of numbers in an NPY file; a file given by path is memory-mapped, read-only.

    Raises :class:`InputError` with one sentence if it is not an NPY file, or longer than its header says. ``name``: the
    file's name in the sentence; ``remedy``: what to do.
    """
    try:
        array = np.load(source, mmap_mode="r" if isinstance(source, Path) else None, allow_pickle=False)
    except Exception as error:  # NumPy parses a header as Python text: a damaged one raises almost any error
        raise InputError(f"{name} is not a readable .npy file ({one_line(error)}); {remedy}") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        kind = array.dtype if isinstance(array, np.ndarray) else "an archive of arrays"
        raise InputError(f"{name} holds {kind}; expected one array of numbers")
    if isinstance(array, np.memmap):
        assert isinstance(source, Path)
        more = source.stat().st_size - array.offset - array.nbytes
    else:
        assert isinstance(source, io.BytesIO)
        more = source.getbuffer().nbytes - source.tell()
    if more:
        raise InputError(f"{name} is damaged: it has {more:,} bytes more than its header says; {remedy}")
    return array
