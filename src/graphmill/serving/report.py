"""The figures of a version for the page, from the files that its promotion copied into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from graphmill.errors import InputError
from graphmill.promotion.contents import CURVES, DRIFT, HEALTH, RANKING
from graphmill.reports.ranking_tables import ranking_tables

if TYPE_CHECKING:
    from graphmill.serving.open_version import OpenVersion

SHOWN_MOVED = 10
_OVERALL = ("overlap_10", "overlap_50", "cka", "cosine_aligned", "residual", "shared", "new", "vanished")


def report(opened: OpenVersion) -> dict[str, Any]:
    """``about``, ``health``, ``ranking``, ``curves``, ``drift``, ``verdict``; None or [] if the version lacks the file."""
    about = opened.version.about
    names = ("system", "made", "rows", "dim", "epoch", "selection_metric", "metrics", "graph", "run_dir")
    return {
        "about": {name: about.get(name) for name in names} | {"answers": opened.answers},
        "health": _part(opened, HEALTH, _health),
        "ranking": _part(opened, RANKING, _ranking),
        "verdict": about.get("verdict"),
        "curves": opened.json(CURVES) or [],
        "drift": _part(opened, DRIFT, _drift),
    }


def _part(opened: OpenVersion, name: str, take: Callable[[Any], dict[str, Any] | None]) -> dict[str, Any] | None:
    """What ``take`` takes from a file of the version; None without the file."""
    found = opened.json(name)
    try:
        return take(found) if found else None
    except (KeyError, TypeError, AttributeError):
        raise InputError(f"{name} of {opened.name} has other fields than it should; promote the run again") from None


def _health(found: Mapping[str, Any]) -> dict[str, Any]:
    """Status, named failure and figures, those out of bounds first."""
    names = ("name", "value", "threshold", "status", "meaning", "remedy")
    verdicts = [{n: v.get(n) for n in names} for v in found["verdicts"]]
    verdicts.sort(key=lambda v: {"fail": 0, "warn": 1}.get(v["status"], 2))
    return {name: found[name] for name in ("status", "failure", "detail")} | {"verdicts": verdicts}


def _ranking(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """``split``, ``scorers`` (scorer → metric → value, with the model first; for links, macro means over relations), and
    ``tables`` of parts, predicted and judged links, as text."""
    scorers, split = found.get("figures"), found.get("split", "test")
    if compared := found.get("comparison"):
        scorers = compared[compared["against"]["average"]]
    if not scorers:
        return None
    first = {"model": scorers["model"]} if "model" in scorers else {}
    tables = [asdict(each) for each in ranking_tables(found)]
    return {"split": split, "scorers": first | dict(scorers), "tables": tables}


def _drift(found: Mapping[str, Any]) -> dict[str, Any]:
    moved = [{n: node.get(n) for n in ("id", "name", "type", "cosine", "overlap_10")} for node in found["moved"]]
    return {
        **{name: found.get(name) for name in ("against", "name", "status", "changed")},
        "overall": {name: found["overall"].get(name) for name in _OVERALL},
        "findings": [{n: f.get(n) for n in ("name", "status", "meaning", "remedy")} for f in found["findings"]],
        "moved": moved[:SHOWN_MOVED],
    }
