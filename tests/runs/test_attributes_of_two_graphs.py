"""Weights that read attributes, taken over to a graph whose encoders have other columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import graphmill
from graphmill.graph.attributes import SET
from graphmill.graph.summary import attribute_map, known_features
from graphmill.graph.typed_graph import TypedGraph
from graphmill.promotion.contents import load_champion
from graphmill.promotion.promote import promote_run
from graphmill.promotion.versions import Versions
from graphmill.runs.export import restore

GENRES = ("war", "crime", "love", "space", "music")
WORDS = ("guns and tanks", "a murder case", "a wedding day", "the last planet", "one old guitar")


def films(folder: Path, name: str, count: int, first: int) -> TypedGraph:
    """Items i from ``first`` on, of the genre i mod 5 (of late only one), each met by six users of its genre."""
    rng, rows = np.random.default_rng(0), []
    genre = [n % 5 if n < 40 else 3 for n in range(count)]
    for item in range(first, count):
        rows += [(f"u{genre[item] + 5 * user}", f"i{item}") for user in rng.choice(8, 6, replace=False)]
    about = pd.DataFrame({
        "id": [f"i{n}" for n in range(first, count)],
        "plot": [f"{WORDS[genre[n]]} {'part two' if n % 3 else ''}" for n in range(first, count)],
        "genre": [GENRES[genre[n]] for n in range(first, count)],
        "year": [1990 + n for n in range(first, count)],
    })  # fmt: skip
    tables = graphmill.read_interactions(pd.DataFrame(rows, columns=["user", "item"]), "interactions_csv")
    kinds = {"plot": "text", "genre": "category", "year": "number"}
    return graphmill.build_graph(graphmill.read_attributes(tables, about, "item", id="id", **kinds), folder / name)


def read(run: Path, name: str) -> dict[str, np.ndarray]:
    """What the layer ``name`` of a run makes of the attributes of each item, without its bias."""
    restored = restore(run)
    weights = restored.model.state_dict()[name].numpy()
    features = np.asarray(restored.graph.features("item", SET))
    kind = restored.graph.node_type("item")
    ids = restored.graph.node_table()["id"].to_pylist()[kind.offset : kind.offset + kind.count]
    return dict(zip(ids, features @ weights[:, : features.shape[1]].T, strict=True))


@pytest.mark.parametrize(
    ("system", "layer", "settings"),
    [
        ("dragon", "towers.0.hidden.weight", {}),
        ("mmgcn", "towers.0.projection.weight", {}),
        ("hgt", "encoder.features.1.weight", {"model": {"embedding_dim": 8, "hidden_dim": 8, "num_heads": 2}}),
    ],
)
def test_weights_read_in_a_grown_graph_what_they_read_before(
    system: str, layer: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    before, after = films(tmp_path, "before", 40, 0), films(tmp_path, "after", 60, 3)
    encoders = [graph.attribute_encoders("item") for graph in (before, after)]
    assert encoders[0][1].parameters["values"] != encoders[1][1].parameters["values"]
    how: dict[str, Any] = {"progress": False, **settings}
    first = graphmill.train(before, system, output=tmp_path / "first", training={"epochs": 2}, **how)
    start = {"epochs": 0, "init_from": str(first.path)}
    later = graphmill.train(after, system, output=tmp_path / "later", training=start, **how)
    old, new = read(first.path, layer), read(later.path, layer)
    known = sorted(old.keys() & new.keys())
    assert len(known) == 37
    a, b = np.stack([old[item] for item in known]), np.stack([new[item] for item in known])
    assert np.linalg.norm(a - b) < 0.02 * np.linalg.norm(a)


def test_a_version_is_compared_by_what_it_read_in_its_own_graph(tmp_path: Path) -> None:
    before, after = films(tmp_path, "before", 40, 0), films(tmp_path, "after", 60, 3)
    runs = [
        graphmill.train(graph, "dragon", output=tmp_path / "runs", training={"epochs": 2}, progress=False).path
        for graph in (before, after)
    ]
    store = Versions(tmp_path / "promoted" / "films" / "dragon")
    assert promote_run(runs[0], store, by="test", person=True, force=True)["outcome"] == "promoted"
    version = store.current()
    assert version is not None
    candidate = restore(runs[1])
    champion = load_champion(version, candidate)
    old = read(runs[0], "towers.0.hidden.weight")
    weights = champion.model.state_dict()["towers.0.hidden.weight"].numpy()
    kind, ids = after.node_type("item"), after.node_table()["id"].to_pylist()
    new = dict(zip(ids[kind.offset :], np.asarray(after.features("item", SET)) @ weights.T, strict=True))
    known = sorted(old.keys() & new.keys())
    a, b = np.stack([old[item] for item in known]), np.stack([new[item] for item in known])
    assert np.linalg.norm(a - b) < 0.02 * np.linalg.norm(a)


def test_equal_features_need_no_map_and_unknown_ones_have_none(tmp_path: Path) -> None:
    before, after = films(tmp_path, "before", 40, 0), films(tmp_path, "after", 60, 3)
    known = known_features(before)
    assert set(known) == {"item"}
    assert attribute_map(known, before, "item") is None
    assert attribute_map(known, after, "user") is None
    assert attribute_map({}, after, "item") is None
    change = attribute_map(known, after, "item")
    assert change is not None
    widths = [np.asarray(graph.features("item", SET)).shape[1] for graph in (after, before)]
    assert list(change.shape) == widths
