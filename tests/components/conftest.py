"""A project in a temporary directory: a small knowledge graph as CSV, and the two component types on it."""

import contextlib
import csv
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import dagster as dg
import numpy as np
import pytest

from graphmill.components import EmbeddingModel, GraphDataset
from graphmill.errors import GraphmillError
from graphmill.orchestration.io_managers import ArtifactStore
from graphmill.orchestration.page import HARD_BREAK
from graphmill.orchestration.pipes import WorkerClient, WorkerReport
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.serving.addresses import SERVICE_VARIABLE
from graphmill.training.signals import StopRequest
from graphmill.worker.modes import run_mode

HEADER = [
    "relation",
    "display_relation",
    "x_index",
    "x_id",
    "x_type",
    "x_name",
    "x_source",
    "y_index",
    "y_id",
    "y_type",
    "y_name",
    "y_source",
]
TYPES = ("drug", "disease", "gene/protein")
PER_TYPE = 40
SERVICE = "http://127.0.0.1:3001"
INTERACTIONS = {"name": "views", "format": "sequence", "path": "data/views.tsv"}
"""The source that reads what :func:`write_interactions` writes."""
LONGEST_KEY = 22
"""Characters of a metadata key that leave summary and pictures room on a window of 1,280."""


def write_kg(path: Path, edges: int = 400, seed: int = 0) -> None:
    """A random graph over three types of ``PER_TYPE`` nodes, each edge in both directions, no pair twice."""
    rng = np.random.default_rng(seed)
    count = PER_TYPE * len(TYPES)
    pairs = {tuple(sorted(pair)) for pair in rng.integers(0, count, (edges, 2)).tolist() if pair[0] != pair[1]}

    def node(index: int) -> list[str]:
        return [str(index), f"{index:03d}", TYPES[index // PER_TYPE], f"node {index}", "TEST"]

    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        for low, high in sorted(pairs):
            ends = sorted((TYPES[low // PER_TYPE], TYPES[high // PER_TYPE]))
            relation = "_".join(end[:4] for end in ends)
            writer.writerow([relation, relation, *node(low), *node(high)])
            writer.writerow([relation, relation, *node(high), *node(low)])


class FakeWorker(WorkerClient):
    """Answers as the worker would, from what a test put into ``replies`` (by mode); starts no process.

    For what an asset makes of figures that no small training would give. Assets with the real worker: :class:`WorkerHere`,
    and ``tests/orchestration``.
    """

    replies: dict[str, Any]

    def run(self, context: dg.AssetExecutionContext, *, extras: Mapping[str, Any], **_: Any) -> WorkerReport:
        reply = self.replies[str(extras.get("mode", "train"))]
        return WorkerReport(**reply)


def write_interactions(path: Path, users: int = 40, items: int = 30) -> None:
    """Two crowds, each with its own half of the items."""
    rng = np.random.default_rng(0)
    lines = []
    for user in range(users):
        liked = rng.permutation(items // 2)[:8] + (user % 2) * (items // 2)
        lines += [f"u{user}\ti{item}\t{1000 + 60 * step}" for step, item in enumerate(liked)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


class WorkerHere(WorkerClient):
    """Does the worker's job in this process."""

    modes: ClassVar[list[str]] = []
    """The modes that were asked for; of the class, since Dagster copies a resource."""

    def run(
        self, context: dg.AssetExecutionContext, *, extras: Mapping[str, Any], cwd: str, **how: Any
    ) -> WorkerReport:
        self.modes.append(str(extras.get("mode", "train")))
        with contextlib.chdir(cwd), StopRequest() as stop:
            try:
                return WorkerReport(result=run_mode(extras, [], stop))
            except GraphmillError as error:
                raise dg.Failure(str(error), allow_retries=False) from None


class Project:
    """A project root with data, and what is needed to materialize its assets."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.context: Any = SimpleNamespace(project_root=root, path=root, defs_module_path=root / "defs")
        self.instance = dg.DagsterInstance.ephemeral()
        self.source = root / "data" / "01_raw" / "kg.csv"
        write_kg(self.source)

    def dataset(self, **attributes: Any) -> dg.Definitions:
        sources = [{"name": "edges", "format": "kg_csv", "path": "data/01_raw/kg.csv"}]
        return GraphDataset(**{"name": "toy", "sources": sources, **attributes}).build_defs(self.context)

    def model(self, **attributes: Any) -> dg.Definitions:
        return EmbeddingModel(**{"dataset": "toy", "system": "hgt", **attributes}).build_defs(self.context)

    def materialize(
        self,
        *definitions: dg.Definitions,
        only: str | dg.AssetSelection = "",
        worker: WorkerClient | None = None,
        **config: dict[str, Any],
    ) -> dg.ExecuteInProcessResult:
        """``config``: by step, what was typed into the Launchpad."""
        assets = [asset for each in definitions for asset in each.assets or ()]
        selection = dg.AssetSelection.from_string(only) if isinstance(only, str) and only else only or None
        return dg.materialize(
            assets,
            selection=selection,
            instance=self.instance,
            raise_on_error=False,
            run_config={"ops": {step: {"config": values} for step, values in config.items()}},
            resources={
                "graphmill_store": ArtifactStore(base_path=str(self.root / "data" / "06_models")),
                "accelerator": AcceleratorResource(device="cpu"),
                "worker": worker or WorkerClient(),
            },
        )

    def metadata(self, key: str) -> dict[str, Any]:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(key.split("/")))
        assert event is not None
        output = {name: value.value for name, value in event.asset_materialization.metadata.items()}
        assert next(iter(output)) == "summary", "an asset's page begins with words for a person"
        if SERVICE_VARIABLE in os.environ:
            assert f"({SERVICE}/#/{key})" in output["summary"], "every asset's page leads to the explorer"
        output["summary"] = str(output["summary"]).replace(HARD_BREAK, " ")
        long = [name for name in output if len(name) > LONGEST_KEY and not name.startswith("dagster/")]
        assert not long, "keys as wide as these leave summary and pictures no room"
        return self.figures(output) | output

    @staticmethod
    def figures(entries: Mapping[str, Any]) -> dict[str, Any]:
        """The numbers of the table ``figures``, where an asset has one of records."""
        table = entries.get("figures")
        result: dict[str, Any] = {}
        for record in table.records if isinstance(table, dg.TableMetadataValue) else ():
            with contextlib.suppress(ValueError):
                result[str(record.data["figure"])] = float(str(record.data["now"]).replace(",", ""))
        return result

    def data_version(self, key: str) -> str:
        event = self.instance.get_latest_materialization_event(dg.AssetKey(key.split("/")))
        assert event is not None
        return event.asset_materialization.tags["dagster/data_version"]

    def value(self, key: str) -> dict[str, Any]:
        return json.loads((self.root / "data" / "06_models" / f"{key}.json").read_text())


@pytest.fixture(autouse=True)
def explorer_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under ``make ui``."""
    monkeypatch.setenv(SERVICE_VARIABLE, SERVICE)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def checks(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    """The check evaluations by name."""
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def failure(result: dg.ExecuteInProcessResult) -> str:
    """What the failed step says: the sentence of a Failure, or the error."""
    (event,) = result.filter_events(lambda event: event.is_step_failure)
    data = event.step_failure_data
    return data.user_failure_data.description if data.user_failure_data else str(data.error)


def ran(result: dg.ExecuteInProcessResult) -> set[str]:
    """The steps that began."""
    return {event.step_key for event in result.all_events if event.event_type_value == "STEP_START"}
