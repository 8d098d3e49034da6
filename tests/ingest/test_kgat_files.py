"""The format kgat: lists of items, facts, names; alone, or as knowledge for another source's interactions."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pyarrow.compute as pc
import pytest

from graphmill.errors import InputError
from graphmill.graph.build import build_graph
from graphmill.graph.interactions import interaction_view, knowledge_view
from graphmill.graph.sequences import sequence_view
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.interactions import with_knowledge
from graphmill.ingest.interactions_csv import read_interactions_csv
from graphmill.ingest.kgat_files import KgatFilesSettings, kgat_files, read_kgat
from graphmill.ingest.mmrec import read_mmrec
from graphmill.ingest.triples import TriplesSettings, read_triples

TRAIN, TEST, FACTS = "0 0 1\n1 2\n", "0 2\n1 0\n", "0 0 3\n2 1 4\n3 0 4\n0 0 3\n"


def folder(path: Path, **files: str) -> Path:
    path.mkdir(exist_ok=True)
    for name, text in {"train": TRAIN, "test": TEST, "kg_final": FACTS, **files}.items():
        if text:
            (path / f"{name}.txt").write_text(text, encoding="utf-8")
    return path


def lists(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    (path / "entity_list.txt").write_text("org_id remap_id\nm.1 0\nm.2 1\nm.3 2\nm.4 3\nm.5 4\n")
    (path / "item_list.txt").write_text("org_id remap_id freebase_id\nB1 0 m.1\nB2 1 m.2\nB3 2 m.3\n")
    (path / "user_list.txt").write_text("org_id remap_id\nann 0\nbob 1\n")
    (path / "relation_list.txt").write_text("org_id remap_id\nhttp://x/genre 0\nhttp://x/author 1\n")
    return path


def test_interactions_and_facts(tmp_path: Path) -> None:
    result = read_kgat(folder(tmp_path / "d"))
    assert result.nodes["type"].to_pylist() == ["user"] * 2 + ["item"] * 3 + ["entity"] * 2
    assert result.nodes["id"].to_pylist() == ["0", "1", "0", "1", "2", "3", "4"]
    rows = zip(*(result.edges[c].to_pylist() for c in ("relation", "head", "tail", "split")), strict=True)
    assert list(rows) == [
        ("interacted", 0, 2, 0),
        ("interacted", 0, 3, 0),
        ("interacted", 1, 4, 0),
        ("interacted", 0, 4, 2),
        ("interacted", 1, 2, 2),
        ("relation 0", 2, 5, 0),
        ("relation 1", 4, 6, 0),
        ("relation 0", 5, 6, 0),
    ]
    assert result.counts["duplicate_facts"] == 1
    assert result.counts["items_without_facts"] == 1


def test_names_come_from_the_lists(tmp_path: Path) -> None:
    result = read_kgat(lists(folder(tmp_path / "d")))
    assert result.nodes["name"].to_pylist() == ["ann", "bob", "B1", "B2", "B3", "m.4", "m.5"]
    assert result.edges["relation"].unique().to_pylist() == ["interacted", "http://x/genre", "http://x/author"]


def test_gzipped_and_zipped_files_are_found(tmp_path: Path) -> None:
    path = folder(tmp_path / "d", kg_final="", train="")
    (path / "train.txt.gz").write_bytes(gzip.compress(TRAIN.encode()))
    with zipfile.ZipFile(path / "kg_final.txt.zip", "w") as archive:
        archive.writestr("kg_final.txt", FACTS)
    assert read_kgat(path).edges.equals(read_kgat(folder(tmp_path / "plain")).edges)
    assert str(kgat_files(path)["knowledge"]).endswith("kg_final.txt.zip")
    (path / "kg_final.txt.zip").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(InputError, match="zip archive is damaged"):
        read_kgat(path)


def test_facts_of_unknown_entities_and_relations_are_rejects_where_there_is_a_list(tmp_path: Path) -> None:
    path = lists(folder(tmp_path / "d", kg_final=FACTS + "0 0 9\n0 7 3\n"))
    result = read_kgat(path)
    assert result.counts["facts"] == 3
    assert [(r["line"], r["reason"], r["value"]) for r in result.rejects.to_pylist()] == [
        (5, "the entity is not in entity_list.txt", "9"),
        (6, "the relation is not in relation_list.txt", "7"),
    ]
    without = read_kgat(folder(tmp_path / "e", kg_final=FACTS + "0 0 9\n"))  # without a list every number is an entity
    assert without.counts["entities"] == 10


def test_a_user_line_without_items_has_none_and_is_no_mistake(tmp_path: Path) -> None:
    result = read_kgat(folder(tmp_path / "d", train=TRAIN + "2\n\n", test=TEST + "0\n2 1\n"))
    assert result.rejects.num_rows == 0
    assert result.counts["users"] == 3
    graph = build_graph(result.nodes, result.edges, GraphSettings(add_reverse="never"), tmp_path / "g")
    assert interaction_view(graph).test.counts.tolist() == [1, 1, 0]


def test_lines_that_are_no_numbers_are_rejects_with_their_place(tmp_path: Path) -> None:
    path = folder(tmp_path / "d", train=TRAIN + "2 x 1\n", test=TEST + "0 -1\n", kg_final=FACTS + "0 1\n3 0 z\n")
    result = [(r["file"].rsplit("/")[-1], r["line"]) for r in read_kgat(path).rejects.to_pylist()]
    assert result == [("train.txt", 3), ("test.txt", 3), ("kg_final.txt", 5), ("kg_final.txt", 6)]


def test_two_wrong_lines_that_have_six_cells_together_are_two_rejects(tmp_path: Path) -> None:
    result = read_kgat(
        folder(tmp_path / "d", kg_final="0 0 3\n0 1\n2 0 1 4\n1 0 4\n2 1_0 4\n+2 0 4\n\n2 0 9999999999999\n")
    )
    answer = [(r["line"], r["value"]) for r in result.rejects.to_pylist()]
    assert answer == [(2, "0 1"), (3, "2 0 1 4"), (5, "1_0"), (6, "+2"), (8, "9999999999999")]
    facts = result.edges.filter(pc.not_equal(result.edges["relation"].cast("string"), "interacted"))
    assert sorted(zip(facts["head"].to_pylist(), facts["tail"].to_pylist(), strict=True)) == [(2, 5), (3, 6)]


def test_an_item_beyond_the_list_is_a_reject_and_its_line_is_kept(tmp_path: Path) -> None:
    """4 is the number of another entity, which must not become something that is recommended."""
    result = read_kgat(lists(folder(tmp_path / "d", train="0 0 4 1\n1 2\n")))
    (reject,) = result.rejects.to_pylist()
    assert (reject["line"], reject["reason"], reject["value"]) == (1, "the item is not in item_list.txt", "4")
    assert result.nodes["type"].to_pylist().count("item") == 3
    assert (result.counts["train"], result.counts["rejected_rows"]) == (3, 1)


def test_duplicates_within_a_line_are_counted(tmp_path: Path) -> None:
    result = read_kgat(folder(tmp_path / "d", train="0 0 1 1\n1 2\n", test="0 2 0\n"))
    assert result.counts["duplicate_interactions"] == 1


def test_a_data_set_without_knowledge(tmp_path: Path) -> None:
    result = read_kgat(folder(tmp_path / "d", kg_final=""))
    assert result.counts["facts"] == 0
    assert set(result.nodes["type"].to_pylist()) == {"user", "item"}


def test_knowledge_joins_the_interactions_of_another_source(tmp_path: Path) -> None:
    inter = tmp_path / "a.inter"
    inter.write_text("userID\titemID\tx_label\n0\t0\t0\n0\t2\t2\n1\t1\t0\n")
    knowledge = read_kgat(lists(folder(tmp_path / "d")), KgatFilesSettings(part="knowledge"))
    assert set(knowledge.nodes["type"].to_pylist()) == {"user", "item", "entity"}
    joined = with_knowledge(read_mmrec(inter), knowledge)
    assert joined.nodes["name"].to_pylist() == ["ann", "bob", "B1", "B2", "B3", "m.4", "m.5"]
    assert joined.edges["split"].to_pylist() == [0, 2, 0, 0, 0, 0]
    graph = build_graph(joined.nodes, joined.edges, GraphSettings(add_reverse="never"), tmp_path / "g")
    view, facts = interaction_view(graph), knowledge_view(graph)
    assert view.train.columns.tolist() == [0, 1]
    assert facts.names == ("http://x/genre", "http://x/author")
    assert sorted(zip(facts.head.tolist(), facts.relation.tolist(), facts.tail.tolist(), strict=True)) == [
        (2, 0, 5), (4, 1, 6), (5, 0, 6),
    ]  # fmt: skip


def test_knowledge_about_other_things_is_refused(tmp_path: Path) -> None:
    inter = tmp_path / "a.inter"
    inter.write_text("userID\titemID\tx_label\nu\tx\t0\n")
    with pytest.raises(InputError, match="no node of knowledge"):
        with_knowledge(read_mmrec(inter), read_kgat(folder(tmp_path / "d"), KgatFilesSettings()))
    inter.write_text("userID\titemID\tx_label\n0\tx\t0\n1\ty\t0\n")  # the same users, other items
    knowledge = read_kgat(lists(folder(tmp_path / "e")), KgatFilesSettings(part="knowledge"))
    with pytest.raises(InputError, match=r"no node of knowledge \(item\) .*here is item 'y', there item '2'"):
        with_knowledge(read_mmrec(inter), knowledge)


def test_facts_that_their_own_files_hold_out_stay_in_train(tmp_path: Path) -> None:
    inter = tmp_path / "a.inter"
    inter.write_text("userID\titemID\tx_label\n0\t0\t0\n0\t2\t2\n1\t1\t0\n")
    for part, text in {"train": "0\tby\tx\n", "valid": "1\tby\tx\n", "test": "2\tby\tx\n"}.items():
        (tmp_path / f"{part}.txt").write_text(text)
    knowledge = read_triples(tmp_path, TriplesSettings(node_type="item"))
    joined = with_knowledge(read_mmrec(inter), knowledge)
    assert joined.edges["split"].to_pylist() == [0, 2, 0, 0, 0, 0]


def test_numbers_of_entities_that_no_line_has_are_told(tmp_path: Path) -> None:
    result = read_kgat(folder(tmp_path / "d", kg_final=FACTS.replace("2 1 4", "2 1 9")))
    assert result.counts["unnamed_entities"] == 4
    assert "4 numbers below the largest entity's" in " ".join(result.notes)
    assert read_kgat(folder(lists(tmp_path / "listed"), kg_final="0 0 3\n")).counts["unnamed_entities"] == 0


def test_items_that_only_the_knowledge_has_are_counted(tmp_path: Path) -> None:
    inter = tmp_path / "a.inter"
    inter.write_text("userID\titemID\tx_label\nu\t0\t0\nu\tx\t0\n")
    joined = with_knowledge(
        read_mmrec(inter), read_kgat(lists(folder(tmp_path / "d")), KgatFilesSettings(part="knowledge"))
    )
    assert joined.counts["knowledge: new_items"] == 2
    assert "knowledge: 2 items have no interaction" in " ".join(joined.notes)


@pytest.mark.parametrize("timed", [True, False])
def test_facts_beside_interactions_without_a_split_stay_in_train(tmp_path: Path, timed: bool) -> None:
    """In an order each user's last two are held out, else a random part of each user's: never a fact."""
    rows = [f"{u},{i},{10 * u + i}" if timed else f"{u},{i}" for u in range(40) for i in range(6)]
    plays = tmp_path / "plays.csv"
    plays.write_text("\n".join(["user,item,time" if timed else "user,item", *rows]) + "\n")
    facts = "".join(f"{i} 0 {6 + i % 2}\n{i} 1 {8 + i}\n" for i in range(6))
    items = "org_id remap_id\n" + "".join(f"{i} {i}\n" for i in range(6))
    dataset = folder(tmp_path / "d", train="", test="", kg_final=facts, item_list=items)
    joined = with_knowledge(read_interactions_csv(plays), read_kgat(dataset, KgatFilesSettings(part="knowledge")))
    graph = build_graph(joined.nodes, joined.edges, GraphSettings(add_reverse="never"), tmp_path / "g")
    assert graph.manifest["report"]["split_source"] == ("leave_one_out" if timed else "random")
    view = interaction_view(graph)
    assert len(knowledge_view(graph).head) == 12
    assert len(view.test.columns) > 0
    if timed:
        assert view.test.columns.tolist() == [5] * 40
        assert sequence_view(graph).items[:6].tolist() == [0, 1, 2, 3, 4, 5], "and sequence models read the same graph"


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train": ""}, "no train.txt.*part: knowledge"),
        ({"train": "", "kg_final": ""}, "no train.txt; the format kgat needs it$"),
        ({"train": "x y\n", "test": "", "kg_final": ""}, "no usable line"),
        ({"item_list": "id name\n1 2\n"}, "remap_id"),
        ({"item_list": "org_id remap_id\na 0\nb 0\n"}, "remap_id 0 is on line 2, too"),
        ({"item_list": "org_id remap_id\na zero\n"}, "line 2"),
    ],
)
def test_folders_that_cannot_be_used_are_refused(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_kgat(folder(tmp_path / "d", **files))


def test_a_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text(TRAIN)
    with pytest.raises(InputError, match="folder"):
        read_kgat(tmp_path / "train.txt")


@pytest.mark.real_data
def test_last_fm(datasets: Path) -> None:
    result = read_kgat(datasets / "last-fm-hetrec" / "kgat")
    assert {n: result.counts[n] for n in ("users", "items", "train", "test", "entities", "facts", "self_loops")} == {
        "users": 1872,
        "items": 3846,
        "train": 17_700,
        "test": 3473,
        "entities": 9366,
        "facts": 15_518,
        "self_loops": 49,
    }
