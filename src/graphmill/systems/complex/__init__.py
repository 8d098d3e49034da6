"""ComplEx and DistMult: vectors of nodes and relations whose trilinear products score links."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "complex": Entry(
        __name__,
        "ComplexSettings",
        "ComplexSystem",
        "ComplEx: vectors of nodes and relations whose products score links; DistMult as an option",
    ),
}
