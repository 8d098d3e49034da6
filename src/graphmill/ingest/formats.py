"""The list of all formats. :mod:`graphmill.ingest.format` defines what a format is."""

from collections.abc import Mapping
from typing import Any

from graphmill.errors import SettingsError
from graphmill.ingest import (
    interactions_csv,
    kg_csv,
    kg_files,
    kgat_files,
    kgx,
    mmrec,
    neo4j,
    node_features,
    ntriples,
    sequence,
    triples,
)
from graphmill.ingest.format import Format, Gives

__all__ = ["FORMATS", "Format", "Gives", "refuse_engine"]

_MODULES = (
    kg_csv,
    kg_files,
    kgx,
    neo4j,
    ntriples,
    triples,
    sequence,
    interactions_csv,
    mmrec,
    kgat_files,
    node_features,
)
FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _MODULES}


def refuse_engine(format_name: str, values: Mapping[str, Any], where: str) -> None:
    """Raise :class:`SettingsError` if another engine is requested for a format that can be read only in memory."""
    if values.get("engine") == "duckdb" and not FORMATS[format_name].out_of_core:
        others = ", ".join(name for name, format in FORMATS.items() if format.out_of_core)
        raise SettingsError(
            f"{where}: the format {format_name} is read in memory only; write the data as one of {others} "
            f"for engine: {values['engine']}, or leave engine out"
        )
