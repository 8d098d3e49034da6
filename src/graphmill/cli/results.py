"""Commands that use finished runs and embeddings: recommendations, links, neighbours, influence."""

import sys
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from graphmill.cli.entry import USE, Checkpoint, Json, Judgements, Question, app, overrides
from graphmill.cli.output import (
    number,
    print_json,
    print_table,
    restored_run,
    say_when_compiling,
    show,
    show_coverage,
    show_link_report,
    show_links,
)
from graphmill.errors import InputError
from graphmill.memory import format_size


@app.command(rich_help_panel=USE)
def embed(
    run: Annotated[Path, Argument(help="Run directory (blend, HGT, spectral, KGAT, MMGCN, DRAGON)")],
    edges: Annotated[str, Option(help="File of edges between new nodes and known ones")] = "",
    features: Annotated[list[str] | None, Option(help="Features of new nodes, or NAME=FILE; once a set")] = None,
    attributes: Annotated[list[str] | None, Option(help="Table of new nodes, or TYPE=FILE")] = None,
    output: Annotated[Path | None, Option("--output", "-o", help="Folder; default inside the run")] = None,
    format_: Annotated[str, Option("--format", help="Format of the edges; default: by the content")] = "",
    read: Annotated[list[str] | None, Option(help="Setting of the format, such as columns.head_id=from")] = None,
    as_json: Json = False,
) -> None:
    """Compute vectors for nodes that joined after training, and write an export with them.

    Spectral needs --edges. blend and HGT need --edges, or the --features or --attributes that they were trained with.
    MMGCN and DRAGON need --features or --attributes of items.
    """
    from graphmill.usage.embed import NEW, embed_run
    from graphmill.usage.joining_nodes import read_joining

    files = _by_name("--features", features or [], "feature set", "NAME")
    described = _by_name("--attributes", attributes or [], "node type", "TYPE")

    restored = restored_run(run, "")
    tables, joining, source = read_joining(restored.graph, edges, files, format_, overrides(read or []), described)
    notes = [*joining.notes, *(tables.notes if tables else [])]
    if tables and len(tables.rejects):
        line, why = tables.rejects["line"][0], tables.rejects["reason"][0]
        notes.append(f"{len(tables.rejects)} rows not used; first: line {line}, {why}")
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    exported = embed_run(restored, tables, source, output, joining)
    folder = output or run / "embeddings_later"
    kinds = exported["joined"]["nodes"]
    about = {"folder": str(folder), "new_nodes": kinds, "nodes": exported["rows"], "dim": exported["dim"]}
    rows = [["folder", str(folder)], ["new nodes alone", str(folder / NEW)], ["nodes", f"{exported['rows']:,}"]]
    rows += [[f"new of type {kind}", f"{count:,}"] for kind, count in kinds.items()]
    title = f"Nodes of {source} in the space of {run}"
    show(about, lambda: print_table(title, ["what", "value"], rows), as_json=as_json)


def _by_name(option: str, given: list[str], of: str, name: str) -> dict[str, str]:
    """Name → file, of FILE (its name is "") and NAME=FILE."""
    parts = [("", "", each) if Path(each).exists() else each.rpartition("=") for each in given]
    files = {label: file for label, _, file in parts}
    if len(files) < len(parts):
        raise InputError(f"{option}: two files have the same {of}; name each as {name}=FILE")
    return files


@app.command(rich_help_panel=USE)
def recommend(
    run: Annotated[Path, Argument(help="Run directory of a recommender or a sequence model")],
    k: Annotated[int, Option("--k", help="Items for each user", min=1)] = 20,
    exclude_seen: Annotated[str, Option(help="Leave out what a user has met: always, never, auto")] = "auto",
    history: Annotated[str, Option(help="File of interactions: for the people in it, new ones too")] = "",
    output: Annotated[Path | None, Option("--output", "-o", help="With --history: the file to write")] = None,
    format_: Annotated[str, Option("--format", help="Format of the history; default: by the content")] = "",
    read: Annotated[list[str] | None, Option(help="Setting of the format, such as columns.user=customer")] = None,
    checkpoint: Checkpoint = "",
    as_json: Json = False,
) -> None:
    """Write the best items of every user, with names and scores, to recommendations.parquet in the run directory.

    With --history, for the users in that file, even if they are not in the training data. The file is then
    recommendations_of_history.parquet.
    """
    from graphmill.ingest.public_readers import read_interactions
    from graphmill.usage.recommendations import recommend_history, recommend_run

    if not history and (output or format_ or read):
        raise InputError("--output, --format and --read go with --history")
    met = read_interactions(history, format_, **overrides(read or [])) if history else None
    for note in met.notes if met else ():
        print(f"note: {note}", file=sys.stderr)

    restored = restored_run(run, checkpoint)
    written = (
        recommend_run(restored, k, exclude_seen)
        if met is None
        else recommend_history(restored, met, history, k, exclude_seen, output)
    )
    recommendations = {**restored.used, **written}
    rows = [[name, str(value)] for name, value in recommendations.items()]
    title = f"Recommendations of {run}"
    show(recommendations, lambda: print_table(title, ["what", "value"], rows), as_json=as_json)


@app.command(rich_help_panel=USE)
def links(
    run: Annotated[Path, Argument(help="Run directory of a system of links, or an export that can score")],
    relation: Annotated[list[str] | None, Option(help="Relation; again for more; default all")] = None,
    head: Annotated[list[str] | None, Option(help="Head by id or name; again for more; default all")] = None,
    heads_file: Annotated[str, Option(help="A text file with a head a line")] = "",
    head_type: Annotated[str, Option("--type", help="Node type of the heads, where types share ids")] = "",
    k: Annotated[int, Option("--k", "-k", help="Tails for each head and relation")] = 10,
    known: Annotated[str, Option(help="Links of the graph: exclude, exclude_train, flag")] = "exclude",
    question: Question = "",
    judgements: Judgements = "",
    judged: Annotated[str, Option(help="mark judged links in a column, or leave_out")] = "mark",
    set_: Annotated[list[str] | None, Option("--set", help="Another setting, such as base_rate=0.01")] = None,
    edges: Annotated[str, Option(help="File of later edges, to score with them, untrained")] = "",
    format_: Annotated[str, Option("--format", help="Format of --edges; default: by the content")] = "",
    read: Annotated[list[str] | None, Option(help="Setting of the format, such as columns.head_id=from")] = None,
    estimate: Annotated[bool, Option("--estimate", help="Only tell time and memory; predict nothing")] = False,
    as_json: Json = False,
) -> None:
    """Predict the best tails of heads, with probabilities and supporting paths. Without --head, of all heads, in
    RUN/links (with --edges: RUN/links_with_later_edges)."""
    from graphmill.predictions.settings import LinkSettings
    from graphmill.runs.messages import Terminal
    from graphmill.settings import parse
    from graphmill.usage.embed import grown_link_model
    from graphmill.usage.links import (
        FOLDER,
        LATER_FOLDER,
        Predictor,
        estimate_links,
        link_model,
        scoring_bytes,
        write_links,
    )

    values = {"relations": relation or [], "heads": head or [], "heads_file": heads_file, "head_type": head_type}
    values |= {"question": question, "judgements": judgements, "judged": judged}
    settings = parse(LinkSettings, {**values, "k": k, "known": known, **overrides(set_ or [])}, "links")
    heads = settings.selection().heads
    say_when_compiling()
    needed = scoring_bytes(run) if estimate or not heads else 0
    model = grown_link_model(run, edges, format_, overrides(read or [])) if edges else link_model(run)
    predictions: dict[str, Any]
    if estimate:
        predictions = estimate_links(model, settings, needed)
    elif heads:
        predictor = Predictor(model, settings)
        parts = list(predictor.predict())
        rows = [row for each in parts for chunk in each.rows.chunks() for row in chunk.to_pylist()]
        predictions = {**model.about, **predictor.notes, "links": rows, "calibration": [each.about for each in parts]}
    else:
        predictions = write_links(model, settings, outlets=[Terminal()])
    for note in predictions.get("notes", ()):
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print_json(predictions)
        return
    show_coverage(predictions.get("coverage", ()))
    if estimate:
        rows = [[each["relation"], f"{each['heads']:,}", number(each["seconds"])] for each in predictions["relations"]]
        print_table("What the links take", ["relation", "heads", "seconds"], rows)
        memory = format_size(predictions["peak_bytes"])
        print(f"in all {number(predictions['seconds'])} s of scoring, and {memory} of memory")
    elif heads:
        show_links(predictions["links"])
    else:
        show_link_report(str(run / (LATER_FOLDER if edges else FOLDER)), predictions)


@app.command(rich_help_panel=USE)
def neighbors(
    run: Annotated[Path, Argument(help="Run directory")],
    node: Annotated[str, Argument(help="Node id")],
    k: Annotated[int, Option("--k", "-k", help="How many", min=1)] = 10,
    node_type: Annotated[str, Option("--type", help="Node type, where ids of several types collide")] = "",
    as_json: Json = False,
) -> None:
    """Show the nearest nodes by cosine."""
    from graphmill.api import Run

    neighbours = Run(run).neighbors(node, k, node_type)
    if as_json:
        print_json(neighbours.to_dict(orient="records"))
        return
    rows = [[str(r.node_id), str(r.node_name), str(r.node_type), number(r.cosine)] for r in neighbours.itertuples()]
    print_table(f"Neighbours of {node}", ["id", "name", "type", "cosine"], rows)


@app.command(rich_help_panel=USE)
def tracin(
    run: Annotated[Path, Argument(help="Run directory of a system on triples (conve)")],
    settings: Annotated[str, Option(help="YAML file with influence settings, such as top_k: 20")] = "",
    set_: Annotated[list[str] | None, Option("--set", help="One of them, such as top_k=20")] = None,
    output: Annotated[str, Option(help="Folder for the JSON file; default inside the run")] = "",
    as_json: Json = False,
) -> None:
    """Find the training triples for and against a prediction by TracIn."""
    from graphmill.influence.settings import InfluenceSettings
    from graphmill.runs.resolve import merge, read_settings
    from graphmill.settings import parse
    from graphmill.usage.explain import trace_influence

    values = merge(read_settings(Path(settings)) if settings else {}, overrides(set_ or []))
    chosen = parse(InfluenceSettings, values, settings or "--set")
    say_when_compiling()
    influences = trace_influence(run, chosen, out=output, note=lambda text: print(f"note: {text}", file=sys.stderr))
    show(influences, Path(output or run / "influence") / f"{chosen.split}.json", as_json=as_json)
