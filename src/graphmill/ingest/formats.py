"""The list of all formats. :mod:`graphmill.ingest.format` defines what a format is."""

from graphmill.ingest import (
    attributes,
    interactions_csv,
    kg_csv,
    kg_files,
    kgat_files,
    mmrec,
    node_features,
    ntriples,
    sequence,
    triples,
)
from graphmill.ingest.format import Format, Gives

__all__ = ["FORMATS", "Format", "Gives"]

_MODULES = (
    kg_csv,
    kg_files,
    ntriples,
    triples,
    sequence,
    interactions_csv,
    mmrec,
    kgat_files,
    node_features,
    attributes,
)
FORMATS: dict[str, Format] = {module.FORMAT.name: module.FORMAT for module in _MODULES}
