"""Commands for finished runs and embeddings: metrics, rankings, recommendations, links, neighbours, influence."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.atomic_files import write_atomically, writing
from graphmill.cli.entry import JUDGE, USE, Json, app, overrides
from graphmill.cli.output import (
    number,
    on_its_device,
    print_json,
    print_table,
    ranking_json,
    restored_run,
    say_when_compiling,
    show_link_report,
    show_links,
    show_ranking,
)
from graphmill.errors import EXIT_CHECK_FAILED, InputError, ResourceError

if TYPE_CHECKING:
    from graphmill.evaluation.health.report import HealthReport

Question = Annotated[str, typer.Option(help="YAML file: relations, heads, candidates, split, metric")]
Judgements = Annotated[str, typer.Option(help="Table of judged links: head, relation, tail, judgement (yes or no)")]


@app.command(rich_help_panel=JUDGE)
def rank(
    run: Annotated[Path, typer.Argument(help="Run directory")],
    split: Annotated[str, typer.Option(help="valid or test; a question says it itself")] = "",
    checkpoint: Annotated[str, typer.Option(help="best, last, final, or an epoch number")] = "",
    question: Question = "",
    judgements: Judgements = "",
    judged: Annotated[str, typer.Option(help="mark: judged links are true or no queries; leave_out: neither")] = "mark",
    truth: Annotated[str, typer.Option(help="A table like --judgements: how well the ranking agrees with it")] = "",
    labels: Annotated[str, typer.Option(help="Table of node ids and labels, by which figures are shown")] = "",
    as_json: Json = False,
) -> None:
    """Compare a run's ranking with all its baselines, in whole and by part; ComplEx and MF are trained for it."""
    from graphmill.predictions.settings import RankSettings
    from graphmill.runs.messages import Terminal
    from graphmill.settings import parse
    from graphmill.usage.ranking import rank_any

    if split not in ("", "valid", "test"):
        raise InputError(f"--split {split}: valid or test")
    if split and question:
        raise InputError(f"--split {split}: {question} says which split it is about")
    values = {
        "question": question,
        "judgements": judgements,
        "judged": judged,
        "truth": truth,
        "labels": {"file": labels},
    }
    asked = parse(RankSettings, values, "rank")
    with closing(Terminal()) as shown:
        ranking = on_its_device(
            lambda: rank_any(restored_run(run, checkpoint), split or "test", asked, outlets=[shown])
        )
    if as_json:
        print_json(ranking_json(ranking))
        return
    show_ranking(str(run), ranking)
    if ranking.get("advice"):
        print(ranking["advice"])


@app.command(rich_help_panel=USE)
def embed(
    run: Annotated[Path, typer.Argument(help="Run directory (blend, HGT, spectral, KGAT, MMGCN, DRAGON)")],
    edges: Annotated[
        str, typer.Option(help="File of edges between new nodes and known ones; with header, or triples")
    ] = "",
    features: Annotated[
        list[str] | None,
        typer.Option(
            help="File of new nodes' features, or NAME=FILE where the graph has several sets; once for each set"
        ),
    ] = None,
    attributes: Annotated[
        list[str] | None, typer.Option(help="Table that describes new nodes, as at the build; or TYPE=FILE")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Folder; default inside the run")] = None,
    format_: Annotated[str, typer.Option("--format", help="Format of the edges; default: by the content")] = "",
    read: Annotated[list[str] | None, typer.Option(help="Setting of the format, such as columns.head_id=from")] = None,
    as_json: Json = False,
) -> None:
    """Compute vectors for nodes that joined after training, and write an export with them.

    Spectral needs --edges. blend and HGT need --edges, or the --features or --attributes that they were trained with. KGAT
    needs facts as --edges. MMGCN and DRAGON need --features or --attributes of items.
    """
    from graphmill.usage.embed import NEW, embed_run
    from graphmill.usage.joining_nodes import read_joining

    files = _by_name("--features", features or [], "feature set", "NAME")
    described = _by_name("--attributes", attributes or [], "node type", "TYPE")

    def embedded() -> tuple[dict[str, Any], str]:
        restored = restored_run(run, "")
        tables, told, source = read_joining(restored.graph, edges, files, format_, overrides(read or []), described)
        notes = [*told.notes, *(tables.notes if tables else [])]
        if tables and len(tables.rejects):
            line, why = tables.rejects["line"][0], tables.rejects["reason"][0]
            notes.append(f"{len(tables.rejects)} rows not used; first: line {line}, {why}")
        for note in notes:
            print(f"note: {note}", file=sys.stderr)
        return embed_run(restored, tables, source, output, told), source

    exported, source = on_its_device(embedded)
    folder = output or run / "embeddings_later"
    about = {
        "folder": str(folder),
        "new_nodes": exported["joined"]["nodes"],
        "nodes": exported["rows"],
        "dim": exported["dim"],
    }
    if as_json:
        print_json(about)
        return
    rows = [["folder", str(folder)], ["new nodes alone", str(folder / NEW)], ["nodes", f"{exported['rows']:,}"]]
    rows += [[f"new of type {kind}", f"{count:,}"] for kind, count in about["new_nodes"].items()]
    print_table(f"Nodes of {source} in the space of {run}", ["what", "value"], rows)


def _by_name(option: str, given: list[str], of: str, name: str) -> dict[str, str]:
    """Name → file, of FILE (its name is "") and NAME=FILE."""
    parts = [("", "", each) if Path(each).exists() else each.rpartition("=") for each in given]
    files = {label: file for label, _, file in parts}
    if len(files) < len(parts):
        raise InputError(f"{option}: two files have the same {of}; name each as {name}=FILE")
    return files


@app.command(rich_help_panel=USE)
def recommend(
    run: Annotated[Path, typer.Argument(help="Run directory of a recommender or a sequence model")],
    k: Annotated[int, typer.Option("--k", help="Items for each user", min=1)] = 20,
    exclude_seen: Annotated[
        str, typer.Option(help="Leave out what a user has met: always, never, auto (unless people take the same again)")
    ] = "auto",
    history: Annotated[str, typer.Option(help="File of interactions: for the people in it, new ones too")] = "",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="With --history: the file to write")] = None,
    format_: Annotated[str, typer.Option("--format", help="Format of the history; default: by the content")] = "",
    read: Annotated[list[str] | None, typer.Option(help="Setting of the format, such as columns.user=customer")] = None,
    checkpoint: Annotated[str, typer.Option(help="best, last, final, or an epoch number")] = "",
    as_json: Json = False,
) -> None:
    """Write the best items of every user, with names and scores, to recommendations.parquet in the run directory.

    With --history, for the users in that file, even if they are not in the training data. The file is then
    recommendations_of_history.parquet.
    """
    from graphmill.ingest.public_readers import read_interactions
    from graphmill.usage.fold_in import recommend_history
    from graphmill.usage.recommendations import recommend_run

    if not history and (output or format_ or read):
        raise InputError("--output, --format and --read go with --history")
    met = read_interactions(history, format_, **overrides(read or [])) if history else None
    for note in met.notes if met else ():
        print(f"note: {note}", file=sys.stderr)

    def recommended() -> dict[str, Any]:
        restored = restored_run(run, checkpoint)
        if met is None:
            return {**restored.used, **recommend_run(restored, k, exclude_seen)}
        return {**restored.used, **recommend_history(restored, met, history, k, exclude_seen, output)}

    recommendations = on_its_device(recommended)
    if as_json:
        print_json(recommendations)
    else:
        print_table(
            f"Recommendations of {run}",
            ["what", "value"],
            [[name, str(value)] for name, value in recommendations.items()],
        )


@app.command(rich_help_panel=USE)
def links(
    run: Annotated[Path, typer.Argument(help="Run directory of a system of links, or an export that can score")],
    relation: Annotated[
        list[str] | None, typer.Option(help="Relation by name, or source|name|target; repeatable; default all")
    ] = None,
    head: Annotated[list[str] | None, typer.Option(help="Head by id or name; repeatable; default all")] = None,
    heads_file: Annotated[str, typer.Option(help="A text file with a head a line")] = "",
    head_type: Annotated[str, typer.Option("--type", help="Node type of the heads, where types share ids")] = "",
    k: Annotated[int, typer.Option("--k", "-k", help="Tails for each head and relation")] = 10,
    known: Annotated[
        str, typer.Option(help="Links that the graph has: exclude, exclude_train (of training alone), flag")
    ] = "exclude",
    question: Question = "",
    judgements: Judgements = "",
    judged: Annotated[str, typer.Option(help="mark judged links in a column, or leave_out")] = "mark",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Another setting, such as base_rate=0.01")] = None,
    edges: Annotated[
        str, typer.Option(help="File of later edges, new nodes too; links are scored with them, untrained")
    ] = "",
    format_: Annotated[str, typer.Option("--format", help="Format of --edges; default: by the content")] = "",
    read: Annotated[list[str] | None, typer.Option(help="Setting of the format, such as columns.head_id=from")] = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Only tell time and memory; predict nothing")] = False,
    as_json: Json = False,
) -> None:
    """Predict the best tails of heads, with probabilities and supporting paths. Without --head, of all heads, in
    RUN/links."""
    from graphmill.predictions.settings import LinkSettings
    from graphmill.runs.messages import Terminal
    from graphmill.settings import parse
    from graphmill.usage.grown_graph import grown_link_model
    from graphmill.usage.links import FOLDER, Predictor, link_model, write_links
    from graphmill.usage.links_estimate import estimate_links, scoring_bytes

    values = {"relations": relation or [], "heads": head or [], "heads_file": heads_file, "head_type": head_type}
    values |= {"question": question, "judgements": judgements, "judged": judged}
    asked = parse(LinkSettings, {**values, "k": k, "known": known, **overrides(set_ or [])}, "links")
    heads = asked.selection().heads
    say_when_compiling()

    def predicted() -> dict[str, Any]:
        model = grown_link_model(run, edges, format_, overrides(read or [])) if edges else link_model(run)
        if estimate:
            return estimate_links(model, asked, scoring_bytes(run)).to_json()
        if not heads:
            return write_links(model, asked, outlets=[Terminal()])
        predictor = Predictor(model, asked)
        parts = list(predictor.predict())
        rows = [row for each in parts for chunk in each.rows.chunks() for row in chunk.to_pylist()]
        return {**model.about, **predictor.notes, "links": rows, "calibration": [each.about() for each in parts]}

    found: dict[str, Any] = on_its_device(predicted)
    for note in found.get("notes", ()):
        print(f"note: {note}", file=sys.stderr)
    if as_json:
        print_json(found)
    elif estimate:
        rows = [[each["relation"], f"{each['heads']:,}", number(each["seconds"])] for each in found["relations"]]
        print_table("What the links take", ["relation", "heads", "seconds"], rows)
        print(f"in all {number(found['seconds'])} s, and {found['peak_bytes'] / 2**30:.2f} GiB of memory")
    elif heads:
        show_links(found["links"])
    else:
        show_link_report(str(run / FOLDER), found)


@app.command(rich_help_panel=JUDGE)
def validate(
    embeddings: Annotated[Path, typer.Argument(help="embeddings.parquet, .csv or .npy, or a run directory")],
    graph: Annotated[str, typer.Option(help="The typed graph, for link ranking by cosine")] = "",
    as_json: Json = False,
) -> None:
    """Check the health of an embedding: figures, verdicts, and the failure's name. Exit code 1 if it fails.

    A run directory keeps the report, and its card shows it.
    """
    from graphmill.reports.validation import validate_file

    report = validate_file(embeddings, graph)
    if (embeddings / "report.json").is_file():
        _keep_health(embeddings, report)
    if as_json:
        print_json(report.to_dict())
    else:
        rows = [
            [v.name, number(v.value), number(v.threshold), v.status, f"{v.meaning} {v.remedy}".strip()]
            for v in report.verdicts
        ]
        print_table(f"Health of {embeddings}", ["figure", "value", "bound", "verdict", "meaning"], rows)
        print(f"failure: {report.failure}: {report.detail}" if report.failure else "no named failure")
        outside = [v.name.replace("_", " ") for v in report.verdicts if v.status != "pass"]
        print(f"out of bounds: {', '.join(outside) or 'nothing'}")
    if report.status == "fail":
        raise typer.Exit(EXIT_CHECK_FAILED)


def _keep_health(run: Path, report: "HealthReport") -> None:
    """Writes the report into the run, unless the run already has one for these vectors, which may use a project's own
    bounds."""
    from graphmill.reports.card import write_card
    from graphmill.reports.card_files import read_card_files
    from graphmill.reports.validation import write_health

    files = read_card_files(run)
    if files.health and files.health_is_of_export:
        return
    try:
        write_health(run, report)
        write_card(run)
    except ResourceError as error:  # a run without write permission: the verdict does not need the file
        print(f"note: {error}", file=sys.stderr)


@app.command(rich_help_panel=JUDGE)
def probe(
    run: Annotated[Path, typer.Argument(help="Run directory, or a folder of exported embeddings")],
    labels: Annotated[str, typer.Option(help="Table with an id and a label on each row")],
    node_type: Annotated[str, typer.Option("--type", help="Node type; default: the type that has the ids")] = "",
    column: Annotated[str, typer.Option(help="Column with the label; default: the only one besides the id")] = "",
    aliases: Annotated[
        str, typer.Option(help="Table with the columns old_id and id: ids of the labels to replace")
    ] = "",
    id_: Annotated[str, typer.Option("--id", help="Column with the id; default: id, node_id or the first")] = "",
    kind: Annotated[
        str, typer.Option(help="class, classes (several, between |), number; auto: by the values")
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Predict labels of nodes from the vectors by a linear model, beside degree, spectral vectors and features.

    It is cross-validated, with 95 % intervals. A run directory keeps the result, and its card shows it.
    """
    from graphmill.evaluation.probe import LabelSettings
    from graphmill.reports.card import write_card
    from graphmill.settings import parse
    from graphmill.usage.probe import probe_run

    given = {"file": labels, "node_type": node_type, "column": column, "id": id_, "aliases": aliases, "kind": kind}
    probed = probe_run(run, parse(LabelSettings, given, "--labels"))
    if (run / "report.json").is_file():
        write_card(run)
    if as_json:
        print_json(probed)
        return
    rows = [
        [who, number(each["value"]), *(f"{part['low']:+.3f} to {part['high']:+.3f}" if part else "" for part in parts)]
        for who, each in probed["scores"].items()
        for parts in [(each, probed["over"].get(who))]
    ]
    head = [f"{probed['metric']} from", "value", "95 % interval", "vectors minus it"]
    print_table(f"{probed['label']} of {probed['nodes']:,} nodes of type {probed['node_type']}", head, rows)
    for note in probed["notes"]:
        print(f"note: {note}")
    print(f"{probed['sentence']}.")


@app.command(rich_help_panel=USE)
def neighbors(
    run: Annotated[Path, typer.Argument(help="Run directory")],
    node: Annotated[str, typer.Argument(help="Node id")],
    k: Annotated[int, typer.Option("--k", "-k", help="How many", min=1)] = 10,
    node_type: Annotated[str, typer.Option("--type", help="Node type, where ids of several types collide")] = "",
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
    run: Annotated[Path, typer.Argument(help="Run directory of a system on triples (conve)")],
    settings: Annotated[str, typer.Option(help="YAML file with influence settings, such as mode: self")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="One of them, such as mode=self")] = None,
    output: Annotated[str, typer.Option(help="Folder for the JSON and CSV; default inside the run")] = "",
    as_json: Json = False,
) -> None:
    """Find the training triples for and against a prediction by TracIn. The same command resumes after a stop."""
    from graphmill.influence.settings import InfluenceSettings
    from graphmill.runs.resolve import merge, read_settings
    from graphmill.settings import parse
    from graphmill.usage.influence import trace_influence

    values = merge(read_settings(Path(settings)) if settings else {}, overrides(set_ or []))
    chosen = parse(InfluenceSettings, values, settings or "--set")
    say_when_compiling()
    influences = on_its_device(
        lambda: trace_influence(run, chosen, out=output, note=lambda text: print(f"note: {text}", file=sys.stderr))
    )
    if as_json:
        print_json(influences)
    else:
        print(Path(output or run / "influence") / f"{chosen.mode}.csv")


@app.command(rich_help_panel=JUDGE)
def compare(
    run_a: Annotated[Path, typer.Argument(help="Run directory A")],
    run_b: Annotated[Path, typer.Argument(help="Run directory B")],
    picture: Annotated[Path | None, typer.Option(help="Write the loss curves of both as PNG here")] = None,
    as_json: Json = False,
) -> None:
    """Compare two runs: settings that differ, metrics, time, memory, and loss curves."""
    from graphmill.usage.compare import compare_picture, compare_runs

    comparison = compare_runs(run_a, run_b)
    if picture is not None:
        with writing(picture):
            write_atomically(picture, compare_picture(run_a, run_b))
    if as_json:
        print_json(comparison.to_dict())
        return
    print_table("Settings that differ", ["setting", "A", "B"], comparison.setting_rows())
    print_table("Figures", ["figure", "A", "B", "B / A"], comparison.figure_rows())
