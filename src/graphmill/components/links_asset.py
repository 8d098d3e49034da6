"""The asset ``<dataset>/<model>_links``: the best-scored tails of heads, with ranks, probabilities and paths."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from graphmill.components.plan import POOL, ModelPlan, Reference, plan_asset
from graphmill.evaluation.pictures.reliability import reliability_diagram
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.io_managers import REMEDY
from graphmill.orchestration.metadata import (
    COLUMNS_KEY,
    column_schema,
    markdown_table,
    picture,
    records,
    scalars,
    snippet,
)
from graphmill.orchestration.page import INLINE_CHARACTERS, asset_page
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.run_config import config_class, to_settings
from graphmill.parquet import ParquetTable
from graphmill.predictions.columns import COLUMNS, EXPLAINED
from graphmill.predictions.settings import LinkSettings

VARIED = Check(
    "tails_differ",
    "The heads do not all have the same best tail. If they do: the model has learnt popularity; see the ranking.",
)
CALIBRATED = Check(
    "probabilities_hold",
    "Probabilities agree with the validation links of heads that were not used to fit them. If not: use the scores "
    "only as an order.",
)
CHECKS = (VARIED, CALIBRATED)


def links_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the asset of predicted links. The worker writes Parquet, CSV and a report into the run's folder ``links``."""
    key = plan.key("links")
    run_config = config_class(plan.links)

    @plan_asset(
        plan,
        "links",
        "release",
        inputs=("embeddings",),
        kinds={"parquet", "csv", "markdown"},
        description=(
            f"New links that {plan.name} predicts for {plan.dataset}: the best tails of each head, with rank, usual rank, "
            "calibrated probability, and the short paths that support them. See docs/how-to/predict_links.md."
        ),
        checks=CHECKS,
        pool=POOL,
    )
    def links(
        context: dg.AssetExecutionContext,
        config: run_config,  # type: ignore[valid-type]
        embeddings: dict[str, Any],
        worker: WorkerClient,
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            asked: LinkSettings = to_settings(config, plan.links)
        previous = PreviousRun(context.instance, key)
        run_dir = str(embeddings["run_dir"])
        extras = {"mode": "links", "run_dir": run_dir, "links": asked.model_dump()}
        worker.run(context, extras=extras, asset_key=key, cwd=str(plan.root))
        report = json.loads((plan.root / run_dir / "links" / "links.json").read_text(encoding="utf-8"))
        yield _materialized(plan, run_dir, report, asked, previous)

    return links


def _materialized(
    plan: ModelPlan, run_dir: str, report: Mapping[str, Any], asked: LinkSettings, previous: PreviousRun
) -> dg.MaterializeResult[Reference]:
    folder = f"{run_dir}/links"
    file, relations = f"{folder}/links.parquet", report["relations"]
    figures = _figures(report)
    drawn = {each["relation"]: each["bins"] for each in relations if each["bins"]}
    pictures = {"reliability": f"{folder}/reliability.png"} if drawn else {}
    frequent = [{"relation": each["relation"], **tail} for each in relations for tail in each["frequent_tails"][:2]]
    return dg.MaterializeResult(
        asset_key=plan.key("links"),
        value={"run_dir": run_dir, "file": file, "report": f"{folder}/links.json"},
        metadata={
            **asset_page(_summary(figures, asked), plotted=figures, previous=previous, pictures=pictures),
            "links": dg.MetadataValue.md(_inline_table(report["shown"])),
            "dagster/row_count": report["rows"],
            COLUMNS_KEY: column_schema(ParquetTable(plan.root / file, remedy=REMEDY).schema, COLUMNS | EXPLAINED),
            **_because(report["shown"]),
            "by_relation": records([_relation_row(each) for each in relations]),
            "frequent_tails": records(frequent),
            "probabilities": dg.MetadataValue.md(_about_probabilities(relations)),
            **(
                {
                    "reliability": picture(
                        reliability_diagram(drawn),
                        plan.root,
                        f"{folder}/reliability.png",
                        "reliability",
                    )
                }
                if drawn
                else {}
            ),
            "file": dg.MetadataValue.path(file),
            **({"csv": dg.MetadataValue.path(f"{folder}/links.csv")} if asked.csv else {}),
            "how_to_load": snippet(f"import pandas as pd\n\nframe = pd.read_parquet({file!r})"),
        },
        check_results=_check_results(plan, relations, figures, asked),
    )


def _figures(report: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of the report. Means are over relations, so that a large relation does not dominate."""
    relations = report["relations"]
    first, last = ([each["diversity"][at] for each in relations] for at in (0, -1))
    calibrated = [each["calibration"] for each in relations if "ece" in each["calibration"]]
    looked = sum(each["looked_for_paths"] for each in relations)
    return scalars(
        {
            "rows": report["rows"],
            "relations": len(relations),
            "ece_top": _mean([each["ece_top"] for each in calibrated]),
            "base_rate": _mean([each["base_rate"] for each in calibrated]),
            "supported_share": sum(each["supported_rows"] for each in relations) / looked if looked else None,
            "top_tail_share": _mean([each["top_tail_share"] for each in first]),
            "entropy": _mean([each["entropy"] for each in last]),
            "coverage": _mean([each["coverage"] for each in last]),
        }
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _summary(figures: Mapping[str, Any], asked: LinkSettings) -> str:
    text = f"{figures['rows']:,} predicted links: the {asked.k} best tails of each head in {figures['relations']} relations"
    if "supported_share" in figures:
        text += f". Of the best ones, {figures['supported_share']:.0%} are supported by a path of length 2 or 3"
    if "ece_top" in figures:
        text += f". The mean calibration error is {figures['ece_top']:.3f}, at base rates of {figures['base_rate']:.2g}"
    return text + "."


def _inline_table(shown: Sequence[Mapping[str, Any]]) -> str:
    """A table with as many rows as the webserver shows without a click."""
    rows = [
        {
            "head": _cut(row["head_name"]),
            "relation": row["relation"],
            "tail": _cut(row["tail_name"]),
            "p": "" if row["probability"] is None else f"{row['probability']:.2g}",
            "rank": row["rank"],
            "usually": "" if row["usual_rank"] is None else f"{row['usual_rank']:.0f}",
            "best path": _between(row),
        }
        for row in shown
    ]
    tables = (markdown_table(rows[:count]) for count in range(len(rows), 0, -1))
    return next((table for table in tables if len(table) <= INLINE_CHARACTERS), markdown_table(rows[:1]))


def _because(shown: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The edges that explain the links of the table, if they were explained."""
    rows = [
        {"head": row["head_name"], "relation": row["relation"], "tail": row["tail_name"], "because": row["because"]}
        for row in shown
        if row.get("because")
    ]
    return {"because": dg.MetadataValue.md(markdown_table(rows))} if rows else {}


def _between(row: Mapping[str, Any]) -> str:
    """The best path without its ends, which other columns have."""
    path = (row["paths"] or "").split(" ; ")[0]
    return _cut(path.removeprefix(row["head_name"]).removesuffix(row["tail_name"]).strip(), 100)


def _cut(text: str, most: int = 40) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _relation_row(each: Mapping[str, Any]) -> dict[str, Any]:
    at_k, of = each["diversity"][-1], each["calibration"]
    return {
        "relation": each["relation"],
        "heads": each["heads"],
        "links": each["rows"],
        "known": each["known_rows"],
        "distinct_tails": at_k["distinct_tails"],
        "entropy": at_k["entropy"],
        "top_tail_share": at_k["top_tail_share"],
        "top_10_share": at_k["top_10_share"],
        "supported": each["supported_rows"],
        "looked_for": each["looked_for_paths"],
        "valid_links": of["valid_links"],
        "base_rate": of.get("base_rate"),
        "ece": of.get("ece"),
        "ece_top": of.get("ece_top"),
    }


def _about_probabilities(relations: Sequence[Mapping[str, Any]]) -> str:
    calibrated = [each for each in relations if "ece" in each["calibration"]]
    negatives = relations[0]["calibration"]["negatives"]
    lines = [f"Isotonic regression for each relation, on validation links. Negatives: {negatives}."]
    if calibrated:
        lines.append("`by_relation` has the base rate that each relation assumes; `links.base_rate` sets another.")
    without = {each["calibration"]["why"] for each in relations if "why" in each["calibration"]}
    if without:
        lines.append(f"{len(relations) - len(calibrated)} relations have none ({'; '.join(sorted(without)[:3])}).")
    return " ".join(lines)


def _check_results(
    plan: ModelPlan, relations: Sequence[Mapping[str, Any]], figures: Mapping[str, Any], asked: LinkSettings
) -> list[dg.AssetCheckResult]:
    key, severity = plan.key("links"), plan.checks.severity
    # With few candidates, tails cannot vary much.
    judged = [each for each in relations if each["candidates"] > 2 * asked.k and each["heads"] > 1]
    worst = max(judged, key=lambda each: each["diversity"][0]["top_tail_share"], default=None)
    share = worst["diversity"][0]["top_tail_share"] if worst else 0.0
    ece = figures.get("ece_top")
    return [
        VARIED.result(
            key,
            share <= plan.checks.top_tail_share_max,
            f"in {worst['relation']}, {share:.0%} of the heads have the same best tail; the bound is "
            f"{plan.checks.top_tail_share_max:.0%}; relative_rank shows such tails"
            if worst
            else "no relation has enough candidates to judge this",
            severity=severity,
        ),
        CALIBRATED.result(
            key,
            ece is None or ece <= plan.checks.ece_max,
            "no relation has enough validation links to judge this"
            if ece is None
            else f"expected calibration error {ece:.3f}, bound {plan.checks.ece_max:g}",
            severity=severity,
        ),
    ]
