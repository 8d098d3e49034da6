"""The version in ``golden``, which an earlier release may have made: it is read, served and rolled back to, or refused."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from graphmill.errors import InputError
from graphmill.promotion.policy import PromotionSettings
from graphmill.promotion.promote import promote_run, roll_back
from graphmill.promotion.versions import Versions, version_rows
from graphmill.runs.warm_start import read_weights
from graphmill.serving.application import application
from graphmill.usage.exported import Run
from graphmill.verified_files import VERSION, sealed
from tests.promotion.conftest import TrainRun
from tests.promotion.make_golden_version import GOLDEN, MOST_BYTES, STORE, size

BOTH_FORMATS = re.compile(r"has version format (\d+), and this graphmill reads (\d+)")


@pytest.fixture
def store(tmp_path: Path) -> Versions:
    """A copy of the golden version's folder, in which it is live; skips where it is refused as it has to be."""
    shutil.copytree(GOLDEN, tmp_path / "07_promoted", symlinks=True)
    result = Versions(tmp_path / "07_promoted" / STORE)
    if problem := next(row["problem"] for row in version_rows(result) if row["live"]):
        assert BOTH_FORMATS.search(problem), problem
        pytest.skip(problem)
    return result


def test_it_is_small_and_of_no_machine() -> None:
    assert 0 < size(GOLDEN) <= MOST_BYTES
    for path in GOLDEN.rglob("*.json"):
        assert "/tmp/" not in path.read_text(), path


def test_it_is_read_and_served(store: Versions) -> None:
    version = store.current()
    assert version is not None
    version.verify()
    assert read_weights(version.path)
    run = Run(version.path)
    node, about = str(run.embeddings.ids[0]), version.about
    assert run.embeddings.vectors.shape == (about["rows"], about["dim"])
    with TestClient(application(store.path.parents[1]), base_url="http://127.0.0.1") as client:
        assert client.get("/healthz").json() == {"status": "ok", "problems": []}
        for name, query in (
            ("vector", {"id": node}),
            ("neighbors", {"id": node, "k": 3}),
            ("links", {"id": node, "k": 3}),
            ("report", {}),
        ):
            answer = client.get(f"/v1/{'/'.join(STORE.parts)}/current/{name}", params=query)
            assert answer.status_code == 200, (name, answer.text)


def test_a_newer_version_is_rolled_back_to_it(store: Versions, trained: TrainRun) -> None:
    golden = store.current_name()
    promote_run(trained(), store, PromotionSettings(), by="me", person=True, force=True)
    assert store.current_name() != golden
    assert roll_back(store, by="me")["version"] == store.current_name() == golden


@pytest.mark.parametrize("number", [0, 2, "1", None])
def test_a_version_of_another_format_is_refused_with_both(number: Any, store: Versions) -> None:
    path = store.path / store.current_name() / VERSION
    about = json.loads(path.read_text())
    del about["checksum"]
    path.write_text(json.dumps(sealed(about | {"version": number})))
    with pytest.raises(InputError, match="this graphmill reads 1"):
        store.current()
