"""What a ranking shows besides its main figures: parts of the queries, and the answer to a question.

Card, command line, asset and served page show the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphmill.evaluation.markdown import number


@dataclass(frozen=True)
class RankingTable:
    """``name`` is stable; column titles, and rows of as many cells."""

    name: str
    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


def ranking_tables(report: Mapping[str, Any]) -> list[RankingTable]:
    """Those of a ``ranking.json`` or ``question.json``."""
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
        tables.append(RankingTable("by_part", f"{title} by part of the queries", head, rows))
    return tables


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


def _interval(interval: Mapping[str, float] | None) -> str:
    return f"{interval['value']:.3f} ({interval['low']:.3f} to {interval['high']:.3f})" if interval else ""
