"""Hetionet's five node types of which links are ranked, as a typed graph."""

from pathlib import Path

from benchmarks.parts.card import DATASETS
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings, SplitSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.kg_csv import read_kg_csv

TYPES = ["drug", "disease", "gene/protein", "pathway", "biological_process"]


def hetionet(which: str, split_seed: int, folder: Path) -> TypedGraph:
    """``kg_5k`` or the whole ``kg``, built in ``folder``; ``split_seed`` says which links are held out."""
    tables = read_kg_csv(DATASETS / "hetionet" / f"{which}.csv.gz")
    settings = GraphSettings(include_node_types=TYPES, split=SplitSettings(seed=split_seed))
    return build_graph(tables.nodes, tables.edges, settings, folder / f"{which}-{split_seed}")
