"""The format mmrec: interactions with a split, features beside them, and what happens to what is wrong."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from graphmill.errors import InputError
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import interaction_view
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.mmrec import MmrecSettings, mmrec_files, read_mmrec

ROWS = "0\t0\t0\n0\t1\t0\n0\t3\t2\n1\t1\t0\n1\t0\t1\n"


def written(folder: Path, rows: str = ROWS, header: str = "userID\titemID\tx_label", name: str = "a.inter") -> Path:
    path = folder / name
    path.write_text(f"{header}\n{rows}", encoding="utf-8")
    return path


def test_users_items_and_split(tmp_path: Path) -> None:
    result = read_mmrec(written(tmp_path))
    assert result.nodes["id"].to_pylist() == ["0", "1", "0", "1", "2", "3"]
    assert result.nodes["type"].to_pylist() == ["user"] * 2 + ["item"] * 4
    assert result.edges["head"].to_pylist() == [0, 0, 0, 1, 1]
    assert result.edges["tail"].to_pylist() == [2, 3, 5, 3, 2]
    assert result.edges["split"].to_pylist() == [0, 0, 2, 0, 1]
    assert result.counts["rows"] == 5


@pytest.mark.parametrize(
    "header",
    [
        "user_id:token\titem_id:token\tx_label",
        "userID\titemID\trating\ttimestamp\tx_label",
        "\ufeffuserID\titemID\tx_label\r",
    ],
)
def test_other_names_more_columns_bom_and_crlf(tmp_path: Path, header: str) -> None:
    rows = ROWS.replace("\n", "\r\n") if "\r" in header else ROWS
    if "rating" in header:
        rows = "".join(f"{u}\t{i}\t5.0\t99\t{s}\n" for u, i, s in (line.split("\t") for line in ROWS.splitlines()))
    result = read_mmrec(written(tmp_path, rows, header))
    assert result.edges.equals(read_mmrec(written(tmp_path, name="b.inter")).edges)


def test_a_folder_a_gzipped_file_and_a_csv_with_tabs(tmp_path: Path) -> None:
    text = f"userID\titemID\tx_label\n{ROWS}"
    for name, data in (("x.inter.gz", gzip.compress(text.encode())), ("x.csv", text.encode())):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(data)
        assert read_mmrec(folder).edges.num_rows == 5
    (tmp_path / "x.csv" / "y.csv").write_text(text)
    with pytest.raises(InputError, match=r"x\.csv, y\.csv"):
        read_mmrec(tmp_path / "x.csv")


def test_a_label_outside_0_to_2_is_a_reject_with_its_line(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS + "1\t2\t3\n1\t3\t\n")
    result = read_mmrec(path)
    assert result.edges.num_rows == 5
    assert [(r["line"], r["column"]) for r in result.rejects.to_pylist()] == [(7, "x_label"), (8, "x_label")]


def test_gaps_in_item_numbers_are_items(tmp_path: Path) -> None:
    result = read_mmrec(written(tmp_path))
    assert result.counts["items"] == 4
    assert result.counts["unused_item_numbers"] == 1
    assert any("gaps" in note for note in result.notes)


def test_ids_that_are_no_plain_numbers_are_names(tmp_path: Path) -> None:
    result = read_mmrec(written(tmp_path, "u7\t007\t0\nu7\t12\t1\nu8\t007\t0\n"))
    assert result.nodes["id"].to_pylist() == ["u7", "u8", "007", "12"]
    large = read_mmrec(written(tmp_path, "0\t5\t0\n0\t9000000\t0\n1\t5\t0\n"))
    assert large.counts["items"] == 2


def test_duplicates_are_counted_and_the_graph_has_them_once(tmp_path: Path) -> None:
    path = written(tmp_path, ROWS + "0\t0\t0\n0\t0\t2\n")
    result = read_mmrec(path)
    assert result.counts["duplicate_interactions"] == 1
    graph = build_graph(result.nodes, result.edges, GraphSettings(add_reverse="never"), tmp_path / "g")
    view = interaction_view(graph)
    assert len(view.train) == 3
    assert view.test.columns.tolist() == [3]  # item 0 is in training


def test_item_numbers_that_no_interaction_has_are_counted(tmp_path: Path) -> None:
    result = read_mmrec(written(tmp_path, ROWS + "2\t0\t2\n"))
    assert result.counts["unused_item_numbers"] == 1


def test_features_beside_the_file_are_read_by_their_names(tmp_path: Path) -> None:
    path = written(tmp_path)
    np.save(tmp_path / "image_feat.npy", np.arange(12, dtype=np.float16).reshape(4, 3))
    np.save(tmp_path / "audio_feat_m2v.npy", np.ones((4, 2)))
    result = read_mmrec(path)
    assert set(result.features) == {"item::image", "item::audio_m2v"}
    assert result.features["item::image"]["node"].to_pylist() == [2, 3, 4, 5]
    assert result.features["item::image"]["values"].to_pylist()[1] == [3.0, 4.0, 5.0]
    chosen = MmrecSettings(features=["look=image_feat.npy"])
    assert set(read_mmrec(path, chosen).features) == {"item::look"}
    assert set(mmrec_files(path, chosen)) == {"interactions", "look"}
    assert read_mmrec(path, MmrecSettings(features=["none"])).features == {}


def test_features_with_the_wrong_number_of_rows_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    for rows in (3, 5):
        np.save(tmp_path / "image_feat.npy", np.ones((rows, 2)))
        with pytest.raises(InputError, match=f"{rows} rows, but there are 4 items"):
            read_mmrec(path)


def test_features_that_are_not_finite_are_refused_with_their_row(tmp_path: Path) -> None:
    values = np.ones((4, 2))
    values[2, 1] = np.nan
    np.save(tmp_path / "image_feat.npy", values)
    with pytest.raises(InputError, match=r"not finite.*row 2"):
        read_mmrec(written(tmp_path))


def test_features_of_named_items_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "image_feat.npy", np.ones((2, 2)))
    with pytest.raises(InputError, match="node_features"):
        read_mmrec(written(tmp_path, "a\tx\t0\na\ty\t0\n"))


@pytest.mark.parametrize(
    ("header", "rows", "message"),
    [
        ("userID\titemID", "0\t0\n", "x_label"),
        ("user\tthing\tx_label", "0\t0\t0\n", "item"),
        ("userID\titemID\tx_label", "", "no rows"),
        ("userID\titemID\tx_label", "0\t0\t9\n", "no usable"),
        ("userID,itemID,x_label", "0,0,0\n", "tabs"),
    ],
)
def test_files_that_cannot_be_used_are_refused(tmp_path: Path, header: str, rows: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_mmrec(written(tmp_path, rows, header))


def test_a_feature_entry_that_says_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="name=file"):
        read_mmrec(written(tmp_path), MmrecSettings(features=["image_feat.npy"]))


@pytest.mark.real_data
def test_tiktok(datasets: Path) -> None:
    result = read_mmrec(datasets / "tiktok")
    assert {n: result.counts[n] for n in ("users", "items", "train", "valid", "test")} == {
        "users": 9308,
        "items": 6710,
        "train": 59_541,
        "valid": 3051,
        "test": 6130,
    }
    assert set(result.features) == {"item::image", "item::audio"}
