"""What rows say counts: dislikes, statements that do not hold, whole numbers that were written as decimals, dates."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from graphmill import read_edges, read_interactions
from graphmill.errors import InputError
from graphmill.ingest.tables import IngestResult

LIKED = [(f"u{u}", f"i{i}", 1 if i < 4 + u % 2 else -1, 1_600_000_000 + i) for u in range(6) for i in range(6)]


def _csv(folder: Path, rows: list[tuple[Any, ...]]) -> IngestResult:
    pd.DataFrame(rows, columns=["user", "item", "rating", "timestamp"]).to_csv(folder / "x.csv", index=False)
    return read_interactions(folder / "x.csv")


def _sequence(folder: Path, rows: list[tuple[Any, ...]]) -> IngestResult:
    (folder / "x.tsv").write_text("".join("\t".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")
    return read_interactions(folder / "x.tsv", "sequence")


def _mmrec(folder: Path, rows: list[tuple[Any, ...]]) -> IngestResult:
    labelled = [(*row, n % 3) for n, row in enumerate(rows)]
    frame = pd.DataFrame(labelled, columns=["userID", "itemID", "rating", "timestamp", "x_label"])
    frame.to_csv(folder / "x.inter", sep="\t", index=False)
    return read_interactions(folder / "x.inter", "mmrec")


READERS: dict[str, Callable[[Path, list[tuple[Any, ...]]], IngestResult]] = {
    "interactions_csv": _csv, "sequence": _sequence, "mmrec": _mmrec,
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_dislikes_are_left_out_and_counted(tmp_path: Path, name: str) -> None:
    result = READERS[name](tmp_path, LIKED)
    assert result.counts["below_min_weight"] == 9
    assert result.counts["rows"] == 36
    relations = result.edges["relation"].cast("string").to_pylist()
    # Users 0, 2 and 4 dislike item 4, which others like; nobody likes item 5, which only the format mmrec keeps.
    assert (relations.count("interacted"), relations.count("disliked")) == (27, 9 if name == "mmrec" else 3)
    assert any("9 of 36 interactions were left out" in note and "min_weight" in note for note in result.notes)


@pytest.mark.parametrize("name", READERS)
def test_a_scale_to_five_is_said_with_its_lower_part(tmp_path: Path, name: str) -> None:
    rows = [(u, i, 1 + n % 5, t) for n, (u, i, _, t) in enumerate(LIKED)]
    result = READERS[name](tmp_path, rows)
    share = 100 * np.mean([row[2] < 3 for row in rows])
    assert any(f"{share:.0f} % of the ratings are below 3" in note for note in result.notes)
    assert result.edges.num_rows == 36


def test_a_negative_minimum_keeps_dislikes(tmp_path: Path) -> None:
    _csv(tmp_path, LIKED)
    assert read_interactions(tmp_path / "x.csv", min_weight=-1).edges.num_rows == 36
    with pytest.raises(InputError, match="all numbers of column rating are negative or zero"):
        _csv(tmp_path, [(u, i, -1, t) for u, i, _, t in LIKED])


@pytest.mark.parametrize(("column", "likes", "dislikes"), [("liked", "True", "False"), ("Thumb", "up", "down")])
def test_words_for_liking_are_weights(tmp_path: Path, column: str, likes: str, dislikes: str) -> None:
    rows = [(u, i, likes if value > 0 else dislikes) for u, i, value, _ in LIKED]
    pd.DataFrame(rows, columns=["user", "item", column]).to_csv(tmp_path / "x.csv", index=False)
    result = read_interactions(tmp_path / "x.csv")
    assert (result.edges.num_rows, result.counts["below_min_weight"]) == (30, 9)


def test_a_column_of_numbers_is_no_relation(tmp_path: Path) -> None:
    rows = [(f"P{n % 20:02d}", f"P{(7 * n + 1) % 20:02d}", 150 + 37 * n % 800) for n in range(60)]
    pd.DataFrame(rows, columns=["protein1", "protein2", "combined_score"]).to_csv(tmp_path / "x.csv", index=False)
    result = read_edges(tmp_path / "x.csv")
    assert set(result.edges["relation"].to_pylist()) == {"related_to"}


def test_a_column_of_numbers_with_separators_names_no_nodes(tmp_path: Path) -> None:
    rows = [(f"D{n}", f"class{n % 7}", f"1,{200 + n}") for n in range(30)]
    pd.DataFrame(rows, columns=["code", "group", "cost"]).to_csv(tmp_path / "x.csv", index=False)
    assert not any("," in node for node in read_edges(tmp_path / "x.csv").nodes["id"].to_pylist())


def test_ids_that_were_rounded_when_written_are_refused(tmp_path: Path) -> None:
    rows = [(f"{9_007_199_254_740_000 + n:.10e}", f"i{n % 7}") for n in range(40)]
    pd.DataFrame(rows, columns=["user_id", "item_id"]).to_csv(tmp_path / "x.csv", index=False)
    with pytest.raises(InputError, match="rounded when it was written"):
        read_interactions(tmp_path / "x.csv")


STATEMENTS = [(f"d{n}", "treats", f"x{n % 4}", "true" if n < 3 else "false") for n in range(12)]


@pytest.mark.parametrize("column", ["negated", "is_deprecated", "is_negative", "negated:boolean"])
def test_statements_that_do_not_hold_are_left_out(tmp_path: Path, column: str) -> None:
    frame = pd.DataFrame(STATEMENTS, columns=["subject", "predicate", "object", column])
    frame.to_csv(tmp_path / "x.csv", index=False)
    result = read_edges(tmp_path / "x.csv", "kg_csv")
    assert (result.edges.num_rows, result.counts["negated_rows"], result.counts["rows"]) == (9, 3, 12)
    assert any("3 rows say that a link does not hold" in note for note in result.notes)
    assert read_edges(tmp_path / "x.csv", "kg_csv", keep_negated=True).edges.num_rows == 12


def test_not_before_a_relation_or_in_a_qualifier_negates(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        [("g1", "NOT|involved_in", "p1", ""), ("g2", "involved_in", "p1", "NOT|x"), ("g3", "NOTCH", "p2", "")],
        columns=["head", "relation", "tail", "qualifiers"],
    )
    frame.to_json(tmp_path / "x.jsonl", orient="records", lines=True)
    result = read_edges(tmp_path / "x.jsonl")
    assert result.edges["relation"].to_pylist() == ["NOTCH"]
    assert result.counts["negated_rows"] == 2


WRITERS: dict[str, Callable[[pd.DataFrame, Path], object]] = {
    "csv": lambda frame, path: frame.to_csv(path, index=False),
    "tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    "parquet": lambda frame, path: frame.to_parquet(path),
    "jsonl": lambda frame, path: frame.to_json(path, orient="records", lines=True),
}


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("first", [7.0, 12345678901.0, 123456789012345.0])
def test_whole_numbers_that_became_decimals_are_whole_ids(tmp_path: Path, kind: str, first: float) -> None:
    frame = pd.DataFrame({"user": [first, first + 1, None], "item": [1, 2, 3]})
    WRITERS[kind](frame, tmp_path / f"x.{kind}")
    result = read_interactions(tmp_path / f"x.{kind}")
    users = [node["id"] for node in result.nodes.to_pylist() if node["type"] == "user"]
    assert users == [str(int(first)), str(int(first) + 1)]
    assert any("written as decimals" in note for note in result.notes) or kind == "jsonl"
    assert result.rejects.num_rows == 1


def test_decimals_that_are_no_ids_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame({"user": [1.0, 2.5, 2.0**53, 3.0], "item": ["a", "b", "c", "d"]})
    result = read_interactions(frame)
    reasons = result.rejects["reason"].to_pylist()
    assert "fraction" in reasons[0]
    assert "2^53" in reasons[1]
    assert result.edges.num_rows == 2


def test_codes_that_look_like_decimals_stay_text(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("head,relation,tail\n250.0,is,a\n401.9,is,b\nV58.1,is,c\n", encoding="utf-8")
    assert read_edges(tmp_path / "x.csv").nodes["id"].to_pylist()[::2] == ["250.0", "401.9", "V58.1"]


def test_one_id_in_two_writings_is_said(tmp_path: Path) -> None:
    (tmp_path / "drugs.csv").write_text("id,name\n7,a\n8,b\n", encoding="utf-8")
    (tmp_path / "treats.csv").write_text("head,tail\n7.0,x1\n 8,x2\nz9,x2\n", encoding="utf-8")
    result = read_edges(
        tmp_path, "kg_files",
        nodes=[{"file": "drugs.csv", "type": "drug"}], edges=[{"file": "treats.csv", "relation": "treats"}],
    )  # fmt: skip
    assert any("invisible characters removed and 7.0 read as 7: 0 → 2 of 5" in note for note in result.notes)


def test_two_spellings_of_a_type_or_relation_are_said(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(
        "head,head_type,relation,tail,tail_type\na,Drug,treats,b,disease\nc,drug ,Treats,b,disease\n", encoding="utf-8"
    )
    notes = " ".join(read_edges(tmp_path / "x.csv").notes)
    assert "node types 'Drug' and 'drug '" in notes
    assert "relations 'Treats' and 'treats'" in notes


def test_dates_become_ids_only_with_a_word(tmp_path: Path) -> None:
    frame = pd.DataFrame({"head": ["a", "b"], "relation": "on", "tail": pd.to_datetime(["2024-01-31", "2024-02-01"])})
    for kind, write in WRITERS.items():
        if kind != "jsonl":  # pandas writes times as numbers there
            write(frame, tmp_path / f"x.{kind}")
            notes = " ".join(read_edges(tmp_path / f"x.{kind}").notes)
            assert "column tail holds dates or times (2024-01-31" in notes
