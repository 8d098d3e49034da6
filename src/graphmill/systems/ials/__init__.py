"""iALS: matrix factorisation by implicit alternating least squares (Hu et al. 2008), by the library implicit."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "ials": Entry(
        __name__,
        "IalsSettings",
        "IalsSystem",
        "iALS: recommends items by vectors of users and items, by alternating least squares",
        ranks="items",
        closed_form=True,
    ),
}
