"""What a system says of itself: the entry in the ``__init__.py`` of its folder, which the registry finds there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """Where one system's parts are (import paths), one line on it, and what is made of its runs.

    ``ranks``: what its held-out ranking is of: links by relation, triples on both sides, or items for users.
    ``recommends``: it has recommendations; ``traces``: its predictions can be traced to training triples. These are
    here, and not asked of the recipe, because Dagster's definitions are loaded without torch.
    """

    module: str
    settings: str
    recipe: str
    about: str
    ranks: Literal["links", "triples", "items"] = "links"
    recommends: bool = False
    traces: bool = False
    place: str = "recipe"
    """The module of the recipe within ``module``."""

    @property
    def predicts(self) -> bool:
        """Whether it predicts links: what ranks links or triples does."""
        return self.ranks != "items"
