"""KGAT: a recommender on the collaborative knowledge graph, with two phases per epoch."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "kgat": Entry(
        __name__,
        "KgatSettings",
        "KgatSystem",
        "KGAT: recommendation on the collaborative knowledge graph, with attention",
        ranks="items",
        new_nodes=True,
    ),
}
