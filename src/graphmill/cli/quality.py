"""Commands that say how good a finished run is: rankings, health, what vectors know, two runs side by side."""

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from graphmill.cli.data import RepairIds
from graphmill.cli.entry import JUDGE, Checkpoint, Json, Judgements, Question, app
from graphmill.cli.output import (
    number,
    on_its_device,
    print_json,
    print_table,
    ranking_json,
    restored_run,
    show,
    show_coverage,
    show_ranking,
)
from graphmill.errors import EXIT_CHECK_FAILED, InputError, ResourceError

if TYPE_CHECKING:
    from graphmill.evaluation.health.report import HealthReport


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
        ranking = on_its_device(
            lambda: rank_any(restored_run(run, checkpoint), split or "test", settings, outlets=[terminal])
        )
    if as_json:
        print_json(ranking_json(ranking))
        return
    show_ranking(str(run), ranking)
    if "beside" in ranking:
        print(run_verdict(run).sentence)


@app.command(rich_help_panel=JUDGE)
def validate(
    embeddings: Annotated[Path, Argument(help="embeddings.parquet, .csv or .npy, or a run directory")],
    graph: Annotated[str, Option(help="The typed graph, for link ranking by cosine")] = "",
    as_json: Json = False,
) -> None:
    """Check the health of an embedding: figures, verdicts, and the failure's name. Exit code 1 if it fails.

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
    print(f"failure: {report.failure}: {report.detail}" if report.failure else "no named failure")
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
