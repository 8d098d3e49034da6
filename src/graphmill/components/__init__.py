"""The Dagster component types that a ``defs.yaml`` names: a dataset and a model."""

from graphmill.components.embedding_model import EmbeddingModel

__all__ = ["EmbeddingModel"]
