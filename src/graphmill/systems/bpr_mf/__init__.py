"""BPR-MF: matrix factorisation with a pairwise ranking loss (Rendle et al. 2009)."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "bpr_mf": Entry(
        __name__,
        "BprMfSettings",
        "BprMfSystem",
        "BPR-MF: matrix factorisation for recommendation; a baseline and a starting point for the other recommenders",
        ranks="items",
    ),
}
