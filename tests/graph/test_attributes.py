"""Features from attributes: what the encoders make of each kind, and that they see no node that is held out."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from graphmill.errors import InputError
from graphmill.graph.attributes import ONE_HOT, encode, encoded_attributes
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import ATTRIBUTE_TYPES
from tests.graph.tables import edges_table, nodes_table

TITLES = ["the lung cancer", "Breast Cancer", "heart failure", "heart attack", None, "a rash"]


def table(**columns: pa.Array) -> pa.Table:
    rows = len(next(iter(columns.values())))
    return pa.table({"node": pa.array(range(rows), pa.int32()), **columns})


def features(given: pa.Table) -> np.ndarray:
    result = encoded_attributes(given, np.ones(len(given), bool))
    return np.concatenate([encode(e, given[e.name].combine_chunks()) for e in result.encoders], axis=1)


def test_texts_with_a_word_in_common_are_alike_and_of_length_one() -> None:
    rows = features(table(title=pa.array(TITLES)))
    like = rows @ rows.T
    assert like[0, 1] > 0.5
    assert like[2, 3] > 0.5
    assert abs(like[0, 2]) < 0.1
    assert np.linalg.norm(rows, axis=1) == pytest.approx([1, 1, 1, 1, 0, 0], abs=1e-5)


@pytest.mark.parametrize(
    "texts",
    [
        ["肺癌患者的治疗", "晚期肺癌", "心力衰竭", "皮疹和发热"],
        ["肺がんの治療", "進行した肺がん", "心不全", "アトピー"],
        ["โรคมะเร็งปอด", "มะเร็งปอดระยะลุกลาม", "หัวใจวาย", "ผื่น"],
        ["फेफड़े का कैंसर", "फेफड़े में कैंसर", "दिल की विफलता", "चकत्ते"],
    ],
)
def test_texts_of_any_script_with_words_in_common_are_alike(texts: list[str]) -> None:
    vectors = features(table(name=pa.array(texts)))
    alike = vectors @ vectors.T
    assert alike[0, 1] > 0.2 + max(alike[0, 2], alike[0, 3])


def test_a_number_is_standardised_and_a_missing_one_is_marked() -> None:
    rows = features(table(year=pa.array([1.0, None, 3.0, 5.0])))
    assert rows[:, 1].tolist() == [0, 1, 0, 0]
    assert rows[1, 0] == 0
    assert rows[[0, 2, 3], 0] == pytest.approx([-1.2247, 0, 1.2247], abs=1e-3)


def test_categories_and_lists_have_a_column_a_value_or_are_hashed() -> None:
    rows = features(table(area=pa.array(["x", "y", "x"]).dictionary_encode(), aka=pa.array([["a", "b"], ["a"], None])))
    assert rows[:, :2].tolist() == [[1, 0], [0, 1], [1, 0]]
    assert rows[:, 2:].tolist() == [pytest.approx([0.5**0.5] * 2), [1, 0], [0, 0]]
    many = pa.array([f"v{n % 90}" for n in range(180)]).dictionary_encode()
    hashed = features(table(area=many))
    assert hashed.shape[1] == ONE_HOT
    np.testing.assert_array_equal(hashed[:90], hashed[90:])


@pytest.fixture
def given() -> dict[str, pa.Table]:
    return {"disease": table(title=pa.array(TITLES), year=pa.array([1.0, 2, 3, 4, 5, None])).slice(0, 6)}


NODES = nodes_table(["disease"] * 6 + ["drug"] * 6)
EDGES = edges_table([("treats", 6 + n % 6, n // 3) for n in range(18)] + [("like", n, (n + 1) % 6) for n in range(6)])


def test_the_graph_keeps_encoders_for_nodes_that_join_later(given: dict[str, pa.Table], tmp_path: Path) -> None:
    build_graph(NODES, EDGES, GraphSettings(), tmp_path / "graph", None, given)
    graph = TypedGraph.open(tmp_path / "graph")
    encoders = graph.attribute_encoders("disease")
    rows = np.concatenate([encode(e, given["disease"][e.name].combine_chunks()) for e in encoders], axis=1)
    np.testing.assert_allclose(rows, graph.features("disease", "attributes"), atol=1e-6)
    unseen = encode(encoders[0], pa.array(["cancer of the heart", "words unknown here"], ATTRIBUTE_TYPES["text"]))
    assert np.linalg.norm(unseen, axis=1) == pytest.approx([1, 0], abs=1e-5)
    assert graph.manifest["node_types"][0]["attributes"][1]["nodes"] == 5
    again = build_graph(NODES, EDGES, GraphSettings(), tmp_path / "again", None, given)
    assert again.content_hash == graph.content_hash


def test_nodes_of_held_out_groups_fit_no_encoder(given: dict[str, pa.Table], tmp_path: Path) -> None:
    split = {
        "method": "by_group",
        "group_type": "disease",
        "group_relations": ["treats"],
        "test_groups": ["id0", "id1"],
    }
    settings = GraphSettings.model_validate({"split": split})
    changed = given["disease"].set_column(2, "year", pa.array([900.0, 700, 3, 4, 5, None]))
    first, second, all_of = (
        build_graph(NODES, EDGES, graph_settings, tmp_path / name, None, {"disease": of})
        for name, graph_settings, of in (
            ("a", settings, given["disease"]), ("b", settings, changed), ("c", GraphSettings(), changed),
        )
    )  # fmt: skip
    mean = [graph.attribute_encoders("disease")[1].parameters["mean"] for graph in (first, second, all_of)]
    assert mean == [4, 4, pytest.approx(322.4)]


def test_what_tells_nothing_about_nodes_that_are_seen_is_refused() -> None:
    seen = np.arange(6) < 3
    for values in (pa.array([None] * 3 + TITLES[3:]), pa.array([None] * 3 + ["a", "b", "c"]).dictionary_encode()):
        with pytest.raises(InputError, match="attribute 'title': only nodes that are held out"):
            encoded_attributes(table(title=values), seen)
    with pytest.raises(InputError, match="attribute 'title' has no word"):
        encoded_attributes(table(title=pa.array(["A", "7", "!!", "b", "c", "d"])), np.ones(6, bool))


def test_attributes_of_held_out_nodes_alone_are_refused() -> None:
    with pytest.raises(InputError, match="held out"):
        encoded_attributes(table(title=pa.array(TITLES)), np.zeros(6, bool))
