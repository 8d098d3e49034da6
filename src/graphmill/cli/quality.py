"""Commands that judge and describe a finished run: figures, health, two runs side by side, cards, explanations."""

import sys
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from graphmill.cli.data import RepairIds
from graphmill.cli.entry import JUDGE, USE, Checkpoint, Json, Judgements, Question, app
from graphmill.cli.output import (
    number,
    print_json,
    print_table,
    ranking_json,
    restored_run,
    show,
    show_coverage,
    show_ranking,
)
from graphmill.cli.promotion import PROMOTED, Folder
from graphmill.errors import EXIT_CHECK_FAILED, InputError, ResourceError

if TYPE_CHECKING:
    from graphmill.evaluation.health.report import HealthReport

What = Annotated[str, Argument(help="Run directory, or DATASET/MODEL[/VERSION]")]


@app.command(rich_help_panel=JUDGE)
def rank(
    run: Annotated[Path, Argument(help="Run directory")],
    split: Annotated[str, Option(help="valid or test; a question says it itself")] = "",
    checkpoint: Checkpoint = "",
    question: Question = "",
    judgements: Judgements = "",
    judged: Annotated[str, Option(help="mark: judged links are true or no queries; leave_out: neither")] = "mark",
    truth: Annotated[str, Option(help="A table like --judgements: how well the ranking agrees with it")] = "",
    labels: Annotated[str, Option(help="Table of node ids and labels, by which figures are shown")] = "",
    as_json: Json = False,
) -> None:
    """Compare a run's ranking with all its baselines, in whole and by part; ComplEx and MF are trained for it."""
    from graphmill.predictions.settings import RankSettings
    from graphmill.reports.verdict import run_verdict
    from graphmill.runs.messages import Terminal
    from graphmill.settings import parse
    from graphmill.usage.ranking import rank_any

    if split not in ("", "valid", "test"):
        raise InputError(f"--split {split}: valid or test")
    if split and question:
        raise InputError(f"--split {split}: {question} says which split it is about")
    values = {"question": question, "judgements": judgements, "judged": judged, "truth": truth}
    settings = parse(RankSettings, {**values, "labels": {"file": labels}}, "rank")
    with closing(Terminal()) as terminal:
        ranking = rank_any(restored_run(run, checkpoint), split or "test", settings, outlets=[terminal])
    if as_json:
        print_json(ranking_json(ranking))
        return
    show_ranking(str(run), ranking)
    if "beside" in ranking:
        print(run_verdict(run).sentence)


@app.command(rich_help_panel=JUDGE)
def validate(
    embeddings: Annotated[Path, Argument(help="embeddings.parquet or .npy, or a run directory")],
    graph: Annotated[str, Option(help="The typed graph, for link ranking by cosine")] = "",
    as_json: Json = False,
) -> None:
    """Check the health of an embedding: figures and verdicts. Exit code 1 if it fails.

    A run directory keeps the report, and its card shows it.
    """
    from graphmill.graph.typed_graph import TypedGraph
    from graphmill.reports.validation import validate_file

    report = validate_file(embeddings, TypedGraph.open(graph) if graph else None)
    if (embeddings / "report.json").is_file():
        _keep_health(embeddings, report)
    show(report.to_dict(), lambda: _show_health(f"Health of {embeddings}", report), as_json=as_json)
    if report.status == "fail":
        raise typer.Exit(EXIT_CHECK_FAILED)


def _show_health(title: str, report: "HealthReport") -> None:
    rows = [
        [v.name, number(v.value), number(v.threshold), v.status, f"{v.meaning} {v.remedy}".strip()]
        for v in report.verdicts
    ]
    print_table(title, ["figure", "value", "bound", "verdict", "meaning"], rows)
    outside = [v.name.replace("_", " ") for v in report.verdicts if v.status != "pass"]
    print(f"out of bounds: {', '.join(outside) or 'nothing'}")


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
    run: Annotated[Path, Argument(help="Run directory, or a folder of exported embeddings")],
    labels: Annotated[str, Option(help="Table with an id and a label on each row")],
    node_type: Annotated[str, Option("--type", help="Node type; default: the type that has the ids")] = "",
    column: Annotated[str, Option(help="Column with the label; default: the only one besides the id")] = "",
    aliases: Annotated[str, Option(help="Table with old_id and id: ids of the labels to replace")] = "",
    repair_ids: RepairIds = None,
    id_: Annotated[str, Option("--id", help="Column with the id; default: id, node_id or the first")] = "",
    kind: Annotated[str, Option(help="class, classes (several, between |), number, auto")] = "auto",
    as_json: Json = False,
) -> None:
    """Predict labels of nodes from the vectors by a linear model, beside degree, spectral vectors and features.

    It is cross-validated, with 95 % intervals. A run directory keeps the result, and its card shows it.
    """
    from graphmill.evaluation.probe import LabelSettings
    from graphmill.reports.card import write_card
    from graphmill.settings import parse
    from graphmill.usage.probe import probe_run

    given = {"file": labels, "node_type": node_type, "column": column, "id": id_, "aliases": aliases,
             "repair_ids": repair_ids or [], "kind": kind}  # fmt: skip
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
    show_coverage(probed["coverage"])
    for note in probed["notes"]:
        print(f"note: {note}")
    print(f"{probed['sentence']}.")


@app.command(rich_help_panel=JUDGE)
def compare(
    run_a: Annotated[Path, Argument(help="Run directory A")],
    run_b: Annotated[Path, Argument(help="Run directory B")],
    as_json: Json = False,
) -> None:
    """Compare two runs: settings that differ, metrics, time and memory."""
    from graphmill.usage.compare import compare_runs, figure_rows, setting_rows

    comparison = compare_runs(run_a, run_b)
    if as_json:
        print_json(comparison)
        return
    print_table("Settings that differ", ["setting", "A", "B"], setting_rows(comparison))
    print_table("Figures", ["figure", "A", "B", "B / A"], figure_rows(comparison))


@app.command(rich_help_panel=JUDGE)
def card(what: What, folder: Folder = PROMOTED, as_json: Json = False) -> None:
    """Print the card of a run or version: data, figures beside baselines, health, limits, how it was made."""
    from graphmill.promotion.versions import folder_of
    from graphmill.reports.card import CARD, card_sections, card_text
    from graphmill.reports.card_files import read_card_files
    from graphmill.verified_files import verified_file

    path = folder_of(what, folder)
    files = read_card_files(path)
    if as_json:
        print_json([asdict(section) for section in card_sections(files)])
        return
    # A version keeps its card from promotion; a run's card is made from its current files.
    kept = CARD in files.version.get("files", ())
    text = verified_file(files.folder, CARD).read_text(encoding="utf-8", errors="replace") if kept else card_text(files)
    print(text, end="")


@app.command(rich_help_panel=JUDGE)
def report(
    what: What,
    out: Annotated[Path | None, Option(help="The file to write; default report.html in the folder")] = None,
    folder: Folder = PROMOTED,
    as_json: Json = False,
) -> None:
    """Write one page about a run: an HTML file that includes its pictures. A version has the page of its promotion."""
    from graphmill.promotion.versions import folder_of
    from graphmill.reports.report_html import write_report

    written = write_report(folder_of(what, folder), out or "")
    show({"report": str(written)}, written, as_json=as_json)


@app.command("open", rich_help_panel=JUDGE)
def open_(
    what: What,
    folder: Folder = PROMOTED,
    show_: Annotated[
        bool, Option("--show/--no-show", help="Open it in the browser, besides printing the address")
    ] = True,
) -> None:
    """Open the page of a run or version: in the explorer if it is served, else as the file that `report` writes."""
    import webbrowser

    from graphmill.promotion.versions import folder_of
    from graphmill.reports.report_html import write_report
    from graphmill.serving.addresses import served_page

    path = folder_of(what, folder)
    address = served_page(path) or write_report(path).resolve().as_uri()
    print(address)
    if show_:
        webbrowser.open(address)


@app.command(rich_help_panel=USE)
def explain(
    run: Annotated[Path, Argument(help="Run directory of blend, hgt, nbfnet or conve")],
    relation: Annotated[str, Option(help="Its name, or source|name|target")],
    head: Annotated[str, Option(help="Id or name of the node that the link leaves")],
    tail: Annotated[str, Option(help="Id or name of the node that it leads to")],
    k: Annotated[int, Option("--k", "-k", help="Edges to list", min=1)] = 10,
    paths: Annotated[int, Option(help="Paths to list", min=0)] = 5,
    neighbors: Annotated[int, Option(help="Neighbours of a node and relation to look at, at most", min=1)] = 64,
    max_edges: Annotated[int, Option(help="Edges to trace the layers' part in, at most", min=1)] = 20_000,
    verify: Annotated[bool, Option("--verify", help="Score it without the listed edges, too")] = False,
    checkpoint: Checkpoint = "",
    as_json: Json = False,
) -> None:
    """Explain a predicted link by the edges and paths that led to its score; for conve by training triples (TracIn)."""
    from graphmill.explain.explanation import ExplainSettings
    from graphmill.usage.explain import explain_link

    requested = ExplainSettings(edges=k, paths=paths, neighbors=neighbors, max_edges=max_edges)
    result = explain_link(restored_run(run, checkpoint), head, relation, tail, requested, verify=verify)
    if as_json:
        print_json(result.to_dict())
        return
    title = f"{result.head} –{result.relation}– {result.tail}: score {number(result.score)}"
    known = [name for name in ("weight", "confidence", "time", "evidence") if any(name in e for e in result.edges)]
    rows = [
        [e["head"], e["relation"], e["tail"], f"{e['share']:+.4f}", *(number(e.get(name)) for name in known)]
        for e in result.edges
    ]
    print_table(f"{title}; {result.method}", ["from", "relation", "to", "share", *known], rows)
    if result.paths:
        rows = [[path["path"].rpartition(" (")[0], number(path["strength"])] for path in result.paths]
        print_table("Paths, the strongest first", ["path", "strength"], rows)
    if result.parts:
        print_table("The score is the sum of", ["part", "score"], [[n, number(v)] for n, v in result.parts.items()])
    if not result.whole:
        print("The neighbourhood is larger than what was looked at; --max-edges and --neighbors look at more.")
    if result.deletion:
        listed, others = result.deletion["without_the_listed_edges"], result.deletion["without_as_many_others"]
        print(
            f"Without the {result.deletion['edges']} edges that speak for it its score is {number(listed)}; without as many "
            f"others around the two nodes {number(others)}."
        )
