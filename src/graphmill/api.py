"""The Python interface: files → tables → graph → run, each a call (docs/tutorials/first_graph.md).

``read_edges``, ``read_interactions`` → ``build_graph`` → ``train`` → :class:`Run`. Importing it imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.tables import IngestResult
from graphmill.runs.exported import Run

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

__all__ = ["Run", "Tables", "build_graph", "generate_hgt_embeddings_batched", "load", "read_edges", "read_features",
           "read_interactions", "train"]  # fmt: skip

GRAPH = "data/06_models/notebook/graph"
"""Where :func:`build_graph` writes unless told otherwise; the runs go beside it."""
SECTIONS = ("model", "objective", "training", "acceleration", "evaluation", "export")


@dataclass(frozen=True, repr=False)
class Tables(IngestResult):
    """What a reader made of a file: ``nodes`` and ``edges`` (Arrow), ``rejects`` (rows that could not be used, with file,
    line and reason), ``counts`` and ``notes`` (what is odd but legal), ``features`` by node type, and its ``format``.
    """

    format: str = ""

    def __repr__(self) -> str:
        counts = ", ".join(f"{number:,} {name.replace('_', ' ')}" for name, number in self.counts.items() if number)
        return f"Tables({self.format}: {counts})"


def read_edges(path: str | Path, format: str = "", **settings: Any) -> Tables:
    """Read a knowledge graph: a table of edges, triples, or files of nodes and edges.

    Args:
        path: local path or fsspec URL.
        format: ``kg_csv``, ``kg_files``, ``kgx``, ``neo4j``, ``ntriples`` or ``triples``; "": told by the content.
        settings: of the format (docs/reference/ingestion.md), such as ``columns={"head_id": "from", "tail_id": "to"}``.
            Columns of a CSV that are not named are guessed from its header; ``notes`` say how.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown format or setting.
    """
    chosen = format or _recognised(path, "edges", "kg_csv")
    remarks: list[str] = []
    if chosen == "kg_csv":
        guess, remarks = _guessed(str(path), settings.get("columns") or {})
        settings = {"delimiter": guess["delimiter"], **settings, "columns": guess["columns"]}
    tables = _read(path, chosen, "edges", settings)
    return replace(tables, notes=[*remarks, *tables.notes])


def read_interactions(path: str | Path, format: str = "", **settings: Any) -> Tables:
    """Read who interacted with what.

    Args:
        path: local path or fsspec URL.
        format: ``interactions_csv``, ``sequence``, ``mmrec`` or ``kgat``; "": told by the content.
        settings: of the format (docs/reference/ingestion.md), such as ``columns={"user": "customer"}``.

    Raises:
        InputError: the file cannot be used. SettingsError: an unknown format or setting.
    """
    return _read(path, format or _recognised(path, "interactions", "interactions_csv"), "interactions", settings)


def read_features(tables: Tables, path: str | Path, node_type: str, **settings: Any) -> Tables:
    """``tables`` with the features of the nodes of ``node_type`` from a ``.npy``, Parquet or CSV file by node id.

    ``settings``: of the format ``node_features`` (docs/reference/ingestion.md). Raises as :func:`read_edges` does.
    """
    from graphmill.ingest.node_features import NodeFeatureSettings, with_features
    from graphmill.settings import parse

    chosen = parse(NodeFeatureSettings, {"node_type": node_type, **settings}, "read_features")
    return Tables(**vars(with_features(_plain(tables), str(path), chosen)), format=tables.format)


def build_graph(tables: IngestResult, path: str | Path = GRAPH, **settings: Any) -> TypedGraph:
    """The typed graph of ``tables``, written to the folder ``path`` and opened memory-mapped.

    Args:
        tables: from :func:`read_edges` or :func:`read_interactions`.
        path: the graph's folder; the same graph that is there already is left alone, another one is replaced.
        settings: docs/explanation/graph.md, such as ``include_node_types=["drug", "disease"]`` or ``split={"valid": 0.1}``.
            What suits the format is set where nothing is said.

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
    """Train a system on a graph, or go on, or reuse what is done; then export its vectors.

    Args:
        graph: from :func:`build_graph`, or its folder.
        system: hgt, conve, bpr_mf, kgat, mmgcn, dragon, sasrec or tisasrec.
        epochs, device, seed: shortcuts for ``training.epochs``, ``acceleration.device`` and ``training.seed``.
        preset: docs/reference/settings.md; "": auto.
        output: folder of this model's runs; default: beside the graph.
        progress: a bar in a notebook or on a terminal, lines elsewhere.
        sections: ``model``, ``objective``, ``training``, ``acceleration``, ``evaluation``, ``export``: what differs from
            the defaults (docs/reference/settings.md), such as ``model={"embedding_dim": 64}``.

    Raises:
        SettingsError: an unknown system or setting. StoppedError: interrupted; the same call goes on from the checkpoint.
    """
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.messages import progress_outlet
    from graphmill.runs.train import train as run_training
    from graphmill.training.signals import StopRequest

    if unknown := sorted(set(sections) - set(SECTIONS)):
        raise SettingsError(f"train() has no argument '{unknown[0]}' (sections of settings: {', '.join(SECTIONS)})")
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
    restored = restore(result["run_dir"])
    export_run(restored)
    return Run(result["run_dir"])


def load(path: str | Path) -> Run:
    """A run by its directory, or exported embeddings by their folder."""
    return Run(path)


def _known(gives: str) -> list[str]:
    """The formats that give edges, or interactions."""
    from graphmill.ingest.formats import FORMATS

    read = {name: each for name, each in FORMATS.items() if each.read is not None}
    kinds = {n: each.gives if isinstance(each.gives, str) else each.gives(each.settings()) for n, each in read.items()}
    return [name for name, kind in kinds.items() if kind.startswith(gives)]


def _recognised(path: str | Path, gives: str, otherwise: str) -> str:
    """The likeliest format of a path among those that give what is wanted."""
    from graphmill.ingest.report import recognised

    known = _known(gives)
    return next((name for name in recognised(path) if name in known), otherwise)


def _read(path: str | Path, format: str, gives: str, settings: Mapping[str, Any]) -> Tables:
    if format not in (known := _known(gives)):
        raise SettingsError(f"read_{gives}: there is no format '{format}' (known: {', '.join(known)})")
    return read_tables(path, format, settings, f"read_{gives}")


def read_tables(path: str | Path, format: str, settings: Mapping[str, Any], where: str) -> Tables:
    """Read ``path`` as any format that has a reader; ``where`` begins the message on a wrong setting.

    Raises :class:`SettingsError` and :class:`InputError` as :func:`read_edges` does.
    """
    from graphmill.ingest.formats import FORMATS
    from graphmill.settings import parse

    if format not in FORMATS or (read := FORMATS[format].read) is None:
        known = ", ".join(name for name, each in FORMATS.items() if each.read)
        raise SettingsError(f"{where}: there is no format '{format}' of edges or interactions (known: {known})")
    result = read(str(path), parse(FORMATS[format].settings, dict(settings), where))
    return Tables(**vars(result), format=format)


def _plain(tables: Tables) -> IngestResult:
    return IngestResult(**{name: getattr(tables, name) for name in IngestResult.__dataclass_fields__})


def _guessed(path: str, given: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Columns and delimiter of an edge file by its header, ``given`` columns first, and remarks on the guess."""
    from graphmill.ingest.kg_guess import guess_columns
    from graphmill.ingest.rows import RowFile

    with RowFile(path) as file:
        names, delimiter = file.names, file.delimiter
    found, remarks = guess_columns(names)
    if found is None and not given:
        raise InputError(
            f"{path}: no column map could be guessed from {', '.join(names)}; name the ends and the relation, such as "
            'columns={"head_id": "…", "tail_id": "…", "relation": "…"}'
        )
    types = {"head_type_constant": "node", "tail_type_constant": "node"}
    guess = {part: name for part, name in found.model_dump().items() if name} if found else types
    decided = {part.removesuffix("_constant") for part in given}
    for part, name in list(guess.items()):
        if part.removesuffix("_constant") in decided or name in given.values():
            del guess[part]
    return {"columns": {**guess, **given}, "delimiter": delimiter}, [] if given else remarks


def _suited(tables: IngestResult) -> dict[str, Any]:
    """Graph settings that suit the format where nothing is said: as a ``defs.yaml`` has them."""
    from graphmill.ingest.formats import FORMATS

    format = getattr(tables, "format", "")
    suited = dict(FORMATS[format].graph) if format else {}
    if format == "interactions_csv" and "timestamp" not in tables.edges.column_names:
        suited["split"] = {"method": "random"}  # without an order the held-out ones are drawn
    return suited


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
    loss: str = "",
    contrastive_weight: float | None = None,
    similarity_threshold: float | None = None,
    include_node_types: Sequence[str] = ("drug", "disease", "gene/protein", "pathway", "biological_process"),
    limit_nodes: int | None = None,
    use_batched_mps: bool = True,
    seed: int = 0,
    work_dir: str = "",
) -> dict[str, Any]:
    """From a PrimeKG-like edge CSV to an embedding CSV in one call.

    ``loss``: "softmax", or "link_contrastive", which alone reads ``contrastive_weight`` (0.5) and
    ``similarity_threshold`` (0.1) and is chosen where one of these is given; by default "softmax".
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

    objective = {
        "loss": loss,
        "contrastive_weight": contrastive_weight,
        "similarity_threshold": similarity_threshold,
    }

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
            "objective": {name: value for name, value in objective.items() if value not in ("", None)},
            "training": {"epochs": num_epochs, "learning_rate": learning_rate, "seed": seed},
            "acceleration": {
                "device": device or "auto",
                "batching": "edge_sampled" if use_batched_mps else "full",
                "loss_chunks": accumulation_steps,
            },
            "sampling": {
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
