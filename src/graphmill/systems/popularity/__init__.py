"""Popularity: the items with most interactions, of all time or of the last days."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "popularity": Entry(
        __name__,
        "PopularitySettings",
        "PopularitySystem",
        "Popularity: recommends what most users have met, of all time or of the last days",
        ranks="items",
        vectors=False,
        closed_form=True,
    ),
}
