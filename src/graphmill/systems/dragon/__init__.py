"""DRAGON: a user-item graph, a frozen item-item graph from features, and a user-user graph from shared items."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "dragon": Entry(
        __name__,
        "DragonSettings",
        "DragonSystem",
        "DRAGON: recommendation from modalities, with graphs of similar items and similar users",
        ranks="items",
        new_nodes=True,
    ),
}
