"""Attributes of nodes: kinds, what is missing, and input that cannot be used."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from typer.testing import CliRunner

import graphmill
from graphmill.cli import app
from graphmill.errors import InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.ingest.sources import parse_sources, read_tables, table_names
from tests.ingest.kg_text import COLUMNS

WORDS = ("lung cancer", "breast cancer", "heart failure", "skin rash", "lung fibrosis")
HEADER = "disease,name,area,year,aka,born,same\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """30 drugs, each with an edge to a disease; a table with a row for each disease, and for another one."""
    edges = [f"DB{n},drug,treats,D{n % 10},disease" for n in range(30)]
    (tmp_path / "edges.csv").write_text("\n".join(["head,head_type,relation,tail,tail_type", *edges]) + "\n")
    areas, groups = ("other", "oncology"), ("c", "a|b", "a|b")
    rows = [
        f"D{n},{WORDS[n % 5]} {n},{areas[n % 2]},{2000 + n},{groups[n % 3]},1999-12-0{n % 9 + 1},x\n" for n in range(11)
    ]
    (tmp_path / "diseases.csv").write_text(HEADER + "".join(rows))
    return tmp_path


def tables(folder: Path) -> Any:
    return graphmill.read_edges(folder / "edges.csv")


def rewritten(folder: Path, old: str, new: str) -> Path:
    path = folder / "diseases.csv"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return path


def test_type_id_and_kinds_are_told_by_the_values(folder: Path) -> None:
    result = graphmill.read_attributes(tables(folder), folder / "diseases.csv")
    ((kind, table),) = result.attributes.items()
    assert (kind, table.num_rows) == ("disease", 10)
    guessed = next(note for note in result.notes if "guessed" in note)
    assert "name: category, area: category, year: number, aka: list, born: date" in guessed
    assert "same" not in table.column_names
    assert result.counts["disease attributes: rows_of_no_node"] == 1


def test_a_column_of_names_names_nodes_without_any(folder: Path) -> None:
    rewritten(folder, "D3,skin rash 3,", "D3,,")
    described = graphmill.read_attributes(tables(folder), folder / "diseases.csv")
    names = {row["id"]: row["name"] for row in described.nodes.to_pylist()}
    assert (names["D2"], names["D3"], names["DB2"]) == ("heart failure 2", "D3", "DB2")
    assert any("name names the disease nodes, which had no names" in note for note in described.notes)
    # Names that the edges give stay.
    edges = pd.read_csv(folder / "edges.csv").assign(tail_name="a name")
    edges.to_csv(folder / "edges.csv", index=False)
    described = graphmill.read_attributes(tables(folder), folder / "diseases.csv")
    assert {row["name"] for row in described.nodes.to_pylist() if row["type"] == "disease"} == {"a name"}


def test_a_data_frame_and_a_file_give_the_same_features(folder: Path) -> None:
    kinds = {"name": "text", "area": "category", "year": "number", "aka": "list"}
    frame = pd.read_csv(folder / "diseases.csv")
    graphs = [
        graphmill.build_graph(
            graphmill.read_attributes(tables(folder), given, "disease", id="disease", **kinds), folder / name
        )
        for name, given in (("a", folder / "diseases.csv"), ("b", frame))
    ]
    assert graphs[0].content_hash == graphs[1].content_hash
    notes = graphmill.read_attributes(tables(folder), frame).notes
    assert any(note.startswith("table: id disease, of disease nodes; attributes guessed") for note in notes)
    assert not any("table.parquet" in note for note in notes)
    assert graphs[0].feature_sets("disease") == ("attributes",)


def test_the_command_says_what_is_missing_and_frequent(folder: Path) -> None:
    rewritten(folder, "D3,skin rash 3,oncology,2003", "D3,skin rash 3,,n/a")
    call = [
        "build",
        str(folder / "edges.csv"),
        "-o",
        str(folder / "graph"),
        "--attributes",
        str(folder / "diseases.csv"),
    ]
    result = CliRunner().invoke(app, [*call, "--kind", "name=text", "--kind", "year=number", "--kind", "area=category"])
    assert result.exit_code == 0, result.output
    assert "is no number, and counts as missing" in result.output
    about = {each["name"]: each for each in TypedGraph.open(folder / "graph").attributes("disease")}
    assert {name: (each["kind"], each["nodes"]) for name, each in about.items()} == {
        "name": ("text", 10), "year": ("number", 9), "area": ("category", 9),
    }  # fmt: skip
    assert about["area"]["frequent"] == [["other", 5], ["oncology", 4]]


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (("", ""), ["--attributes", "gene=FILE"], "no nodes of type 'gene'"),
        (("", ""), ["--attributes", "FILE", "--kind", "name=words"], "the kinds are text, category, number, date, list"),
        (("", ""), ["--attributes", "FILE", "--kind", "title=text"], "column title is missing"),
        (("", ""), ["--attributes", "FILE", "--kind", "same=text"], "'same' is 'x' for all nodes"),
        (("", ""), ["--attributes", "FILE", "--kind", "same=category"], "'same' is 'x' for all nodes"),
        (("D4,", "D3,"), ["--attributes", "FILE"], "line 6: id 'D3' is on line 5, too"),
        (("\nD", "\nMONDO:D"), ["--attributes", "disease=FILE"], "prefix 'MONDO:' removed"),
        (("\nD", "\nMONDO:D"), ["--attributes", "FILE"], "the disease nodes; not 'MONDO:D0', 'MONDO:D1'"),
        (("disease,name", "D,D"), ["--attributes", "FILE", "--kind", "D=text"], "more than once"),
        (("", ""), ["--attributes", "FILE", "--attributes", "FILE"], "have attributes already"),
        (("", ""), ["--kind", "name=text"], "--kind says the kinds of one file"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_one_sentence(
    folder: Path, change: tuple[str, str], options: list[str], message: str
) -> None:
    path = rewritten(folder, *change)
    call = ["build", str(folder / "edges.csv"), "-o", str(folder / "graph")]
    result = CliRunner().invoke(app, [*call, *(each.replace("FILE", str(path)) for each in options)])
    error = result.exception
    assert isinstance(error, InputError | SettingsError)
    assert error.exit_code == 2
    assert message in str(error)
    assert not (folder / "graph").exists()


def test_a_date_may_be_a_year_and_a_wrong_one_is_a_reject(folder: Path) -> None:
    rewritten(folder, "1999-12-02", "1950")
    rewritten(folder, "1999-12-03", "in May")
    result = graphmill.read_attributes(tables(folder), folder / "diseases.csv", "disease", born="date")
    assert result.rejects["value"].to_pylist() == ["in May"]
    born = result.attributes["disease"]["born"].to_pylist()
    assert born.count(None) == 1
    assert min(each for each in born if each).year == 1950


def written(folder: Path, how: str, columns: dict[str, list[Any]]) -> Any:
    """A table with ten diseases and these columns, as one of the kinds of input."""
    frame = pd.DataFrame({"disease": [f"D{n}" for n in range(10)], **columns})
    path = folder / f"more.{how}"
    if how == "csv":
        joined = {k: ["|".join(p or "" for p in v) if isinstance(v, list) else v for v in frame[k]] for k in columns}
        frame.assign(**joined).to_csv(path, index=False)
    elif how == "jsonl":
        frame.to_json(path, orient="records", lines=True, force_ascii=False)
    elif how == "parquet":
        frame.to_parquet(path)
    return frame if how == "frame" else path


@pytest.mark.parametrize("how", ["csv", "jsonl", "parquet", "frame"])
def test_every_reader_takes_the_same_cells_for_the_same_values(folder: Path, how: str) -> None:
    columns = {
        "flag": [True, False] * 5,
        "aka": [["a", None, "b"], [None, "c"], [None, None], [""], []] * 2,
        "size": ["1.5", "NA", *map(str, range(2, 10))],
        "code": ["1_0", *(f"{n}_{n}" for n in range(1, 10))],
        "born": ["1999", "1999-12", "1999-12-31", "19991231", "31.12.1999", "12/31/1999", "1999.0", "", "1950", "1951"],
        "batch": [f"b{n}" for n in range(10)],
    }
    kinds = {"flag": "category", "aka": "list", "born": "date", "size": "number", "code": "category"}
    given = written(folder, how, columns)
    result = graphmill.read_attributes(tables(folder), given, "disease", id="disease", **kinds)
    table = result.attributes["disease"].to_pydict()
    assert table["flag"] == ["true", "false"] * 5
    assert table["aka"] == [["a", "b"], ["c"], None, None, None] * 2
    assert table["size"] == [1.5, None, *range(2, 10)]
    years = [each.year if each else None for each in table["born"]]
    assert years == [1999, 1999, 1999, None, None, None, 1999, None, 1950, 1951]
    assert set(result.rejects["value"].to_pylist()) == {"NA", "19991231", "31.12.1999", "12/31/1999"}
    guessed = graphmill.read_attributes(tables(folder), written(folder, how, columns), "disease").notes
    assert any("flag: category, aka: list, size: number, code: category, born: category" in note for note in guessed)


@pytest.mark.parametrize("how", ["csv", "jsonl", "parquet", "frame"])
@pytest.mark.parametrize("odd", ["1,234", "3,14", "1.234.567", "12 345", "1'234.5"])
def test_numbers_with_separators_are_refused_in_a_sentence(folder: Path, how: str, odd: str) -> None:
    given = written(folder, how, {"size": [odd, *(f"{n}" for n in range(9))]})
    with pytest.raises(InputError, match=re.escape(f"'size' has numbers such as {odd!r}; write them without")):
        graphmill.read_attributes(tables(folder), given, "disease")
    given = written(folder, how, {"size": [odd] * 10})
    with pytest.raises(InputError, match=re.escape(f"'size' has no number for any node (a cell is {odd!r})")):
        graphmill.read_attributes(tables(folder), given, "disease", id="disease", size="number")


def test_a_category_of_ten_thousand_values_is_hashed(tmp_path: Path) -> None:
    nodes = range(10_000)
    edges = pd.DataFrame(
        {"head": [f"g{n}" for n in nodes], "head_type": "gene", "relation": "of", "tail": "D", "tail_type": "disease"}
    )
    about = pd.DataFrame({"id": [f"g{n}" for n in nodes], "locus": [f"locus {n}" for n in nodes]})
    result = graphmill.read_attributes(graphmill.read_edges(edges), about, "gene", id="id", locus="category")
    features = graphmill.build_graph(result, tmp_path / "graph").features("gene", "attributes")
    assert features is not None
    assert features.shape == (10_000, 64)


def test_a_text_that_differs_in_case_alone_is_constant(folder: Path) -> None:
    rewritten(folder, "02,x\n", "02,X\n")
    with pytest.raises(InputError, match="attribute 'same' is 'x' for all nodes"):
        graphmill.read_attributes(tables(folder), folder / "diseases.csv", "disease", id="disease", same="text")


@pytest.mark.parametrize("columns", [{}, {"same": ["x"] * 10}, {"same": ["x"] * 9 + [""], "none": [""] * 10}])
@pytest.mark.parametrize("how", ["csv", "parquet", "frame"])
def test_a_table_whose_columns_are_all_constant_is_refused(folder: Path, how: str, columns: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="no column besides 'disease' has two different values"):
        graphmill.read_attributes(tables(folder), written(folder, how, columns), "disease")


def test_a_date_in_the_future_is_a_note(folder: Path) -> None:
    rewritten(folder, "1999-12-02", "2999-12-02")
    result = graphmill.read_attributes(tables(folder), folder / "diseases.csv", "disease", born="date")
    assert any("1 dates of 'born' are in the future" in note or "2 dates" in note for note in result.notes), (
        result.notes
    )


def test_attributes_of_a_type_that_is_left_out_are_refused(folder: Path) -> None:
    with (folder / "edges.csv").open("a") as file:
        file.write("\nDB0,drug,resembles,DB1,drug\n")
    result = graphmill.read_attributes(tables(folder), folder / "diseases.csv", "disease", area="category")
    with pytest.raises(InputError, match=r"attributes of 'disease': .*it has drug"):
        graphmill.build_graph(result, folder / "graph", include_node_types=["drug"])
    assert not (folder / "graph").exists()


def test_a_data_set_names_them_by_node_type(folder: Path) -> None:
    source = [{"name": "kg", "format": "kg_csv", "path": "edges.csv", "columns": COLUMNS}]
    given = {"disease": {"file": "diseases.csv", "id": "disease", "name": "text", "year": "number"}}
    sources = parse_sources(source, folder, given)
    assert table_names(sources) == ("nodes", "edges", "attributes")
    table = read_tables(sources, {}).attributes["disease"]
    assert table.column_names == ["node", "name", "year"]
    for wrong, message in (
        (
            {"disease": {"file": "diseases.csv", "year": "digits"}},
            "attributes of 'disease': attribute 'year' is of kind 'digits'",
        ),
        ({"disease": {"name": "text"}}, "attributes of 'disease': write file:"),
        (["disease"], "attributes: write file, id and kinds"),
    ):
        with pytest.raises(SettingsError, match=message):
            parse_sources(source, folder, wrong)
    with pytest.raises(SettingsError, match="under attributes"):
        parse_sources([*source, {"name": "more", "format": "attributes", "path": "diseases.csv"}], folder)
