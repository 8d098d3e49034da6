"""Drift of lists: what share of the ten best stayed, and what that is called."""

from dataclasses import replace

import pytest

from graphmill.errors import InputError
from graphmill.evaluation.drift.figures import Lists, list_figures
from graphmill.evaluation.drift.verdicts import drift_report
from graphmill.graph.summary import GraphDifference

GRAPH = GraphDifference(100, 100, 0, 0, {}, {}, (1.0, 1.0), (1, 1))


def lists(changed: int) -> Lists:
    """Of twenty users, each with so many other items among its ten best."""
    items = [*range(changed, 10), *range(10, 10 + changed)]
    return {("user | took | item", f"u{user}"): [f"i{item}" for item in items] for user in range(20)}


@pytest.mark.parametrize(
    ("changed", "name", "status"),
    [(0, "unchanged", "pass"), (5, "moved_little", "pass"), (10, "moved", "fail")],
)
def test_the_share_that_changed_has_a_name(changed: int, name: str, status: str) -> None:
    result = drift_report(list_figures(lists(0), lists(changed)), GRAPH)
    assert (result.name, result.status) == (name, status)
    assert result.changed == pytest.approx(changed / 10)
    values = result.to_dict()
    assert values["overall"] == {"name": "", "shared": 20, "overlap_10": pytest.approx(1 - changed / 10)}
    assert "cosine_aligned" not in values["overall"]
    assert all(set(each) == {"type", "id", "name", "overlap_10"} for each in values["moved"])
    assert len(result.figures.moved) == (20 if changed else 0)


def test_lost_data_explain_the_change() -> None:
    result = drift_report(list_figures(lists(0), lists(10)), replace(GRAPH, lost=50))
    assert [(each.name, each.status) for each in result.findings] == [("data_lost", "fail"), ("moved", "warn")]


def test_too_few_shared_lists_are_refused() -> None:
    few = dict(list(lists(0).items())[:5])
    with pytest.raises(InputError, match="share 5 users or heads"):
        list_figures(few, lists(0))
