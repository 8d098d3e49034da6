"""Fixtures of the readers' tests."""

import pytest

READERS = ("kg_csv", "graph_files", "triples")


@pytest.fixture(params=["memory", "duckdb"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whatever the test reads is read by this engine."""
    if request.param == "duckdb":
        pytest.importorskip("duckdb")
        for reader in READERS:
            monkeypatch.setattr(f"graphmill.ingest.{reader}.choose", lambda engine, files: True)
    return request.param
