"""Datasets from a folder of triples and from interactions: what is read, shown, versioned and watched."""

import json
from pathlib import Path

import dagster as dg
import numpy as np
import pytest

from graphmill.errors import SettingsError
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import interaction_view
from graphmill.graph.settings import GraphSettings
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.interactions import with_knowledge
from graphmill.ingest.interactions_csv import read_sequence
from graphmill.ingest.kgat_files import KgatFilesSettings, read_kgat
from graphmill.ingest.mmrec import MmrecSettings, read_mmrec
from tests.components.conftest import Project, checks, failure


def write_triples(folder: Path, rows: int = 60) -> None:
    folder.mkdir(parents=True)
    triples = [f"e{i % 12}\tr{i % 3}\te{(5 * i + 1) % 12}" for i in range(rows)]
    parts = {"train": triples[10:], "valid": triples[:5], "test": triples[5:10]}
    for name, lines in parts.items():
        (folder / f"{name}.txt").write_text("\n".join(dict.fromkeys(lines)) + "\n")


def write_views(path: Path, users: int = 20) -> None:
    """Each user meets item 1 twice; the last user has two views only, and one line has no item."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        f"u{u}\ti{(u + step * 3) % 7 if step else 1}\t{1000 + 60 * step}" for u in range(users) for step in range(5)
    ]
    lines += [f"u{u}\ti1\t2000" for u in range(users)]
    lines += ["late\ti2\t3000", "late\ti3\t3000", "late\t\t3000"]
    path.write_text("\n".join(lines) + "\n")


def test_a_folder_of_triples_becomes_a_graph_with_the_given_split(project: Project) -> None:
    folder = project.root / "data" / "triples"
    write_triples(folder)
    definitions = project.dataset(sources=[{"name": "triples", "format": "triples", "path": "data/triples"}])
    result = project.materialize(definitions)
    assert result.success, failure(result)
    raw = project.metadata("toy/raw_triples")
    lines = {name: (folder / f"{name}.txt").read_text().count("\n") for name in ("train", "valid", "test")}
    assert raw["lines"] == sum(lines.values())
    graph = TypedGraph.open(project.root / project.value("toy/graph")["path"])
    assert not any(relation.added_reverse for relation in graph.relations), "a triple has one direction"
    assert project.metadata("toy/graph")["split_source"] == "given"
    assert project.metadata("toy/nodes")["dagster/row_count"] == graph.num_nodes == 12


@pytest.mark.parametrize(("train_times", "passes"), [(range(10), True), (range(30, 40), False)])
def test_a_given_split_whose_training_knows_the_future_warns(
    project: Project, train_times: range, passes: bool
) -> None:
    folder = project.root / "data" / "dated"
    folder.mkdir(parents=True)
    for name, times in (("train", train_times), ("valid", range(20, 22)), ("test", range(22, 24))):
        lines = [f"e{time % 10}\tr\tf{time // 10}\t{time}" for time in times]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    source = {"name": "triples", "format": "triples", "path": "data/dated", "timed": True}
    result = project.materialize(project.dataset(sources=[source]))
    assert result.success, failure(result)
    sealed = checks(result)["no_split_leakage"]
    assert (sealed.passed, sealed.severity) == (passes, dg.AssetCheckSeverity.WARN)
    assert ("100% of the training edges are newer" in str(sealed.description)) is not passes


def test_every_file_of_a_folder_counts_and_no_other(project: Project) -> None:
    folder = project.root / "data" / "triples"
    write_triples(folder)
    definitions = project.dataset(sources=[{"name": "triples", "format": "triples", "path": "data/triples"}])
    project.materialize(definitions)
    before = project.data_version("toy/raw_triples")
    (folder / "notes.txt").write_text("nobody reads this\n")
    project.materialize(definitions, only='key:"toy/raw_triples"')
    assert project.data_version("toy/raw_triples") == before
    (folder / "node_dict.txt").write_text("".join(f"e{i}\t{i}\n" for i in range(12)))
    result = project.materialize(definitions, only='key:"toy/nodes" or key:"toy/edges"')
    assert "data/triples has changed since raw_triples was materialized" in failure(result)
    assert project.materialize(definitions).success
    assert project.data_version("toy/raw_triples") != before


def test_a_folder_without_its_files_is_one_sentence(project: Project) -> None:
    (project.root / "data" / "triples").mkdir()
    definitions = project.dataset(sources=[{"name": "triples", "format": "triples", "path": "data/triples"}])
    assert "has no train.txt" in failure(project.materialize(definitions))


def test_interactions_become_sequences(project: Project) -> None:
    write_views(project.root / "data" / "views.tsv")
    source = {"name": "interactions", "format": "sequence", "path": "data/views.tsv"}
    definitions = project.dataset(sources=[source])
    keys = {key.to_user_string() for key in definitions.resolve_all_asset_keys()}
    assert keys == {"toy/raw_interactions", "toy/interactions", "toy/nodes", "toy/graph"}
    result = project.materialize(definitions)
    assert result.success, failure(result)
    output = project.metadata("toy/interactions")
    assert (output["dagster/row_count"], output["users"], output["items"]) == (122, 21, 7)
    names = [column.name for column in output["columns"].columns]
    assert names[:4] == ["user_id", "item_id", "position", "timestamp"]
    assert "share their time" in output["notes"]
    assert checks(result)["users_can_be_evaluated"].passed
    graph = TypedGraph.open(project.root / project.value("toy/graph")["path"])
    assert [(t.name, t.count) for t in graph.node_types] == [("user", 21), ("item", 7)]
    sealed = checks(result)["no_split_leakage"]
    assert sealed.passed
    assert "the same item again" in sealed.description, "what a person does again is no leak"


def test_the_graph_is_the_one_that_the_reader_alone_would_give(project: Project) -> None:
    """Interactions travel as one table; nodes, order, times and ids come out of it as they went in."""
    path = project.root / "data" / "views.tsv"
    write_views(path)
    project.materialize(project.dataset(sources=[{"name": "views", "format": "sequence", "path": "data/views.tsv"}]))
    tables = read_sequence(path)
    plain = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), project.root / "plain")
    assert project.value("toy/graph")["content_hash"] == plain.content_hash


def test_a_csv_of_interactions_may_have_any_columns(project: Project) -> None:
    rows = "\n".join(f"{u};{(u * s) % 9};{s}.5;{100 * s}" for u in range(12) for s in range(1, 7))
    (project.root / "data" / "plays.csv").write_text(f"listener;track;plays;when\n{rows}\n")
    columns = {"user": "listener", "item": "track", "weight": "plays", "timestamp": "when"}
    source = {"name": "plays", "format": "interactions_csv", "path": "data/plays.csv", "columns": columns}
    result = project.materialize(project.dataset(sources=[source]))
    assert result.success, failure(result)
    names = [column.name for column in project.metadata("toy/interactions")["columns"].columns]
    assert names[:5] == ["user_id", "item_id", "position", "timestamp", "weight"]


def test_the_sensor_looks_at_the_files_of_the_moment(project: Project) -> None:
    folder = project.root / "data" / "triples"
    write_triples(folder)
    source = {"name": "triples", "format": "triples", "path": "data/triples"}
    definitions = project.dataset(sources=[source], watch={"enabled": True, "interval_seconds": 30})
    sensor = definitions.sensors[0]
    with dg.build_sensor_context(definitions=definitions) as context:
        seen = json.loads(sensor.evaluate_tick(context).cursor)["seen"]
        assert set(seen) == {"triples.train", "triples.valid", "triples.test"}
        (folder / "rel_dict.txt").write_text("r0\t0\nr1\t1\nr2\t2\n")
        seen = json.loads(sensor.evaluate_tick(context).cursor)["seen"]
        assert "triples.relations" in seen


# -- interactions with features and knowledge ------------------------------------------------------------------------


def write_music(folder: Path) -> None:
    """Six tracks of which the last nobody hears, two sets of features, facts on tracks and genres."""
    folder.mkdir(parents=True)
    rows = [f"{user}\t{(user + step) % 5}\t{step if step < 3 else 0}" for user in range(12) for step in range(5)]
    (folder / "music.inter").write_text("userID\titemID\tx_label\n" + "\n".join(rows) + "\n")
    for name, width in (("audio", 3), ("text", 2)):
        np.save(folder / f"{name}.npy", np.arange(6 * width, dtype=np.float32).reshape(6, width) + 1)
        (folder / f"{name}.ids.txt").write_text("\n".join(map(str, range(6))) + "\n")
    (folder / "item_list.txt").write_text("org_id remap_id\n" + "".join(f"song_{i} {i}\n" for i in range(6)))
    (folder / "kg_final.txt").write_text("".join(f"{i} 0 {6 + i % 2}\n" for i in range(6)))


MUSIC = [
    {"name": "interactions", "format": "mmrec", "path": "data/music/music.inter", "features": ["none"]},
    {"name": "audio", "format": "node_features", "path": "data/music/audio.npy", "node_type": "item"},
    {"name": "text", "format": "node_features", "path": "data/music/text.npy", "node_type": "item"},
    {"name": "kg", "format": "kgat", "path": "data/music", "part": "knowledge"},
]


def test_interactions_features_and_knowledge_become_one_graph(project: Project) -> None:
    write_music(project.root / "data" / "music")
    definitions = project.dataset(sources=MUSIC)
    keys = {key.path[-1] for key in definitions.resolve_all_asset_keys()}
    raw = {f"raw_{source['name']}" for source in MUSIC}
    assert keys == raw | {"interactions", "nodes", "edges", "features", "graph"}
    result = project.materialize(definitions)
    assert result.success, failure(result)
    counts = {name: project.metadata(f"toy/{name}")["dagster/row_count"] for name in ("interactions", "nodes", "edges")}
    assert counts == {"interactions": 60, "nodes": 12 + 6 + 2, "edges": 6}
    assert project.metadata("toy/raw_interactions")["lines"] == 61
    graph = TypedGraph.open(project.root / project.value("toy/graph")["path"])
    assert [(t.name, t.count) for t in graph.node_types] == [("user", 12), ("item", 6), ("entity", 2)]
    assert not any(relation.added_reverse for relation in graph.relations)
    assert project.metadata("toy/graph")["split_source"] == "given"
    assert "song_5" in graph.node_table()["name"].to_pylist(), "also what nobody heard has its name"
    view = interaction_view(graph)
    assert {name: features.shape for name, features in view.features.items()} == {"audio": (6, 3), "text": (6, 2)}
    assert len(view.test.columns) == 12


def test_the_joined_graph_is_the_one_that_the_readers_would_give(project: Project) -> None:
    folder = project.root / "data" / "music"
    write_music(folder)
    project.materialize(project.dataset(sources=[MUSIC[0], MUSIC[3]]))
    interactions = read_mmrec(folder / "music.inter", MmrecSettings(features=["none"]))
    tables = with_knowledge(interactions, read_kgat(folder, KgatFilesSettings(part="knowledge")), "kg")
    plain = build_graph(tables.nodes, tables.edges, GraphSettings(add_reverse="never"), project.root / "plain")
    assert project.value("toy/graph")["content_hash"] == plain.content_hash


def test_features_beside_the_interactions_come_along(project: Project) -> None:
    folder = project.root / "data" / "music"
    write_music(folder)
    np.save(folder / "image_feat.npy", np.ones((5, 4), np.float32) * np.arange(1, 6)[:, None])
    source = {"name": "interactions", "format": "mmrec", "path": "data/music/music.inter"}
    definitions = project.dataset(sources=[source])
    before = project.materialize(definitions)
    assert before.success, failure(before)
    graph = TypedGraph.open(project.root / project.value("toy/graph")["path"])
    assert interaction_view(graph).features["image"].shape == (5, 4)
    version = project.data_version("toy/raw_interactions")
    np.save(folder / "image_feat.npy", np.ones((5, 4), np.float32))
    project.materialize(definitions)
    assert project.data_version("toy/raw_interactions") != version, "the matrix is part of the source"


def test_knowledge_alone_is_refused(project: Project) -> None:
    with pytest.raises(SettingsError, match=r"this one has 0|adds to interactions"):
        project.dataset(sources=[MUSIC[3]])
    edges = {"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}
    with pytest.raises(SettingsError, match=r"source 'kg' .*adds to interactions"):
        project.dataset(sources=[edges, MUSIC[3]])
