"""The Dagster component types for a ``defs.yaml``: a dataset, and a model."""

from graphmill.components.embedding_model import EmbeddingModel
from graphmill.components.graph_dataset import GraphDataset

__all__ = ["EmbeddingModel", "GraphDataset"]
