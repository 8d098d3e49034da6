"""graphmill: knowledge graphs and interactions in, validated and versioned embeddings out.

Only light names live here; importing graphmill imports neither torch nor dagster.
"""

__version__ = "0.1.0"
