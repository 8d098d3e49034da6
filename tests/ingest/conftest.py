"""Fixtures of the readers' tests."""

import pytest

READERS = ("graph_files", "triples")
"""Of ``kg_csv`` every kind of odd input is read by both, and compared, in ``test_engines.py``."""


@pytest.fixture(params=["memory", "duckdb"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whatever the test reads is read by this engine."""
    if request.param == "duckdb":
        pytest.importorskip("duckdb")
        for reader in READERS:
            monkeypatch.setattr(f"graphmill.ingest.{reader}.choose", lambda engine, files: True)
    return request.param
