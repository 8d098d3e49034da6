"""New items of recommenders: vectors from features (MMGCN, DRAGON) by one pass."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import graphmill
from graphmill.errors import InputError, SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.tables import feature_key, features_schema
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from graphmill.usage.embed import NEW
from graphmill.usage.exported import Run
from tests.training.cases import CASES
from tests.training.runs import settings_of

USERS, ITEMS, TASTES, HIDDEN = 60, 60, 5, 12
SETS = {"image": 8, "text": 6}
CENTRES = np.random.default_rng(5).normal(size=(TASTES, 8))
LONGER = {"training": {"epochs": 25, "steps_per_epoch": 10}, "export": {"csv": False}}


def features_of(items: np.ndarray, name: str) -> np.ndarray:
    """Of an item: its taste's centre, and a little of its own."""
    rng = np.random.default_rng([7, SETS[name]])
    noise = 0.3 * rng.normal(size=(ITEMS, SETS[name]))
    return (CENTRES[items % TASTES, : SETS[name]] + noise[items]).astype(np.float32)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> TypedGraph:
    """Users and items of five tastes, and facts; the last items are not in it."""
    rng, known, entities = np.random.default_rng(3), ITEMS - HIDDEN, 2 * TASTES
    pairs = [(u, i) for u in range(USERS) for i in range(known) if rng.random() < (0.5 if likes(u, i) else 0.03)]
    facts = [("genre", i, i % TASTES) for i in range(known)] + [("maker", i, TASTES + i % TASTES) for i in range(known)]
    first = {"user": 0, "item": USERS, "entity": USERS + known}
    rows = [("interacted", u, USERS + i, int(rng.choice(3, p=(0.8, 0.1, 0.1)))) for u, i in pairs]
    rows += [(name, USERS + i, first["entity"] + e, 0) for name, i, e in facts]
    names = pa.array([r[0] for r in rows]).dictionary_encode()
    ends = [pa.array([r[place] for r in rows], pa.int32()) for place in (1, 2)]
    splits = pa.array([r[3] for r in rows], pa.uint8())
    edges = pa.table({"relation": names, "display_relation": names, "head": ends[0], "tail": ends[1], "split": splits})
    types = ["user"] * USERS + ["item"] * known + ["entity"] * entities
    ids = [f"{kind}{row - first[kind]}" for row, kind in enumerate(types)]
    nodes = pa.table(
        {
            "index": pa.array(range(len(types)), pa.int64()),
            "id": ids,
            "type": pa.array(types).dictionary_encode(),
            "name": ids,
            "source": pa.array(["made"] * len(types)).dictionary_encode(),
        }
    )
    tables = {}
    for name, width in SETS.items():
        values = pa.array(features_of(np.arange(known), name).reshape(-1))
        item_rows = pa.array(np.arange(USERS, USERS + known, dtype=np.int32))
        columns = [item_rows, pa.FixedSizeListArray.from_arrays(values, width)]
        tables[feature_key("item", name)] = pa.table(columns, features_schema(width))
    folder = tmp_path_factory.mktemp("items") / "graph"
    return build_graph(nodes, edges, GraphSettings(add_reverse="never"), folder, tables)


def likes(user: int, item: int) -> bool:
    return user % TASTES == item % TASTES


def trained(graph: TypedGraph, case: str, folder: Path, **sections: Any) -> Run:
    result = train(settings_of(CASES[case], graph, {**LONGER, **sections}), "test", root=str(folder))
    export_run(restore(result["run_dir"]))
    return graphmill.load(result["run_dir"])


def feature_file(folder: Path, name: str, items: np.ndarray) -> Path:
    path = folder / f"{name}.csv"
    rows = features_of(items, name)
    header = ",".join(["id", *(f"f{n}" for n in range(SETS[name]))])
    lines = [",".join([f"item{i}", *(f"{value:.6f}" for value in row)]) for i, row in zip(items, rows, strict=True)]
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


COLUMNS = {
    f"{end}_{what}": f"{end}{more}" for end in ("head", "tail") for what, more in (("id", ""), ("type", "_type"))
}
COLUMNS |= {"relation": "relation"}
NEW_ITEMS = np.arange(ITEMS - HIDDEN, ITEMS)


def recall_among(run: Run, items: list[int], k: int, graph: TypedGraph) -> float:
    """Of the new items that suit a user the part among the user's ``k`` best of ``items`` but those met, on average."""
    users = np.stack([run[f"user{u}"] for u in range(USERS)])
    vectors = np.stack([run[f"item{i}"] for i in items])
    scores, edges = users @ vectors.T, graph.edges(graph.relation("user", "interacted", "item"))
    for user, item in zip(edges.src.tolist(), edges.dst.tolist(), strict=True):
        scores[user, [place for place, i in enumerate(items) if i == item]] = -np.inf
    best = np.argsort(-scores, axis=1)[:, :k]
    result = []
    for user in range(USERS):
        wanted = {i for i in NEW_ITEMS.tolist() if likes(user, i)}
        result.append(len(wanted & {items[place] for place in best[user]}) / len(wanted))
    return float(np.mean(result))


@pytest.mark.parametrize("case", ["mmgcn", "dragon"])
def test_hidden_items_are_recommended_to_who_likes_them(case: str, graph: TypedGraph, tmp_path: Path) -> None:
    run = trained(graph, case, tmp_path / "runs")
    files = {name: feature_file(tmp_path, name, np.arange(ITEMS - HIDDEN - 3, ITEMS)) for name in SETS}
    grown = run.embed(features=files, output=tmp_path / "out")
    assert len(grown) == len(run) + HIDDEN
    assert np.array_equal(grown["item3"], run["item3"])
    assert np.array_equal(grown["user7"], run["user7"])
    assert len(graphmill.load(tmp_path / "out").to_pandas()) == len(grown)
    assert (tmp_path / "out" / NEW).is_file()
    assert recall_among(grown, NEW_ITEMS.tolist(), 3, graph) > 2.5 * (3 / HIDDEN)
    among_trained = recall_among(grown, list(range(ITEMS)), 10, graph)
    assert among_trained > 2.5 * (10 / ITEMS), among_trained


@pytest.mark.parametrize("case", ["mmgcn", "dragon"])
def test_interactions_of_a_new_item_count_beside_its_features(case: str, graph: TypedGraph, tmp_path: Path) -> None:
    run = trained(graph, case, tmp_path / "runs", training={"epochs": 2})
    files = {name: feature_file(tmp_path, name, NEW_ITEMS[:1]) for name in SETS}
    alone = run.embed(features=files, output=tmp_path / "alone")
    met = tmp_path / "met.csv"
    rows = [f"user{u},user,interacted,item{NEW_ITEMS[0]},item" for u in range(5)]
    met.write_text("\n".join(["head,head_type,relation,tail,tail_type", *rows]) + "\n")
    both = run.embed(met, tmp_path / "both", features=files, columns=COLUMNS)
    name = f"item{NEW_ITEMS[0]}"
    assert not np.allclose(both[name], alone[name])
    assert np.array_equal(both["user0"], alone["user0"])


@pytest.fixture(scope="module")
def dragon(graph: TypedGraph, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return trained(graph, "dragon", tmp_path_factory.mktemp("dragon"), training={"epochs": 1})


def test_what_cannot_be_used_is_said_in_a_sentence(graph: TypedGraph, dragon: Run, tmp_path: Path) -> None:
    image = feature_file(tmp_path, "image", NEW_ITEMS)
    text = feature_file(tmp_path, "text", NEW_ITEMS)
    known = tmp_path / "known.csv"
    known.write_text(text.read_text().replace("item4", "item1").replace("item5", "item2"))
    broken = tmp_path / "broken.csv"
    broken.write_text(text.read_text().replace(text.read_text().splitlines()[1].split(",")[1], "many", 1))
    twice = tmp_path / "twice.csv"
    twice.write_text(text.read_text() + text.read_text().splitlines()[1] + "\n")
    for given, says in (
        ({"": image}, "name these features, as NAME=FILE (the graph has item::image, item::text)"),
        ({"sound": image}, "name these features"),
        ({"person::image": image}, "name the node type of these features"),
        ({"text": image}, "has 8 features a row; those of 'item' that the model was trained with have 6"),
        ({"text": broken}, "of its rows cannot be used; the first on line 2"),
        ({"text": twice}, f"'item{NEW_ITEMS[0]}' comes a second time"),
        ({}, "give a file of edges, of features or attributes"),
    ):
        with pytest.raises(InputError) as error:
            dragon.embed(features=given, output=tmp_path / "out")
        assert says in str(error.value)
    person = tmp_path / "person.csv"
    person.write_text("head,head_type,relation,tail,tail_type\nsomebody,user,interacted,item1,item\n")
    with pytest.raises(InputError, match="people are recommended to from their history"):
        dragon.embed(person, tmp_path / "out", columns=COLUMNS)
    assert not (tmp_path / "out").exists()


def test_systems_that_know_nothing_of_an_item_say_what_does(graph: TypedGraph, tmp_path: Path) -> None:
    image = feature_file(tmp_path, "image", NEW_ITEMS)
    bpr = trained(graph, "mf", tmp_path / "bpr", training={"epochs": 1})
    with pytest.raises(SettingsError, match=r"training\.epochs: 0.*mmgcn or dragon"):
        bpr.embed(features={"image": image}, output=tmp_path / "out")


def test_on_the_command_line(dragon: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from graphmill.cli import app

    files = [f"{name}={feature_file(tmp_path, name, NEW_ITEMS)}" for name in SETS]
    given = [part for file in files for part in ("--features", file)]
    app(["embed", str(dragon.path), *given, "-o", str(tmp_path / "out"), "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out)["new_nodes"] == {"item": HIDDEN}
    with pytest.raises(InputError, match="two files have the same feature set"):
        app(["embed", str(dragon.path), *given, "--features", files[0]], standalone_mode=False)
