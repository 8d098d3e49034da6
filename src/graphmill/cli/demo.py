"""Runs the sample chain without Dagster: ingest, graph, training, export, validation and ranking."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from graphmill.errors import InputError
from graphmill.ingest.samples import PLACES, write_sample

SETTINGS = {
    "biomed": {
        "system": "blend",
        "model": {"embedding_dim": 128},
    }
}


def run_demo(chain: str, folder: Path) -> list[list[str]]:
    """Run the chain in ``folder`` and return the rows of the summary table.

    Raises:
        InputError: there is no such chain; the message names those that exist, and says how to run the others.
    """
    if chain not in SETTINGS:
        others = ", ".join(name for name in PLACES if name not in SETTINGS)
        raise InputError(
            f"graphmill demo has no sample chain '{chain}' (there is: {', '.join(SETTINGS)}); in a checkout the others "
            f"({others}) run with `make demo CHAIN=...`"
        )
    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.kg_csv import read_kg_csv
    from graphmill.reports.validation import validate_file
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.messages import Terminal
    from graphmill.runs.train import train
    from graphmill.usage.ranking import rank_any

    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "kg.csv"
    write_sample(chain, source)
    tables = read_kg_csv(source)
    graph = build_graph(tables.nodes, tables.edges, GraphSettings(), folder / "graph")
    with closing(Terminal()) as terminal:
        result = train({**SETTINGS[chain], "data": str(graph.path)}, "demo", outlets=[terminal])
    restored = restore(result["run_dir"])
    manifest = export_run(restored)
    health = validate_file(Path(result["run_dir"]), str(graph.path))
    ranking = rank_any(restored, "test")
    return [
        ["nodes, edges, relations", f"{graph.num_nodes:,}, {graph.num_edges:,}, {len(graph.relations)}"],
        ["epochs, steps, seconds", f"{result['epochs_done']}, {result['steps_done']}, {result['seconds']:.1f}"],
        ["health", health.status + (f": {health.failure}" if health.failure else "")],
        *[[f"test MRR, {name}", f"{value:.4f}"] for name, value in ranking["mrr"].items()],
        *[["file", str(Path(result["run_dir"]) / "embeddings" / name)] for name in manifest["files"]],
    ]
