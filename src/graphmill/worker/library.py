"""The Python interface: ``run = graphmill.load(RUN)`` and the origin's ``generate_hgt_embeddings_batched``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmill.errors import InputError
from graphmill.evaluation.neighbours import nearest
from graphmill.evaluation.read import Embeddings, read_embeddings
from graphmill.export.embeddings import read_manifest

if TYPE_CHECKING:
    import pandas as pd


class Run:
    """The exported embeddings of a run: vectors by node id, neighbours, a data frame."""

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self.path = path
        directory = path / "embeddings" if (path / "embeddings").is_dir() else path
        self.manifest = read_manifest(directory)
        self.embeddings: Embeddings = read_embeddings(directory)

    @cached_property
    def _rows(self) -> dict[str, list[int]]:
        rows: dict[str, list[int]] = {}
        for row, node in enumerate(self.embeddings.ids):
            rows.setdefault(str(node), []).append(row)
        return rows

    def row(self, node: str, node_type: str = "") -> int:
        """Row of a node id; ``node_type`` decides where ids of several types collide.

        Raises:
            InputError: no such node, or several types have this id.
        """
        rows = self._rows.get(node, [])
        if node_type:
            rows = [row for row in rows if self.type_of(row) == node_type]
        if not rows:
            kind = f" of type '{node_type}'" if node_type else ""
            raise InputError(f"{self.path} has no node '{node}'{kind}; ids are those of the input file, as text")
        if len(rows) > 1:
            kinds = ", ".join(sorted({self.type_of(row) for row in rows}))
            raise InputError(f"node id '{node}' exists in several types ({kinds}); say which with node_type")
        return rows[0]

    def type_of(self, row: int) -> str:
        """Node type of a row."""
        return self.embeddings.type_names[int(self.embeddings.types[row])]

    def __len__(self) -> int:
        return len(self.embeddings.ids)

    def __getitem__(self, node: str) -> np.ndarray:
        """float32 [d]: the vector of a node id."""
        return np.asarray(self.embeddings.vectors[self.row(node)])

    def neighbors(self, node: str, k: int = 10, node_type: str = "") -> pd.DataFrame:
        """The ``k`` nearest nodes by cosine: columns node_id, node_name, node_type, cosine."""
        import pandas as pd

        row = self.row(node, node_type)
        nearby = nearest(self.embeddings.vectors, np.array([row]), k)
        found = nearby.rows[0].tolist()
        return pd.DataFrame(
            {
                "node_id": [str(self.embeddings.ids[i]) for i in found],
                "node_name": [str(self.embeddings.names[i]) for i in found],
                "node_type": [self.type_of(i) for i in found],
                "cosine": nearby.similarities[0],
            }
        )

    def to_pandas(self) -> pd.DataFrame:
        """One row a node: node_index, node_id, node_name, node_type, and the dimensions d0 … as float32."""
        import pandas as pd

        e = self.embeddings
        vectors = pd.DataFrame(e.vectors, columns=[f"d{i}" for i in range(e.vectors.shape[1])])
        types = pd.Categorical([e.type_names[t] for t in e.types], categories=list(e.type_names))
        head = pd.DataFrame({"node_index": e.index, "node_id": e.ids, "node_name": e.names, "node_type": types})
        return pd.concat([head, vectors], axis=1)


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
    contrastive_weight: float = 0.5,
    similarity_threshold: float = 0.1,
    include_node_types: Sequence[str] = ("drug", "disease", "gene/protein", "pathway", "biological_process"),
    limit_nodes: int | None = None,
    use_batched_mps: bool = True,
    seed: int = 0,
    work_dir: str = "",
) -> dict[str, Any]:
    """From a PrimeKG-like edge CSV to an embedding CSV in one call, with the origin's parameters.

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
    from graphmill.settings import parse
    from graphmill.worker.export import export_run, restore
    from graphmill.worker.run import train

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
            "objective": {"contrastive_weight": contrastive_weight, "similarity_threshold": similarity_threshold},
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
