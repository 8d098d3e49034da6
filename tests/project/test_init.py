"""``graphmill init``: a project from templates, with a sample or with what its files are; nothing of others is changed."""

import json
import subprocess
import tomllib
from pathlib import Path

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import InputError, SettingsError
from graphmill.ingest.sources import parse_sources
from graphmill.project.create import SAMPLES, init
from graphmill.project.existing import dg_project
from tests.components.conftest import write_kg

RATINGS = "userId,movieId,rating,timestamp\n" + "".join(
    f"{user},{movie},4,{1_000_000 + user * 10 + movie}\n" for user in range(6) for movie in range(5)
)


def documents(root: Path, dataset: str) -> list[dict]:
    package = dg_project(root)
    assert package is not None
    return list(yaml.safe_load_all((package.defs / dataset / "defs.yaml").read_text()))


def state(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def features(path: Path, count: int) -> str:
    """A matrix with the ids of its rows beside it."""
    np.save(path, np.ones((count, 3), np.float32))
    path.with_suffix(".ids.txt").write_text("".join(f"{row}\n" for row in range(count)))
    return str(path)


def write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


# -- a new project ---------------------------------------------------------------------------------------------------


def test_the_projects_names_are_filled_in(tmp_path: Path) -> None:
    made = init(tmp_path / "My project-1", sample="none")
    files = state(made.root)
    assert {"my_project_1/definitions.py", "my_project_1/defs/resources.py"} <= set(files)
    assert not any(b"{{" in text and b"}}" in text for text in files.values())
    settings = tomllib.loads(files["pyproject.toml"].decode())
    assert settings["tool"]["dg"]["project"]["root_module"] == "my_project_1"
    assert settings["project"]["dependencies"][0].startswith("graphmill[numba]>=")


@pytest.mark.parametrize("sample", SAMPLES)
def test_every_source_of_a_sample_is_there(tmp_path: Path, sample: str) -> None:
    made = init(tmp_path / "mine", sample=sample)
    dataset, *models = documents(made.root, sample)
    assert all(Path(file).exists() for s in parse_sources(dataset["attributes"]["sources"], made.root)
               for file in s.files().values())  # fmt: skip
    assert models
    assert not any("owners" in each["attributes"] for each in (dataset, *models))


def test_the_instance_has_the_settings_of_this_checkout(tmp_path: Path, repository: Path) -> None:
    made = init(tmp_path / "mine", sample="none")
    assert (made.root / "dagster.yaml").read_text() == (repository / "dagster.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("full", "exists and is not a Dagster project"), ("3d", "cannot be the name"), ("dagster", "cannot be the name")],
)
def test_a_folder_that_cannot_be_a_project_is_refused(tmp_path: Path, name: str, sentence: str) -> None:
    (tmp_path / "full").mkdir()
    write(tmp_path / "full" / "notes.txt", "mine")
    before = state(tmp_path)
    with pytest.raises(InputError, match=sentence):
        init(tmp_path / name, sample="none")
    assert state(tmp_path) == before


def test_a_repository_without_files_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "mine" / ".git").mkdir(parents=True)
    assert init(tmp_path / "mine", sample="none").new


def test_an_unknown_sample_names_those_there_are(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"biomed, .*none"):
        init(tmp_path / "mine", sample="movies")


# -- one's own data --------------------------------------------------------------------------------------------------


def test_an_edge_csv_becomes_a_scheduled_chain(tmp_path: Path) -> None:
    write_kg(tmp_path / "Drugs.csv")
    made = init(tmp_path / "mine", data=[str(tmp_path / "Drugs.csv")])
    assert (made.root / "data/01_raw/Drugs.csv").read_bytes() == (tmp_path / "Drugs.csv").read_bytes()
    dataset, model = documents(made.root, "drugs")
    (source,) = dataset["attributes"]["sources"]
    assert (source["format"], source["path"]) == ("kg_csv", "data/01_raw/Drugs.csv")
    assert model["attributes"]["dataset"] == "drugs"
    assert model["attributes"]["schedule"] == {"cron": "0 3 * * 1", "timezone": "UTC"}
    assert "read as kg_csv" in made.notes[0]
    assert "40 disease" in made.notes[0]


def test_ratings_and_features_of_the_items_are_one_dataset(tmp_path: Path) -> None:
    ratings = write(tmp_path / "ratings.csv", RATINGS)
    made = init(tmp_path / "mine", data=[ratings, features(tmp_path / "covers.npy", 5)], name="films")
    assert (made.root / "data/01_raw/covers.ids.txt").is_file()
    dataset, model = documents(made.root, "films")
    formats = [(s["format"], s.get("node_type")) for s in dataset["attributes"]["sources"]]
    assert formats == [("interactions_csv", None), ("node_features", "item")]
    assert (model["attributes"]["dataset"], model["attributes"]["system"]) == ("films", "auto")
    assert model["attributes"]["recommendations"] == {}
    parse_sources(dataset["attributes"]["sources"], made.root)


@pytest.mark.parametrize(
    ("name", "text", "format"),
    [
        (
            "shop.inter",
            "userID\titemID\trating\ttimestamp\tx_label\n0\t0\t1\t1\t0\n0\t1\t1\t2\t1\n0\t2\t1\t3\t2\n",
            "mmrec",
        ),
        ("views.txt", "".join(f"u{u} i{i}\n" for u in range(4) for i in range(4)), "sequence"),
    ],
)
def test_other_files_are_recognised(tmp_path: Path, name: str, text: str, format: str) -> None:
    made = init(tmp_path / "mine", data=[write(tmp_path / name, text)])
    assert documents(made.root, made.dataset)[0]["attributes"]["sources"][0]["format"] == format


def test_a_folder_is_recognised_and_copied_whole(tmp_path: Path, repository: Path) -> None:
    made = init(tmp_path / "mine", data=[str(repository / "data/01_raw/triples")])
    (source,) = documents(made.root, "triples")[0]["attributes"]["sources"]
    assert source["format"] == "triples"
    assert len(list((made.root / source["path"]).iterdir())) == len(
        list((repository / "data/01_raw/triples").iterdir())
    )


def test_data_may_stay_where_they_are(tmp_path: Path) -> None:
    file = write(tmp_path / "ratings.csv", RATINGS)
    made = init(tmp_path / "mine", data=[file], in_place=True)
    assert documents(made.root, "ratings")[0]["attributes"]["sources"][0]["path"] == str(Path(file).resolve())


def test_what_cannot_be_read_is_told_and_nothing_is_written(tmp_path: Path) -> None:
    file = write(tmp_path / "poem.txt", "one\n")
    with pytest.raises(InputError, match=r"poem.txt cannot be read \(as kg_csv: .*--format"):
        init(tmp_path / "mine", data=[file])
    with pytest.raises(InputError, match=r"nowhere\.csv does not exist"):
        init(tmp_path / "mine", data=[str(tmp_path / "nowhere.csv")])
    assert not (tmp_path / "mine").exists()


TREATS, BINDS = "drug,disease\nd1,x1\nd2,x1\n", "source,target,relation\nd1,g1,binds\nd2,g1,binds\n"
KINDS = "id,type,name\nd1,Drug,one\nd2,Drug,two\nx1,Disease,f\ng1,Gene,a\n"


def test_several_edge_files_and_a_node_file_are_one_graph(tmp_path: Path) -> None:
    folder = tmp_path / "Clinic"
    folder.mkdir()
    files = [write(folder / f"{n}.csv", t) for n, t in (("treats", TREATS), ("binds", BINDS), ("kinds", KINDS))]
    made = init(tmp_path / "mine", data=[*files, features(tmp_path / "shapes.npy", 2)], ask=lambda _, kinds: kinds[0])
    dataset, model = documents(made.root, "clinic")
    edges, shapes = parse_sources(dataset["attributes"]["sources"], made.root)
    assert (edges.format, edges.path, shapes.format) == ("kg_files", "data/01_raw", "node_features")
    assert sorted(Path(file).name for file in edges.files().values()) == ["binds.csv", "kinds.csv", "treats.csv"]
    assert all(Path(file).is_relative_to(made.root) for file in edges.files().values())
    assert dataset["attributes"]["graph"]["include_node_types"] == ["Drug", "Disease", "Gene"]
    assert (model["attributes"]["system"], model["attributes"]["links"]) == ("auto", {})
    assert "all its edges are called treats" in made.notes[0]


def test_a_table_about_nodes_of_one_type_becomes_their_attributes(tmp_path: Path) -> None:
    edges = write(
        tmp_path / "kg.csv",
        "head,head_type,relation,tail,tail_type\n" + "".join(f"d{n},drug,treats,e{n % 4},disease\n" for n in range(12)),
    )
    about = write(tmp_path / "about.csv", "id,name,year\n" + "".join(f"e{n},ache {n},{1990 + n}\n" for n in range(4)))
    made = init(tmp_path / "mine", data=[edges, about], name="kg")
    attributes = documents(made.root, "kg")[0]["attributes"]
    assert [each["format"] for each in attributes["sources"]] == ["kg_csv"]
    assert attributes["attributes"] == {
        "disease": {"file": "data/01_raw/about.csv", "id": "id", "name": "category", "year": "number"}
    }
    assert (made.root / "data/01_raw/about.csv").is_file()
    (_, source) = parse_sources(attributes["sources"], made.root, attributes["attributes"])
    assert Path(source.location).is_file()
    other = write(tmp_path / "other.csv", "id,year\nx1,1\nx2,2\n")
    with pytest.raises(InputError, match=r"none of the 2 ids|0 of 2"):
        init(tmp_path / "second", data=[edges, other])
    assert not (tmp_path / "second").exists()


def test_a_table_with_names_of_its_own_becomes_attributes_or_says_which_ids_do_not_match(tmp_path: Path) -> None:
    edges = "drug,relation,disease\n" + "".join(f"drug {n}a,treats,MONDO:{n % 4}\n" for n in range(12))
    rows = "".join(f"MONDO:{n}\tache {n}\tarea {n % 2}\t{n % 2 == 0}\n" for n in range(4))
    given = write(tmp_path / "kg.csv", edges), write(tmp_path / "about.tsv", "disease_id\ttitle\tarea\trare\n" + rows)
    attributes = documents(init(tmp_path / "mine", data=[*given], name="kg").root, "kg")[0]["attributes"]
    kinds = {"title": "category", "area": "category", "rare": "category"}
    assert attributes["attributes"] == {"disease": {"file": "data/01_raw/about.tsv", **kinds}}
    (_, source) = parse_sources(attributes["sources"], tmp_path / "mine", attributes["attributes"])
    assert Path(source.location).is_file()
    Path(given[1]).write_text("disease_id\ttitle\tarea\trare\n" + rows.replace("MONDO:", ""))
    with pytest.raises(InputError, match="prefix 'MONDO:' added: 0 → 4 of 4"):
        init(tmp_path / "second", data=[*given])
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize("in_place", [True, False])
def test_edge_files_are_named_from_their_folder_wherever_they_stay(tmp_path: Path, in_place: bool) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    files = [write(tmp_path / "a/one.csv", BINDS), write(tmp_path / "b/two.csv", BINDS.replace("binds", "treats"))]
    made = init(tmp_path / "mine", data=files, in_place=in_place, name="kg")
    (source,) = documents(made.root, "kg")[0]["attributes"]["sources"]
    expected = ["a/one.csv", "b/two.csv"] if in_place else ["one.csv", "two.csv"]
    assert [edge["file"] for edge in source["edges"]] == expected
    (read,) = parse_sources([source], made.root)
    assert all(Path(file).is_file() for file in read.files().values())


def test_a_pair_without_names_is_not_taken_for_edges_beside_others(tmp_path: Path) -> None:
    log, edges = write(tmp_path / "log.csv", "1,7\n1,8\n2,7\n"), write(tmp_path / "binds.csv", BINDS)
    with pytest.raises(InputError, match=r"log.csv as sequence; .*binds.csv as kg_csv"):
        init(tmp_path / "mine", data=[log, edges])


def test_two_sources_of_interactions_are_two_datasets(tmp_path: Path) -> None:
    files = [write(tmp_path / f"{name}.csv", RATINGS) for name in "ab"]
    with pytest.raises(InputError, match="a dataset of each"):
        init(tmp_path / "mine", data=files)
    init(tmp_path / "mine", data=files[:1])
    added = init(tmp_path / "mine", data=files[1:])
    assert not added.new
    assert documents(tmp_path / "mine", "b")


def test_only_what_cannot_be_known_is_asked(tmp_path: Path) -> None:
    write_kg(tmp_path / "kg.csv")
    data, request = [str(tmp_path / "kg.csv"), features(tmp_path / "shapes.npy", 120)], []
    with pytest.raises(InputError, match="only you know"):
        init(tmp_path / "mine", data=data)
    assert not (tmp_path / "mine").exists()

    def answer(question: str, answers: object) -> str:
        request.append(question)
        return "disease"

    made = init(tmp_path / "mine", data=data, ask=answer)
    assert len(request) == 1
    assert documents(made.root, "kg")[0]["attributes"]["sources"][1]["node_type"] == "disease"


# -- a project that is there -----------------------------------------------------------------------------------------


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A project as `create-dagster` writes it, with an asset of its own."""
    root = tmp_path / "theirs"
    defs = root / "src" / "theirs" / "defs"
    defs.mkdir(parents=True)
    write(root / "pyproject.toml", '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "theirs"\n')
    write(defs / "sales.py", "import dagster as dg\n\n@dg.asset\ndef sales():\n    return 7\n")
    return root


def test_in_a_project_only_what_is_missing_is_added(theirs: Path, tmp_path: Path) -> None:
    before = state(theirs)
    made = init(theirs, data=[write(tmp_path / "ratings.csv", RATINGS)])
    after = state(theirs)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {
        *("data/01_raw/ratings.csv", "data/06_models/.gitignore", "src/theirs/defs/ratings/defs.yaml"),
    }
    assert "graphmill[numba]" in made.to_do[0]
    again = init(theirs, sample="watch")
    assert init(theirs, sample="watch").written == []
    assert "src/theirs/defs/watch/defs.yaml" in again.written


def test_a_projects_make_has_the_curves_of_all_runs(tmp_path: Path) -> None:
    init(tmp_path / "mine", sample="none")
    process = subprocess.run(
        ["make", "-n", "--no-print-directory", "tensorboard"],
        cwd=tmp_path / "mine",
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.endswith("-m tensorboard.main --logdir data/06_models\n")


def test_inside_a_project_no_other_is_begun(theirs: Path) -> None:
    with pytest.raises(InputError, match=r"is inside the Dagster project .*theirs"):
        init(theirs / "mine")


def test_a_project_without_components_is_told_how(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", '[tool.dagster]\nmodule_name = "old.definitions"\n')
    with pytest.raises(InputError, match=r"root_module in \[tool.dg.project\]"):
        init(tmp_path)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_says_what_is_there_and_what_comes_next(tmp_path: Path) -> None:
    file, root = write(tmp_path / "ratings.csv", RATINGS), tmp_path / "mine"
    output = CliRunner().invoke(app, ["init", str(root), "--data", file]).output
    assert "read as interactions_csv; 30 rows, 30 interactions" in " ".join(output.split())
    assert f"next: cd {root} && dg check defs && make demo" in output
    made = json.loads(CliRunner().invoke(app, ["init", str(root), "--sample", "watch", "--json"]).stdout)
    assert made["dataset"] == "watch"
    assert "mine/defs/watch/defs.yaml" in made["written"]
