"""ConvE: entity embeddings from triples; each query is scored against every entity."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "conve": Entry(
        __name__,
        "ConveSettings",
        "ConveSystem",
        "ConvE: convolutional link prediction on triples",
        traces=True,
    ),
}
