"""graphmill: knowledge graphs and interactions in, validated and versioned embeddings out.

``graphmill.load(RUN)`` opens a run's embeddings; ``graphmill.generate_hgt_embeddings_batched`` goes from an edge CSV to
an embedding CSV in one call. Importing graphmill imports neither torch nor dagster.
"""

from typing import Any

from graphmill.version import __version__

__all__ = ["__version__", "generate_hgt_embeddings_batched", "load"]


def load(path: str) -> Any:
    """The exported embeddings of a run: ``run["DB00997"]``, ``run.to_pandas()``, ``run.neighbors("DB00997", k=10)``."""
    from graphmill.api import Run

    return Run(path)


def __getattr__(name: str) -> Any:
    if name == "generate_hgt_embeddings_batched":
        from graphmill.api import generate_hgt_embeddings_batched

        return generate_hgt_embeddings_batched
    raise AttributeError(f"module 'graphmill' has no attribute {name!r}")
