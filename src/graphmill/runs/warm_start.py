"""``init_from: RUN[@EPOCH]``: start from an earlier run's parameters, matched by node id, relation and type name. With
``epochs: 0`` nothing more is trained, and nodes that the run lacks are folded in (embed only)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphmill.arrays import load_safetensors
from graphmill.errors import InputError
from graphmill.export.manifests import read_version
from graphmill.graph.graph_location import open_graph_of
from graphmill.graph.summary import GraphSummary, KnownFeatures, attribute_map, known_features
from graphmill.runs.export import best_epoch, passed_over
from graphmill.training.checkpoint import CheckpointStore
from graphmill.training.contract import System
from graphmill.training.run_directory import RunDirectory
from graphmill.training.run_files import ParameterRows, shaped
from graphmill.training.run_state import schedules_of
from graphmill.training.schedule import named, shortened
from graphmill.verified_files import REMEDIES, damaged, read_json_file, verified_file

ROWS_FILE = "parameter_rows.json"
WEIGHTS_FILE = "weights.safetensors"
"""A promoted version's parameters by name; their rows are in :data:`ROWS_FILE` beside it."""
CHAMPION = "champion"
BOTH = "identity"
"""Label of a joint table of users and items. Its keys are "user ID" and "item ID"."""


@dataclass
class WarmStart:
    """An earlier run's parameters by label, with the keys of their rows; ``summary`` is filled when it is applied."""

    identity: str
    tensors: dict[str, Tensor]
    rows: dict[str, list[str]]
    nodes: frozenset[str] = frozenset()
    """To embed only, the ids of the nodes of the model's graph."""
    attributes: KnownFeatures = field(default_factory=dict)
    """Features from attributes of some of its nodes; in another graph they have other columns."""
    notes: list[str] = field(default_factory=list)
    summary: str = ""
    copied: int = 0
    total: int = 0

    def __post_init__(self) -> None:
        """Raise :class:`InputError` for a parameter that has not one row for each of its keys."""
        for label, keys in self.rows.items():
            if keys and self.tensors[label].shape[:1] != (len(keys),):
                raise InputError(
                    f"{self.identity}: {label} has {len(keys)} keys of rows for {list(self.tensors[label].shape)} numbers"
                )

    def applied_to(self, system: System) -> Callable[[nn.Module], None]:
        """A function that copies the matching rows into a fresh model of ``system``. To embed only, it folds in nodes that
        have no row, and refuses a model that lacks anything else. New rows of a buffer are 0."""
        keys = system.row_keys

        def initialise(model: nn.Module) -> None:
            self.copied = self.total = 0
            parameters, lacking = model.state_dict(keep_vars=True), dict[str, np.ndarray]()
            reading = system.reads_attributes() if self.attributes else {}
            for name, (label, each) in keys(model).items():
                rows = self._copy(label, each, parameters[name], self._columns(label, system, reading.get(name)))
                size = max(len(each), 1)
                self.total, self.copied = self.total + size, self.copied + size - len(rows)
                if len(rows) and isinstance(parameters[name], nn.Parameter):
                    lacking[name] = rows
                if self.nodes:
                    self._require_only_nodes(label, each, rows)
            self.summary = f"init_from: {self.copied:,} of {self.total:,} parameter rows taken from {self.identity}"
            if self.nodes:
                self.summary += f"; embed only: {self.total - self.copied:,} folded in, nothing is trained"
            self.summary += "".join(f"; {note}" for note in self.notes)
            if not self.copied:
                raise InputError(
                    f"init_from {self.identity} has nothing in common with this model (node ids, widths); empty it"
                )
            if self.nodes and lacking:
                system.fold_in_rows(model, lacking)

        return initialise

    def _require_only_nodes(self, label: str, keys: list[str], rows: np.ndarray) -> None:
        lacking = [keys[row] for row in rows] if len(rows) < max(len(keys), 1) else []
        # In a joint table the key of a node is its type and id.
        strange = [f"{label} of {key}" for key in lacking if self.nodes.isdisjoint((key, key.partition(" ")[2]))]
        strange += [label] * (len(rows) > len(lacking))
        if strange:
            raise InputError(
                f"embed only: {self.identity} has no {strange[0]}, which has to be trained: give training.epochs for a warm "
                "start (follow: {way: warm_start} in YAML), or start afresh"
            )

    def _table(self, label: str) -> tuple[Tensor | None, list[str]]:
        """The parameter of this label and the keys of its rows. MF's two tables are joined into one, as MMGCN has it."""
        parts = [self.tensors.get(kind) for kind in ("user", "item")]
        if label != BOTH or label in self.tensors or any(part is None for part in parts):
            return self.tensors.get(label), self.rows.get(label, [])
        keys = [f"{kind} {key}" for kind in ("user", "item") for key in self.rows[kind]]
        return torch.cat([part for part in parts if part is not None]), keys

    def _columns(self, label: str, system: System, reading: tuple[str, int] | None) -> Tensor | None:
        """The weights of this label for the columns that attributes have in the graph of ``system``; None: as they are."""
        change = attribute_map(self.attributes, system.graph, reading[0]) if reading else None
        if reading is None or change is None or label not in self.tensors:
            return None
        old, first, last = self.tensors[label], reading[1], reading[1] + change.shape[1]
        weights = old[:, first:last].float() @ torch.from_numpy(change.T)
        return torch.cat([old[:, :first], weights.to(old.dtype), old[:, last:]], dim=1)

    def _copy(self, label: str, keys: list[str], parameter: Tensor, weights: Tensor | None = None) -> np.ndarray:
        """Copy the rows of these keys; returns the numbers of those that it has not, [0] for a whole parameter.
        ``weights``: in the place of those of this label."""
        old, rows = (weights, list[str]()) if weights is not None else self._table(label)
        if old is None or old.shape[1:] != parameter.shape[1:] or old.dim() != parameter.dim():
            return np.arange(max(len(keys), 1))
        with torch.no_grad():
            if not keys:
                if old.shape != parameter.shape:
                    return np.zeros(1, np.int64)
                parameter.copy_(old)
                return np.zeros(0, np.int64)
            place = {key: row for row, key in enumerate(rows)}
            existing = np.array([place.get(key, -1) for key in keys])
            here = np.flatnonzero(existing >= 0)
            parameter[torch.from_numpy(here)] = old[torch.from_numpy(existing[here])].to(parameter.dtype)
            lacking = np.flatnonzero(existing < 0)
            if len(here) and not isinstance(parameter, nn.Parameter):
                parameter[torch.from_numpy(lacking)] = 0
            return lacking


def read_champion(folder: Path) -> WarmStart:
    """The parameters of the version in ``folder``."""
    about = read_version(folder)
    path = verified_file(folder, ROWS_FILE)
    stored: dict[str, tuple[str, list[str]]] = shaped(ParameterRows, read_json_file(path, f"{path} is missing"), path)
    weights = read_weights(folder)
    if missing := [name for name in stored if name not in weights]:
        raise damaged(path, f"it names {missing[0]}, which is no parameter", REMEDIES["graphmill-version"])
    tensors = {label: weights[name] for name, (label, _) in stored.items()}
    known = GraphSummary.load(folder).attributes
    return WarmStart(
        f"{shortened(about['fingerprint'])}@{about['epoch']}", tensors, dict(stored.values()), attributes=known
    )


def read_weights(folder: Path) -> dict[str, Tensor]:
    """The parameters and buffers of the version in ``folder``, by name."""
    return load_safetensors(verified_file(folder, WEIGHTS_FILE), "pt", REMEDIES["graphmill-version"])


def read_warm_start(reference: str) -> WarmStart:
    """Parse and load ``RUN`` (its best checkpoint) or ``RUN@EPOCH``.

    Raises:
        InputError: no such run or checkpoint.
    """
    chosen = re.fullmatch(r"(.+)@(\d+)", reference)
    run = RunDirectory(Path(chosen[1] if chosen else reference))
    manifest = run.read_json("manifest.json")
    store = CheckpointStore(run.checkpoints)
    best = "best" if any("best" in info.roles for info in store.list()) else "last"
    loaded = store.load(int(chosen[2]) if chosen else best)
    notes = passed_over(run, loaded, None if chosen else best_epoch(run))
    labels: dict[str, tuple[str, list[str]]] = run.read_json(ROWS_FILE)
    tensors = {label: loaded.snapshot.tensors[f"model.{name}"] for name, (label, _) in labels.items()}
    rows = dict(labels.values())
    fingerprint = shortened(named(manifest["fingerprint"], schedules_of(loaded.snapshot.state)))
    return WarmStart(
        f"{fingerprint}@{loaded.epoch}", tensors, rows, attributes=_features_of(run, manifest), notes=notes
    )


def _features_of(run: RunDirectory, manifest: Mapping[str, Any]) -> KnownFeatures:
    """Those of the graph of a run; none if it is not there any more."""
    try:
        return known_features(open_graph_of(run.path, manifest["data"]))
    except (InputError, KeyError, TypeError):
        return {}
