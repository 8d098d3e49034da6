"""The MMGCN recipe: a graph network per modality of the items, joined by ID embeddings."""
