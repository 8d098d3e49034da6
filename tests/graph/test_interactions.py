"""Interactions of a graph as recommenders see them, and how they are split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import Interactions, interaction_view
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_key, features_schema, split_feature_key

Triple = tuple[int, int, int]


def tables(
    pairs: list[Triple], users: int, items: int, times: list[int] | None = None, given: bool = True
) -> tuple[pa.Table, pa.Table]:
    """(user, item, split) as the tables that a reader makes."""
    count = users + items
    nodes = pa.table(
        {
            "index": pa.array(range(count), pa.int64()),
            "id": [*(str(u) for u in range(users)), *(str(i) for i in range(items))],
            "type": pa.array(["user"] * users + ["item"] * items).dictionary_encode(),
            "name": [f"n{i}" for i in range(count)],
            "source": pa.array(["test"] * count).dictionary_encode(),
        }
    )
    name = pa.array(["interacted"] * len(pairs)).dictionary_encode()
    columns: dict[str, Any] = {
        "relation": name,
        "display_relation": name,
        "head": pa.array([u for u, _, _ in pairs], pa.int32()),
        "tail": pa.array([users + i for _, i, _ in pairs], pa.int32()),
    }
    if given:
        columns["split"] = pa.array([s for _, _, s in pairs], pa.uint8())
    if times is not None:
        columns["timestamp"] = pa.array(times, pa.int64())
    return nodes, pa.table(columns)


def built(out: Path, pairs: list[Triple], users: int, items: int, **more: Any) -> TypedGraph:
    split = more.pop("split", {})
    features = more.pop("features", None)
    nodes, edges = tables(pairs, users, items, **more)
    settings = GraphSettings.model_validate({"split": split, "add_reverse": "never"})
    return build_graph(nodes, edges, settings, out, features)


def lists(view: Interactions, name: str) -> list[list[int]]:
    rows = getattr(view, name)
    return [rows.columns[a:b].tolist() for a, b in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)]


def test_a_given_split_is_read_back_by_user_and_by_item(tmp_path: Path) -> None:
    pairs = [(0, 2, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (1, 2, 2), (1, 3, 2)]
    view = interaction_view(built(tmp_path / "g", pairs, 2, 5))
    assert (view.num_users, view.num_items, view.user_offset, view.item_offset) == (2, 5, 0, 2)
    assert lists(view, "train") == [[1, 2], [1]]
    assert lists(view, "train_by_item") == [[], [0, 1], [0], [], []]
    assert lists(view, "valid") == [[0], []]
    assert lists(view, "test") == [[], [2, 3]]
    assert view.train.columns.dtype == np.int32
    assert view.train.indptr.dtype == np.int64
    assert view.everything().columns.tolist() == [0, 1, 2, 1, 2, 3]


def test_added_reverses_are_no_interactions(tmp_path: Path) -> None:
    nodes, edges = tables([(0, 1, 0), (1, 0, 2), (1, 1, 0)], 2, 2)
    view = interaction_view(build_graph(nodes, edges, GraphSettings(), tmp_path / "g"))
    assert lists(view, "train") == [[1], [1]]


def test_users_without_training_items_are_not_asked_and_repeated_items_not_held_out(tmp_path: Path) -> None:
    pairs = [(0, 0, 0), (0, 0, 2), (0, 1, 2), (1, 1, 1), (1, 0, 2)]
    view = interaction_view(built(tmp_path / "g", pairs, 3, 2))
    assert lists(view, "test") == [[1], [], []]
    assert lists(view, "valid") == [[], [], []]
    assert view.known_held_out == 1


def test_several_sets_of_item_features_are_named(tmp_path: Path) -> None:
    def table(rows: list[int], width: int) -> pa.Table:
        values = pa.array(np.arange(len(rows) * width, dtype=np.float32))
        return pa.table(
            [pa.array(rows, pa.int32()), pa.FixedSizeListArray.from_arrays(values, width)], features_schema(width)
        )

    features = {feature_key("item", "image"): table([1, 2, 3], 4), feature_key("item", "text"): table([1, 3], 2)}
    graph = built(tmp_path / "g", [(0, 0, 0), (0, 2, 0)], 1, 3, features=features)
    assert graph.feature_sets("item") == ("image", "text")
    assert graph.features("item") is None
    view = interaction_view(graph)
    assert view.features["image"].shape == (3, 4)
    assert view.features["text"].tolist() == [[0, 1], [0, 0], [2, 3]]
    assert view.present["text"].tolist() == [True, False, True]
    assert graph.describe()["features"] == {"item::image": 4, "item::text": 2}
    graph.verify()


def test_feature_keys() -> None:
    assert split_feature_key(feature_key("gene/protein", "image")) == ("gene/protein", "image")
    assert split_feature_key(feature_key("item")) == ("item", "")
    with pytest.raises(InputError, match="letters"):
        feature_key("item", "a/b")


def many(users: int, each: int) -> list[Triple]:
    return [(u, (7 * u + i) % 200, 0) for u in range(users) for i in range(each)]


def test_a_random_split_holds_out_its_part_of_every_user_on_average(tmp_path: Path) -> None:
    split = {"method": "random", "valid": 0.1, "test": 0.2}
    graph = built(tmp_path / "g", many(400, 7), 400, 200, given=False, split=split)
    assert graph.manifest["report"]["split_source"] == "random"
    view = interaction_view(graph)
    assert len(view.test) == pytest.approx(0.2 * 2800, rel=0.06)
    assert len(view.valid) == pytest.approx(0.1 * 2800, rel=0.1)
    assert view.train.counts.min() >= 4
    assert view.known_held_out == 0


def test_a_random_split_depends_on_ids_and_seed_alone(tmp_path: Path) -> None:
    pairs = many(60, 6)
    split = {"method": "random", "seed": 3}
    one = interaction_view(built(tmp_path / "a", pairs, 60, 200, given=False, split=split))
    two = interaction_view(built(tmp_path / "b", pairs[::-1], 60, 200, given=False, split=split))
    three = interaction_view(built(tmp_path / "c", pairs, 60, 200, given=False, split={**split, "seed": 4}))
    assert np.array_equal(one.test.columns, two.test.columns)
    assert not np.array_equal(one.test.columns, three.test.columns)


def test_the_newest_of_all_are_held_out_and_one_second_stays_together(tmp_path: Path) -> None:
    pairs = [(i % 5, i, 0) for i in range(100)]
    times = [i // 4 for i in range(100)]
    split = {"method": "by_time", "valid": 0.1, "test": 0.1}
    graph = built(tmp_path / "g", pairs, 5, 100, times=times, given=False, split=split)
    assert graph.manifest["report"]["split_source"] == "by_time"
    view = interaction_view(graph)
    assert sorted(view.test.columns.tolist()) == list(range(88, 100))  # item 90 shares its second with 88 and 89
    assert sorted(view.valid.columns.tolist()) == list(range(80, 88))


def test_a_given_split_without_validation_gets_one(tmp_path: Path) -> None:
    pairs = [*many(100, 10), *((u, 199 - u, 2) for u in range(100))]
    kept = interaction_view(built(tmp_path / "a", pairs, 100, 200))
    view = interaction_view(built(tmp_path / "b", pairs, 100, 200, split={"given": "add_valid", "valid": 0.1}))
    assert len(kept.valid) == 0
    assert len(view.valid) == 100
    assert np.array_equal(kept.test.indptr, view.test.indptr)
    assert (
        built(tmp_path / "b", pairs, 100, 200, split={"given": "add_valid", "valid": 0.1}).manifest["report"][
            "split_source"
        ]
        == "given, validation drawn"
    )


def test_methods_that_the_data_does_not_allow_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="timestamp"):
        built(tmp_path / "g", many(5, 5), 5, 200, given=False, split={"method": "by_time"})
    with pytest.raises(InputError, match="no"):
        built(tmp_path / "g", many(5, 5), 5, 200, given=False, split={"given": "add_valid"})
    with pytest.raises(InputError, match="already have a validation split"):
        built(tmp_path / "g", [(0, 0, 0), (0, 1, 1)], 1, 2, split={"given": "add_valid"})


def test_a_graph_without_interactions_is_refused(tmp_path: Path) -> None:
    nodes, edges = tables([(0, 0, 0)], 1, 1)
    name = pa.array(["likes"]).dictionary_encode()
    edges = edges.set_column(0, "relation", name)
    graph = build_graph(nodes, edges, GraphSettings(), tmp_path / "g")
    with pytest.raises(InputError, match="interacted"):
        interaction_view(graph)
    with pytest.raises(SettingsError, match="users' interactions"):
        build_graph(
            nodes,
            edges.drop_columns(["split"]),
            GraphSettings.model_validate({"split": {"method": "random"}}),
            tmp_path / "h",
        )


def test_a_graph_without_training_interactions_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no training interaction"):
        interaction_view(built(tmp_path / "g", [(0, 0, 2)], 1, 1))
