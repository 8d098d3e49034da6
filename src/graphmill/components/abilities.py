"""What a system's runs can do, gathered from the registry in one place: a model's assets and their pages follow from it."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from graphmill.errors import SettingsError
from graphmill.systems.registry import entry


@dataclass(frozen=True)
class Abilities:
    """The abilities of one system.

    ``vectors``: it has a vector of every node.
    ``ranks``: the targets of its held-out ranking. ``scores_links``: it scores links, so that new ones can be listed;
    ``scores_items``: it scores items for users; ``traces``: its predictions can be traced to training triples.
    """

    vectors: bool
    ranks: Literal["links", "items"]
    scores_links: bool
    scores_items: bool
    traces: bool


PREDICTS: dict[str, Literal["items", "links"]] = {"recommendations": "items", "links": "links"}
"""Section of the YAML → what the systems rank among which ``system: auto`` chooses."""


def predicted(sections: Collection[str]) -> str:
    """The section that says what ``system: auto`` predicts. Raises :class:`SettingsError` unless there is one."""
    named = [name for name in PREDICTS if name in sections]
    if len(named) != 1:
        raise SettingsError(
            "system: auto has to know what it predicts: write `recommendations: {}` for a dataset of interactions, or "
            "`links: {}` for any other graph, and not both"
        )
    return named[0]


def abilities_of(system: str, predicts: str = "") -> Abilities:
    """The abilities of the system; with ``predicts``, a section of the YAML, those that all systems have among which
    ``system: auto`` chooses. Raises :class:`SettingsError` if there is no such system."""
    if predicts:
        items = PREDICTS[predicts] == "items"
        return Abilities(False, PREDICTS[predicts], not items, items, traces=False)
    known = entry(system)
    return Abilities(
        vectors=known.vectors,
        ranks=known.ranks,
        scores_links=not known.recommends,
        scores_items=known.recommends,
        traces=known.traces,
    )
