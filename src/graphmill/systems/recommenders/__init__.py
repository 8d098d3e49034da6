"""Shared parts of recommenders: batches, graphs, evaluation, fold-in, parts of multimodal systems."""
