"""Drift between real runs and versions: what is compared with what, and which files are written."""

import json
from pathlib import Path

import pytest

from graphmill.errors import InputError
from graphmill.evaluation.drift.verdicts import DriftThresholds
from graphmill.promotion.drift import drift_of_run, side_of
from graphmill.promotion.promote import promote_run
from graphmill.promotion.versions import Versions
from tests.promotion.conftest import TrainRun


@pytest.fixture(scope="module")
def first(trained: TrainRun) -> Path:
    return trained()


@pytest.fixture(scope="module")
def second(trained: TrainRun) -> Path:
    return trained(training={"seed": 9})


@pytest.fixture(scope="module")
def store(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Versions:
    result = Versions(tmp_path_factory.mktemp("promoted") / "toy" / "hgt")
    promote_run(first, result, by="a test", person=True, force=True)
    return result


def test_a_side_is_a_run_a_version_or_a_file(store: Versions, first: Path) -> None:
    folder, live = store.path.parents[1], store.current()
    assert live is not None
    assert side_of(str(first), folder).run == first
    for name in ("toy/hgt", "toy/hgt/1", f"toy/hgt/{live.name}", str(live.path), str(store.path / "current")):
        side = side_of(name, folder)
        assert (side.name, side.run) == (live.name, first)
        assert side.graph is not None
    plain = side_of(str(first / "embeddings" / "embeddings.parquet"), folder)
    assert (plain.graph, plain.run) == (None, None)
    for wrong in ("nowhere", "toy/none", "a/b/c/d", "../hgt"):
        with pytest.raises(InputError, match="is not a run directory, a version"):
            side_of(wrong, folder)
    with pytest.raises(InputError, match="has no version 'none'"):
        side_of("toy/hgt/none", folder)


def test_the_live_versions_own_run_has_not_moved(store: Versions, first: Path) -> None:
    result = drift_of_run(first, store)
    assert (result["name"], result["status"], result["changed"]) == ("unchanged", "pass", 0.0)
    assert result["graph"]["lost"] == result["graph"]["added"] == 0
    assert json.loads((first / "drift" / "drift.json").read_text()) == result
    assert {path.name for path in (first / "drift").iterdir()} == {"drift.json"}


def test_another_seed_has_other_neighbours_on_the_same_graph(store: Versions, second: Path) -> None:
    result = drift_of_run(second, store)
    assert 0 < result["changed"] <= 1
    assert result["graph"]["lost"] == result["graph"]["added"] == 0
    bounds = DriftThresholds(changed_warn=1e-6, changed_fail=1e-6)
    names = [finding["name"] for finding in drift_of_run(second, store, bounds)["findings"]]
    assert names[0] == "moved"


def test_without_a_live_version_there_is_nothing_to_compare_with(first: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="toy/hgt has no live version"):
        drift_of_run(first, Versions(tmp_path / "toy" / "hgt"))
