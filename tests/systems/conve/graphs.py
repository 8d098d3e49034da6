"""Graphs for ConvE's tests: the committed sample, and random triples small enough to check by hand."""

from pathlib import Path
from typing import Any

import numpy as np

from graphmill.evaluation.baselines.links import DegreeScorer
from graphmill.evaluation.ranking.links import rank_links
from graphmill.evaluation.ranking.queries import both_sides
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.triples import read_triples
from graphmill.settings import parse
from graphmill.systems.conve.settings import ConveSettings
from graphmill.systems.conve.system import ConveSystem

TINY_MODEL = {"embedding_dim": 12, "output_channels": 3}


def graph_of(folder: Path, out: Path) -> TypedGraph:
    """The typed graph of a triples directory, without reverse edges."""
    result = read_triples(folder)
    return build_graph(result.nodes, result.edges, GraphSettings(add_reverse="never"), out)


def random_graph(out: Path, *, entities: int = 12, relations: int = 3, triples: int = 60, seed: int = 0) -> TypedGraph:
    """Random distinct triples, a fifth of them held out; every entity occurs in train."""
    rng = np.random.default_rng(seed)
    keys = rng.choice(entities * relations * entities, triples, replace=False)
    rows = [(int(k) // entities // relations, int(k) // entities % relations, int(k) % entities) for k in keys]
    folder = out.with_name(out.name + "-files")
    folder.mkdir(parents=True, exist_ok=True)
    chain = [(i, 0, (i + 1) % entities) for i in range(entities)]
    rows = [row for row in rows if row not in chain]
    cut = len(rows) // 10
    parts = {"test": rows[:cut], "valid": rows[cut : 2 * cut], "train": chain + rows[2 * cut :]}
    for name, part in parts.items():
        (folder / f"{name}.txt").write_text("".join(f"e{h}\tr{r}\te{t}\n" for h, r, t in part), encoding="utf-8")
    return graph_of(folder, out)


def system_on(graph: TypedGraph, **sections: Any) -> ConveSystem:
    """A tiny ConvE on ``graph``."""
    values = {"system": "conve", "model": TINY_MODEL, "preset": "none"} | sections
    return ConveSystem(graph, parse(ConveSettings, values, "test"), "full")


def frequency_mrr(graph: TypedGraph) -> float:
    """Test MRR over both sides of a ranking by the number of training triples of the candidate with the relation."""
    queries = both_sides(graph, "test")
    return rank_links(DegreeScorer(queries), queries).micro["mrr"]
