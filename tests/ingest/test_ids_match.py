"""Ids that do not match: aliases, the coverage of one source by another, and the repair that would match most."""

from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.id_columns import Aliases, coverage, nearest, read_aliases, renamed, with_aliases
from graphmill.ingest.public_readers import ingest_report
from graphmill.ingest.tables import feature_table


def of(ids: list[str], others: list[str]) -> tuple[int, str]:
    result = coverage("labels", pa.array(ids), "edges", pa.array(others))
    return result.matched, result.repair


KNOWN = [f"MONDO:{number:04d}" for number in range(100)]


@pytest.mark.parametrize(
    ("ids", "repair"),
    [
        ([each.removeprefix("MONDO:") for each in KNOWN], "prefix 'MONDO:' added: 0 → 100 of 100"),
        ([f"x/{each}" for each in KNOWN], "prefix 'x/' removed: 0 → 100 of 100"),
        ([each.replace(":", "_") for each in KNOWN], "prefix 'MONDO_' replaced by 'MONDO:': 0 → 100 of 100"),
        ([each.lower() for each in KNOWN], "case ignored: 0 → 100 of 100"),
        ([f"{each}\u200b" for each in KNOWN], "invisible characters removed: 0 → 100 of 100"),
        ([*KNOWN[:40], *(each[6:] for each in KNOWN[40:75])], "prefix 'MONDO:' added: 40 → 75 of 75"),
        ([*(each.lower() for each in KNOWN[:60]), *(each + "\ufeff" for each in KNOWN[60:])],
         "case ignored and invisible characters removed: 0 → 100 of 100"),
        (["else", "where"], ""),
    ],
)  # fmt: skip
def test_the_repair_that_would_match_most_is_named(ids: list[str], repair: str) -> None:
    assert of(ids, KNOWN)[1] == repair


def test_another_unicode_form_is_a_repair() -> None:
    assert of(["nai\u0308ve", "cafe\u0301"], ["na\u00efve", "caf\u00e9", "tea"]) == (0, "Unicode form NFKC: 0 → 2 of 2")


def test_what_matches_needs_no_repair() -> None:
    result = coverage("labels", pa.array(KNOWN[:50]), "edges", pa.array(KNOWN))
    assert (result.matched, result.share, result.repair, result.samples) == (50, 1.0, "", ())


def test_the_type_that_a_repair_matches_most_is_named() -> None:
    bare, few = [each[6:] for each in KNOWN], [f"HGNC:{number:04d}" for number in range(90, 120)]
    result = nearest("attributes of {}", pa.array(bare), {"gene": pa.array(few), "disease": pa.array(KNOWN)})
    assert result.sentence.startswith("0 of 100 ids of attributes of disease")
    assert result.repair == "prefix 'MONDO:' added: 0 → 100 of 100"
    assert result.repaired == 100


def aliases(folder: Path, text: str) -> str:
    (folder / "aliases.csv").write_text(f"old_id,id\n{text}\n")
    return str(folder / "aliases.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\nb,c\nc,a", "aliases go round in a circle: a → b → c → a"),
        ("a,b\na,c", "'a' has the id 'b' and the id 'c'"),
        ("a,", "blank"),
    ],
)
def test_aliases_that_cannot_be_used_are_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_aliases(aliases(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_an_alias_of_an_alias_is_followed(tmp_path: Path) -> None:
    result = read_aliases(aliases(tmp_path, "a,b\nb,c\nd,d"))
    assert renamed(pa.array(["a", "b", "c", "d", "e"]), result).to_pylist() == ["c", "c", "c", "d", "e"]


def test_repairs_come_after_aliases_and_only_where_they_are_named(tmp_path: Path) -> None:
    given = ["MONDO:A", "a", "old", "ｂ", "c\u200b", "MONDO:"]
    table = aliases(tmp_path, "old,MONDO:B")
    every = read_aliases(table, ["invisible", "case", "unicode", "prefix MONDO:"])
    assert renamed(pa.array(given), every).to_pylist() == ["a", "a", "b", "b", "c", "mondo:"]
    assert renamed(pa.array(given), read_aliases(table, ["prefix MONDO:"])).to_pylist() == [
        "A", "a", "B", "ｂ", "c\u200b", "MONDO:",
    ]  # fmt: skip
    assert renamed(pa.array(given), read_aliases("")).to_pylist() == given
    for wrong in ("Case", "prefix ", ""):
        with pytest.raises(SettingsError, match=r"is no repair; .*case, unicode"):
            read_aliases("", [wrong])


def test_a_renamed_node_becomes_the_node_of_that_id(tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text(
        "head,relation,tail\nold,treats,flu\nnew,treats,cold\nolder,treats,flu\nx,treats,flu\n"
    )
    tables = graphmill.read_edges(tmp_path / "kg.csv", "kg_csv")
    place = {each: row for row, each in enumerate(tables.nodes["id"].to_pylist())}
    node = pa.array([place["old"], place["x"]], pa.int32()).to_numpy()
    kind = tables.nodes["type"].cast("string")[0].as_py()
    tables.features[kind] = feature_table(node, node.reshape(-1, 1).astype("float32"))
    result = with_aliases(tables, Aliases({"old": "new", "older": "new", "gone": "x"}))
    ids = result.nodes["id"].to_pylist()
    assert sorted(ids) == ["cold", "flu", "new", "x"]
    heads = [ids[row] for row in result.edges["head"].to_pylist()]
    tails = [ids[row] for row in result.edges["tail"].to_pylist()]
    assert list(zip(heads, tails, strict=True)) == [("new", "flu"), ("new", "cold"), ("new", "flu"), ("x", "flu")]
    assert [ids[row] for row in result.features[kind]["node"].to_pylist()] == sorted(["new", "x"], key=ids.index)
    assert (result.counts["ids_replaced"], result.counts["nodes_merged_by_aliases"]) == (2, 2)


def folder_of_files(folder: Path) -> Path:
    (folder / "kg").mkdir()
    rows = [f"MONDO:{number}\taffects\tMONDO:{number + 1}" for number in range(20)]
    (folder / "kg" / "edges.tsv").write_text("\n".join(["subject\tpredicate\tobject", *rows]))
    nodes = [f"{number}\tbiolink:Disease\td{number}" for number in range(21)]
    (folder / "kg" / "nodes.tsv").write_text("\n".join(["id\tcategory\tname", *nodes]))
    return folder / "kg"


def test_a_report_shows_which_ids_of_node_files_are_in_the_edges(tmp_path: Path) -> None:
    result = ingest_report(folder_of_files(tmp_path))
    assert [(each["matched"], each["ids"], each["repair"]) for each in result.coverage] == [
        (0, 21, "prefix 'MONDO:' removed: 0 → 21 of 21")
    ]
    assert "prefix 'MONDO:' removed: 0 → 21 of 21" in result.text()


def test_build_replaces_aliases_and_prints_the_matches(tmp_path: Path) -> None:
    rows = [f"G:{number},meets,G:{number + 1}" for number in range(20)]
    (tmp_path / "kg.csv").write_text("\n".join(["head,relation,tail", *rows]))
    table = aliases(tmp_path, "\n".join(f"G:{number},{number}" for number in range(21)))
    features = tmp_path / "features.csv"
    features.write_text("\n".join(["id,size,age", *(f"G:{number},{number},1" for number in range(21))]))
    command = ["build", str(tmp_path / "kg.csv"), str(features), "-o", str(tmp_path / "graph"), "--aliases", table]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert "features of node in the node nodes" in result.stdout
    assert "21 of 21" in result.stdout
    assert TypedGraph.open(tmp_path / "graph").node_table()["id"].to_pylist() == [str(number) for number in range(21)]
    features.write_text(features.read_text().replace("G:", "g:"))
    repaired = [*command[:-2], "--repair-ids", "prefix G:", "--repair-ids", "prefix g:"]
    result = CliRunner().invoke(app, repaired)
    assert result.exit_code == 0, result.output
    assert "21 of 21" in result.stdout
    assert TypedGraph.open(tmp_path / "graph").node_table()["id"].to_pylist() == [str(number) for number in range(21)]


def test_features_without_a_match_say_the_repair(tmp_path: Path) -> None:
    (tmp_path / "kg.csv").write_text("\n".join(["head,relation,tail", *(f"G:{n},meets,G:{n + 1}" for n in range(20))]))
    (tmp_path / "features.csv").write_text("\n".join(["id,size", *(f"{n},1" for n in range(20))]))
    tables = graphmill.read_edges(tmp_path / "kg.csv", "kg_csv")
    kind = tables.nodes["type"].cast("string")[0].as_py()
    with pytest.raises(InputError, match="prefix 'G:' added: 0 → 20 of 20"):
        graphmill.read_features(tables, tmp_path / "features.csv", kind)
