"""Finds nearest neighbours by cosine: exactly in blocks, or approximately by an index in the version.

An index proposes rows, and their cosines are computed from the vectors. So the cosines of an answer are exact, and only
its completeness is approximate (:func:`recall`). The index is an HNSW graph (Malkov & Yashunin 2018), searched by faiss.
Its file holds the graph alone, as arrays that are checked before faiss reads them.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from graphmill.arrays import array_of, load_safetensors, save_safetensors
from graphmill.errors import InputError, SettingsError

Kind = Literal["exact", "faiss"]
Int64 = NDArray[np.int64]
Float32 = NDArray[np.float32]
Propose = Callable[[Float32, int], Int64]

PACKAGES = {"faiss": "faiss-cpu"}
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
_AGAIN = "promote the run again"


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
        result: Float32 = self.values[rows] * self._inverse[rows, None]
        return result

    def cosines(self, queries: Float32, start: int = 0, stop: int | None = None) -> Float32:
        """Cosines of unit ``queries`` (q × d) with the rows from ``start`` to ``stop``; −inf for a row without a
        direction."""
        part = slice(start, stop)
        result: Float32 = (queries @ self.values[part].T) * self._inverse[part]
        result[:, ~self.usable[part]] = -np.inf
        return result

    def nearest(self, row: int, k: int, among: NDArray[np.bool_] | None = None) -> tuple[Int64, Float32]:
        """The ``k`` nearest rows to a row, without itself, nearest first, by exact search. Ties are in row order.

        ``among`` bool (n): only these rows. Returns fewer rows if there are fewer.
        """
        result = self.cosines(self.unit(np.array([row])))[0]
        result[row] = -np.inf
        if among is not None:
            result[~among] = -np.inf
        return _best(np.arange(len(result)), result, k)

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
    path = folder / index_file(kind)
    _write(vectors.unit(np.arange(len(vectors.values))), path)
    seconds = time.perf_counter() - begun
    result, breadth = 0.0, BREADTHS[0]
    for breadth in BREADTHS:
        result = recall(vectors, read_index(kind, path, vectors, breadth))
        if result >= REQUIRED_RECALL + ROOM:
            break
    count = min(QUERIES, int(vectors.usable.sum()))
    return {"kind": kind, "recall_at_10": result, "queries": count, "breadth": breadth, "seconds": round(seconds, 3)}


def read_index(kind: Kind, path: Path, vectors: Vectors, breadth: int) -> Propose:
    """Open an index over ``vectors`` as a function: unit queries float32 (q × d) and a count → rows int64 (q × count), −1
    for none.

    Raises :class:`InputError` if it is damaged, or of other vectors.
    """
    require_index(kind)
    import faiss as typed

    faiss: Any = typed
    units = vectors.unit(np.arange(len(vectors.values)))
    index = _empty(units.shape[1])
    steps = faiss.vector_to_array(index.hnsw.cum_nneighbor_per_level).astype(np.int64)
    graph = _checked_graph(load_safetensors(path, "np", _AGAIN), len(units), steps, path)
    index.train(units)
    faiss.downcast_index(index.storage).add(units)
    for name, values in graph.items():
        faiss.copy_array_to_vector(values, getattr(index.hnsw, name))
    index.hnsw.max_level = int(graph["levels"].max()) - 1
    index.hnsw.entry_point = int(np.argmax(graph["levels"]))
    index.ntotal = len(units)

    def propose(queries: Float32, k: int) -> Int64:
        chosen = faiss.SearchParametersHNSW(efSearch=max(breadth, k))
        result: Int64 = index.search(np.ascontiguousarray(queries), k, params=chosen)[1]
        return result

    return propose


def _checked_graph(arrays: Mapping[str, Any], rows: int, steps: Int64, path: Path) -> dict[str, NDArray[Any]]:
    """``levels`` int32 [rows] and ``neighbors`` int32 of an index's file, and ``offsets`` uint64 [rows + 1].

    ``steps`` [levels + 1]: where a row's neighbours of each level begin, after its offset. Raises :class:`InputError`
    unless each neighbour is a row (or −1: none) that has the level, since faiss does not look.
    """
    try:
        levels, neighbors = array_of(arrays, "levels", (rows,), "i"), array_of(arrays, "neighbors", (None,), "i")
    except InputError as error:
        raise InputError(f"{path}: {error}; {_AGAIN}") from None
    right = rows > 0 and levels.min() >= 1 and levels.max() < len(steps)
    offsets = np.concatenate([[0], np.cumsum(steps[levels])]) if right else np.zeros(1, np.int64)
    right = right and len(neighbors) == offsets[-1] and neighbors.min() >= -1 and neighbors.max() < rows
    if right:
        place = np.arange(len(neighbors)) - np.repeat(offsets[:-1], steps[levels])
        level = np.searchsorted(steps, place, side="right")  # from 1
        right = bool((level <= np.append(levels, len(steps))[neighbors]).all())
    if not right:
        raise InputError(f"{path} is not an index of these {rows} vectors; {_AGAIN}")
    return {
        "levels": levels.astype(np.int32),
        "neighbors": neighbors.astype(np.int32),
        "offsets": offsets.astype(np.uint64),
    }


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
    result = f"{index['kind']} finds {index['recall_at_10']:.3f} of the 10 nearest"
    return f"{result} ({index['queries']:,} queries, looking at {index['breadth']})"


def _empty(width: int) -> Any:
    import faiss as typed

    faiss: Any = typed  # its type annotations do not match its Python layer
    return faiss.IndexHNSWSQ(width, faiss.ScalarQuantizer.QT_fp16, LINKS, faiss.METRIC_INNER_PRODUCT)


def _write(units: Float32, path: Path) -> None:
    import faiss

    index = _empty(units.shape[1])
    index.hnsw.efConstruction = BUILD_BREADTH
    index.train(units)
    index.add(units)
    names = ("levels", "neighbors")
    save_safetensors(path, {name: faiss.vector_to_array(getattr(index.hnsw, name)).copy() for name in names}, "numpy")
