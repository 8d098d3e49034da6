"""Decides whether a candidate becomes the live version, by the settings in the section ``promote``.

It is a pure function from facts to a decision with its reason. ``promote`` collects the facts.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from graphmill.settings import Settings, setting

Outcome = Literal["promoted", "kept", "waits"]


class PromotionSettings(Settings):
    """When a run goes live automatically, and how many versions are kept."""

    when: Literal["checks_pass", "better", "manual"] = setting(
        "manual",
        "manual: promote only with graphmill promote; checks_pass: when every check has passed; better: when every "
        "check has passed and the metric is above the live version's (as checks_pass if there is no live version)",
    )
    question: str = setting("", "A YAML file with the validation links and the metric to compare; empty: all links")
    min_gain: float = setting(
        0.0,
        "better: the lower end of the gain's 95 % interval must be above this value; a negative value, such as "
        "-0.005, allows a version that is worse by at most that much",
    )
    max_drift: float = setting(
        0.0,
        "Keep the live version if more than this share of the ten nearest neighbours (or ten best) changed; 0: no limit",
        ge=0,
        le=1,
    )
    except_checks: list[str] = setting([], "Names of checks that may fail without preventing a promotion")
    recommendations: int = setting(
        20,
        "Number of best items of each user that a recommender's version holds for `graphmill serve`; 0: none",
        ge=0,
        le=1000,
    )
    keep: int = setting(5, "Number of versions to keep; the live one and the one before it are always kept", ge=1)


@dataclass(frozen=True)
class Facts:
    """The inputs of a decision. ``run``: the candidate, as a command names it. ``champion`` "": nothing is live.
    ``problem``: why there is no ``comparison``. ``rolled_back``: when and by whom the candidate was rolled back, else "".
    ``drift``: the share of the ten nearest neighbours, or of the ten best, that changed; None if not known.
    ``snapshot``: of the candidate's graph; ``newer``: of the live version's, if it is newer.
    """

    run: str = "RUN"
    champion: str = ""
    is_champion: bool = False
    rolled_back: str = ""
    failed_checks: Sequence[str] = ()
    comparison: Mapping[str, Any] | None = None
    problem: str = ""
    drift: float | None = None
    snapshot: str = ""
    newer: str = ""


@dataclass(frozen=True)
class Decision:
    """The decision, with one sentence that gives the reason."""

    outcome: Outcome
    reason: str


def decide(settings: PromotionSettings, facts: Facts) -> Decision:
    """Decide by the policy."""
    if facts.is_champion:
        return Decision("kept", f"{facts.champion} is this run already")
    if settings.when == "manual":
        return Decision(
            "waits", f"promote.when is manual: `graphmill promote {shlex.quote(str(facts.run))}` makes it live"
        )
    if facts.newer:
        return Decision("kept", f"snapshot {facts.snapshot} is older than {facts.newer}, whose version is live")
    if facts.rolled_back:
        return Decision(
            "kept", f"this run was rolled back ({facts.rolled_back}); only `graphmill promote` brings it back"
        )
    if failed := [name for name in facts.failed_checks if name not in settings.except_checks]:
        many = "checks did" if len(failed) > 1 else "check did"
        return Decision("kept", f"{len(failed)} {many} not pass: {', '.join(failed)}")
    if not facts.champion:
        return Decision("promoted", "every check passed, and there was no live version")
    if settings.max_drift:
        if facts.drift is None:
            return Decision("kept", "the drift is not known, and promote.max_drift needs it")
        if facts.drift > settings.max_drift:
            moved = f"{facts.drift:.0%} of the nearest neighbours or best items changed"
            return Decision("kept", f"{moved}, more than promote.max_drift = {settings.max_drift:g}")
    if settings.when == "checks_pass":
        return Decision("promoted", "every check passed")
    if facts.comparison is None:
        return Decision("kept", f"it cannot be compared with {facts.champion}: {facts.problem}")
    gain = gain_sentence(facts.comparison)
    if facts.comparison["low"] > settings.min_gain:
        return Decision("promoted", gain)
    return Decision("kept", f"{gain}; the lower end had to be above {settings.min_gain:g}")


def gain_sentence(comparison: Mapping[str, Any]) -> str:
    """``mrr 0.31 against 0.30 of the live version on 812 validation queries: +0.01 (95% from +0.004 to +0.018)``."""
    left = f" ({comparison['left_out']:,} left out)" if comparison["left_out"] else ""
    return (
        f"{comparison['metric']} {comparison['candidate']:.4f} against {comparison['champion']:.4f} of the live version on "
        f"{comparison['queries']:,} validation queries{left}: {comparison['difference']:+.4f} "
        f"({comparison['level']:.0%} from {comparison['low']:+.4f} to {comparison['high']:+.4f})"
    )
