"""Item-kNN: an item's score is its similarity to the items that a user has met (Sarwar et al. 2001)."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "item_knn": Entry(
        __name__,
        "ItemKnnSettings",
        "ItemKnnSystem",
        "Item-kNN: recommends items similar to those met, by cosine of their users",
        ranks="items",
        vectors=False,
        closed_form=True,
    ),
}
