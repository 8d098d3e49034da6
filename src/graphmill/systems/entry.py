"""The systems: where the parts of each are, and which results its runs can produce."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Entry:
    """The folder and the classes of a system, a line of description, and the results that its runs can produce.

    ``ranks``: the targets of its held-out ranking: links by relation, or items for users.
    ``explains``: the edges and paths behind a link's score can be named (``explain/links.py``). ``traces``: its
    predictions can be traced to training triples. ``vectors``: it has a vector for each node; without,
    its export is its weights. ``new_nodes``: it makes vectors of nodes added after the training. ``closed_form``: one
    step without gradients computes the model. ``folds_in``: a later graph needs no training, because new nodes are folded
    in (``System.fold_in_rows``). They are here and not in the system because Dagster's definitions are loaded without
    torch.
    """

    folder: str
    of_settings: str
    about: str
    ranks: Literal["links", "items"] = "links"
    explains: bool = False
    traces: bool = False
    vectors: bool = True
    new_nodes: bool = False
    closed_form: bool = False
    folds_in: bool = False
    of_system: str = ""

    @property
    def module(self) -> str:
        """The package of its folder."""
        return f"graphmill.systems.{self.folder}"

    @property
    def settings(self) -> str:
        """The class of its settings, in the module ``settings``."""
        return f"{self.of_settings}Settings"

    @property
    def system(self) -> str:
        """The class of the system, in the module ``system``."""
        return f"{self.of_system or self.of_settings}System"

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


def _without_vectors(folder: str, of_settings: str, about: str) -> Entry:
    """A recommender in closed form whose model is no table of vectors."""
    return Entry(folder, of_settings, about, ranks="items", vectors=False, closed_form=True)


def _recommender(folder: str, of_settings: str, about: str, new_nodes: bool = False) -> Entry:
    """A recommender that is trained, with vectors of users and items."""
    return Entry(folder, of_settings, about, ranks="items", new_nodes=new_nodes, folds_in=True)


def _factor(about: str) -> Entry:
    """Vectors of nodes and relations whose score by itself is the model."""
    return Entry("factor", "Factor", about, folds_in=True)


SYSTEMS: dict[str, Entry] = {
    "blend": Entry(
        "blend",
        "Blend",
        "Blend of spectral vectors, kNN, paths, ComplEx and NBFNet, weighed on validation links by relation",
        explains=True,
        new_nodes=True,
    ),
    "conve": Entry("conve", "Conve", "ConvE: convolutional link prediction on triples", traces=True),
    "dragon": _recommender(
        "dragon",
        "Dragon",
        "DRAGON: recommendation from modalities, with graphs of similar items and similar users",
        new_nodes=True,
    ),
    "ease": _without_vectors("item_models", "Ease", "EASE: recommends items by weights between items, in closed form"),
    "complex": _factor("ComplEx: products of complex vectors of nodes and relations score links"),
    "distmult": _factor("DistMult: products of real vectors; scores of a relation and of its inverse are equal"),
    "rotate": _factor("RotatE: a relation turns the head's complex vector; the distance to the target scores a link"),
    "transe": _factor("TransE: a relation moves the head's vector; the distance to the target scores a link"),
    "hgt": Entry(
        "hgt", "Hgt", "Heterogeneous Graph Transformer on a typed graph", explains=True, new_nodes=True, folds_in=True
    ),
    "ials": Entry(
        "item_models",
        "Ials",
        "iALS: recommends items by vectors of users and items, by alternating least squares",
        ranks="items",
        closed_form=True,
    ),
    "item_knn": _without_vectors(
        "item_models", "ItemKnn", "Item-kNN: recommends items similar to those met, by cosine of their users"
    ),
    "kgat": _recommender("kgat", "Kgat", "KGAT: recommendation on the collaborative knowledge graph, with attention"),
    "lightgcn": _recommender(
        "lightgcn", "LightGcn", "LightGCN: vectors of users and items, smoothed over the user-item graph"
    ),
    "mf": _recommender(
        "mf",
        "Mf",
        "Matrix factorisation: recommends items by vectors of users and items; a starting point for KGAT, MMGCN and DRAGON",
    ),
    "mmgcn": _recommender(
        "mmgcn", "Mmgcn", "MMGCN: recommendation from modalities, with a graph network for each", new_nodes=True
    ),
    "nbfnet": Entry(
        "nbfnet",
        "Nbfnet",
        "NBFNet: propagation from the head along the relations that matter to the query; scores new nodes untrained",
        explains=True,
        vectors=False,
        folds_in=True,
    ),
    "spectral": Entry(
        "neighbours",
        "Spectral",
        "Spectral vectors: a truncated SVD of typed neighbourhoods, and links by their similarities; no training",
        explains=True,
        new_nodes=True,
        closed_form=True,
    ),
    "knn": Entry(
        "neighbours",
        "Knn",
        "kNN: links of nodes with similar typed neighbourhoods; scores new nodes and edges untrained",
        explains=True,
        vectors=False,
        closed_form=True,
    ),
    "markov": _without_vectors("next_item", "Markov", "Markov chain: next items by what followed the last item"),
    "session_knn": _without_vectors("next_item", "SessionKnn", "Item-kNN over sessions: similar to the last items"),
    "repeats": _without_vectors("next_item", "Repeats", "Repeats: next items by what a user has taken most and last"),
    "popularity": _without_vectors(
        "item_models", "Popularity", "Popularity: recommends what most users have met, of all time or of the last days"
    ),
    "sasrec": Entry(
        "sequences", "Sasrec", "SASRec: next items from a user's sequence", ranks="items", of_system="Sequence"
    ),
    "tisasrec": Entry(
        "sequences", "Tisasrec", "TiSASRec: next items, with time intervals", ranks="items", of_system="Sequence"
    ),
}
