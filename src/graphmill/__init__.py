"""graphmill: knowledge graphs and interactions in, validated and versioned embeddings out.

``read_edges`` or ``read_interactions`` → ``build_graph`` → ``train`` → a ``Run``; ``choose`` finds the system for a
graph; ``load`` opens an existing run; ``generate_hgt_embeddings_batched`` goes from an edge CSV to an embedding CSV in
one call. Importing graphmill imports neither torch nor dagster.
"""

from typing import TYPE_CHECKING, Any

from graphmill.version import __version__

if TYPE_CHECKING:
    from graphmill.api import (
        Run,
        Tables,
        build_graph,
        choose,
        generate_hgt_embeddings_batched,
        load,
        read_attributes,
        read_edges,
        read_features,
        read_interactions,
        train,
    )

__all__ = [
    "Run",
    "Tables",
    "__version__",
    "build_graph",
    "choose",
    "generate_hgt_embeddings_batched",
    "load",
    "read_attributes",
    "read_edges",
    "read_features",
    "read_interactions",
    "train",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from graphmill import api

        return getattr(api, name)
    raise AttributeError(f"module 'graphmill' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
