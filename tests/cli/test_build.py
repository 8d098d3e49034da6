"""``graphmill build``: from files to a graph on the command line, and a training by the name of a system."""

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.project.data import recognised
from graphmill.runs.resolve import read_settings
from tests.components.conftest import write_kg

RATINGS = "userId,movieId,rating\n" + "".join(f"u{u},m{(u * 3 + i) % 7},4\n" for u in range(6) for i in range(5))


def build(*arguments: str) -> str:
    return CliRunner().invoke(app, ["build", *arguments], catch_exceptions=False).output


def test_a_file_becomes_a_graph_and_what_comes_next_is_said(tmp_path: Path) -> None:
    write_kg(tmp_path / "kg.csv")
    output = build(str(tmp_path / "kg.csv"), "-o", str(tmp_path / "graph"), "--set", "split.valid=0.2")
    graph = TypedGraph.open(tmp_path / "graph")
    assert "read as kg_csv" in output
    assert f"{graph.num_nodes:,} nodes, {graph.num_edges:,} edges" in output
    assert f"graphmill train auto --set data={tmp_path / 'graph'}" in output
    held_out = sum(relation["split"]["valid"] for relation in graph.manifest["relations"])
    assert 0.15 < held_out / graph.num_edges < 0.25


def test_the_default_split_is_not_told_where_another_was_asked_for(tmp_path: Path) -> None:
    rows = [f"u{u},m{(u * 3 + i) % 7},{1_600_000_000 + 100 * i + u}" for u in range(6) for i in range(5)]
    (tmp_path / "ratings.csv").write_text("\n".join(["userId,movieId,timestamp", *rows]))
    call = (str(tmp_path / "ratings.csv"), "-o", str(tmp_path / "graph"))
    default = "each user's last two interactions are held out"
    assert default in build(*call)
    output = build(*call, "--set", "split.method=by_time")
    assert "read as interactions_csv" in output
    assert default not in output


def test_features_of_the_items_go_with_the_interactions(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text(RATINGS)
    np.save(tmp_path / "covers.npy", np.ones((7, 3), np.float32))
    (tmp_path / "covers.ids.txt").write_text("".join(f"m{item}\n" for item in range(7)))
    files = (str(tmp_path / "ratings.csv"), str(tmp_path / "covers.npy"))
    result = json.loads(build(*files, "-o", str(tmp_path / "graph"), "--json"))
    assert (result["format"], result["counts"]["interactions"]) == ("interactions_csv", 30)
    features = TypedGraph.open(tmp_path / "graph").features("item")
    assert features is not None
    assert features.shape == (7, 3)


def test_columns_can_be_named(tmp_path: Path) -> None:
    (tmp_path / "odd.csv").write_text("a;b;c\nx;likes;y\ny;likes;z\n")
    named = [f"--read=columns.{part}={column}" for part, column in (
        ("head_id", "c"), ("tail_id", "a"), ("relation", "b"), ("head_type_constant", "n"), ("tail_type_constant", "n"),
    )]  # fmt: skip
    none = ("--set", "split.valid=0", "--set", "split.test=0", "--set", "add_reverse=never")
    build(str(tmp_path / "odd.csv"), "-o", str(tmp_path / "graph"), "--format", "kg_csv", *named, *none)
    graph = TypedGraph.open(tmp_path / "graph")
    ids = graph.node_table()["id"].to_pylist()
    edges = graph.edges(0)
    assert {(ids[a], ids[b]) for a, b in zip(edges.src.tolist(), edges.dst.tolist(), strict=True)} == {
        *(("y", "x"), ("z", "y")),
    }


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        (["nowhere.csv"], InputError, "nowhere.csv does not exist"),
        (["odd.csv", "--format", "xlsx"], SettingsError, "no report on format 'xlsx'"),
        (["odd.csv", "--format", "xlsx", "--read", "a=b"], SettingsError, "there is no format 'xlsx' of edges"),
        (["odd.csv", "--set", "splits.valid=0"], SettingsError, "splits"),
    ],
)
def test_a_mistake_is_a_sentence_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], error: type[Exception], sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("odd.csv").write_text("source,relation,target\nx,likes,y\ny,likes,z\n")
    with pytest.raises(error, match=sentence):
        build(*arguments, "-o", "graph")
    assert not Path("graph").exists()


def test_a_system_by_its_name_has_its_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_settings(Path("sasrec")) == {"system": "sasrec"}
    Path("sasrec").write_text("system: conve\n")
    assert read_settings(Path("sasrec")) == {"system": "conve"}, "a file of that name is the file"


SCORES = "a code,b code,how much\n" + "".join(f"p{i},p{j},{i * j}\n" for i in range(8) for j in range(i))


def test_columns_by_role_make_the_graph_and_the_reason_is_said_in_few_lines(tmp_path: Path) -> None:
    (tmp_path / "my links.csv").write_text(SCORES)
    output = build(
        str(tmp_path / "my links.csv"), "--columns", "head_id=b code,tail_id=a code", "-o", str(tmp_path / "g g")
    )
    graph = TypedGraph.open(tmp_path / "g g")
    assert (graph.num_nodes, [t.name for t in graph.node_types]) == (8, ["node"])
    about = output.split("note:")[0].splitlines()
    assert len(about) <= 5
    assert "drawn at random" in about[1]
    assert f"--set {shlex.quote(f'data={tmp_path}/g g')}" in output, "a printed command can be pasted"


def test_mostly_refused_rows_need_force(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("source,target\n" + "a,b\nc,d\ne,f\n" + "g\n")
    with pytest.raises(InputError, match="1 of 4 rows cannot be used"):
        build(str(tmp_path / "x.csv"), "-o", str(tmp_path / "g"))
    assert not (tmp_path / "g").exists()
    build(
        str(tmp_path / "x.csv"), "-o", str(tmp_path / "g"), "--force", "--set", "split.valid=0", "--set", "split.test=0"
    )
    assert TypedGraph.open(tmp_path / "g").num_nodes == 6


def test_unclear_columns_are_asked_for_with_examples(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("k1,k2,k3,k4\n" + "".join(f"a{n},b{n % 3},c{n % 4},d{n}\n" for n in range(9)))
    questions: list[tuple[str, list[str]]] = []

    def answer(question: str, answers: Sequence[str]) -> str:
        questions.append((question, list(answers)))
        return next((text for text in answers if text.startswith(("users", "k1", "k3 "))), answers[-1])

    result = recognised(str(tmp_path / "x.csv"), ask=answer)
    assert result.format == "interactions_csv"
    assert result.node_types == {"user": 9, "item": 4}
    assert any("k1 (a0, a1, a2)" in answers for _, answers in questions)
    with pytest.raises(InputError, match="no two columns could be told"):
        recognised(str(tmp_path / "x.csv"))


def test_triples_are_not_said_to_be_split_by_user(tmp_path: Path) -> None:
    (tmp_path / "kg.tsv").write_text("".join(f"n{n}\tr\tn{n + 1}\n" for n in range(40)))
    output = CliRunner().invoke(app, ["build", str(tmp_path / "kg.tsv"), "-o", str(tmp_path / "graph")]).output
    assert "split: 5% and 5% of the edges, drawn at random" in output


def test_a_split_of_the_files_is_said(tmp_path: Path) -> None:
    for name, rows in (("train", range(30)), ("valid", range(30, 35)), ("test", range(35, 40))):
        (tmp_path / f"{name}.txt").write_text("".join(f"n{n % 20}\tr\tn{(n * 7 + 1) % 20}\n" for n in rows))
    output = CliRunner().invoke(app, ["build", str(tmp_path), "-o", str(tmp_path / "graph")]).output
    assert "split: as the files have it" in output
    assert "at random" not in output
    counts = recognised(str(tmp_path)).counts
    assert (counts["train"], counts["valid"], counts["test"]) == (30, 5, 5)
