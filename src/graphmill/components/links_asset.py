"""The asset ``<dataset>/<model>_links``: the best-scored tails of heads, with ranks, probabilities and paths."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components.plan import ModelPlan, Reference
from graphmill.components.worker_asset import Step, WorkerAsset
from graphmill.evaluation.markdown import escaped, number
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import markdown_table, parquet_file, records, scalars
from graphmill.predictions.settings import COLUMNS, EXPLAINED, JUDGED, LinkSettings

VARIED = Check(
    "tails_differ",
    "The heads do not all have the same best tail. If they do: the model has learnt popularity; see the ranking.",
)
CALIBRATED = Check(
    "probabilities_hold",
    "Probabilities agree with the validation links of heads that were not used to fit them. If not: use the scores "
    "only as an order.",
)


def links_asset(plan: ModelPlan) -> WorkerAsset:
    """The asset of predicted links. The worker writes Parquet, CSV and a report into the run's folder ``links``."""
    return WorkerAsset(
        part="links",
        stage="release",
        kinds={"parquet", "csv", "markdown"},
        description=(
            f"New links that {plan.name} predicts for {plan.dataset}: the best tails of each head, with rank, median rank, "
            "calibrated probability, and the short paths that support them. `graphmill links --help` says more."
        ),
        settings=plan.links,
        checks=(VARIED, CALIBRATED),
        job=lambda step: {"mode": "links", "run_dir": step.run_dir, "links": step.settings.model_dump()},
        page=_page,
    )


def _page(step: Step) -> dg.MaterializeResult[Reference]:
    folder, settings = f"{step.run_dir}/links", step.settings
    report = step.read(f"{folder}/links.json")
    file, relations, figures = f"{folder}/links.parquet", report["relations"], _figures(report)
    rest = {
        "links": dg.MetadataValue.md(_tables(report["shown"])),
        "by_relation": records([_relation_row(each) for each in relations]),
        **parquet_file(step.plan.root, file, COLUMNS | JUDGED | EXPLAINED),
        **({"csv": dg.MetadataValue.path(f"{folder}/links.csv")} if settings.csv else {}),
    }
    return step.result(
        {"run_dir": step.run_dir, "file": file, "report": f"{folder}/links.json"},
        step.page(_summary(figures, settings), rest, plotted=figures),
        _check_results(step, relations, figures),
    )


def _figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the report. Means are over relations, so that a large relation does not dominate."""
    relations = report["relations"]
    first = [each["diversity"][0] for each in relations]
    calibrated = [each["calibration"] for each in relations if "ece_top" in each["calibration"]]
    searched = sum(each["looked_for_paths"] for each in relations)
    return scalars(
        {
            "rows": report["rows"],
            "relations": len(relations),
            "ece_top": _mean(calibrated, "ece_top"),
            "base_rate": _mean(calibrated, "base_rate"),
            "supported_share": sum(each["supported_rows"] for each in relations) / searched if searched else None,
            "top_tail_share": _mean(first, "top_tail_share"),
        }
    )


def _mean(rows: Sequence[Mapping[str, float]], name: str) -> float | None:
    return sum(row[name] for row in rows) / len(rows) if rows else None


def _summary(figures: Mapping[str, Any], settings: LinkSettings) -> str:
    relations = f"{figures['relations']} relations"
    text = f"{figures['rows']:,} predicted links: the {settings.k} best tails of each head in {relations}"
    if "supported_share" in figures:
        text += f". Of the best ones, {figures['supported_share']:.0%} are supported by a path of length 2 or 3"
    if "ece_top" in figures:
        text += f". The mean calibration error is {figures['ece_top']:.3f}, at base rates of {figures['base_rate']:.2g}"
    return text + "."


def _tables(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table for each head, narrow enough for a window of 1,440 pixels; the file has the other columns."""
    by_head: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        known = row["probability"]
        line = {
            "relation": row["relation"],
            "tail": _cut(row["tail_name"], 40),
            "probability": "" if known is None else f"{known:.2g}",
            "median rank": "" if row["median_rank"] is None else f"{row['median_rank']:.0f}",
            "because": _reason(row),
        }
        by_head.setdefault(row["head_name"], []).append(line)
    return "\n\n".join(f"**{escaped(head)}**\n\n{markdown_table(lines)}" for head, lines in by_head.items())


def _reason(row: Mapping[str, Any]) -> str:
    """The edge that carries most of the score, else the best path without its ends, which other columns have."""
    edge = str(row.get("because") or "").split(" ; ")[0]
    path = (row["paths"] or "").split(" ; ")[0]
    return _cut(edge or path.removeprefix(row["head_name"]).removesuffix(row["tail_name"]).strip(), 80)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _relation_row(each: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "relation": each["relation"],
        "heads": each["heads"],
        "links": each["rows"],
        "distinct tails": each["diversity"][-1]["distinct_tails"],
        "have the most frequent tail": each["diversity"][0]["top_tail_share"],
        "with a path": f"{each['supported_rows']:,} of {each['looked_for_paths']:,}",
        "calibration error": number(each["calibration"].get("ece_top")) or each["calibration"].get("why", ""),
    }


def _check_results(
    step: Step, relations: Sequence[Mapping[str, Any]], figures: Mapping[str, Any]
) -> list[dg.AssetCheckResult]:
    bounds = step.plan.checks
    # With few candidates, tails cannot vary much.
    judged = [each for each in relations if each["candidates"] > 2 * step.settings.k and each["heads"] > 1]
    worst = max(judged, key=lambda each: each["diversity"][0]["top_tail_share"], default=None)
    share, ece = worst["diversity"][0]["top_tail_share"] if worst else 0.0, figures.get("ece_top")
    varied, calibrated = "no relation has enough candidates to judge this", "no relation has enough validation links"
    if worst:
        varied = (
            f"in {worst['relation']}, {share:.0%} of the heads have the same best tail; the bound is "
            f"{bounds.top_tail_share_max:.0%}; relative_rank shows such tails"
        )
    if ece is not None:
        calibrated = f"expected calibration error {ece:.3f}, bound {bounds.ece_max:g}"
    return [
        step.check(
            VARIED,
            share <= bounds.top_tail_share_max,
            varied,
            metadata={"share of heads with the same best tail": share, "bound": bounds.top_tail_share_max},
        ),
        step.check(
            CALIBRATED,
            ece is None or ece <= bounds.ece_max,
            calibrated,
            metadata=scalars({"expected calibration error": ece, "bound": bounds.ece_max}),
        ),
    ]
