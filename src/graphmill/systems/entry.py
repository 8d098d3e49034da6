"""The registry's entry of a system, in the ``__init__.py`` of its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """Import paths of a system's parts, a line of description, and the results that its runs can produce.

    ``ranks``: the targets of its held-out ranking: links by relation, or items for users.
    ``traces``: its predictions can be traced to training triples. ``vectors``: it has a vector for each node; without,
    its export is its weights. ``new_nodes``: it makes vectors of nodes added after the training. ``closed_form``: one
    step without gradients computes the model. They are here and not in the system because Dagster's definitions are
    loaded without torch.
    """

    module: str
    settings: str
    system: str
    about: str
    ranks: Literal["links", "items"] = "links"
    traces: bool = False
    vectors: bool = True
    new_nodes: bool = False
    closed_form: bool = False
    system_module: str = "system"
    """The module within ``module`` that has the class, or the function that makes it, ``system``."""

    @property
    def scores_exported(self) -> bool:
        """Whether its links can be scored from exported vectors and a few further arrays."""
        return self.vectors and not self.recommends

    @property
    def recommends(self) -> bool:
        """Whether it recommends items; systems that rank links or triples predict links instead."""
        return self.ranks == "items"
