"""Vectors of nodes and relations whose score by itself is the model: ComplEx, DistMult, RotatE and TransE by name."""

from graphmill.systems.entry import Entry

_ABOUT = {
    "complex": "ComplEx: products of complex vectors of nodes and relations score links",
    "distmult": "DistMult: products of real vectors; scores of a relation and of its inverse are equal",
    "rotate": "RotatE: a relation turns the head's complex vector; the distance to the target scores a link",
    "transe": "TransE: a relation moves the head's vector; the distance to the target scores a link",
}

ENTRIES = {
    name: Entry(__name__, "FactorSettings", "FactorSystem", about, folds_in=True) for name, about in _ABOUT.items()
}
