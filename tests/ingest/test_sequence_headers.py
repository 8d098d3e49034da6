"""A header line in ``sequence`` decides which column is what; one that contradicts itself is refused."""

from pathlib import Path

import pytest

from graphmill.errors import InputError
from graphmill.ingest.sequence import FORMAT, SequenceSettings, read_sequence

ROWS = [
    {"user": f"u{n % 3}", "item": f"i{n}", "rating": 1 + n % 5, "time": 1_600_000_000 - n, "row": n} for n in range(9)
]
MARKS = [",", "\t", "::"]


def write(tmp_path: Path, header: str, columns: str, mark: str = ",") -> Path:
    path = tmp_path / "x.txt"
    lines = [header.replace(",", mark), *(mark.join(str(row[c]) for c in columns.split(",")) for row in ROWS)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("userId,movieId,rating,timestamp", "user,item,rating,time"),
        ("userId,movieId,timestamp,rating", "user,item,time,rating"),
        ("timestamp,item_id,user_id,rating", "time,item,user,rating"),
        ("user_id:token,item_id:token,rating:float,timestamp:float", "user,item,rating,time"),
        ("Unnamed: 0,user,item,rating,timestamp", "row,user,item,rating,time"),
        (",user,item,rating,timestamp", "row,user,item,rating,time"),
    ],
)
def test_all_four_columns_in_any_order(tmp_path: Path, header: str, columns: str, mark: str) -> None:
    result = read_sequence(write(tmp_path, header, columns, mark))
    ids = result.nodes["id"].to_pylist()
    found = {(ids[e["head"]], ids[e["tail"]], int(e["weight"]), e["timestamp"]) for e in result.edges.to_pylist()}
    assert found == {(row["user"], row["item"], row["rating"], row["time"]) for row in ROWS}


@pytest.mark.parametrize(
    ("header", "columns"),
    [("itemId,userId,timestamp", "item,user,time"), (",user,item,timestamp", "row,user,item,time"),
     ("index,user,item,timestamp", "row,user,item,time")],
)  # fmt: skip
def test_users_items_and_times(tmp_path: Path, header: str, columns: str) -> None:
    result = read_sequence(write(tmp_path, header, columns))
    assert result.nodes["id"].to_pylist()[:3] == ["u0", "u1", "u2"]
    assert sorted(result.edges["timestamp"].to_pylist()) == sorted(row["time"] for row in ROWS)
    assert "weight" not in result.edges.column_names


@pytest.mark.parametrize(
    "header", ["userId,movieId,rating", "user_id:token,item_id:token,rating:float", "user,item,score"]
)
def test_a_rating_is_no_time(tmp_path: Path, header: str) -> None:
    result = read_sequence(write(tmp_path, header, "user,item,rating"))
    assert "timestamp" not in result.edges.column_names
    assert sorted(result.edges["weight"].to_pylist()) == sorted(float(row["rating"]) for row in ROWS)
    assert "there is no column of times: a user's order is that of the file" in result.notes


@pytest.mark.parametrize("header", ["visitorid,itemid", "user,item", "who,item"])
def test_two_columns(tmp_path: Path, header: str) -> None:
    path = write(tmp_path, header, "user,item")
    assert read_sequence(path).counts["interactions"] == len(ROWS)
    assert FORMAT.preview(str(path), SequenceSettings(), "").rows[0] == {"user": "u0", "item": "i0"}


def test_names_that_nobody_knows_go_by_their_place(tmp_path: Path) -> None:
    result = read_sequence(write(tmp_path, "listener,song,when", "user,item,time"))
    assert result.counts["users"] == 3
    assert "timestamp" in result.edges.column_names


@pytest.mark.parametrize(
    ("header", "columns", "reason"),
    [
        ("user,user_id,item,time", "user,row,item,time", "names two columns for the user"),
        ("item,thing,time", "item,user,time", "what is column 'thing'"),
        ("user,price,item,time", "user,rating,item,time", "what is column 'price'"),
    ],
)
def test_contradictions_are_refused_with_the_way_out(tmp_path: Path, header: str, columns: str, reason: str) -> None:
    with pytest.raises(InputError, match=f"{reason}.*use the format interactions_csv"):
        read_sequence(write(tmp_path, header, columns))


def test_a_first_line_that_is_an_interaction_is_one(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("u1,time\nu2,item\nu3,7\n", encoding="utf-8")
    assert read_sequence(path).counts["interactions"] == 3
