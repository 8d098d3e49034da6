"""Compiles CPU kernels and caches their machine code. Needs numba.

numba's cache looks only at the file of the function itself: if a helper in another file changes, callers keep using the
old code. Here the name of the cache folder is a hash of all kernels' sources, the versions of numba and llvmlite, and
the processor. So code of other sources is never used.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import llvmlite.binding
import numba
from numba.core import caching

KERNELS = Path(__file__).resolve().parents[1]
KEEP_FOLDERS, KEEP_DAYS = 4, 30
"""Number of folders of other sources that are always kept, and the age in seconds up to which others are kept."""


def jit(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """``numba.njit`` with its machine code kept in :func:`cache_folder`. As ``@jit`` or ``@jit(nogil=True, …)``."""
    if function is None:
        return lambda each: jit(each, **options)
    # numba reads these only when a function is decorated.
    config: Any = numba.config
    before = config.CACHE_DIR, getattr(config, "CACHE_LOCATOR_CLASSES", "")
    config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = str(cache_folder()), f"{__name__}.ByModule"
    try:
        return numba.njit(function, cache=True, **options)
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before


class ByModule(getattr(caching, "UserProvidedCacheLocator", object)):  # type: ignore[misc]
    """Names a kernel's folder by its module, not by its path: all installations of these sources share machine code.

    Versions of numba without locator classes do not read it.
    """

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        """The name of the module's folder."""
        return Path(py_file).parent.name

    def get_source_stamp(self) -> str:
        """None: the folder stands for the sources. Some versions of numba would compare when they were installed."""
        return ""


# Sums may be reassociated and fused. Infinities and NaN keep their meaning (a masked logit is −∞).
FAST = {"reassoc", "contract", "nsz", "arcp"}
jit_fast = jit(nogil=True, fastmath=FAST, error_model="numpy")
"""The decorator of most kernels."""


_PROBE = 4 << 20
"""Bytes for which the folder must have room, about twice what all kernels take."""


@cache
def cache_folder() -> Path:
    """The cache folder of these sources, made if needed. If it cannot be written, a temporary one, with one warning.

    It is in ``$NUMBA_CACHE_DIR`` or in the user's cache directory. Folders unused for a month are removed.
    """
    folder: Path | None = None
    try:
        base = _base()
        folder = base / source_hash()
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBE))
        os.utime(folder)
        prune(base, folder)
    except (OSError, RuntimeError) as error:  # RuntimeError: no HOME and no account, as in a container
        why = f"{folder} cannot be written ({getattr(error, 'strerror', error)})" if folder else "there is no home"
        warnings.warn(
            "compiled kernels cannot be kept, so every start compiles them anew (about 30 s): "
            f"{why}; name another folder by NUMBA_CACHE_DIR",
            stacklevel=2,
        )
        folder = Path(tempfile.mkdtemp(prefix="graphmill-kernels-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def source_hash(kernels: Path = KERNELS) -> str:
    """16 hex digits of the sources under ``kernels``, numba's and llvmlite's versions, and the processor."""
    digest = hashlib.sha256()
    processor = (llvmlite.binding.get_host_cpu_name(), llvmlite.binding.get_host_cpu_features().flatten())
    digest.update(repr((sys.version_info[:2], numba.__version__, llvmlite.__version__, processor)).encode())
    for path in sorted(kernels.rglob("*.py")):
        digest.update(path.relative_to(kernels).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def prune(base: Path, current: Path) -> None:
    """Remove folders of other sources, except the last few and those less than a month old."""
    others = [each for each in base.iterdir() if each.is_dir() and each != current and len(each.name) == 16]
    by_use = sorted(others, key=lambda each: each.stat().st_mtime, reverse=True)
    for old in by_use[KEEP_FOLDERS:]:
        if time.time() - old.stat().st_mtime > KEEP_DAYS * 86400:
            shutil.rmtree(old, ignore_errors=True)


def _base() -> Path:
    if numba.config.CACHE_DIR:
        return Path(numba.config.CACHE_DIR) / "graphmill"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "graphmill" / "kernels"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "graphmill" / "kernels"
