"""The music sample as a graph."""

from __future__ import annotations

from pathlib import Path

from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import with_knowledge
from graphmill.ingest.kgat_files import KgatFilesSettings, read_kgat
from graphmill.ingest.mmrec import read_mmrec


def music_graph(repository: Path, out: Path) -> TypedGraph:
    """Interactions, features and facts of ``data/01_raw/music``, as the chain joins them."""
    folder = repository / "data" / "01_raw" / "music"
    tables = with_knowledge(read_mmrec(folder), read_kgat(folder, KgatFilesSettings(part="knowledge")))
    return build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), out, tables.features)
