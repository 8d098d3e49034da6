"""HGT: vectors of a typed graph's nodes that score links: spectral and learned ones, with layers if wanted."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "hgt": Entry(
        __name__,
        "HgtSettings",
        "system_of",
        "Heterogeneous Graph Transformer on a typed graph",
        system_module="softmax",
    ),
}
