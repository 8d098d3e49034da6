"""Which formats there are: the one place that knows how each is read, and what its rows are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from graphmill.ingest.interactions_csv import InteractionsCsvSettings, read_interactions_csv
from graphmill.ingest.kg_columns import KgCsvSettings
from graphmill.ingest.kg_csv import read_kg_csv
from graphmill.ingest.kgat_files import KgatFilesSettings, kgat_files, read_kgat
from graphmill.ingest.mmrec import MmrecSettings, mmrec_files, read_mmrec
from graphmill.ingest.node_features import NodeFeatureSettings
from graphmill.ingest.sequence import SequenceSettings, read_sequence
from graphmill.ingest.tables import IngestResult
from graphmill.ingest.triples import TriplesSettings, read_triples, triples_files
from graphmill.settings import Settings

Gives = Literal["edges", "interactions", "interactions and nodes", "knowledge", "features"]


@dataclass(frozen=True)
class Format:
    """How one format is read.

    ``gives``: what its rows are ("interactions and nodes": it knows users and items without an interaction). ``read``:
    location and settings to tables (None: features, which are read onto the nodes of others). ``files``: location and
    settings to the files that are read, by role; None: the location is the one file. ``paths``: settings that name files.
    ``graph``: graph settings that suit it where the YAML says nothing else.
    """

    settings: type[Settings]
    gives: Gives
    read: Callable[[str, Any], IngestResult] | None = None
    files: Callable[[str, Any], Mapping[str, str | Path]] | None = None
    paths: tuple[str, ...] = ()
    graph: tuple[tuple[str, Any], ...] = ()


# A triple or an interaction has one direction: its system looks at the other one by itself.
_ONE_WAY = (("add_reverse", "never"),)
FORMATS: dict[str, Format] = {
    "kg_csv": Format(KgCsvSettings, "edges", read_kg_csv),
    "triples": Format(
        TriplesSettings,
        "edges",
        read_triples,
        triples_files,
        ("train", "valid", "test", "entity_to_id", "relation_to_id", "names"),
        _ONE_WAY,
    ),
    "sequence": Format(SequenceSettings, "interactions", read_sequence, graph=_ONE_WAY),
    "interactions_csv": Format(InteractionsCsvSettings, "interactions", read_interactions_csv, graph=_ONE_WAY),
    "mmrec": Format(MmrecSettings, "interactions and nodes", read_mmrec, mmrec_files, graph=_ONE_WAY),
    "kgat": Format(KgatFilesSettings, "interactions and nodes", read_kgat, kgat_files, graph=_ONE_WAY),
    "node_features": Format(NodeFeatureSettings, "features"),
}
