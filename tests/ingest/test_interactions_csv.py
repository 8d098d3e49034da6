"""The format ``interactions_csv``: named or guessed columns, numbers checked, the rest as every format of interactions."""

from itertools import pairwise

import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import interaction_view
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.interactions_csv import InteractionColumns, InteractionsCsvSettings, read_interactions_csv

TEXT = 'userId,movieId,rating,timestamp\n1,"a,b",3.5,200\n1,c,1,100\n2,c,,5\n'


def write(tmp_path, text):
    path = tmp_path / "x.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_common_names_are_guessed_and_quotes_honoured(tmp_path):
    result = read_interactions_csv(write(tmp_path, TEXT))
    assert result.nodes["id"].to_pylist() == ["1", "a,b", "c"]
    assert result.edges["weight"].to_pylist() == [1.0, 3.5]
    assert result.edges["timestamp"].to_pylist() == [100, 200]
    assert result.edges["position"].to_pylist() == [0, 1]


def test_a_cell_that_is_no_number_is_a_reject_with_its_line(tmp_path):
    (reject,) = read_interactions_csv(write(tmp_path, TEXT)).rejects.to_pylist()
    assert (reject["line"], reject["column"]) == (4, "rating")


def test_an_export_of_excels_with_decimal_commas(tmp_path):
    result = read_interactions_csv(write(tmp_path, "sep=;\nuser;item;rating\n1;a;3,5\n1;b;4\n2;a;0,25\n"))
    assert result.edges["weight"].to_pylist() == [3.5, 4.0, 0.25]
    assert result.rejects.num_rows == 0
    assert any("2 numbers have a decimal comma" in note for note in result.notes)


def test_a_reject_shows_the_cell_as_it_is_written(tmp_path):
    text = "user\titem\ttime\n1\ta\t99999999999999999999,5\n1\tb\t7\n2\tb\t0x1F\n"
    result = read_interactions_csv(write(tmp_path, text))
    assert [r["value"] for r in result.rejects.to_pylist()] == ["99999999999999999999,5", "0x1F"]
    hexadecimal = read_interactions_csv(write(tmp_path, "user,item,time\n1,a,0x1F\n1,b,7\n2,b,8\n"))
    assert [r["value"] for r in hexadecimal.rejects.to_pylist()] == ["0x1F"]


def test_dates_become_seconds(tmp_path):
    rows = ["1,a,2024-01-02", "1,b,2024-01-01T12:00:00+02:00", "1,c,1704067200", "2,c,2024-01-01 10:00:01", "2,d,May"]
    text = "\n".join(["user,item,date", *rows]) + "\n"
    result = read_interactions_csv(write(tmp_path, text))
    assert result.edges["timestamp"].to_pylist() == [1704067200, 1704103200, 1704153600, 1704103201]
    (reject,) = result.rejects.to_pylist()
    assert (reject["column"], reject["reason"]) == ("date", "neither a number nor a date such as 2024-01-31")


def test_dates_among_milliseconds_become_the_same_seconds(tmp_path):
    rows = ["1,a,1704067200000", "1,b,2024-01-01T00:01:00", "1,c,1704067300000", "1,d,1e30"]
    result = read_interactions_csv(write(tmp_path, "\n".join(["user,item,time", *rows]) + "\n"))
    assert result.edges["timestamp"].to_pylist() == [1704067200, 1704067260, 1704067300]
    assert [r["value"] for r in result.rejects.to_pylist()] == ["1e30"]


@pytest.mark.parametrize("mark", ["\t", ";", ",", "|"])
def test_the_delimiter_is_guessed(tmp_path, mark):
    result = read_interactions_csv(write(tmp_path, f"user{mark}item\n1{mark}a\n1{mark}b\n"))
    assert result.counts["interactions"] == 2


def test_a_file_without_a_usable_row_says_what_is_wrong_with_the_first(tmp_path):
    path = write(tmp_path, "user,item,date\n1,a,yesterday\n")
    with pytest.raises(InputError, match=r"line 2, column date: "):
        read_interactions_csv(path)


def test_columns_can_be_named_or_left_out(tmp_path):
    path = write(tmp_path, "who;what;when\nx;a;1\nx;b;2\n")
    with pytest.raises(InputError, match=r"columns\.user"):
        read_interactions_csv(path)
    result = read_interactions_csv(
        path, InteractionsCsvSettings(columns=InteractionColumns(user="who", item="what", timestamp="when"))
    )
    assert result.counts["interactions"] == 2
    untimed = read_interactions_csv(path, InteractionsCsvSettings(columns=InteractionColumns(user="who", item="what")))
    assert "position" not in untimed.edges.column_names
    with pytest.raises(InputError, match="no column 'nobody'"):
        read_interactions_csv(path, InteractionsCsvSettings(columns=InteractionColumns(user="nobody", item="what")))
    with pytest.raises(InputError, match="two roles"):
        read_interactions_csv(path, InteractionsCsvSettings(columns=InteractionColumns(user="who", item="who")))


def test_rare_users_and_items_are_left_out_until_none_is_left(tmp_path):
    # "rare" goes for want of users, then user 3 for want of items.
    text = "user,item\n1,a\n1,b\n2,a\n2,b\n3,a\n3,rare\n"
    result = read_interactions_csv(write(tmp_path, text), InteractionsCsvSettings(k_core=2))
    assert result.nodes["id"].to_pylist() == ["1", "2", "a", "b"]
    assert result.counts["interactions"] == 4


def test_a_repeated_interaction_is_kept_and_a_recommender_takes_the_pair_once(tmp_path):
    result = read_interactions_csv(write(tmp_path, "user,item,timestamp\n1,a,1\n1,a,2\n1,b,3\n2,a,4\n"))
    assert result.counts["interactions"] == 4
    settings = GraphSettings.model_validate(
        {"add_reverse": "never", "split": {"method": "random", "valid": 0, "test": 0}}
    )
    train = interaction_view(build_graph(result.nodes, result.edges, settings, tmp_path / "graph")).train
    lists = [train.columns[a:b].tolist() for a, b in pairwise(train.indptr)]
    assert sorted(map(sorted, lists)) == [[0], [0, 1]]


def test_recbole_headers_and_tabs_are_understood(tmp_path):
    path = write(tmp_path, "user_id:token\titem_id:token\ttimestamp:float\nu\ta\t1.0\n")
    assert read_interactions_csv(path).edges["timestamp"].to_pylist() == [1]


def test_light_interactions_can_be_left_out(tmp_path):
    result = read_interactions_csv(write(tmp_path, TEXT), InteractionsCsvSettings(min_weight=2))
    assert result.counts["below_min_weight"] == 1
    assert result.counts["interactions"] == 1
    with pytest.raises(SettingsError, match="weight column"):
        read_interactions_csv(write(tmp_path, "user,item\nu,a\n"), InteractionsCsvSettings(min_weight=2))


@pytest.mark.real_data
def test_movielens_ratings_with_the_five_core_are_the_published_subset(datasets):
    result = read_interactions_csv(datasets / "ml-latest-small" / "ratings.csv.gz", InteractionsCsvSettings(k_core=5))
    assert (result.counts["users"], result.counts["items"], result.counts["interactions"]) == (671, 3496, 90072)
