"""The output of the command line: tables for people, JSON for programs."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmill.runs.export import Restored


def restored_run(run: Path, checkpoint: str) -> "Restored":
    """The run's model at its best epoch, or at ``checkpoint``; unusable checkpoints are named on stderr."""
    from graphmill.runs.export import restore

    say_when_compiling()
    restored = restore(run, int(checkpoint) if checkpoint.isdigit() else checkpoint)
    for note in restored.notes:
        print(f"note: {note}", file=sys.stderr)
    return restored


def say_when_compiling() -> None:
    """Until the command ends, prints a line on stderr before CPU kernels are compiled for the first time on this machine."""
    import click

    from graphmill.runs.messages import say_compiling

    command = click.get_current_context(silent=True)
    if command is not None:
        command.with_resource(say_compiling(lambda text: print(f"note: {text}", file=sys.stderr)))


def show_result(result: dict[str, Any]) -> None:
    """Prints a training's result as a table."""
    on_test = result.get("selected_on") == "test"
    from graphmill.training.memory import device_memory_row

    memory = device_memory_row(result)
    # The best epoch's checkpoint may have been damaged or missing.
    other_epoch = result["best_metric"] is not None and result["exported_epoch"] != result["best_epoch"]
    rows = [
        ["run", result["run_dir"] + (" (reused)" if result["reused"] else "")],
        ["epochs, steps", f"{result['epochs_done']}, {result['steps_done']} ({result['reason']})"],
        ["best epoch", str(result["best_epoch"]) + (" (chosen on test: optimistic)" if on_test else "")],
        *([["figures and vectors", f"of epoch {result['exported_epoch']}"]] if other_epoch else []),
        ["time", f"{result['seconds']:.1f} s, {result['seconds_per_step']:.3f} s a step"],
        ["peak memory", f"{result['peak_memory_bytes'] / 2**30:.2f} GiB"],
        *([memory] if memory else []),
        *[[name, number(value)] for name, value in result["metrics"].items()],
        ["exported", ", ".join(result.get("exported", []))],
    ]
    print_table("Training", ["what", "value"], rows)


def ranking_json(ranking: dict[str, Any]) -> dict[str, Any]:
    """The output of ``rank --json``: ``figures`` by scorer, and for links ``macro``, ``micro``, ``against`` (the best
    baseline, with intervals), ``parts``, ``predicted``, and where it was asked ``question``, ``answer``,
    ``truth``, ``judgements``, ``labels`` and ``coverage`` (how the ids of lists and labels match the graph's).
    """
    about = {name: ranking[name] for name in ("epoch", "best_epoch", "notes", "split") if ranking.get(name)}
    rest = ["macro", "micro", "against", "parts", "predicted"]
    rest += ["question", "answer", "truth", "judgements", "labels", "coverage"]
    return about | {"figures": _figures(ranking)} | {name: ranking[name] for name in rest if name in ranking}


def show_ranking(run: str, ranking: dict[str, Any]) -> None:
    """Prints a ranking as tables: metrics by scorer, parts of the queries, and a sentence on the best baseline."""
    from graphmill.reports.ranking_tables import answer_sentence, ranking_tables
    from graphmill.reports.verdict import comparison_sentence

    figures = _figures(ranking)
    names = list(next(iter(figures.values())))
    rows = {who: [who.replace("_", " "), *(number(values.get(m)) for m in names)] for who, values in figures.items()}
    head = ["scorer", *names]
    if "against" in ranking:
        other = "micro" if ranking["against"]["average"] == "macro" else "macro"
        more = [m for m in names if m in ranking[other]["model"]]
        head += [f"{other} {m}" for m in more]
        for who, row in rows.items():
            row += [number(ranking[other][who].get(m)) for m in more]
    print_table(f"{run} at epoch {ranking['epoch']}, {ranking['split']}", head, list(rows.values()))
    for each in ranking_tables(ranking):
        print_table(each.title, list(each.head), [list(row) for row in each.rows])
    show_coverage(ranking.get("coverage", ()))
    for name in ("truth", "judgements", "labels"):
        for note in ranking.get(name, {}).get("notes", ()):
            print(f"note: {note}", file=sys.stderr)
    if "against" in ranking:
        print(comparison_sentence(ranking["against"]))
    if "answer" in ranking:
        print(answer_sentence(ranking))


def show_coverage(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints the table of how the ids of pairs of sources match; nothing without a pair."""
    from graphmill.ingest.format import coverage_text

    if rows:
        print(coverage_text(rows))


def show_links(rows: list[dict[str, Any]]) -> None:
    """Prints predicted links as one table per head and relation, with the best supporting path of each."""
    tables: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in rows:
        tables.setdefault((row["head_name"], row["relation"], row["tail_type"]), []).append(row)
    judged = bool(rows) and "judged" in rows[0]
    columns = ["rank", "id", "name", "score", "probability", "median rank", "known", *["judged"] * judged, "best path"]
    for (head, relation, kind), links in tables.items():
        cells = [
            [
                str(row["rank"]),
                row["tail_id"],
                row["tail_name"],
                number(row["score"]),
                _significant(row["probability"]),
                _significant(row["median_rank"]),
                row["known"],
                *([row["judged"]] if judged else []),
                "not looked for" if row["paths"] is None else row["paths"].split(" ; ")[0],
            ]
            for row in links
        ]
        print_table(f"{head}, {relation}: {kind}", columns, cells)


def show_link_report(folder: str, report: dict[str, Any]) -> None:
    """Prints a table of the written links per relation."""
    rows = []
    for each in report["relations"]:
        at_k, of = each["diversity"][-1], each["calibration"]
        rows.append(
            [
                each["relation"],
                f"{each['heads']:,}",
                f"{each['rows']:,}",
                f"{at_k['distinct_tails']:,} of {each['candidates']:,}",
                f"{at_k['top_tail_share']:.0%}",
                f"{each['supported_rows']:,} of {each['looked_for_paths']:,}",
                of.get("why") or f"error {of['ece_top']:.3f} at base rate {of['base_rate']:.2g}",
            ]
        )
    columns = ["relation", "heads", "links", "distinct tails", "have the most frequent", "with a path", "probabilities"]
    print_table(f"{report['rows']:,} links in {folder}: {', '.join(report['files'])}", columns, rows)


def _significant(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _figures(ranking: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if "beside" in ranking:
        return dict(ranking["beside"])
    average = ranking[ranking["against"]["average"]]
    return {who: average[who] for who in ranking["mrr"]}


def print_table(title: str, columns: list[str], rows: list[list[str]]) -> None:
    """Prints a table on stdout."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*[escape(str(cell)) for cell in row])
    # Wide enough that paths are not wrapped in a file or a pipe.
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def number(value: Any) -> str:
    """A cell: four decimals, or empty for None."""
    return f"{value:.4f}" if isinstance(value, float) else "" if value is None else str(value)


def show(value: Any, text: object, *, as_json: bool) -> None:
    """Prints ``value`` as JSON for programs, or ``text`` for people: a function that prints, or a line."""
    if as_json:
        print_json(value)
    elif callable(text):
        text()
    else:
        print(text)


def print_json(value: Any) -> None:
    """Prints JSON on stdout, for programs."""
    from graphmill.evaluation.json_values import readable

    print(json.dumps(readable(value), indent=2, ensure_ascii=False))
