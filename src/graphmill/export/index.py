"""Finds nearest neighbours by cosine: exactly in blocks, or approximately by an index of faiss or usearch in the version.

An index proposes rows, and their cosines are computed from the vectors. So the cosines of an answer are exact, and only
its completeness is approximate (:func:`recall`).
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError, SettingsError, one_line

Kind = Literal["exact", "faiss", "usearch"]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Propose = Callable[[Float32, int], Int64]

PACKAGES = {"faiss": "faiss-cpu", "usearch": "usearch"}
REQUIRED_RECALL = 0.95
"""Required mean recall of the ten nearest neighbours. With less, a version does not go live."""
QUERIES = 500
LINKS, BUILD_BREADTH = 32, 100
"""Links per node of the HNSW graph, and number of candidates during its construction."""
BREADTHS = (64, 128, 256, 512, 1024)
"""Numbers of candidates in a search. The first that reaches the recall with a margin is taken."""
ROOM = 0.02
SPARE = 16
"""Number of additional rows that the index proposes, so that exact cosines decide near ties."""
BLOCK = 1 << 24
"""Similarities at a time: 64 MiB."""


class Vectors:
    """Vectors with their norms. ``values`` float32 (n × d). A zero row, or one that is not finite, is never a neighbour."""

    def __init__(self, values: Float32) -> None:
        self.values = values
        norms = np.concatenate(
            [np.linalg.norm(values[start : start + 65536], axis=1) for start in range(0, len(values), 65536)]
        )
        self.usable: NDArray[np.bool_] = np.isfinite(norms) & (norms > 0)
        self._inverse: Float32 = np.zeros(len(norms), np.float32)
        self._inverse[self.usable] = 1 / norms[self.usable]

    def unit(self, rows: Int64) -> Float32:
        """The rows at length 1 (float32, rows × d)."""
        found: Float32 = self.values[rows] * self._inverse[rows, None]
        return found

    def cosines(self, queries: Float32, start: int = 0, stop: int | None = None) -> Float32:
        """Cosines of unit ``queries`` (q × d) with the rows from ``start`` to ``stop``; −inf for a row without a
        direction."""
        part = slice(start, stop)
        found: Float32 = (queries @ self.values[part].T) * self._inverse[part]
        found[:, ~self.usable[part]] = -np.inf
        return found

    def nearest(self, row: int, k: int, among: NDArray[np.bool_] | None = None) -> tuple[Int64, Float32]:
        """The ``k`` nearest rows to a row, without itself, nearest first, by exact search. Ties are in row order.

        ``among`` bool (n): only these rows. Returns fewer rows if there are fewer.
        """
        found = self.cosines(self.unit(np.array([row])))[0]
        found[row] = -np.inf
        if among is not None:
            found[~among] = -np.inf
        return _best(np.arange(len(found)), found, k)

    def proposed(self, row: int, k: int, propose: Propose) -> tuple[Int64, Float32]:
        """The ``k`` nearest of the rows that an index proposes, in the form of :meth:`nearest`."""
        query = self.unit(np.array([row]))
        rows = propose(query, min(k + 1 + SPARE, len(self.values)))[0]
        rows = np.unique(rows[(rows >= 0) & (rows != row)])
        cosines = (self.unit(rows) @ query[0]).astype(np.float32)
        cosines[~self.usable[rows]] = -np.inf
        return _best(rows, cosines, k)


def _best(rows: Int64, cosines: Float32, k: int) -> tuple[Int64, Float32]:
    if k < len(rows):
        least = np.partition(cosines, len(rows) - k)[len(rows) - k]
        kept = np.flatnonzero(cosines >= least)
        rows, cosines = rows[kept], cosines[kept]
    order = np.lexsort((rows, -cosines))[:k]
    order = order[np.isfinite(cosines[order])]
    return rows[order], cosines[order]


def require_index(kind: Kind) -> None:
    """Raise :class:`SettingsError` if the package of an index is not installed."""
    if kind != "exact" and importlib.util.find_spec(kind) is None:
        raise SettingsError(
            f'the index {kind} needs the package {PACKAGES[kind]}: pip install "graphmill[index]", or choose exact'
        )


def index_file(kind: Kind) -> str:
    """The name of the file that holds an index of this kind."""
    return f"index.{kind}"


def write_index(kind: Kind, vectors: Vectors, folder: Path) -> dict[str, Any]:
    """Build an index over the vectors, measure it, and write it; returns kind, recall_at_10, queries, breadth, seconds.

    Raises:
        SettingsError: its package is not installed.
        InputError: there are too few vectors for an index.
    """
    require_index(kind)
    if len(vectors.values) <= 11:
        raise InputError(f"{len(vectors.values)} vectors need no index {kind}: choose exact")
    begun = time.perf_counter()
    path, units = folder / index_file(kind), vectors.unit(np.arange(len(vectors.values)))
    (_write_faiss if kind == "faiss" else _write_usearch)(units, path)
    seconds = time.perf_counter() - begun
    found, breadth = 0.0, BREADTHS[0]
    for breadth in BREADTHS:
        found = recall(vectors, read_index(kind, path, breadth))
        if found >= REQUIRED_RECALL + ROOM:
            break
    count = min(QUERIES, int(vectors.usable.sum()))
    return {"kind": kind, "recall_at_10": found, "queries": count, "breadth": breadth, "seconds": round(seconds, 3)}


def read_index(kind: Kind, path: Path, breadth: int) -> Propose:
    """Open an index as a function: unit queries float32 (q × d) and a count → rows int64 (q × count), −1 for none.

    Raises :class:`InputError` if it cannot be read.
    """
    require_index(kind)
    try:
        return (_read_faiss if kind == "faiss" else _read_usearch)(path, breadth)
    except (RuntimeError, OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {one_line(error)}") from None


def recall(vectors: Vectors, propose: Propose, k: int = 10, seed: int = 0) -> float:
    """Return recall@k of an index: the share of the exact ``k`` nearest rows found, over up to ``QUERIES`` drawn rows.

    A found row counts if it is at least as near as the k-th nearest, so that equal vectors do not reduce the recall.
    """
    usable = np.flatnonzero(vectors.usable)
    k = min(k, len(usable) - 1)
    rows = np.random.default_rng(seed).choice(usable, min(QUERIES, len(usable)), replace=False)
    hits, at_a_time = 0, max(1, BLOCK // len(vectors.values))
    for start in range(0, len(rows), at_a_time):
        part = rows[start : start + at_a_time]
        exact = vectors.cosines(vectors.unit(part))
        exact[np.arange(len(part)), part] = -np.inf
        least = np.partition(exact, -k, axis=1)[:, -k]
        for place, row in enumerate(part):
            hits += int((vectors.proposed(int(row), k, propose)[1] >= least[place] - 1e-6).sum())
    return hits / (k * len(rows))


def index_problem(index: Mapping[str, Any] | None) -> str:
    """Why a version does not go live with its index, or ""."""
    if not index or index["recall_at_10"] >= REQUIRED_RECALL:
        return ""
    return f"{index_sentence(index)}; {REQUIRED_RECALL:g} are required: set promote.index: exact"


def index_sentence(index: Mapping[str, Any]) -> str:
    """A description such as ``faiss finds 0.987 of the 10 nearest (500 queries, looking at 64)``."""
    found = f"{index['kind']} finds {index['recall_at_10']:.3f} of the 10 nearest"
    return f"{found} ({index['queries']:,} queries, looking at {index['breadth']})"


def _write_faiss(units: Float32, path: Path) -> None:
    import faiss as typed

    faiss: Any = typed  # its type annotations do not match its Python layer

    index = faiss.IndexHNSWSQ(units.shape[1], faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)
    index.hnsw.efConstruction = BUILD_BREADTH
    index.train(units)
    index.add(units)
    faiss.write_index(index, str(path))


def _read_faiss(path: Path, breadth: int) -> Propose:
    import faiss as typed

    faiss: Any = typed

    index = faiss.read_index(str(path))

    def propose(queries: Float32, k: int) -> Int64:
        chosen = faiss.SearchParametersHNSW(efSearch=max(breadth, k))
        found: Int64 = index.search(np.ascontiguousarray(queries), k, params=chosen)[1]
        return found

    return propose


def _write_usearch(units: Float32, path: Path) -> None:
    from usearch.index import Index

    index = Index(
        ndim=units.shape[1], metric="ip", dtype="f16", connectivity=LINKS, expansion_add=BUILD_BREADTH, multi=False
    )
    # Insert in random order: sorted by type, later nodes would have few links to other types, and some could never be
    # found.
    order = np.random.default_rng(0).permutation(len(units))
    index.add(order.astype(np.uint64), units[order])
    index.save(str(path))


def _read_usearch(path: Path, breadth: int) -> Propose:
    from usearch.index import Index

    index = Index.restore(str(path))
    index.expansion_search = breadth

    def propose(queries: Float32, k: int) -> Int64:
        found = index.search(queries, k)
        keys = np.atleast_2d(np.asarray(found.keys)).astype(np.int64)
        counts = np.atleast_1d(found.counts) if hasattr(found, "counts") else np.full(len(keys), keys.shape[1])
        keys[np.arange(keys.shape[1]) >= np.asarray(counts)[:, None]] = -1
        return keys

    return propose
