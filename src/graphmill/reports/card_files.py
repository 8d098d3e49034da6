"""Reads the files that a card describes, from a run directory, a promoted version, or an export alone.

It computes only differences and counts. What no file contains is left out here, and the card says that it is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.errors import InputError
from graphmill.export.manifests import export_folder, read_manifest, read_version
from graphmill.graph.splits import SPLIT_NAMES
from graphmill.reports.validation import HEALTH, PROBE
from graphmill.settings import Settings
from graphmill.systems.base import SystemSettings
from graphmill.systems.registry import SYSTEMS, settings_model
from graphmill.training.run_files import read_run_file
from graphmill.verified_files import VERSION, read_json_file, verified_file

if TYPE_CHECKING:
    from graphmill.graph.typed_graph import TypedGraph

DRIFT = "drift/drift.json"
#: Settings that the card's list of changes leaves out. The data's path is in the section Data, the preset in How it was
#: made.
_NOT_COMPARED = ("system", "data", "preset")
Differences = dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class CardFiles:
    """The contents of the files in ``folder``; a missing file is an empty mapping.

    ``export``: the export's manifest; ``run``: the run's ``manifest.json``; ``version``: ``version.json``.
    """

    folder: Path
    export_folder: Path
    export: Mapping[str, Any]
    run: Mapping[str, Any] = field(default_factory=dict)
    report: Mapping[str, Any] = field(default_factory=dict)
    ranking: Mapping[str, Any] = field(default_factory=dict)
    question: Mapping[str, Any] = field(default_factory=dict)
    health: Mapping[str, Any] = field(default_factory=dict)
    probe: Mapping[str, Any] = field(default_factory=dict)
    drift: Mapping[str, Any] = field(default_factory=dict)
    version: Mapping[str, Any] = field(default_factory=dict)

    @property
    def system(self) -> str:
        """The system's name; "" if no file has it."""
        return str(self.export.get("system", ""))

    @property
    def vectors(self) -> bool:
        """Whether vectors were exported; else the weights of a system without vectors."""
        return bool(self.export["dim"])

    @property
    def settings(self) -> Mapping[str, Any]:
        """All settings, defaults included, as they were exported."""
        values = self.export.get("settings")
        return values if isinstance(values, Mapping) else {}

    @property
    def data(self) -> Mapping[str, Any]:
        """``path`` and ``content_hash`` of the graph."""
        return self.export.get("data") or {}

    @property
    def dataset(self) -> str:
        """The data set's name, which is the name of the graph's folder."""
        path = Path(str(self.data.get("path", "")))
        named = path.parent.name if path.name == "graph" else path.name
        # Runs are D/M/RUN and versions D/M/VERSION.
        return named or self.folder.resolve().parent.parent.name or "unknown data"

    @property
    def software(self) -> Mapping[str, str]:
        """Versions by package."""
        versions = self.export.get("versions") or self.version.get("software") or {}
        return versions if isinstance(versions, Mapping) else {}

    @property
    def metrics(self) -> Mapping[str, Any]:
        """``valid_mrr``, ``test_mrr``, …; empty if no file has them."""
        values = self.report.get("metrics") or self.version.get("metrics") or {}
        return values if isinstance(values, Mapping) else {}

    @property
    def graph(self) -> Mapping[str, Any]:
        """The result of :func:`graph_facts` at the export; empty for an export of nodes that joined later."""
        return self.export.get("graph") or {}

    @cached_property
    def differences(self) -> Differences:
        """``section.name`` → its value and the default with the chosen loss, where they differ. Settings that this loss does
        not read are left out."""
        if self.system not in SYSTEMS:
            return {}
        model, settings = settings_model(self.system), self._understood
        default = model.model_validate({}).model_dump(mode="json")
        if loss := getattr(getattr(settings, "objective", None), "loss", None):  # other defaults may depend on it
            usual = default["objective"]["loss"]
            default = model.model_validate({"objective": {"loss": loss}}).model_dump(mode="json")
            default["objective"]["loss"] = usual
        batching = self.run.get("resolved", {}).get("batching", "")
        unread = settings.unread(batching) if isinstance(settings, SystemSettings) else {}
        changed: Differences = {}
        for section, values in (
            settings.model_dump(mode="json") if isinstance(settings, Settings) else settings
        ).items():
            if section in _NOT_COMPARED or section not in default:
                continue
            standard = default[section]
            if not isinstance(values, Mapping):
                values, standard = {"": values}, {"": standard}
            for name, value in values.items():
                if name in standard and value != standard[name] and name not in unread.get(section, ()):
                    changed[f"{section}.{name}".rstrip(".")] = (value, standard[name])
        return changed

    @cached_property
    def _understood(self) -> Settings | Mapping[str, Any]:
        """The settings, or as they were written if they cannot be parsed."""
        try:
            return settings_model(self.system).model_validate(dict(self.settings))
        except ValueError:
            return self.settings

    @property
    def health_is_of_export(self) -> bool:
        """Whether the health report is of these vectors. One that was just made has no list of files, and is."""
        return not self.health or self.is_of_export(self.health)

    def is_of_export(self, result: Mapping[str, Any]) -> bool:
        """Whether a result that lists the files that it is of, lists the exported ones."""
        hashes = {entry["sha256"] for entry in self.export["files"].values()}
        return bool(hashes & set(result.get("of", hashes)))


def read_card_files(path: str | Path) -> CardFiles:
    """Read a run directory, a version's folder, or a folder of exported embeddings.

    Raises:
        InputError: nothing was exported there, or a file is damaged.
    """
    folder = Path(path)
    if folder.is_symlink():  # `current` is a link: use the version that it names now
        folder = folder.resolve()
    if not folder.is_dir():
        raise InputError(f"{folder} is neither a run directory nor a promoted version")
    exported = export_folder(folder)
    names = {"report": "report.json", "ranking": "ranking.json", "question": "question.json"}
    if exported != folder:
        names["run"] = "manifest.json"  # in a version, this file is the export's manifest
    others = {part: [name, Path(name).name] for part, name in (("health", HEALTH), ("probe", PROBE), ("drift", DRIFT))}
    version = read_version(folder) if (folder / VERSION).is_file() else {}
    for name in version.get("files", ()):
        if name in (*names.values(), *(Path(each).name for each in (HEALTH, PROBE, DRIFT))):
            verified_file(folder, name)
    contents = {part: read_run_file(folder, name) for part, name in names.items() if (folder / name).is_file()}
    for part, places in others.items():
        for path in (folder / name for name in places):
            if part not in contents and path.is_file():
                contents[part] = read_json_file(path, "")
    return CardFiles(folder, exported, read_manifest(exported), **contents, version=version)


def graph_facts(graph: TypedGraph) -> dict[str, Any]:
    """Counts of a graph as plain values: nodes by type, edges by relation and by split, nodes without a training edge."""
    described = graph.describe()
    return {
        "nodes": graph.num_nodes,
        "edges": graph.num_edges,
        "node_types": described["node_types"],
        "relations": described["relations"],
        "split": {name: described["split"][name] for name in SPLIT_NAMES},
        "without_training_edges": int(graph.cold_nodes().sum()),
    }
