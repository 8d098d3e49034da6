"""The HGT recipe: typed graphs to node embeddings by link prediction and contrastive terms."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "hgt": Entry(
        __name__,
        "HgtSettings",
        "recipe_of",
        "Heterogeneous Graph Transformer on a typed graph",
        place="softmax",
    ),
}
