"""Names of metrics by scorer, and names of the simpler models."""

from __future__ import annotations

import re

SIMPLER = {
    "popularity": "popularity",
    "markov": "a Markov chain",
    "item_knn": "item-kNN",
    "session_knn": "item-kNN over sessions",
    "ease": "EASE",
    "repeats": "the user's own repeats",
    "mf": "matrix factorisation",
}
"""Names for people of the simpler systems with which recommenders are compared."""
_METRIC = re.compile(
    r"(?:(?P<who>\w+?)_)?(?P<metric>(?:mrr|ndcg|hr|hit|hits|recall|precision|map|coverage|popularity_bias)(?:@\d+)?)"
)


def grouped(figures: dict[str, float]) -> dict[str, dict[str, float]]:
    """``{"ndcg@10": a, "popularity_ndcg@10": b}`` → ``{"model": {"ndcg@10": a}, "popularity": {"ndcg@10": b}}``.

    Values that are not ranking metrics are left out.
    """
    out: dict[str, dict[str, float]] = {"model": {}}
    for name, value in figures.items():
        if match := _METRIC.fullmatch(name):
            out.setdefault(match["who"] or "model", {})[match["metric"]] = value
    return out
