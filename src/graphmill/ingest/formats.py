"""All formats there are. What one is: :mod:`graphmill.ingest.format`."""

from graphmill.ingest import (
    interactions_csv,
    kg_csv,
    kgat_files,
    mmrec,
    node_features,
    sequence,
    triples,
)
from graphmill.ingest.format import Format, Gives

__all__ = ["FORMATS", "Format", "Gives"]

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (kg_csv, triples, sequence, interactions_csv, mmrec, kgat_files, node_features)
}
