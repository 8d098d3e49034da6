"""What a system's runs can do: its entry in the registry, from which a model's assets and their pages follow."""

from collections.abc import Collection
from typing import Literal

from graphmill.errors import SettingsError
from graphmill.systems.entry import Entry
from graphmill.systems.registry import entry

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


def abilities_of(system: str, predicts: str = "") -> Entry:
    """The system's entry; with ``predicts``, a section of the YAML, one with what all systems can do among which
    ``system: auto`` chooses. Raises :class:`SettingsError` if there is no such system."""
    return Entry("", "", "", ranks=PREDICTS[predicts], vectors=False) if predicts else entry(system)
