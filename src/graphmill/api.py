"""The Python interface: files → tables → graph → run, one call for each step (docs/tutorials/first_graph.md).

``read_edges``, ``read_interactions`` → ``build_graph`` → ``train`` → :class:`Run`. Importing it does not import torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.atomic_files import copy_atomically, writing
from graphmill.errors import InputError
from graphmill.ingest.public_readers import Tables, read_edges, read_interactions
from graphmill.ingest.tables import IngestResult
from graphmill.systems.registry import DEFAULT
from graphmill.training.run_files import read_run_file
from graphmill.usage.exported import Run

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.usage.choice import Choice

__all__ = ["Run", "Tables", "build_graph", "choose", "generate_hgt_embeddings_batched", "load", "read_attributes",
           "read_edges", "read_features", "read_interactions", "train"]  # fmt: skip

GRAPH = "data/06_models/notebook/graph"
"""Where :func:`build_graph` writes unless told otherwise; the runs go beside it."""


def read_features(
    tables: Tables,
    path: Any,
    node_type: str,
    *,
    aliases: str | Path = "",
    repair_ids: Sequence[str] = (),
    **settings: Any,
) -> Tables:
    """Add node features from a ``.npy``, Parquet or CSV file, or from a table in memory, to tables.

    Args:
        tables: from :func:`read_edges` or :func:`read_interactions`.
        path: local path or fsspec URL of the features, or a table of pandas, polars or Arrow; rows are matched by node id.
        node_type: the type of the nodes that the features belong to.
        aliases: file with the columns old_id and id: ids of the features to replace.
        repair_ids: "prefix MONDO:" takes this beginning off ids; "case", "unicode" and "invisible" do not count.
        settings: settings of the format ``node_features`` (docs/reference/ingestion.md).

    Returns:
        The tables, with the features.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown setting or value.
    """
    from graphmill.ingest.id_columns import read_aliases
    from graphmill.ingest.node_features import NodeFeatureSettings, with_features
    from graphmill.ingest.public_readers import as_file
    from graphmill.settings import parse

    chosen = parse(NodeFeatureSettings, {"node_type": node_type, **settings}, "read_features")
    with as_file(path) as file:
        return with_features(tables, file, chosen, read_aliases(aliases, repair_ids))


def read_attributes(
    tables: Tables,
    path: Any,
    node_type: str = "",
    *,
    id: str = "",
    aliases: str | Path = "",
    repair_ids: Sequence[str] = (),
    **kinds: str,
) -> Tables:
    """Add attributes of nodes (texts, categories, numbers, dates, lists) from a file or a table in memory to tables.

    Args:
        tables: from :func:`read_edges` or :func:`read_interactions`.
        path: local path or fsspec URL of a table with a row a node, or a table of pandas, polars or Arrow.
        node_type: the type of the nodes; "": the one that has most of the ids.
        id: the column with the nodes' ids; "": the one with most ids of nodes.
        aliases: file with the columns old_id and id: ids of the table to replace.
        repair_ids: as those of :func:`read_features`.
        kinds: attribute → text, category, number, date or list; none: all columns, by their values (``notes`` says how).

    Returns:
        The tables, with the attributes. :func:`build_graph` makes features of them.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown kind.
    """
    from graphmill.ingest.attributes import AttributeSettings, checked_kinds, with_attributes
    from graphmill.ingest.id_columns import read_aliases
    from graphmill.ingest.public_readers import as_file
    from graphmill.settings import parse

    chosen = {"node_type": node_type, "id": id, "kinds": checked_kinds(kinds, "read_attributes")}
    settings = parse(AttributeSettings, chosen, "read_attributes")
    with as_file(path) as file:
        return with_attributes(tables, file, settings, read_aliases(aliases, repair_ids))


def build_graph(tables: IngestResult, path: str | Path = GRAPH, *, force: bool = False, **settings: Any) -> TypedGraph:
    """Build the typed graph of ``tables``, write it to the folder ``path``, and open it memory-mapped.

    Args:
        tables: from :func:`read_edges` or :func:`read_interactions`.
        path: the graph's folder. If it already has the same graph, nothing is written; another graph is replaced.
        force: also build where more than a tenth of the rows was refused.
        settings: graph settings (docs/explanation/graph.md), such as ``include_node_types=["drug", "disease"]`` or
            ``split={"valid": 0.1}``. Settings that are not given get defaults that suit the format.

    Raises:
        InputError: the tables cannot be used. SettingsError: an unknown setting or value.
    """
    from graphmill.graph.build import build_graph as build
    from graphmill.graph.settings import GraphSettings
    from graphmill.ingest.tables import checked_share
    from graphmill.settings import parse

    if not force and (problem := checked_share(tables.counts, tables.rejects, "the tables")):
        raise InputError(problem)
    chosen = {**_suited(tables), **settings}
    parsed = parse(GraphSettings, chosen, "build_graph")
    return build(tables.nodes, tables.edges, parsed, Path(path), tables.features, tables.attributes)


def train(
    graph: TypedGraph | str | Path,
    system: str = DEFAULT,
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
        system: a system of docs/reference/settings.md, such as blend, hgt, complex, kgat or sasrec.
        epochs: shortcut for ``training.epochs``; 0: the default.
        device: shortcut for ``acceleration.device``; "": the default.
        seed: shortcut for ``training.seed``; None: the default.
        preset: a preset of the system (docs/reference/settings.md); "": auto.
        output: folder of this model's runs; default: a folder beside the graph.
        progress: show a progress bar in a notebook or terminal, and lines elsewhere.
        sections: settings that differ from the defaults (docs/reference/settings.md), by section: ``model``,
            ``objective``, ``training`` and the system's other sections, such as ``model={"embedding_dim": 64}``.

    Raises:
        SettingsError: an unknown system or setting. StoppedError: interrupted; the same call resumes from
            the checkpoint.
    """
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.messages import Terminal
    from graphmill.runs.train import train as run_training
    from graphmill.settings import put
    from graphmill.systems import registry
    from graphmill.training.signals import StopRequest

    values: dict[str, Any] = {**sections, "system": registry.called(system), "data": str(getattr(graph, "path", graph))}
    shortcuts = {"training.epochs": epochs or None, "training.seed": seed, "acceleration.device": device or None}
    for path, value in {**shortcuts, "preset": preset or None}.items():
        if value is not None:
            values = put(values, path, value)
    outlet = Terminal() if progress else None
    try:
        with StopRequest() as stop:
            result = run_training(values, "train()", root=str(output), outlets=[outlet] if outlet else [], stop=stop)
    finally:
        if outlet:
            outlet.close()
    export_run(restore(result["run_dir"]))
    return Run(result["run_dir"])


def choose(
    graph: TypedGraph | str | Path,
    budget: str | float = "10min",
    *,
    systems: str | Sequence[str] = (),
    device: str = "",
    seed: int | None = None,
    output: str | Path = "",
    progress: bool = True,
) -> Choice:
    """Train all systems that suit a graph by their defaults, cheapest first, and choose one by validation.

    The same call reuses finished trainings and goes on with the others (docs/how-to/which_model.md).

    Args:
        graph: a graph from :func:`build_graph`, or its folder.
        budget: time for the trainings of this call, such as "90s", "10min" or "2h"; a number: seconds.
        systems: only these; default: all that suit the data.
        device: as for :func:`train`.
        seed: as for :func:`train`.
        output: folder of the runs; default: ``auto`` beside the graph.
        progress: print a line for each system.

    Returns:
        The choice: ``sentence``, ``system``, ``run`` (:func:`load` opens it), ``rows()`` of the table, ``test``.

    Raises:
        InputError: the graph has no validation split. SettingsError: an argument is none that it can be.
        TrainingError: no system has finished. StoppedError: interrupted; the same call goes on.
    """
    from graphmill.settings import parse
    from graphmill.systems.auto import AutoSettings
    from graphmill.training.signals import StopRequest
    from graphmill.usage.choose import choose as choose_system

    sections: dict[str, Any] = {"acceleration": {"device": device}} if device else {}
    sections |= {} if seed is None else {"training": {"seed": seed}}
    tell = print if progress else lambda line: None
    only = systems if isinstance(systems, str) else list(systems)
    chosen = parse(AutoSettings, {"budget": budget, "systems": only, **sections}, "choose")
    work = partial(choose_system, str(getattr(graph, "path", graph)), chosen.budget, systems=chosen.systems)
    with StopRequest() as stop:
        return work(root=str(output), overrides=sections, tell=tell, stop=stop)


def load(path: str | Path) -> Run:
    """Open a run, an export or a promoted version.

    Args:
        path: a run directory, a folder of exported embeddings, or a promoted version.

    Raises:
        InputError: there is no run or export, or it is damaged.
    """
    return Run(path)


def _suited(tables: IngestResult) -> dict[str, Any]:
    """Default graph settings for the format, the same as in a generated ``defs.yaml``."""
    from graphmill.ingest.formats import FORMATS

    format = getattr(tables, "format", "")
    suited = dict(FORMATS[format].graph) if format else {}
    return suited | (dict(FORMATS[format].suited(tables)) if format == "interactions_csv" else {})


def generate_hgt_embeddings_batched(
    edges_csv: str | Path,
    output_csv: str | Path,
    *,
    embedding_dim: int = 512,
    num_epochs: int = 0,
    device: str = "",
    include_node_types: Sequence[str] = ("drug", "disease", "gene/protein", "pathway", "biological_process"),
    limit_nodes: int = 0,
    seed: int = 0,
    work_dir: str | Path = "",
    **sections: Mapping[str, Any],
) -> dict[str, Any]:
    """Train HGT on an edge CSV in PrimeKG's format and write an embedding CSV, in one call.

    Args:
        edges_csv: the edges.
        output_csv: the file to write, with a row for each node.
        embedding_dim: width of the vectors.
        num_epochs: 0: the default.
        device: as for :func:`train`.
        include_node_types: node types to keep.
        limit_nodes: keep only so many nodes; 0: all.
        seed: as for :func:`train`.
        work_dir: folder for graph and run (default: one beside ``output_csv``, named after it). The same call reuses or
            continues its earlier work.
        sections: further settings by section, as for :func:`train`.

    Returns:
        total_nodes, output_file, embedding_dim, run_dir, metrics, seconds.
    """
    output = Path(output_csv)
    folder = Path(work_dir) if work_dir else output.with_suffix(".graphmill")
    tables = read_edges(edges_csv, "kg_csv", limit_nodes=limit_nodes)
    graph = build_graph(tables, folder / "graph", include_node_types=list(include_node_types))
    given: dict[str, Any] = {**sections, "model": {"embedding_dim": embedding_dim, **sections.get("model", {})}}
    run = train(graph, "hgt", epochs=num_epochs, device=device, seed=seed, progress=False, **given)
    with writing(output):
        copy_atomically(run.path / "embeddings" / "embeddings.csv", output)
    about = {"total_nodes": len(run), "output_file": str(output), "embedding_dim": run.manifest["dim"]}
    report = read_run_file(run.path, "report.json")
    return about | {"run_dir": str(run.path), "metrics": report["metrics"], "seconds": report["seconds"]}
