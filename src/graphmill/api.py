"""The Python interface: files → tables → graph → run, one call for each step (docs/tutorials/first_graph.md).

``read_edges``, ``read_interactions`` → ``build_graph`` → ``train`` → :class:`Run`. Importing it does not import torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.errors import SettingsError
from graphmill.ingest.public_readers import Tables, read_edges, read_interactions
from graphmill.ingest.tables import IngestResult
from graphmill.usage.exported import Run

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

__all__ = ["Run", "Tables", "build_graph", "generate_hgt_embeddings_batched", "load", "read_edges", "read_features",
           "read_interactions", "train"]  # fmt: skip

GRAPH = "data/06_models/notebook/graph"
"""Where :func:`build_graph` writes unless told otherwise; the runs go beside it."""


def read_features(tables: Tables, path: str | Path, node_type: str, **settings: Any) -> Tables:
    """Add node features from a ``.npy``, Parquet or CSV file to tables.

    Args:
        tables: from :func:`read_edges` or :func:`read_interactions`.
        path: local path or fsspec URL of the features; rows are matched by node id.
        node_type: the type of the nodes that the features belong to.
        settings: settings of the format ``node_features`` (docs/reference/ingestion.md).

    Returns:
        The tables, with the features.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown setting or value.
    """
    from graphmill.ingest.node_features import NodeFeatureSettings, with_features
    from graphmill.settings import parse

    chosen = parse(NodeFeatureSettings, {"node_type": node_type, **settings}, "read_features")
    return Tables(**vars(with_features(_plain(tables), str(path), chosen)), format=tables.format)


def build_graph(tables: IngestResult, path: str | Path = GRAPH, **settings: Any) -> TypedGraph:
    """Build the typed graph of ``tables``, write it to the folder ``path``, and open it memory-mapped.

    Args:
        tables: from :func:`read_edges` or :func:`read_interactions`.
        path: the graph's folder. If it already has the same graph, nothing is written; another graph is replaced.
        settings: graph settings (docs/explanation/graph.md), such as ``include_node_types=["drug", "disease"]`` or
            ``split={"valid": 0.1}``. Settings that are not given get defaults that suit the format.

    Raises:
        InputError: the tables cannot be used. SettingsError: an unknown setting or value.
    """
    from graphmill.graph.build import build_graph as build
    from graphmill.graph.settings import GraphSettings
    from graphmill.settings import parse

    chosen = {**_suited(tables), **settings}
    return build(tables.nodes, tables.edges, parse(GraphSettings, chosen, "build_graph"), Path(path), tables.features)


def train(
    graph: TypedGraph | str | Path,
    system: str = "hgt",
    *,
    epochs: int = 0,
    device: str = "",
    seed: int | None = None,
    preset: str = "",
    output: str | Path = "",
    progress: bool = True,
    **sections: Mapping[str, Any],
) -> Run:
    """Train a system on a graph and export its vectors.

    If the same training was interrupted, it is resumed; if it is finished, its run is reused.

    Args:
        graph: a graph from :func:`build_graph`, or its folder.
        system: a recipe of docs/reference/settings.md, such as hgt, complex, conve, kgat or sasrec.
        epochs: shortcut for ``training.epochs``; 0: the default.
        device: shortcut for ``acceleration.device``; "": the default.
        seed: shortcut for ``training.seed``; None: the default.
        preset: a preset of the recipe (docs/reference/settings.md); "": auto.
        output: folder of this model's runs; default: a folder beside the graph.
        progress: show a progress bar in a notebook or terminal, and lines elsewhere.
        sections: settings that differ from the defaults (docs/reference/settings.md), by section: ``model``,
            ``objective``, ``training`` and the system's other sections, such as ``model={"embedding_dim": 64}``.

    Raises:
        SettingsError: an unknown system or setting. StoppedError: interrupted; the same call resumes from
            the checkpoint.
    """
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.fallback import once_more_on_the_cpu
    from graphmill.runs.messages import progress_outlet
    from graphmill.runs.train import train as run_training
    from graphmill.settings import Settings
    from graphmill.systems import registry
    from graphmill.training.signals import StopRequest

    known = [
        name
        for name, field in registry.settings_model(system).model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, Settings)
    ]
    if unknown := sorted(set(sections) - set(known)):
        raise SettingsError(f"train() has no argument '{unknown[0]}' (sections of settings: {', '.join(known)})")
    values: dict[str, Any] = {name: dict(section) for name, section in sections.items()}
    for section, name, value in (
        *(("training", "epochs", epochs or None), ("training", "seed", seed)),
        *(("acceleration", "device", device or None),),
    ):
        if value is not None:
            values.setdefault(section, {})[name] = value
    values |= {"recipe": system, "data": str(getattr(graph, "path", graph))} | ({"preset": preset} if preset else {})
    outlet = progress_outlet() if progress else None
    try:
        with StopRequest() as stop:
            result = run_training(values, "train()", root=str(output), outlets=[outlet] if outlet else [], stop=stop)
    finally:
        if outlet:
            outlet.close()
    once_more_on_the_cpu(lambda: export_run(restore(result["run_dir"])), warnings.warn)
    return Run(result["run_dir"])


def load(path: str | Path) -> Run:
    """Open a run, an export or a promoted version.

    Args:
        path: a run directory, a folder of exported embeddings, or the URL of either or of a promoted version. A URL such
            as ``s3://bucket/promoted/biomed/hgt/current`` is copied into ``$GRAPHMILL_CACHE`` (``~/.cache/graphmill``).

    Raises:
        InputError: there is no run or export, or it is damaged.
    """
    if "://" in str(path):
        from graphmill.export.remote import fetched

        path = fetched(str(path))
    return Run(path)


def _plain(tables: Tables) -> IngestResult:
    return IngestResult(**{name: getattr(tables, name) for name in IngestResult.__dataclass_fields__})


def _suited(tables: IngestResult) -> dict[str, Any]:
    """Default graph settings for the format, the same as in a generated ``defs.yaml``."""
    from graphmill.ingest.formats import FORMATS

    format = getattr(tables, "format", "")
    suited = dict(FORMATS[format].graph) if format else {}
    if format == "interactions_csv" and "timestamp" not in tables.edges.column_names:
        suited["split"] = {"method": "random"}  # without times, held-out interactions are drawn
    return suited


def generate_hgt_embeddings_batched(
    edges_csv: str,
    output_csv: str,
    *,
    embedding_dim: int = 512,
    hidden_dim: int | None = None,
    num_layers: int | None = None,
    num_heads: int | None = None,
    num_epochs: int | None = None,
    learning_rate: float | None = None,
    device: str | None = None,
    edge_sample_size: int | None = None,
    node_batch_size: int = 2048,
    num_neighbors: Sequence[int] = (10, 10),
    accumulation_steps: int = 4,
    loss: str = "",
    contrastive_weight: float | None = None,
    similarity_threshold: float | None = None,
    include_node_types: Sequence[str] = ("drug", "disease", "gene/protein", "pathway", "biological_process"),
    limit_nodes: int | None = None,
    use_batched_mps: bool = True,
    seed: int = 0,
    work_dir: str = "",
) -> dict[str, Any]:
    """Train HGT on an edge CSV in PrimeKG's format and write an embedding CSV, in one call.

    ``loss`` is "softmax" (the default) or "link_contrastive". Only "link_contrastive" uses ``contrastive_weight`` (0.5)
    and ``similarity_threshold`` (0.1); if one of these is given, it becomes the default loss. An argument that is None gets
    the loss's default (docs/reference/settings.md). For softmax these are ``hidden_dim`` 64, ``num_layers`` 0,
    ``num_heads`` 4, ``num_epochs`` 2 (of ten steps), ``learning_rate`` 0.005 and ``edge_sample_size`` 200; for
    link_contrastive 256, 2, 8, 100, 0.001 and 5,000. ``use_batched_mps`` selects ``batching: edge_sampled`` if there are
    layers, whose messages it samples; otherwise batching is full. ``node_batch_size`` and ``num_neighbors`` are stored in
    the settings, but only ``neighbor_sampled`` batching uses them.
    Widths are rounded up to a multiple of ``num_heads``. Files are kept in ``work_dir`` (default: a folder beside
    ``output_csv``, named after it), so that the same call reuses or continues its earlier work.

    Returns:
        total_nodes, output_file, embedding_dim, run_dir, metrics, seconds.
    """
    import shutil

    from graphmill.graph.build import build_graph
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.kg_columns import KgCsvSettings
    from graphmill.ingest.kg_csv import read_kg_csv
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.fallback import once_more_on_the_cpu
    from graphmill.runs.train import train
    from graphmill.settings import parse

    output = Path(output_csv)
    folder = Path(work_dir) if work_dir else output.with_suffix(".graphmill")
    tables = read_kg_csv(edges_csv, KgCsvSettings(limit_nodes=limit_nodes or 0))
    chosen = parse(GraphSettings, {"include_node_types": list(include_node_types)}, "include_node_types")
    graph = build_graph(tables.nodes, tables.edges, chosen, folder / "graph")

    objective = {
        "loss": loss,
        "contrastive_weight": contrastive_weight,
        "similarity_threshold": similarity_threshold,
    }

    def given(**values: Any) -> dict[str, Any]:
        return {name: value for name, value in values.items() if value not in ("", None)}

    earlier = loss == "link_contrastive" or contrastive_weight is not None or similarity_threshold is not None
    contrasts = earlier and loss != "softmax"
    heads = num_heads or (8 if contrasts else 4)
    layers = num_layers or (2 if contrasts and num_layers is None else 0)

    def up(width: int | None) -> int | None:
        return None if width is None else -(-width // heads) * heads

    result = train(
        {
            "recipe": "hgt",
            "data": str(graph.path),
            "model": given(
                embedding_dim=up(embedding_dim), hidden_dim=up(hidden_dim), num_layers=num_layers, num_heads=num_heads
            ),
            "objective": given(**objective),
            "training": given(epochs=num_epochs, learning_rate=learning_rate, seed=seed),
            "acceleration": {
                "device": device or "auto",
                "batching": "edge_sampled" if use_batched_mps and layers else "full",
                "loss_chunks": accumulation_steps,
            },
            "sampling": given(
                edge_sample_size=edge_sample_size,
                node_batch_size=node_batch_size,
                num_neighbors=list(num_neighbors),
                accumulation_steps=accumulation_steps,
            ),
        },
        "generate_hgt_embeddings_batched",
    )
    manifest = once_more_on_the_cpu(lambda: export_run(restore(result["run_dir"])), warnings.warn)
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
