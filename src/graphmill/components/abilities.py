"""What a system's runs can do, gathered from the registry in one place: a model's assets and their pages follow from it."""

from dataclasses import dataclass
from typing import Literal

from graphmill.systems.registry import entry


@dataclass(frozen=True)
class Abilities:
    """The abilities of one system.

    ``vectors``: it has a vector of every node.
    ``ranks``: the targets of its held-out ranking. ``scores_links``: it scores links, so that new ones can be listed;
    ``scores_items``: it scores items for users; ``traces``: its predictions can be traced to training triples.
    """

    vectors: bool
    ranks: Literal["links", "triples", "items"]
    scores_links: bool
    scores_items: bool
    traces: bool


def abilities_of(system: str) -> Abilities:
    """The abilities of the system. Raises :class:`SettingsError` if there is no such system."""
    known = entry(system)
    return Abilities(
        vectors=known.vectors,
        ranks=known.ranks,
        scores_links=not known.recommends,
        scores_items=known.recommends,
        traces=known.traces,
    )
