"""Remedies speak of settings that the system has."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from graphmill.evaluation.health.check import remedy_of, setting_names
from graphmill.evaluation.health.report import health_report
from graphmill.reports.validation import validate_file
from graphmill.systems import registry
from graphmill.verified_files import sealed

WAYS = ("raise contrastive_weight", "lower regularisation", "train longer")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (None, "Raise contrastive_weight, lower regularisation, or train longer."),
        ({"regularisation"}, "Lower regularisation or train longer."),
        (set(), "Train longer."),
    ],
)
def test_ways_without_their_setting_are_left_out(settings: set[str] | None, sentence: str) -> None:
    assert remedy_of(*WAYS, settings=settings) == sentence


def test_sections_are_opened() -> None:
    assert setting_names({"system": "x", "model": {"num_layers": 2}}) == {"system", "num_layers"}


@pytest.mark.parametrize("system", list(registry.SYSTEMS))
def test_no_verdict_on_a_collapsed_embedding_names_a_setting_that_its_system_lacks(system: str) -> None:
    known = setting_names(registry.settings_model(system)(system=system).model_dump())
    every = set().union(*(setting_names(registry.settings_model(r)(system=r).model_dump()) for r in registry.SYSTEMS))
    rng = np.random.default_rng(0)
    X = np.ones((400, 32)) + 1e-3 * rng.standard_normal((400, 32))
    X[:, 0] *= 50
    types = np.repeat([0, 1], 200)
    report = health_report(X, types, ["disease", "drug"], settings=known)
    assert report.status == "fail"
    for verdict in report.verdicts:
        words = set(verdict.remedy.replace(",", " ").replace(".", " ").split())
        assert not words & (every - known), verdict


@pytest.mark.parametrize(
    ("manifest", "spoken_of"),
    [
        (
            json.dumps(
                sealed(
                    {
                        "format": "graphmill-embeddings",
                        "version": 1,
                        "rows": 50,
                        "dim": 2,
                        "files": {},
                        "system": "hgt",
                        "fingerprint": "",
                        "epoch": 1,
                        "settings": {"a": {"b_c": 8}},
                    }
                )
            ),
            False,
        ),
        ("not JSON", True),
        ("[1]", True),
        ('{"settings": 3}', True),
        (None, True),
    ],
)
def test_a_files_manifest_says_what_its_remedies_may_name(
    manifest: str | None, spoken_of: bool, tmp_path: Path
) -> None:
    vectors = [[1.0, 1 + i / 1000] for i in range(50)]
    table = {"node_id": [f"n{i}" for i in range(50)], "node_type": ["a"] * 50, "embedding": vectors}
    pq.write_table(pa.table(table), tmp_path / "embeddings.parquet")
    if manifest is not None:
        (tmp_path / "manifest.json").write_text(manifest)
    report = validate_file(tmp_path / "embeddings.parquet")
    output = " ".join(verdict.remedy for verdict in report.verdicts)
    assert report.status == "fail"
    assert ("contrastive_weight" in output) is spoken_of


def test_what_a_softmax_does_not_read_is_no_remedy_beside_it() -> None:
    objective = {"contrastive_weight": 0.5, "temperature": 0.07}
    assert setting_names({"objective": {"loss": "softmax", **objective}}) == {"loss", "temperature"}
    assert "contrastive_weight" in setting_names({"objective": {"loss": "link_contrastive", **objective}})
