"""NBFNet: scores links by propagation from the head, conditioned on the relation; no vectors of nodes."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "nbfnet": Entry(
        __name__,
        "NbfnetSettings",
        "NbfnetSystem",
        "NBFNet: propagation from the head along the relations that matter to the query; scores new nodes untrained",
        explains=True,
        vectors=False,
        folds_in=True,
    ),
}
