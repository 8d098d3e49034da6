"""The decision without a person: a row a rule, in the order in which they hold."""

from typing import Any

import pytest

from graphmill.promotion.policy import Facts, PromotionSettings, decide

LIVE = "0001-aaaaaaaa"


def figures(low: float, high: float = 0.1, left_out: int = 0) -> dict[str, Any]:
    values = {"metric": "mrr", "candidate": 0.3, "champion": 0.2, "difference": 0.1, "level": 0.95, "queries": 400}
    return values | {"low": low, "high": high, "left_out": left_out}


@pytest.mark.parametrize(
    ("settings", "facts", "outcome", "reason"),
    [
        ({"when": "better"}, {}, "promoted", "there was no live version"),
        ({"when": "checks_pass"}, {}, "promoted", "there was no live version"),
        ({"when": "manual"}, {}, "waits", "graphmill promote RUN"),
        ({}, {"failed_checks": ["spread", "mrr"]}, "kept", "2 checks did not pass: spread, mrr"),
        ({"except_checks": ["spread"]}, {"failed_checks": ["spread"]}, "promoted", "there was no live version"),
        ({"when": "manual"}, {"champion": LIVE, "is_champion": True}, "kept", "is this run already"),
        ({}, {"champion": LIVE, "rolled_back": "today by me"}, "kept", r"rolled back \(today by me\)"),
        ({"when": "checks_pass"}, {"champion": LIVE, "comparison": figures(-1)}, "promoted", "every check passed"),
        ({}, {"champion": LIVE, "comparison": figures(0.01)}, "promoted", r"mrr 0\.3000 against 0\.2000 .* 400 "),
        ({}, {"champion": LIVE, "comparison": figures(-0.01)}, "kept", "the lower end had to be above 0"),
        ({}, {"champion": LIVE, "comparison": figures(0.01, left_out=7)}, "promoted", r"\(7 left out\)"),
        ({"min_gain": 0.02}, {"champion": LIVE, "comparison": figures(0.01)}, "kept", r"above 0\.02"),
        ({"min_gain": -0.02}, {"champion": LIVE, "comparison": figures(-0.01)}, "promoted", r"\+0\.1000"),
        ({}, {"champion": LIVE, "problem": "no queries"}, "kept", f"cannot be compared with {LIVE}: no queries"),
        ({"max_drift": 0.8}, {"champion": LIVE, "comparison": figures(0.1)}, "kept", "is not known"),
        (
            {"max_drift": 0.8},
            {"champion": LIVE, "comparison": figures(0.1), "drift": 0.9},
            "kept",
            "90% of the nearest neighbours or best items changed",
        ),
        ({"max_drift": 0.8}, {"champion": LIVE, "comparison": figures(0.1), "drift": 0.5}, "promoted", "mrr"),
        ({"max_drift": 0.8}, {}, "promoted", "there was no live version"),
        ({"when": "manual"}, {"run": "runs/hgt-1"}, "waits", "`graphmill promote runs/hgt-1` makes it live"),
    ],
)
def test_decisions(settings: dict[str, Any], facts: dict[str, Any], outcome: str, reason: str) -> None:
    import re

    result = decide(PromotionSettings(**{"when": "better", **settings}), Facts(**facts))
    assert result.outcome == outcome
    assert re.search(reason, result.reason), result.reason
