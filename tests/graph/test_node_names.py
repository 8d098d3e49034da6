"""Nodes by what people type."""

import pytest

from graphmill.graph.node_names import NodeNames, close_words, matching

IDS = ["D1", "d1", "D3", "Me\u0301nie\u0300re", "D5", "D6"]
NAMES = ["Aspirin", "aspirin-like", "Sjögren's aid", "Me\u0301nie\u0300re", "drug no\u00a010", "D1"]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("D1", [0]),  # an id comes before a name
        ("d1", [1]),
        ("Aspirin", [0]),
        ("ASPIRIN", [0]),
        ("Ménière", [3]),
        ("meniere", [3]),
        ("Sjo\u0308gren's aid", [2]),
        ("SJOGREN'S  AID", [2]),
        ("drug no 10", [4]),
        ("drug\u00a0no 10 ", [4]),
        ("d6", [5]),
        ("nothing", []),
    ],
)
def test_the_most_exact_form_with_a_match_decides(text: str, rows: list[int]) -> None:
    assert NodeNames(IDS, NAMES).find(text) == rows


def test_only_wanted_rows_count() -> None:
    names = NodeNames(["1", "1"], ["a", "A"])
    assert names.find("1") == [0, 1]
    assert names.find("1", lambda row: row == 1) == [1]
    assert names.find("a", lambda row: row == 1) == [1], "the exact name is of another row"


def test_three_close_names_at_most_are_suggested() -> None:
    words = ["aspirin", "Aspirine", "asprin", "aspirina", "zinc"]
    assert len(close_words("aspirn", words)) == 3
    assert "zinc" not in close_words("aspirn", words)
    assert close_words("qqqq", words) == []
    assert NodeNames(words, words).did_you_mean("zinx") == "; did you mean 'zinc'?"


def test_relations_match_in_any_case() -> None:
    assert matching("TREATS", ["treats", "targets"]) == ["treats"]
    assert matching("treats", ["treats", "Treats"]) == ["treats"]
