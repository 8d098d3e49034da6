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
    triples,
)
from graphmill.ingest.format import Format

FORMATS: dict[str, Format] = {
    each.name: each
    for each in (
        kg_csv.FORMAT, kg_files.FORMAT, ntriples.FORMAT, triples.FORMAT, interactions_csv.SEQUENCE, interactions_csv.FORMAT,
        mmrec.FORMAT, kgat_files.FORMAT, node_features.FORMAT, attributes.FORMAT,
    )
}  # fmt: skip
