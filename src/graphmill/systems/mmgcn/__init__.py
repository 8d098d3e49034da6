"""MMGCN: a graph network per modality of the items, combined by shared ID embeddings."""
