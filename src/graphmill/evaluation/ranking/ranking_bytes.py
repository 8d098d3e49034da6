"""Converts a link ranking to bytes and back, so that a baseline is computed once."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import numpy as np

from graphmill.arrays import BROKEN
from graphmill.evaluation.ranking.links import LinkRanking, RelationRanking


def to_bytes(ranking: LinkRanking, about: dict[str, Any]) -> bytes:
    """The ranking with its queries' reciprocal ranks, and plain values ``about`` it, as an ``.npz`` file."""
    report = json.dumps({"about": about, "ranking": ranking.to_dict()}).encode()
    out = io.BytesIO()
    reciprocal = np.concatenate([np.zeros(0), *(relation.reciprocal for relation in ranking.relations)])
    np.savez_compressed(out, report=np.frombuffer(report, np.uint8), reciprocal=reciprocal)
    return out.getvalue()


def from_bytes(content: bytes) -> tuple[LinkRanking, dict[str, Any]]:
    """The inverse of :func:`to_bytes`. Raises ValueError or KeyError for other bytes."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            report = json.loads(arrays["report"].tobytes())
            reciprocal = np.asarray(arrays["reciprocal"], np.float64)
    except BROKEN as error:
        raise ValueError(str(error)) from None
    ranking = report["ranking"]
    bounds = np.cumsum([0, *(row["queries"] for row in ranking["relations"])])
    if bounds[-1] != len(reciprocal):
        raise ValueError("the ranks do not fit the report")
    relations = tuple(
        RelationRanking(
            row["relation"],
            row["name"],
            row["queries"],
            row["candidates"],
            _numbers(row["metrics"]),
            reciprocal[bounds[place] : bounds[place + 1]],
        )
        for place, row in enumerate(ranking["relations"])
    )
    means = _numbers(ranking["macro"]), _numbers(ranking["micro"])
    return LinkRanking(ranking["split"], tuple(ranking["ks"]), relations, *means), report["about"]


def _numbers(values: dict[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in values.items()}
