"""The Python interface: ``run = graphmill.load(RUN)`` and ``generate_hgt_embeddings_batched``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graphmill.runs.exported import Run

__all__ = ["Run", "generate_hgt_embeddings_batched"]


def generate_hgt_embeddings_batched(
    edges_csv: str,
    output_csv: str,
    *,
    embedding_dim: int = 512,
    hidden_dim: int = 256,
    num_layers: int = 2,
    num_heads: int = 8,
    num_epochs: int = 100,
    learning_rate: float = 0.001,
    device: str | None = None,
    edge_sample_size: int = 5000,
    node_batch_size: int = 2048,
    num_neighbors: Sequence[int] = (10, 10),
    accumulation_steps: int = 4,
    loss: str = "softmax",
    contrastive_weight: float = 0.5,
    similarity_threshold: float = 0.1,
    include_node_types: Sequence[str] = ("drug", "disease", "gene/protein", "pathway", "biological_process"),
    limit_nodes: int | None = None,
    use_batched_mps: bool = True,
    seed: int = 0,
    work_dir: str = "",
) -> dict[str, Any]:
    """From a PrimeKG-like edge CSV to an embedding CSV in one call, with the origin's parameters.

    ``loss``: "softmax", or "link_contrastive", the origin's, which ``contrastive_weight`` and ``similarity_threshold``
    are for.
    ``use_batched_mps`` chooses batching: edge_sampled (else full); ``node_batch_size`` and ``num_neighbors`` are
    recorded and take effect in neighbor_sampled batching alone, as in the settings. Widths are rounded up to a multiple
    of ``num_heads``. Files are kept in ``work_dir`` (default: a folder named after ``output_csv`` beside it), so that
    the same call reuses or continues what it did.

    Returns:
        total_nodes, output_file, embedding_dim, run_dir, metrics, seconds.
    """
    import shutil

    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.kg_columns import KgCsvSettings
    from graphmill.ingest.kg_csv import read_kg_csv
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.train import train
    from graphmill.settings import parse

    output = Path(output_csv)
    folder = Path(work_dir) if work_dir else output.with_suffix(".graphmill")
    tables = read_kg_csv(edges_csv, KgCsvSettings(limit_nodes=limit_nodes or 0))
    chosen = parse(GraphSettings, {"include_node_types": list(include_node_types)}, "include_node_types")
    graph = build_graph(tables.nodes, tables.edges, chosen, folder / "graph")

    def up(width: int) -> int:
        return -(-width // num_heads) * num_heads

    result = train(
        {
            "recipe": "hgt",
            "data": str(graph.path),
            "model": {
                "embedding_dim": up(embedding_dim),
                "hidden_dim": up(hidden_dim),
                "num_layers": num_layers,
                "num_heads": num_heads,
            },
            "objective": {
                "loss": loss,
                "contrastive_weight": contrastive_weight,
                "similarity_threshold": similarity_threshold,
            },
            "training": {"epochs": num_epochs, "learning_rate": learning_rate, "seed": seed},
            "acceleration": {
                "device": device or "auto",
                "batching": "edge_sampled" if use_batched_mps else "full",
                "edge_sample_size": edge_sample_size,
                "node_batch_size": node_batch_size,
                "num_neighbors": list(num_neighbors),
                "accumulation_steps": accumulation_steps,
            },
        },
        "generate_hgt_embeddings_batched",
    )
    manifest = export_run(restore(result["run_dir"]))
    output.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(Path(result["run_dir"]) / "embeddings" / "embeddings.csv", output)
    return {
        "total_nodes": manifest["rows"],
        "output_file": str(output),
        "embedding_dim": manifest["dim"],
        "run_dir": result["run_dir"],
        "metrics": result["metrics"],
        "seconds": result["seconds"],
    }
