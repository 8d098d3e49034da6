"""Names, paths and settings that the assets of one dataset or model share.

The components create these objects, and the asset factories read them.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import dagster as dg

from graphmill.components.following import FollowSettings
from graphmill.errors import SettingsError
from graphmill.evaluation.drift.verdicts import DriftThresholds
from graphmill.evaluation.health.checks import HealthThresholds
from graphmill.evaluation.probe import LabelSettings
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.graph.settings import GraphSettings
from graphmill.influence.settings import InfluenceSettings
from graphmill.ingest.snapshots import (
    PLACE,
    SnapshotSettings,
    at_snapshot,
    checked_snapshot,
    joined,
    order,
    snapshot_names,
)
from graphmill.ingest.sources import SourceFile
from graphmill.launchers.settings import LauncherSettings
from graphmill.orchestration.automation import snapshot_partitions
from graphmill.orchestration.checks import Check, SeverityName, specs
from graphmill.orchestration.defaults import STORE
from graphmill.orchestration.home import OUTPUTS, PROMOTED
from graphmill.predictions.settings import LinkSettings, RankingSettings
from graphmill.promotion.policy import PromotionSettings
from graphmill.runs.resolve import stored_settings
from graphmill.settings import Settings, SettingsT, setting
from graphmill.systems.auto import AUTO
from graphmill.systems.entry import Entry
from graphmill.systems.registry import entry
from graphmill.training.run_directory import RunDirectory

Reference = dict[str, Any]
"""A small value of an asset, such as the paths of its files."""
POOL = "accelerator"
WHICH = "which_model"
"""The part of a model of ``system: auto`` that chooses the system."""
PREDICTS: dict[str, Literal["items", "links"]] = {"recommendations": "items", "links": "links"}
"""Section of the YAML → what the systems rank among which ``system: auto`` chooses."""


def predicted(sections: Collection[str]) -> str:
    """The section that says what ``system: auto`` predicts. Raises :class:`SettingsError` unless there is one."""
    named = [name for name in PREDICTS if name in sections]
    if len(named) != 1:
        raise SettingsError(
            "system: auto has to know what it predicts: write `recommendations: {}` for a dataset of interactions, or "
            "`links: {}` for any other graph, and not both"
        )
    return named[0]


def abilities_of(system: str, predicts: str = "") -> Entry:
    """The system's entry; with ``predicts``, a section of the YAML, one with what all systems can do among which
    ``system: auto`` chooses. Raises :class:`SettingsError` if there is no such system."""
    return Entry("", "", "", ranks=PREDICTS[predicts], vectors=False) if predicts else entry(system)


class ModelChecks(HealthThresholds):
    """Bounds and severities of the checks of a model, its embeddings and its rankings."""

    severity: SeverityName = setting("warn", "Severity of a failed check on health, ranking or loss")
    baseline_severity: SeverityName = setting(
        "warn", "Severity of a failed beats_baselines; it is error, too, if `severity` is error"
    )
    baseline_ratio_min: float = setting(
        1.0, "The model's figure divided by that of the best baseline (kNN, ComplEx, popularity, EASE, …)", ge=0
    )
    top_tail_share_max: float = setting(
        0.5, "Predicted links: largest share of a relation's heads that may have the same best tail", ge=0, le=1
    )
    ece_max: float = setting(
        0.1,
        "Predicted links: largest expected calibration error of the listed tails, averaged over relations",
        ge=0,
        le=1,
    )
    message_share_min: float = setting(0.7, "Smallest share of a relation's edges that must carry messages", ge=0, le=1)

    def part(self, model: type[SettingsT]) -> SettingsT:
        """The bounds that the library's thresholds model ``model`` has."""
        return model(**{name: getattr(self, name) for name in model.model_fields})


class ValidationSettings(Settings):
    """What the validation asset looks at besides the vectors and the graph."""

    labels: LabelSettings = setting(LabelSettings(), "Labels of nodes, for a linear probe of the vectors")


class RecommendationSettings(Settings):
    """Settings of recommendations."""

    k: int = setting(20, "Items for each user", ge=1)
    exclude_seen: Literal["auto", "always", "never"] = setting(
        "auto",
        "Leave out items that the user has already taken; auto: yes, unless users of a sequence model's data take "
        "the same items again (see repeat_share)",
    )


@dataclass(frozen=True)
class DatasetPlan:
    """Names, paths and settings of the assets of a dataset: its files, tables and graph."""

    dataset: str
    sources: Sequence[SourceFile]
    rejected_share_max: float
    ids_match_min: float
    aliases: str
    repair_ids: Sequence[str]
    graph: GraphSettings
    root: Path
    owners: Sequence[str]
    snapshots: SnapshotSettings | None = None
    snapshot: str = ""
    """The name of the snapshot whose files and paths these are; "" for those of all, or of a dataset without snapshots."""

    def key(self, name: str) -> dg.AssetKey:
        """``<dataset>/<name>``."""
        return dg.AssetKey([self.dataset, name])

    @property
    def partitions_def(self) -> dg.DynamicPartitionsDefinition | None:
        """The partitions of the assets, one for each snapshot."""
        return snapshot_partitions(self.dataset) if self.snapshots else None

    def at(self, context: dg.AssetExecutionContext) -> "DatasetPlan":
        """The plan of the step's snapshot; the plan itself for a dataset without snapshots."""
        return self.of(context.partition_key) if self.snapshots else self

    def of(self, snapshot: str) -> "DatasetPlan":
        """The plan of one snapshot. In mode append, the file of a source is the one that :meth:`prepare` writes."""
        sources = [at_snapshot(source, checked_snapshot(snapshot)) for source in self.sources]
        here = replace(self, snapshot=snapshot, sources=sources)
        if self.snapshots is None or self.snapshots.mode == "replace":
            return here
        return replace(here, sources=[self._joined(here.folder, source) for source in self.sources])

    def _joined(self, folder: str, source: SourceFile) -> SourceFile:
        if PLACE not in source.location:
            return source
        path = f"{folder}/{source.name}{Path(source.path.removesuffix('.gz')).suffix}"
        return replace(source, path=path, location=str(self.root / path))

    def prepare(self, source: SourceFile, snapshot: str) -> None:
        """Write the file of a source at this snapshot, if it is made of those of several snapshots."""
        if self.snapshots is not None and self.snapshots.mode == "append" and PLACE in source.location:
            target = self._joined(self.of(snapshot).folder, source).location
            joined(source, self.up_to(snapshot), Path(target))

    def up_to(self, snapshot: str) -> list[str]:
        """The names of the snapshots that are no newer than this one, the oldest first, and its own."""
        return [n for n in snapshot_names(self.sources) if order(n) < order(snapshot)] + [snapshot]

    def files(self, snapshot: str = "") -> dict[str, str]:
        """Every file of every source, by a unique name; of a snapshot, those of which it is made."""
        names = self.up_to(snapshot) if self.snapshots and self.snapshots.mode == "append" else [snapshot]
        result = {"aliases": self.aliases} if self.aliases else {}
        for name in names:
            for source in self.sources:
                files = (at_snapshot(source, name) if name else source).files().items()
                mark = f"@{name}" if PLACE in source.location else ""
                result |= {f"{source.name}{mark}.{role}".rstrip("."): location for role, location in files}
        return result

    @property
    def folder(self) -> str:
        """The folder of the dataset's files, or of the snapshot's, relative to ``root``."""
        return f"{OUTPUTS}/{self.dataset}" + (f"/{SNAPSHOTS}/{self.snapshot}" if self.snapshot else "")

    @property
    def graph_path(self) -> str:
        """The graph's directory, relative to ``root``."""
        return f"{self.folder}/graph"


@dataclass(frozen=True)
class ModelPlan:
    """One model on one dataset."""

    dataset: str
    name: str
    system: str
    settings: Settings
    preset_reason: str
    checks: ModelChecks
    validation: ValidationSettings
    root: Path
    publish: str
    owners: Sequence[str]
    freshness: dg.FreshnessPolicy | None
    influence: InfluenceSettings
    recommendations: RecommendationSettings
    links: LinkSettings
    ranking: RankingSettings
    promotion: PromotionSettings
    launcher: LauncherSettings | None
    drift: DriftThresholds
    follow: FollowSettings
    partitions_def: dg.DynamicPartitionsDefinition | None = None
    predicts: str = ""
    """With ``system: auto``, the section of the YAML that says what it predicts: recommendations or links."""

    def of_run(self, run_dir: str) -> "ModelPlan":
        """The plan with the system and the settings of a run. The abilities stay: what all systems have that suit the
        data."""
        if not self.predicts:
            return self
        settings = stored_settings(RunDirectory(self.root / run_dir))
        return replace(self, system=settings.system, settings=settings)

    @property
    def preset(self) -> str:
        """The preset behind the Launchpad's defaults."""
        return str(getattr(self.settings, "preset", ""))

    @property
    def selection_metric(self) -> str:
        """The metric that chooses the best epoch, by the Launchpad's defaults."""
        return str(self.settings.evaluation.selection_metric)  # type: ignore[attr-defined]

    @property
    def abilities(self) -> Entry:
        """What the system can do."""
        return abilities_of(self.system, self.predicts)

    def key(self, part: str) -> dg.AssetKey:
        """The asset key of one of the model's parts: ``<dataset>/<name>_<part>``, or ``<dataset>/which_model`` for the
        choice of a model that has no name of its own."""
        return dg.AssetKey([self.dataset, part if (part, self.name) == (WHICH, AUTO) else f"{self.name}_{part}"])

    @property
    def export_part(self) -> str:
        """The part that exports: the embeddings, or the weights of a system without vectors."""
        return "embeddings" if self.abilities.vectors else "scorer"

    @property
    def run_root(self) -> str:
        """The folder of its run directories, relative to ``root``."""
        return f"{OUTPUTS}/{self.dataset}/{self.name}"

    @property
    def versions_folder(self) -> str:
        """The folder of its promoted versions, relative to ``root``."""
        return f"{PROMOTED}/{self.dataset}/{self.name}"


def plan_asset(
    plan: Any,
    part: str,
    stage: str,
    *,
    description: str,
    kinds: set[str],
    inputs: Iterable[str] = (),
    checks: Sequence[Check] = (),
    code_version: str = "1",
    **more: Any,
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The decorator of every asset of a data set or model: ``@plan_asset(plan, "ranking", "validation", …)``.

    ``inputs``: argument names of the function → parts of the same plan; "graph" is the dataset's graph, "export" the
    model's export. ``more``:
    further arguments of ``dg.asset`` (``pool``, ``tags``).
    """
    key, partitions = plan.key(part), plan.partitions_def
    parts = {"graph": dg.AssetKey([plan.dataset, "graph"])}
    keys = {name: parts.get(name) or plan.key(plan.export_part if name == "export" else name) for name in inputs}
    return dg.asset(
        key=key,
        io_manager_key=STORE,
        ins={name: dg.AssetIn(asset_key) for name, asset_key in keys.items()},
        group_name=f"{plan.dataset}_{stage}",
        kinds=kinds,
        owners=list(plan.owners),
        description=description,
        code_version=code_version,
        check_specs=specs(key, checks, partitions),
        **{"partitions_def": partitions, **more},
    )
