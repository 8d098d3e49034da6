"""An earlier model on a later graph: nothing is trained, and new nodes are folded in (``training.epochs: 0``)."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmill.errors import InputError, SettingsError
from graphmill.graph.typed_graph import TypedGraph
from graphmill.runs.export import export_run, restore
from graphmill.runs.resolve import merge
from graphmill.runs.train import train
from graphmill.systems.registry import SYSTEMS
from tests.runs.grown import before
from tests.training.cases import CASES
from tests.training.runs import settings_of

FIRST_CASE = {case.system: name for name, case in reversed(CASES.items())}
LONGER = {"training": {"epochs": 30, "steps_per_epoch": 5, "learning_rate": 0.03, "patience_epochs": 0}}
QUIET = {"evaluation": {"baselines": []}, "export": {"csv": False}}


class Grown:
    """A run on a graph without each ninth node, and the settings of a run on the whole graph that starts from it."""

    def __init__(self, name: str, folder: Path, more: dict[str, Any] | None = None) -> None:
        case = CASES[FIRST_CASE.get(name, name)]
        self.folder, self.after = folder, case.graph(folder / "after")
        ids = self.after.node_table()["id"].to_pylist()
        self.joined = set(ids[::9])
        self.before = before(self.after, self.joined, folder / "before")
        self.values = merge(merge(settings_of(case, self.before), QUIET), more or {})
        self.first = train(self.values, "test", root=str(folder / "first"))

    def run(self, graph: TypedGraph | None = None, **training: Any) -> dict[str, Any]:
        start = {"init_from": self.first["run_dir"], "epochs": 0, **training}
        values = merge(self.values, {"data": str((graph or self.after).path), "training": start})
        return train(values, "test", root=str(self.folder / "later"))


@pytest.mark.parametrize("case", [*(name for name, entry in SYSTEMS.items() if entry.folds_in), "hgt-softmax"])
def test_every_system_that_folds_in_gives_a_whole_run(case: str, tmp_path: Path) -> None:
    grown = Grown(case, tmp_path)
    result = grown.run()
    assert result["epochs_done"] == result["steps_done"] == 0
    assert any("embed only" in note for note in result["notes"])
    restored, old = restore(result["run_dir"]), restore(grown.first["run_dir"])
    rows = restored.system.row_keys(restored.model)
    labels = {label: (keys, old.model.state_dict()[name])
              for name, (label, keys) in old.system.row_keys(old.model).items()}  # fmt: skip
    for name, (label, keys) in rows.items():
        known, values = labels[label]
        mine = restored.model.state_dict()[name].numpy()
        assert np.isfinite(mine).all()
        place = {key: row for row, key in enumerate(known)}
        same = [(row, place[key]) for row, key in enumerate(keys) if key in place]
        old_values = values.numpy()
        new_rows, old_rows = np.array(same).T if keys else (..., ...)
        assert np.array_equal(mine[new_rows], old_values[old_rows]), "what was known stays"
    assert export_run(restored)["rows"] == grown.after.num_nodes
    assert train(
        merge(grown.values, {"data": str(grown.after.path), "training": {"init_from": grown.first["run_dir"]}}),
        "test", root=str(tmp_path / "later"),
    )["run_dir"] != result["run_dir"], "a warm start is another run"  # fmt: skip


@pytest.mark.parametrize(
    ("system", "table"), [("mf", "item"), ("kgat", "tables.1"), ("distmult", "entities"), ("transe", "entities")]
)
def test_new_nodes_are_near_what_their_edges_say(system: str, table: str, tmp_path: Path) -> None:
    """The vectors of new nodes are closer to those of nodes of their group than the mean of the table is."""
    grown = Grown(system, tmp_path, LONGER)
    restored = restore(grown.run()["run_dir"])
    _, keys = restored.system.row_keys(restored.model)[table]
    vectors = dict(restored.model.named_parameters())[table].detach().numpy()
    groups, per = (
        np.array([int(key.lstrip("abcdefghijklmnopqrstuvwxyz")) for key in keys]),
        5 if system in ("mf", "kgat") else 6,
    )
    vectors = vectors - vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    kinds = np.zeros(len(keys), int)
    if table == "entities":
        kinds = np.repeat(np.arange(len(grown.after.node_types)), [t.count for t in grown.after.node_types])
    near = []
    for row in (row for row, key in enumerate(keys) if key in grown.joined):
        others = [n for n, key in enumerate(keys) if key not in grown.joined and kinds[n] == kinds[row]]
        alike = groups[others] % per == groups[row] % per
        cosines = vectors[others] @ vectors[row]
        near.append(cosines[alike].mean() - cosines[~alike].mean())
    assert np.mean(near) > 0.1


def test_hgt_keeps_the_basis_of_its_spectral_vectors(tmp_path: Path) -> None:
    grown = Grown("hgt-softmax", tmp_path)
    later, first = restore(grown.run()["run_dir"]), restore(grown.first["run_dir"])
    vectors, ids = [], []
    for each in (later, first):
        vectors.append(np.concatenate([block.vectors for block in each.system.embeddings(each.model)]))
        ids.append(each.graph.node_table()["id"].to_pylist())
    place = {node: row for row, node in enumerate(ids[1])}
    known = [row for row, node in enumerate(ids[0]) if node in place]
    new = np.setdiff1d(np.arange(len(ids[0])), known)
    assert not later.model.left[new].any(), "new nodes add nothing to the basis"
    assert np.linalg.norm(vectors[0][new], axis=1).min() > 0.01, "but have vectors by their edges"
    mine, old = vectors[0][known], vectors[1][[place[ids[0][row]] for row in known]]
    cosines = (mine * old).sum(1) / np.linalg.norm(mine, axis=1) / np.linalg.norm(old, axis=1)
    assert np.median(cosines) > 0.9, "in the space of before"


def test_what_has_to_be_trained_is_refused(tmp_path: Path) -> None:
    grown = Grown("complex", tmp_path)
    with pytest.raises(InputError, match=r"drug\|binds\|gene/protein, which has to be trained"):
        grown.run(before(grown.after, (), tmp_path / "renamed", {"drug_protein": "binds"}))
    with pytest.raises(SettingsError, match=r"training\.epochs: 0 trains nothing"):
        grown.run(init_from="")
    with pytest.raises(SettingsError, match="nothing is live yet"):
        grown.run(init_from="champion")
    grown.values = {"system": "conve", "preset": "none"}
    with pytest.raises(SettingsError, match="conve cannot fold in"):
        grown.run()
    assert not list((tmp_path / "later").glob("*/report.json"))
