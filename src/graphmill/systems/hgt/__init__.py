"""HGT: vectors of a typed graph's nodes by attention over typed neighbours (Hu et al. 2020), which score links."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "hgt": Entry(
        __name__,
        "HgtSettings",
        "HgtSystem",
        "Heterogeneous Graph Transformer on a typed graph",
        new_nodes=True,
        folds_in=True,
    ),
}
