"""Next items in closed form: a Markov chain, item-kNN over sessions, and the user's repeats."""

from graphmill.systems.entry import Entry


def _entry(settings: str, system: str, about: str) -> Entry:
    return Entry(__name__, settings, system, about, ranks="items", vectors=False, closed_form=True)


ENTRIES = {
    "markov": _entry("MarkovSettings", "MarkovSystem", "Markov chain: next items by what followed the last item"),
    "session_knn": _entry(
        "SessionKnnSettings", "SessionKnnSystem", "Item-kNN over sessions: similar to the last items"
    ),
    "repeats": _entry("RepeatsSettings", "RepeatsSystem", "Repeats: next items by what a user has taken most and last"),
}
