"""The Dagster component types for a ``defs.yaml``: a dataset, a model, which model suits, and alerts."""

from graphmill.components.alerts import Alerts
from graphmill.components.embedding_model import EmbeddingModel
from graphmill.components.graph_dataset import GraphDataset

__all__ = ["Alerts", "EmbeddingModel", "GraphDataset"]
