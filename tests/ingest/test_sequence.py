"""The format ``sequence``: every layout gives the same interactions; what cannot be used is refused by line."""

import gzip
from pathlib import Path

import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.ingest.interactions_csv import InteractionSettings, read_sequence
from graphmill.ingest.public_readers import recognised
from graphmill.settings import parse

ROWS = [("u1", "a", 3, 100), ("u2", "b", 4, 50), ("u1", "c", 5, 90), ("u1", "b", 1, 100), ("007", "a", 2, 7)]


def write(path, rows, mark, columns=(0, 1, 2, 3), end="\n"):
    path.write_text(end.join(mark.join(str(row[c]) for c in columns) for row in rows) + end, encoding="utf-8")
    return path


def sequences(result):
    ids, edges = result.nodes["id"].to_pylist(), result.edges.to_pylist()
    out: dict[str, list] = {}
    for edge in sorted(edges, key=lambda e: (e["head"], e["position"])):
        out.setdefault(ids[edge["head"]], []).append(ids[edge["tail"]])
    return out


SORTED = {"u1": ["c", "a", "b"], "u2": ["b"], "007": ["a"]}


@pytest.mark.parametrize("mark", ["\t", "::", ",", ";", "|", " "])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_any_separator_and_line_end_gives_sequences_in_time_order_with_ties_as_in_the_file(tmp_path, mark, end):
    result = read_sequence(write(tmp_path / "x.txt", ROWS, mark, end=end))
    assert sequences(result) == SORTED
    assert result.counts["same_time"] == 1
    assert result.counts["users_out_of_order"] == 1
    assert result.counts["single_interaction_users"] == 2


def test_two_columns_keep_the_order_of_the_file_and_have_no_times(tmp_path):
    result = read_sequence(write(tmp_path / "x.txt", ROWS, " ", (0, 1)))
    assert sequences(result)["u1"] == ["a", "c", "b"]
    assert "timestamp" not in result.edges.column_names


def test_three_columns_are_user_item_timestamp(tmp_path):
    result = read_sequence(write(tmp_path / "x.txt", ROWS, ",", (0, 1, 3)))
    assert sequences(result) == SORTED
    assert "weight" not in result.edges.column_names


def test_ids_are_text_and_nodes_are_users_then_items(tmp_path):
    result = read_sequence(write(tmp_path / "x.txt", ROWS, "\t"))
    assert result.nodes["id"].to_pylist() == ["u1", "u2", "007", "a", "b", "c"]
    assert result.nodes["type"].to_pylist() == ["user"] * 3 + ["item"] * 3


@pytest.mark.parametrize("mark", ["\t", "::", " "])
@pytest.mark.parametrize(
    ("line", "column", "reason"),
    [
        ("u9{0}a{0}3{0}soon", "timestamp", "neither a number nor a date such as 2024-01-31"),
        ("u9{0}a{0}many{0}3", "rating", "not a finite number, nor yes or no"),
        ("u9{0}a{0}3", "", "expected 4 fields, found 3"),
        ("u9{0}a{0}nan{0}3", "rating", "not a finite number, nor yes or no"),
    ],
)
def test_a_bad_line_is_refused_by_number_and_the_others_stay(tmp_path, mark, line, column, reason):
    path = write(tmp_path / "x.txt", ROWS, mark)
    path.write_text(path.read_text() + "\n" + line.format(mark) + "\n", encoding="utf-8")
    result = read_sequence(path)
    assert sequences(result) == SORTED
    (reject,) = result.rejects.to_pylist()
    assert (reject["line"], reject["column"], reject["reason"]) == (7, column, reason)


def test_bytes_that_are_no_utf8_are_one_reject(tmp_path):
    path = write(tmp_path / "x.txt", ROWS, "\t")
    path.write_bytes(path.read_bytes() + b"\xe9\ta\t3\t5\n")
    result = read_sequence(path)
    (reason,) = result.rejects["reason"].to_pylist()
    assert "UTF-8" in reason
    assert "iconv" in reason
    assert sequences(result) == SORTED


def test_an_empty_id_is_a_reject(tmp_path):
    path = write(tmp_path / "x.txt", ROWS, "\t")
    path.write_text(path.read_text() + "\ta\t3\t5\n", encoding="utf-8")
    assert read_sequence(path).rejects["column"].to_pylist() == ["user"]


def test_a_header_that_repeats_the_order_is_no_interaction(tmp_path):
    path = write(tmp_path / "x.txt", [("userId", "movieId", "rating", "timestamp"), *ROWS], ",")
    assert sequences(read_sequence(path)) == SORTED
    assert recognised(path)[0] == "interactions_csv"


@pytest.mark.parametrize(
    "header", ["movieId,userId,rating,timestamp", "user,item,timestamp,rating", "who,what,how,when"]
)
def test_a_header_of_another_order_is_refused_with_the_way_out(tmp_path, header):
    path = write(tmp_path / "x.txt", [header.split(","), *ROWS], ",")
    with pytest.raises(InputError, match="another order, use the format interactions_csv"):
        read_sequence(path)


def test_a_first_line_that_is_an_interaction_is_one(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("u1,time\nu2,item\nu3,7\n", encoding="utf-8")
    assert read_sequence(path).counts["interactions"] == 3


def test_fractional_and_millisecond_times_become_seconds(tmp_path):
    rows = [("u", "a", 1, "1500000000500.0"), ("u", "b", 1, 1500000060000)]
    result = read_sequence(write(tmp_path / "x.txt", rows, "\t"))
    assert result.edges["timestamp"].to_pylist() == [1500000000, 1500000060]
    assert any("milliseconds" in note for note in result.notes)


def test_gzip_and_byte_order_mark(tmp_path):
    plain = write(tmp_path / "x.txt", ROWS, "\t")
    packed = tmp_path / "x.txt.gz"
    packed.write_bytes(gzip.compress(b"\xef\xbb\xbf" + plain.read_bytes()))
    assert sequences(read_sequence(packed)) == SORTED


def test_repeated_items_are_edges_of_their_own_and_duplicate_rows_are_counted(tmp_path):
    rows = [("u", "a", 1, 1), ("u", "b", 1, 2), ("u", "a", 1, 3), ("u", "a", 1, 3)]
    result = read_sequence(write(tmp_path / "x.txt", rows, "\t"))
    assert result.edges["display_relation"].to_pylist() == [
        "interacted",
        "interacted",
        "interacted 2",
        "interacted 3",
    ]
    assert (result.counts["repeated_pairs"], result.counts["duplicate_rows"]) == (2, 1)


def test_k_core_is_repeated_until_it_holds(tmp_path):
    # Without v (one interaction) item d has one; without d user u has one less, and still two.
    rows = [("u", "a", 1, 1), ("u", "b", 1, 2), ("u", "d", 1, 3), ("w", "a", 1, 1), ("w", "b", 1, 2), ("v", "d", 1, 1)]
    result = read_sequence(write(tmp_path / "x.txt", rows, "\t"), InteractionSettings(k_core=2))
    assert sequences(result) == {"u": ["a", "b"], "w": ["a", "b"]}
    with pytest.raises(InputError, match="k_core"):
        read_sequence(tmp_path / "x.txt", InteractionSettings(k_core=9))


def test_what_is_no_such_file_says_so(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("one\ntwo\n")
    with pytest.raises(InputError, match="2, 3 or 4 columns"):
        read_sequence(path)
    path.write_text("\n\n")
    with pytest.raises(InputError, match="empty"):
        read_sequence(path)
    with pytest.raises(SettingsError, match="delimiter"):
        parse(InteractionSettings, {"delimiter": "dash"}, "test")


@pytest.mark.real_data
def test_movielens_in_tisasrecs_layout(datasets):
    result = read_sequence(datasets / "ml-latest-small" / "ml-latest-small.txt.gz")
    assert (result.counts["users"], result.counts["items"], result.counts["interactions"]) == (671, 3496, 90072)
    assert result.rejects.num_rows == 0


@pytest.mark.parametrize("start", [b" " * 70_000 + b"\n", b"\n" * 200])
def test_blanks_before_the_first_line_are_none(tmp_path: Path, start: bytes) -> None:
    (tmp_path / "x.txt").write_bytes(start + b"1 2\n")
    assert read_sequence(tmp_path / "x.txt").counts["interactions"] == 1
