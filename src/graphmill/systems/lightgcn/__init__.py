"""LightGCN: vectors of users and items, propagated over the user-item graph (He et al., SIGIR 2020)."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "lightgcn": Entry(
        __name__,
        "LightGcnSettings",
        "LightGcnSystem",
        "LightGCN: vectors of users and items, smoothed over the user-item graph",
        ranks="items",
        folds_in=True,
    ),
}
