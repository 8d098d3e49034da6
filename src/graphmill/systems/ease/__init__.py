"""EASE: a linear model of items on items in closed form (Steck 2019)."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "ease": Entry(
        __name__,
        "EaseSettings",
        "EaseSystem",
        "EASE: recommends items by weights between items, in closed form",
        ranks="items",
        vectors=False,
        closed_form=True,
    ),
}
