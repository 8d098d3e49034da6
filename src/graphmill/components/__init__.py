"""The Dagster component types that a ``defs.yaml`` names: a dataset, a model, and who is told when something fails."""

from graphmill.components.alerts import Alerts
from graphmill.components.embedding_model import EmbeddingModel
from graphmill.components.graph_dataset import GraphDataset

__all__ = ["Alerts", "EmbeddingModel", "GraphDataset"]
