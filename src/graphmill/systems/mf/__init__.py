"""Matrix factorisation: a vector for each user and each item, by a sampled softmax or by BPR (Rendle et al. 2009)."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "mf": Entry(
        __name__,
        "MfSettings",
        "MfSystem",
        "Matrix factorisation: recommends items by vectors of users and items; a starting point for KGAT, MMGCN and DRAGON",
        ranks="items",
        folds_in=True,
    ),
}
