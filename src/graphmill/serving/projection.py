"""Projects the vectors to two dimensions, by principal components."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from graphmill.serving.answers import RequestError

if TYPE_CHECKING:
    from graphmill.serving.open_version import OpenVersion

MOST_POINTS = 20_000
FITTED_ON = 20_000
"""Number of vectors, sampled by type, to which the axes are fitted."""
LEAST_OF_TYPE = 50

Map = tuple[Callable[[NDArray[np.float32]], NDArray[np.float32]], list[float]]
_maps: WeakKeyDictionary[OpenVersion, Map] = WeakKeyDictionary()
_fitting = threading.Lock()


def projection(opened: OpenVersion, points: int, around: int, k: int) -> dict[str, Any]:
    """Coordinates of up to ``points`` nodes, sampled by type; or of the row ``around`` and its ``k`` nearest (−1: none)."""
    with _fitting:  # a fit takes seconds: simultaneous requests share one
        if opened not in _maps:
            _maps[opened] = _pca(opened)
    place, explained = _maps[opened]
    if around >= 0:
        near, _ = opened.vectors.around(around, k)
        rows = np.concatenate([[around], near])
    else:
        rows = drawn(opened.nodes.types, opened.vectors.usable, points)
    e, where = opened.nodes, place(opened.vectors.unit(rows))
    return {
        "explained": explained,
        "types": list(e.type_names),
        "total": len(e.ids),
        "points": {
            "id": e.ids[rows].tolist(),
            "name": e.names[rows].tolist(),
            "type": e.types[rows].tolist(),
            "x": np.round(where[:, 0], 5).tolist(),
            "y": np.round(where[:, 1], 5).tolist(),
        },
    }


def drawn(types: NDArray[np.int32], usable: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """About ``count`` usable rows, ascending, sampled with a fixed seed: in proportion to the types, with at least 50
    of each."""
    existing = np.flatnonzero(usable)
    if len(existing) <= count:
        return existing
    random, parts = np.random.default_rng(0), []
    for kind in np.unique(types[existing]):
        of_type = existing[types[existing] == kind]
        share = min(len(of_type), max(round(count * len(of_type) / len(existing)), LEAST_OF_TYPE))
        parts.append(random.choice(of_type, share, replace=False))
    rows = np.concatenate(parts)
    return np.sort(rows if len(rows) <= count else random.choice(rows, count, replace=False))


def _pca(opened: OpenVersion) -> Map:
    from sklearn.decomposition import PCA

    units = opened.vectors.unit(drawn(opened.nodes.types, opened.vectors.usable, FITTED_ON))
    if len(units) < 2 or units.shape[1] < 2:
        raise RequestError(404, f"{opened.name} has {len(units)} vectors of {units.shape[1]}: nothing to project")
    fitted = PCA(2, random_state=0).fit(units)
    return fitted.transform, [round(float(share), 4) for share in fitted.explained_variance_ratio_]
