"""Files of NumPy that may be damaged.

Imports no torch.
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
    """The array of numbers in an NPY file; one at a path is mapped into memory, read-only.

    Raises :class:`InputError` in one sentence where it is none, or longer than its header says. ``name``: the file's, for
    the sentence; ``remedy``: what to do.
    """
    try:
        array = np.load(source, mmap_mode="r" if isinstance(source, Path) else None, allow_pickle=False)
    except Exception as error:  # a damaged header is read as Python's text, which raises about anything
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
