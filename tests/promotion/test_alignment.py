"""Exports are laid over the live version: in place where scores do not change, as a copy beside the vectors otherwise."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from graphmill.errors import GraphmillError
from graphmill.evaluation.drift.figures import drift_figures
from graphmill.evaluation.embedding_files import read_embeddings
from graphmill.export.alignment import ALIGNED, aligned_file
from graphmill.promotion.promote import promote_run, versions_folder
from graphmill.runs.export import export_run, restore
from graphmill.runs.train import train
from graphmill.training.settings import ExportSettings
from tests.training.cases import CASES
from tests.training.runs import settings_of


class Model:
    """One model in a project of its own: trained, exported and promoted at will."""

    def __init__(self, folder: Path, case: str, **sections: Any) -> None:
        self.case, self.sections = CASES[case], sections
        self.folder = folder / "data" / "06_models" / "toy"
        self.graph = self.case.graph(self.folder / "graph")

    def run(self, **training: Any) -> tuple[Path, dict[str, Any]]:
        values = settings_of(self.case, self.graph, {"export": {"csv": False}, "training": training}, self.sections)
        path = Path(train(values, "test", root=str(self.folder / self.case.system))["run_dir"])
        return path, export_run(restore(path))


def cosine(a: Path, b: Path) -> float:
    return drift_figures(read_embeddings(a), read_embeddings(b)).overall.cosine_raw


def promote(run: Path) -> Path:
    result = promote_run(run, versions_folder(run), by="a test", person=True, force=True)
    assert result["outcome"] == "promoted"
    return Path(result["path"])


def test_dot_products_are_turned_in_place_and_score_the_same(tmp_path: Path) -> None:
    model = Model(tmp_path, "mf")
    first, exported = model.run(epochs=6)
    assert "alignment" not in exported, "nothing is live yet"
    live = promote(first)
    second, exported = model.run(epochs=6, seed=1)
    output = exported["alignment"]
    assert (output["to"], output["in_place"], output["shared"]) == (live.name, True, 82)
    assert not (second / "embeddings" / ALIGNED).exists()
    turned = np.asarray(read_embeddings(second / "embeddings").vectors)
    export_run(restore(second), ExportSettings(csv=False, align="none"))
    plain = np.asarray(read_embeddings(second / "embeddings").vectors)
    assert turned @ turned.T == pytest.approx(plain @ plain.T, abs=1e-5), "every score is what it was"
    reference = np.asarray(read_embeddings(live).vectors)
    assert np.linalg.norm(turned - reference) < np.linalg.norm(plain - reference)
    assert output["residual"] == pytest.approx(np.linalg.norm(turned - reference) / np.linalg.norm(reference), rel=1e-4)


def test_other_scores_keep_their_vectors_and_a_turned_copy_lies_beside(tmp_path: Path) -> None:
    model = Model(tmp_path, "hgt-full")
    first, _ = model.run()
    live = promote(first)
    second, exported = model.run(seed=1)
    folder = second / "embeddings"
    assert exported["alignment"]["in_place"] is False
    assert set(exported["aligned"]) == {ALIGNED}
    system = restore(second)
    vectors = np.concatenate([block.vectors for block in system.system.embeddings(system.model)])
    assert np.array_equal(np.asarray(read_embeddings(folder).vectors), vectors)
    assert cosine(live, folder / ALIGNED) > cosine(live, folder) + 0.1
    version = promote(second)
    assert (version / ALIGNED).read_bytes() == (folder / ALIGNED).read_bytes()
    assert aligned_file(version) == version / ALIGNED
    # The next one is laid over the copy: the space is the first one's all along.
    third, exported = model.run(seed=2)
    assert exported["alignment"]["to"] == version.name
    assert cosine(version / ALIGNED, third / "embeddings" / ALIGNED) > cosine(version, third / "embeddings")


def test_exporting_the_live_versions_own_run_again_changes_nothing(tmp_path: Path) -> None:
    model = Model(tmp_path, "hgt-full")
    first, exported = model.run()
    promote(first)
    _, again = model.run()
    assert again["files"] == exported["files"]
    assert "alignment" not in again
    second, exported = model.run(seed=1)
    promote(second)
    _, again = model.run(seed=1)
    assert again["alignment"]["to"] == exported["alignment"]["to"]
    assert again["files"] == exported["files"]


def test_another_width_is_not_aligned_and_the_manifest_says_why(tmp_path: Path) -> None:
    model = Model(tmp_path, "hgt-full")
    first, _ = model.run()
    promote(first)
    model.sections = {"model": {"embedding_dim": 8}}
    _, exported = model.run()
    assert exported["alignment"]["problem"] == "it has 16 dimensions, the live version 8"


def test_a_training_starts_from_the_live_version(tmp_path: Path) -> None:
    model = Model(tmp_path, "hgt-full")
    fresh, _ = model.run(init_from="champion")
    assert "starts fresh" in (fresh / "train.log").read_text()
    live = promote(fresh)
    warm, _ = model.run(init_from="champion", learning_rate=1e-9)
    assert warm != fresh, "what it starts from is part of what it is"
    before, after = restore(fresh).model.state_dict(), restore(warm).model.state_dict()
    for name, tensor in after.items():
        if "strength" not in name:
            torch.testing.assert_close(tensor, before[name], atol=1e-5, rtol=1e-4)
    assert json.loads((live / "version.json").read_text())["fingerprint"][:16] in (warm / "train.log").read_text()


def test_a_setting_that_is_none_of_both_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphmillError, match="export"):
        Model(tmp_path, "hgt-full", export={"align": "yes"}).run()
