"""The MMGCN recipe: a graph network per modality of the items, joined by ID embeddings."""

from graphmill.systems.entry import Entry

ENTRIES = {
    "mmgcn": Entry(
        __name__,
        "MmgcnSettings",
        "MmgcnRecipe",
        "MMGCN: recommendation from modalities, with a graph network for each",
        ranks="items",
        recommends=True,
    ),
}
