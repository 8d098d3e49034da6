"""A run's files, damaged and moved: what decides is the checkpoint, and whatever cannot be used is said in a sentence."""

from __future__ import annotations

import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmill import load
from graphmill.cli import app
from graphmill.errors import GraphmillError, InputError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import evaluate_run, export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.warm_start import read_warm_start
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_files import RUN_FORMAT
from graphmill.usage.compare import compare_runs
from graphmill.verified_files import sealed
from tests.runs.processes import in_own_mounts
from tests.training.runs import assert_same, outcome, run

NAMES = ("manifest.json", "report.json", "settings.json", "metrics.jsonl", "parameter_rows.json")


@pytest.fixture(scope="module")
def trained(values: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with its embeddings."""
    result = run(values, tmp_path_factory.mktemp("run_files"))
    export_run(restore(result["run_dir"]))
    return Path(result["run_dir"])


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return Path(shutil.copytree(trained, tmp_path / "runs" / trained.name))


def rewrite(path: Path, change: Callable[[Any], Any]) -> None:
    path.write_text(json.dumps(change(json.loads(path.read_text()))))


DAMAGE: dict[str, Callable[[Path], object]] = {
    "another shape": lambda path: path.write_text("[1, 2]"),
    "without its keys": lambda path: path.write_text("{}"),
    "no JSON": lambda path: path.write_text('{"a": '),
    "no text": lambda path: path.write_bytes(b"\xff\xfe\0"),
    "nested": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a digit": lambda path: path.write_text(path.read_text().replace("1", "2", 1)),
}


@pytest.mark.parametrize("name", ["manifest.json", "report.json", "settings.json", "parameter_rows.json"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_named_and_training_again_mends_it(
    name: str, damage: str, copied: Path, values: dict[str, Any]
) -> None:
    DAMAGE[damage](copied / name)
    with pytest.raises(InputError, match=rf"{name} (is damaged: |cannot be read: )"):
        RunDirectory(copied).read_json(name)
    if damage == "a folder":
        with pytest.raises(GraphmillError, match=rf"cannot (replace|write) .*{name}"):
            run(values, copied.parent)
        (copied / name).rmdir()
    again = run(values, copied.parent)
    assert not again["reused"]
    assert again["epochs_done"] == 3
    assert RunDirectory(copied).read_json(name)
    assert evaluate_run(restore(copied))["epoch"] == again["exported_epoch"]


def test_a_report_that_claims_other_epochs_changes_nothing(
    copied: Path, values: dict[str, Any], tmp_path: Path
) -> None:
    """With a right checksum, so that it is its contents that are looked at."""

    def lie(report: dict[str, Any]) -> dict[str, Any]:
        report.pop("checksum")
        return sealed(report | {"epochs_done": 50, "steps_done": 200, "best_epoch": 40})

    rewrite(copied / "report.json", lie)
    more = merge(values, {"training": {"epochs": 5, "lr_decay_epochs": 3}})
    result = run(more, copied.parent)
    assert not result["reused"]
    assert result["epochs_done"] == 5
    assert_same(outcome(result), outcome(run(more, tmp_path / "alone")))


def test_a_damaged_trace_changes_nothing_of_what_is_trained(
    copied: Path, values: dict[str, Any], tmp_path: Path
) -> None:
    lines = (copied / "metrics.jsonl").read_text().splitlines()
    odd = ['{"kind": "step", "epoch": "x", "step": 1}', '{"kind": "epoch", "epoch": 1, "step": 4, "losses": [1]}']
    odd += [
        '{"kind": "step", "epoch": true, "step": 1}',
        "[]",
        "\udcff",
        '{"kind": "epoch", "epoch": 1, "step": 1e400}',
    ]
    (copied / "metrics.jsonl").write_text("\n".join([*odd, *lines[5:]]) + "\n", errors="surrogateescape")
    more = merge(values, {"training": {"epochs": 4, "lr_decay_epochs": 3}})
    result, alone = run(more, copied.parent), run(more, tmp_path / "alone")
    assert outcome(result).metrics == outcome(alone).metrics
    assert all((outcome(result).tensors[name] == tensor).all() for name, tensor in outcome(alone).tensors.items())
    assert compare_runs(result["run_dir"], alone["run_dir"])


@pytest.mark.parametrize("version", [1, 7])
def test_a_run_of_another_format_is_refused(copied: Path, version: int) -> None:
    rewrite(copied / "manifest.json", lambda m: {k: v for k, v in m.items() if k != "checksum"} | {"version": version})
    with pytest.raises(
        InputError, match=rf"has run format {version}, and this graphmill reads format {RUN_FORMAT}: train"
    ):
        restore(copied)


Use = Callable[[], object]


def uses(run_dir: Path, other: Path) -> dict[str, Use]:
    """What a person does with a run, and what comes of it, to be compared."""

    def weights() -> object:
        result = restore(run_dir)
        parameters = {name: value.tolist() for name, value in result.model.state_dict().items()}
        return result.epoch, result.job.settings.model_dump(), result.graph.content_hash, parameters

    def warm() -> object:
        result = read_warm_start(str(run_dir))
        return result.rows, {name: tensor.tolist() for name, tensor in result.tensors.items()}

    return {
        "weights": weights,
        "comparison": lambda: compare_runs(run_dir, other),
        "warm start": warm,
        "neighbours": lambda: load(run_dir).neighbors("n3").to_dict(),
        "history": lambda: load(run_dir).history.to_dict(),
    }


DRAWN = ("history",)
"""Made of the trace (``metrics.jsonl``), which nothing decides by: a digit in it may be another one, and is drawn so."""


@pytest.mark.parametrize("count", [300, pytest.param(5000, marks=pytest.mark.long)])
def test_damages_of_run_files_are_harmless_or_refused_in_a_sentence(count: int, trained: Path, tmp_path: Path) -> None:
    """Nothing changes silently: what comes of a use is what comes of the whole run, or a sentence."""
    rng, refused, used = random.Random(40), [], 0
    other = Path(shutil.copytree(trained, tmp_path / "other"))
    run_dir = Path(shutil.copytree(trained, tmp_path / "damaged"))
    expected = {name: use() for name, use in uses(run_dir, other).items() if name not in DRAWN}
    names = [*NAMES, "embeddings/manifest.json"]
    for number in range(count):
        name = names[number % len(names)]
        path, whole = run_dir / name, (trained / name).read_bytes()
        path.write_bytes(_damaged(whole, rng))
        what, use = rng.choice(list(uses(run_dir, other).items()))
        try:
            result = use()
            used += 1
            assert what in DRAWN or result == expected[what], f"{what} changed silently by damage {number} of {name}"
        except GraphmillError as error:
            refused.append(str(error))
        path.write_bytes(whole)
    assert [text for text in refused if "\n" in text or len(text) > 1000] == []
    assert len(refused) > 50, "most damages should be seen"
    assert used > 50


def _damaged(data: bytes, rng: random.Random) -> bytes:
    at, kind = rng.randrange(len(data)), rng.randrange(7)
    if kind == 0:
        return data[:at]
    if kind == 1:
        return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]
    if kind == 2:
        end = at + rng.randrange(40)
        return data[:at] + b"\0" * (end - at) + data[end:]
    if kind == 3:
        return rng.choice([b"", b"[]", b"{}", b"null", b"5", b'"x"', b"[" * 90_000, b"NaN", b'{"data": 5}'])
    if kind == 4:
        return data.replace(
            *rng.choice([(b"{", b"["), (b":", b","), (b"1", b"true"), (b"0", b"1e999"), (b'"', b"")]), 1
        )
    lines = data.splitlines(keepends=True)
    row = rng.randrange(len(lines))
    return b"".join(lines[:row] + lines[row + 1 :] if kind == 5 else [*lines, *lines[row : row + 3]])


# -- moved -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(trained: Path, graph: TypedGraph, tmp_path: Path) -> Path:
    """A project with a run on a graph of its own, trained by the command line with an absolute path."""
    root = tmp_path / "before" / "data" / "06_models" / "toy"
    shutil.copytree(graph.path, root / "graph")
    return tmp_path / "before"


def trained_in(project: Path, values: dict[str, Any]) -> Path:
    of = project / "data" / "06_models" / "toy"
    return Path(run(merge(values, {"data": str(of / "graph")}), of / "hgt")["run_dir"])


def test_a_moved_project_goes_on_where_it_is(project: Path, values: dict[str, Any], tmp_path: Path) -> None:
    (project / "workspace.yaml").write_text("load_from: []\n")
    run_dir = trained_in(project, values)
    stored = json.loads((run_dir / "manifest.json").read_text())["data"]["path"]
    assert stored == "data/06_models/toy/graph", "relative to the project's root"
    before = evaluate_run(restore(run_dir))["test"]
    moved = project.rename(tmp_path / "after")
    moved_run = moved / run_dir.relative_to(project)
    assert evaluate_run(restore(moved_run))["test"] == before
    assert export_run(restore(moved_run))["rows"] == 114
    runner = CliRunner()
    for command in (["evaluate", str(moved_run), "--json"], ["rank", str(moved_run), "--json"]):
        process = runner.invoke(app, command)
        assert process.exit_code == 0, process.output
    again = trained_in(moved, values)
    assert again == moved_run
    assert str(project) not in (moved_run / "embeddings" / "manifest.json").read_text()
    more = run(
        merge(values, {"data": str(moved / "data/06_models/toy/graph"), "training": {"epochs": 4}}), moved_run.parent
    )
    assert more["epochs_done"] == 4
    assert "before" not in (moved_run / "report.json").read_text()


def test_a_run_with_an_absolute_path_is_found_again(project: Path, values: dict[str, Any], tmp_path: Path) -> None:
    run_dir = trained_in(project, values)
    absolute = str(project / "data/06_models/toy/graph")

    def old(manifest: dict[str, Any]) -> dict[str, Any]:
        kept = {name: value for name, value in manifest.items() if name not in ("checksum", "files")}
        return sealed(kept | {"data": {**manifest["data"], "path": absolute}})

    rewrite(run_dir / "manifest.json", old)
    assert restore(run_dir).graph.path == Path(absolute)
    moved = project.rename(tmp_path / "after")
    result = restore(moved / run_dir.relative_to(project))
    assert result.graph.path == moved / "data/06_models/toy/graph"


def test_a_run_that_was_copied_without_its_graph_says_what_is_missing(
    project: Path, values: dict[str, Any], tmp_path: Path
) -> None:
    run_dir = trained_in(project, values)
    export_run(restore(run_dir))
    alone = Path(shutil.copytree(run_dir, tmp_path / "server" / "deep" / "down" / "here" / run_dir.name))
    with pytest.raises(InputError, match=r"is not here: it was graph .*content hash [0-9a-f]{16}"):
        restore(alone)
    assert load(alone).neighbors("n3", k=2).shape == (2, 4), "what needs no graph works"
    shutil.copytree(project / "data/06_models/toy/graph", tmp_path / "server" / "deep" / "another_name")
    assert restore(alone).epoch, "found by its content hash"


def test_another_graph_in_its_place_is_not_taken_for_it(project: Path, values: dict[str, Any]) -> None:
    run_dir = trained_in(project, values)
    manifest = project / "data/06_models/toy/graph/manifest.json"
    (manifest.parent / "src.npy").write_bytes(b"")
    with pytest.raises(InputError, match=r"src\.npy is damaged"):
        restore(run_dir)
    other = shutil.copytree(manifest.parent, manifest.parent.parent / "other") / "manifest.json"
    other.write_text(other.read_text().replace('"content_hash": "', '"content_hash": "0'))
    manifest.write_text("{}")
    with pytest.raises(InputError, match="is not here: it was graph"):
        restore(run_dir)  # a graph beside it was never this one


READ_ONLY = """
import sys
from pathlib import Path
from graphmill import load
from graphmill.errors import GraphmillError
from graphmill.runs.export import evaluate_run, export_run, restore
from graphmill.runs.train import train
import json
restored = restore(sys.argv[1])
print("evaluated", bool(evaluate_run(restored)["test"]), load(sys.argv[1]).neighbors("n3", k=2).shape)
for work in (lambda: export_run(restored), lambda: train(json.loads(sys.argv[2]), "x", root=str(Path(sys.argv[1]).parent))):
    try:
        work()
    except GraphmillError as error:
        print(error.exit_code, error)
"""


def test_a_project_that_is_mounted_read_only_elsewhere_is_read(
    project: Path, values: dict[str, Any], tmp_path: Path
) -> None:
    run_dir = trained_in(project, values)
    export_run(restore(run_dir))
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "program.py").write_text(READ_ONLY)
    script = """mount --bind "$1" "$2"
mount -o remount,ro,bind "$2"
"$3" "$4" "$2/$5" "$6"
"""
    more = json.dumps(merge(values, {"data": str(tmp_path / "elsewhere/data/06_models/toy/graph")}))
    where = [str(project), str(tmp_path / "elsewhere"), sys.executable, str(tmp_path / "program.py")]
    out = in_own_mounts(script, *where, str(run_dir.relative_to(project)), more).splitlines()
    assert out[0] == "evaluated True (2, 4)"
    assert "embeddings" in out[1]
    assert "cannot be written: Read-only file system" in out[1]
    assert out[2].startswith("2 the run directory ")
    assert "Read-only file system" in out[2]


def test_an_export_whose_bytes_have_changed_is_refused(copied: Path) -> None:
    path = copied / "embeddings" / "embeddings.parquet"
    data = bytearray(path.read_bytes())
    data[200] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"embeddings\.parquet is damaged: its SHA-256 .*; run `graphmill train` with"):
        load(copied)


def test_a_folder_of_another_kind_is_called_what_it_is(trained: Path, values: dict[str, Any], tmp_path: Path) -> None:
    graph = Path(values["data"])
    with pytest.raises(InputError, match=f"{graph.name} is a graph, not a run"):
        restore(graph)
    with pytest.raises(InputError, match=f"{graph.name} is a graph, not an export"):
        load(graph)
    with pytest.raises(InputError, match="embeddings is an export, not a run"):
        restore(trained / "embeddings")
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("embeddings"))
    with pytest.raises(InputError, match="run holds no finished export"):
        load(tmp_path / "run")
