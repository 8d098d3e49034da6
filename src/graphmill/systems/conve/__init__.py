"""ConvE: entity embeddings from triples; each query is scored against every entity."""
