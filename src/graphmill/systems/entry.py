"""The registry's entry of a system, in the ``__init__.py`` of its folder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """Import paths of a system's parts, a line of description, and the results that its runs can produce.

    ``ranks``: the targets of its held-out ranking: links by relation, or items for users.
    ``explains``: the edges and paths behind a link's score can be named (``explain/links.py``). ``traces``: its
    predictions can be traced to training triples. ``vectors``: it has a vector for each node; without,
    its export is its weights. ``new_nodes``: it makes vectors of nodes added after the training. ``closed_form``: one
    step without gradients computes the model. ``folds_in``: a later graph needs no training, because new nodes are folded
    in (``System.fold_in_rows``). They are here and not in the system because Dagster's definitions are loaded without
    torch.
    """

    module: str
    settings: str
    system: str
    about: str
    ranks: Literal["links", "items"] = "links"
    explains: bool = False
    traces: bool = False
    vectors: bool = True
    new_nodes: bool = False
    closed_form: bool = False
    folds_in: bool = False
    system_module: str = "system"
    """The module within ``module`` that has the class, or the function that makes it, ``system``."""

    @property
    def scores_exported(self) -> bool:
        """Whether its links can be scored from exported vectors and a few further arrays."""
        return self.vectors and not self.recommends

    @property
    def scores_later(self) -> bool:
        """Whether it scores links of nodes and edges that came after the training."""
        return not self.recommends and (self.new_nodes or not self.vectors)

    @property
    def recommends(self) -> bool:
        """Whether it recommends items; systems that rank links or triples predict links instead."""
        return self.ranks == "items"
