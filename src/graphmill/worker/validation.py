"""The health report of exported embeddings, from a file or a run, with the link signal where a graph is at hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from graphmill.evaluation.health import HealthReport, health_report
from graphmill.evaluation.read import Embeddings, read_embeddings
from graphmill.evaluation.thresholds import HealthThresholds
from graphmill.export.embeddings import read_manifest
from graphmill.graph.typed_graph import TypedGraph


def embeddings_file(path: Path) -> Path:
    """The best file to read of a run directory or an exported folder; a file stays itself.

    Raises:
        InputError: a directory without a finished export.
    """
    if not path.is_dir():
        return path
    directory = path / "embeddings" if (path / "embeddings").is_dir() else path
    files = read_manifest(directory)["files"]
    order = ("embeddings.parquet", "embeddings.npy", "embeddings.csv")
    return directory / next(name for name in order if name in files)


def validate_file(path: Path, graph: str = "", thresholds: HealthThresholds | None = None) -> HealthReport:
    """Validate a file or run; with ``graph``, links ranked by cosine show whether rows and ids belong together."""
    embeddings = read_embeddings(embeddings_file(path))
    return validate(embeddings, TypedGraph.open(graph) if graph else None, thresholds)


def validate(
    embeddings: Embeddings, graph: TypedGraph | None = None, thresholds: HealthThresholds | None = None
) -> HealthReport:
    """:func:`graphmill.evaluation.health.health_report` of embeddings that were read from a file."""
    names, codes = np.unique(np.asarray(embeddings.types), return_inverse=True)
    ranking = None
    if graph is not None:
        from graphmill.evaluation.baselines import SimilarityScorer
        from graphmill.evaluation.ranking import link_queries, rank_links

        order = embeddings.rows_of(graph)
        scorer = SimilarityScorer(np.asarray(embeddings.vectors)[order], graph)
        ranking = rank_links(scorer, link_queries(graph, "test"), auc_negatives=0)
    return health_report(
        embeddings.vectors, codes, [str(name) for name in names], thresholds=thresholds, ranking=ranking
    )
