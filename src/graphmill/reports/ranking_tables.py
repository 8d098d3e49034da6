"""Tables of a ranking besides its main figures: parts of the queries, predicted links, and agreement with judged links.

Card, command line, asset and served page show the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmill.evaluation.markdown import number


@dataclass(frozen=True)
class Table:
    """Column titles, and rows of as many cells. Those of a ranking have a ``name``, which is stable, and a ``title``."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    name: str = ""
    title: str = ""


def ranking_tables(report: Mapping[str, Any]) -> list[Table]:
    """Those of a ``ranking.json`` or ``question.json``; of items only the first."""
    tables = []
    if parts := report.get("parts"):
        figure = next(name for name, value in parts[0].items() if isinstance(value, Mapping))
        scorers = list(parts[0][figure])
        head = ["queries by", "part", "queries", *scorers]
        rows = [
            [row["by"], row["part"], number(row["queries"]), *(number(row[figure][who]) for who in scorers)]
            for row in parts
        ]
        title = "MRR" if figure == "mrr" else f"Share of held-out items among the first {figure.partition('@')[2]},"
        tables.append(Table(head, rows, "by_part", f"{title} by part of the queries"))
    if predicted := report.get("predicted"):
        figures = [name for name in predicted[0] if isinstance(predicted[0][name], Mapping)]
        head = ["relation", "heads", "held-out links", *(name.replace("_", " ") for name in figures), "hub share"]
        rows = [
            [
                row["relation"],
                f"{row['heads']:,} of {row['of_heads']:,}",
                number(row["links"]),
                *(_interval(row[name]) for name in figures),
                number(row["hub_share"]),
            ]
            for row in predicted
        ]
        tables.append(Table(head, rows, "predicted", "Predicted links, over all pairs of these heads and all tails"))
    return [*tables, *(_agreement(name, report[name]) for name in ("truth", "judgements") if name in report)]


def answer_sentence(report: Mapping[str, Any]) -> str:
    """One sentence: the figure that a question names, of the model with its interval and of the other scorers."""
    answer, question = report["answer"], report["question"]
    described = "; ".join(
        f"{name} {', '.join(map(str, value)) if isinstance(value, list) else value}"
        for name, value in question.items()
        if name not in ("metric", "judged")
    )
    others = ", ".join(f"{who} {number(value)}" for who, value in answer["by_scorer"].items() if who != "model")
    return f"For the question ({described}), {answer['metric']} of the model is {_interval(answer)}; {others}."


def _agreement(name: str, agreement: Mapping[str, Any]) -> Table:
    rows = [
        [word, number(agreement[word]["links"]), _interval(agreement[word]["hits"]), _interval(agreement[word]["rank"])]
        for word in ("yes", "no")
    ]
    if agreement["auc"]:
        rows.append(["yes before no (AUC)", "", _interval(agreement["auc"]), ""])
    counts = f"{agreement['rows']:,} rows, {agreement['trained']:,} left out, which training has"
    title = f"Agreement with {agreement['file']}: {counts}"
    return Table(["judged", "links", "among the ten best", "relative rank (0: best)"], rows, name, title)


def _interval(interval: Mapping[str, float] | None) -> str:
    return f"{interval['value']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})" if interval else ""
