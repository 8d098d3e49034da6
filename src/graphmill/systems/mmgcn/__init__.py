"""MMGCN: a graph network per modality of the items, combined by shared ID embeddings."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "mmgcn": Entry(
        __name__,
        "MmgcnSettings",
        "MmgcnSystem",
        "MMGCN: recommendation from modalities, with a graph network for each",
        ranks="items",
        new_nodes=True,
    ),
}
