"""The ConvE recipe: triples to entity embeddings, each query scored against every entity."""
