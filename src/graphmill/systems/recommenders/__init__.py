"""What recommenders from interactions share: batches, graphs, evaluation, fold-in, parts of multimodal systems."""
