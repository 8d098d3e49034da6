"""Reads files of arrays (NumPy, safetensors) and reports damage.

It does not import torch.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.atomic_files import replacing
from graphmill.errors import InputError, one_line


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


def load_safetensors(path: Path, framework: Literal["np", "pt"], remedy: str) -> dict[str, Any]:
    """The arrays (``np``) or tensors (``pt``) of a safetensors file, by name. Raises :class:`InputError` with one sentence
    if it is damaged; ``remedy``: what to do."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework=framework) as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except Exception as error:  # SafetensorError, and what the framework raises at a type that it does not have
        raise InputError(f"{path} is not a readable safetensors file ({one_line(error)}); {remedy}") from None


def save_safetensors(path: Path, arrays: Mapping[str, Any], framework: Literal["numpy", "torch"]) -> None:
    """Write arrays or tensors, contiguous, by name, atomically. Raises :class:`OSError` if they cannot be written."""
    from safetensors import SafetensorError

    try:
        with replacing(path) as part:
            import_module(f"safetensors.{framework}").save_file(dict(arrays), part.path)
    except SafetensorError as error:
        raise OSError(one_line(error)) from None


def array_of(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int | None, ...], kind: Literal["f", "i"]
) -> NDArray[Any]:
    """The array ``name``: float32 for ``kind`` "f", int64 for "i". ``shape``: its size in each dimension, None for any.

    Raises :class:`InputError` if it is missing, or of another kind or shape.
    """
    result = arrays.get(name)
    if result is None:
        raise InputError(f"it has no array {name}")
    wanted = "×".join("n" if size is None else str(size) for size in shape)
    same = len(result.shape) == len(shape) and all(b in (None, a) for a, b in zip(result.shape, shape, strict=True))
    if not same or result.dtype.kind != kind:
        raise InputError(f"its array {name} is {'×'.join(map(str, result.shape))} of {result.dtype}, not {wanted}")
    return np.ascontiguousarray(result, dtype=np.float32 if kind == "f" else np.int64)
