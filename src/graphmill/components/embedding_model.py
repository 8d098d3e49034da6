"""The component type ``graphmill.components.EmbeddingModel``: one system on one dataset, configured by a few lines of
YAML."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from graphmill.components.drift_asset import drift_asset
from graphmill.components.embeddings_asset import embeddings_asset, scorer_asset
from graphmill.components.fields import Freshness, Schedule, as_settings, resolved, section
from graphmill.components.following import FollowSettings
from graphmill.components.influence_asset import influence_asset
from graphmill.components.links_asset import links_asset
from graphmill.components.model_asset import model_asset, which_model_asset
from graphmill.components.names import checked_model_name, partitions_of, require_unique_names
from graphmill.components.plan import (
    WHICH,
    ModelChecks,
    ModelPlan,
    RecommendationSettings,
    ValidationSettings,
    predicted,
)
from graphmill.components.promoted_asset import promoted_asset
from graphmill.components.ranking_asset import ranking_asset
from graphmill.components.recommendations_asset import recommendations_asset
from graphmill.components.validation_asset import validation_asset
from graphmill.components.worker_asset import WorkerAsset
from graphmill.errors import SettingsError
from graphmill.evaluation.drift.verdicts import DriftThresholds
from graphmill.influence.settings import InfluenceSettings
from graphmill.ingest.files import path_text
from graphmill.ingest.sources import checked_name
from graphmill.launchers.settings import LauncherSettings
from graphmill.orchestration.automation import freshness_policy, retraining_schedule
from graphmill.orchestration.defaults import shared_resources
from graphmill.predictions.settings import LinkSettings, RankingSettings
from graphmill.promotion.policy import PromotionSettings
from graphmill.runs.resolve import parse_settings
from graphmill.settings import Settings, parse
from graphmill.systems.auto import AUTO, AutoSettings
from graphmill.systems.base import ClosedFormSettings
from graphmill.systems.entry import Entry
from graphmill.systems.registry import SYSTEMS, choose_preset, require_folds_in
from graphmill.training.machine import this_machine

ASSETS: Mapping[str, tuple[Callable[[ModelPlan], WorkerAsset], Callable[[Entry], bool]]] = {
    WHICH: (which_model_asset, lambda system: not system.folder),  # that of `system: auto`
    "model": (model_asset, lambda _: True),
    "embeddings": (embeddings_asset, lambda system: system.vectors),
    "scorer": (scorer_asset, lambda system: not system.vectors),
    "validation": (validation_asset, lambda system: system.vectors),
    "ranking": (ranking_asset, lambda _: True),
    "recommendations": (recommendations_asset, lambda system: system.recommends),
    "influence": (influence_asset, lambda system: system.traces),
    "links": (links_asset, lambda system: not system.recommends),
    "drift": (drift_asset, lambda _: True),
    "promoted": (promoted_asset, lambda _: True),
}
"""The assets of a model's jobs, and which systems have them; a section of the YAML has the name of its asset."""
SECTIONS: Mapping[str, tuple[str, type[Settings]]] = {
    "checks": ("checks", ModelChecks),
    "validation": ("validation", ValidationSettings),
    "influence": ("influence", InfluenceSettings),
    "recommendations": ("recommendations", RecommendationSettings),
    "links": ("links", LinkSettings),
    "ranking": ("ranking", RankingSettings),
    "promote": ("promotion", PromotionSettings),
    "drift": ("drift", DriftThresholds),
    "follow": ("follow", FollowSettings),
}
"""Sections of the YAML with settings of assets → the field of the plan, and the settings model."""


@dataclass(frozen=True)
class Defaults:
    """The default settings of the Launchpad, and the reason for their preset."""

    settings: Settings
    preset_reason: str


def launchpad_defaults(system: str, written: dict[str, Any]) -> Defaults:
    """The system's settings with those of the YAML. The preset fills the missing ones.

    ``preset: auto``, the default, is resolved here by the device and memory of the machine that loads this, so that the
    Launchpad shows the values that a run will use.
    """
    for name in ("system", "data"):
        if name in written:
            raise SettingsError(f"settings.{name} is set by the component; remove it from the settings")
    if system == AUTO:
        return Defaults(parse(AutoSettings, written, "settings"), "")
    preset, reason = str(written.get("preset", "auto")), "as the defs.yaml says"
    if preset == "auto":
        machine = this_machine()
        preset, why = choose_preset(system, machine.device, machine.memory_bytes)
        reason = f"auto: {why}"
    known = {**written, "system": system, "preset": preset}
    return Defaults(parse_settings(known, "settings"), reason)


def launcher_settings(value: Any) -> LauncherSettings | None:
    """Parse the section ``launcher``: a kind, or a mapping with its settings; None if there is none."""
    if value is None or isinstance(value, LauncherSettings):
        return value
    return as_settings(LauncherSettings, {"kind": value} if isinstance(value, str) else value, "launcher")


class EmbeddingModel(dg.Component, dg.Model, dg.Resolvable):
    """Trains one system on a dataset's graph, or takes the best of all (``auto``); exports, validates and ranks it."""

    dataset: str = Field(description="Name of the GraphDataset on which the model is trained.")
    system: str = Field(description=f"The system: auto (the best by validation), {', '.join(SYSTEMS)}.")
    name: str = Field("", description="Name of the model in the asset keys; empty: the name of the system.")
    settings: Annotated[
        Any,
        dg.Resolver.from_model(
            lambda context, model: launchpad_defaults(str(model.system), resolved(context, model.settings)),
            model_field_type=dict[str, Any],
            description="Settings that differ from the system's defaults. They become the defaults of the Launchpad.",
        ),
    ] = Field(default_factory=dict)
    checks: Annotated[Any, section(ModelChecks, "checks")] = Field(default_factory=ModelChecks)
    validation: Annotated[Any, section(ValidationSettings, "validation")] = Field(default_factory=ValidationSettings)
    influence: Annotated[Any, section(InfluenceSettings, "influence")] = Field(default_factory=InfluenceSettings)
    recommendations: Annotated[Any, section(RecommendationSettings, "recommendations")] = Field(
        default_factory=RecommendationSettings
    )
    links: Annotated[Any, section(LinkSettings, "links")] = Field(default_factory=LinkSettings)
    ranking: Annotated[Any, section(RankingSettings, "ranking")] = Field(default_factory=RankingSettings)
    promote: Annotated[Any, section(PromotionSettings, "promote")] = Field(default_factory=PromotionSettings)
    drift: Annotated[Any, section(DriftThresholds, "drift")] = Field(default_factory=DriftThresholds)
    launcher: Annotated[
        Any,
        dg.Resolver(
            lambda context, value: launcher_settings(resolved(context, value)),
            model_field_type=str | dict[str, Any],
            description="Where the training runs: local, ray or k8s, or one of these with its settings. "
            "By default, the resource `worker` decides.",
        ),
    ] = Field(None)
    follow: Annotated[Any, section(FollowSettings, "follow")] = Field(default_factory=FollowSettings)
    schedule: Schedule | None = Field(None, description="When to retrain.")
    freshness: Freshness | None = Field(None, description="The age from which the embeddings are too old.")
    publish: str = Field(
        "", description="File to which the CSV is copied when its blocking checks pass; empty: no copy."
    )
    owners: list[str] = Field(default_factory=list, description='People ("a@b.org") or teams ("team:ml").')

    def plan(self, context: dg.ComponentLoadContext) -> ModelPlan:
        """The input of the asset factories. Raises :class:`SettingsError` for a name that cannot be a key."""
        given, fresh = self.settings, self.freshness
        defaults = given if isinstance(given, Defaults) else launchpad_defaults(self.system, given)
        sections: dict[str, Any] = {
            field: as_settings(model, getattr(self, name), name) for name, (field, model) in SECTIONS.items()
        }
        plan = ModelPlan(
            dataset=checked_name(self.dataset, "dataset"),
            name=checked_model_name(checked_name(self.name or self.system, "name")),
            predicts=predicted(self.model_fields_set) if self.system == AUTO else "",
            system=self.system,
            settings=defaults.settings,
            preset_reason=defaults.preset_reason,
            root=context.project_root,
            publish=self.publish,
            owners=self.owners,
            freshness=freshness_policy(fresh.warn_hours, fresh.fail_hours) if fresh else None,
            launcher=launcher_settings(self.launcher),
            partitions_def=partitions_of(context, self.dataset),
            **sections,
        )
        if "://" in plan.publish:
            raise SettingsError(f"publish: {path_text(plan.publish)} is a URL; name a file, and copy it from there")
        if plan.publish and not plan.abilities.vectors:
            raise SettingsError(f"publish copies a CSV of vectors, and {plan.system} has none: remove it")
        if plan.follow.way != "fresh" and plan.predicts:
            raise SettingsError("follow: system: auto trains several systems; name the one to go on with, or remove it")
        if plan.follow.way != "fresh" and isinstance(plan.settings, ClosedFormSettings):
            raise SettingsError(f"follow: {plan.system} is computed in closed form, in one step: remove it")
        if plan.follow.way == "embed_only":
            require_folds_in(plan.system)
        return plan

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the assets, the retraining job, and the schedule if there is one."""
        require_unique_names(context)
        plan = self.plan(context)
        assets = []
        for name, (declare, applies) in ASSETS.items():
            if applies(plan.abilities):
                assets.append(declare(plan).build(plan))
            elif name in self.model_fields_set:
                raise SettingsError(f"{name}: {plan.system} has no such asset; remove the section")
        selection = dg.AssetSelection.assets(*(key for asset in assets for key in asset.keys))
        prefix = f"{plan.dataset}_{plan.name}"
        job = dg.define_asset_job(
            f"{prefix}_retrain",
            selection.upstream(),
            description=f"Trains {plan.name} on the files of {plan.dataset}. For other settings, use the Launchpad.",
        )
        schedules = []
        if given := self.schedule:
            name = f"{prefix}_schedule"
            schedules = [retraining_schedule(name, job, given.cron, given.timezone, plan.partitions_def)]
        return dg.Definitions(assets=assets, jobs=[job], schedules=schedules, resources=shared_resources(context))
