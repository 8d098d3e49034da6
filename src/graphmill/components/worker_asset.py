"""The declared kind of a model's assets: a job goes to the worker, its messages come back, and a function makes the page.

A module declares an asset by a :class:`WorkerAsset`: which job, which settings in the Launchpad, which checks, and the
function that turns a :class:`Step` into value, metadata and check results.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import dagster as dg

from graphmill.components.plan import POOL, ModelPlan, Reference, plan_asset
from graphmill.graph.graph_location import SNAPSHOTS
from graphmill.launchers.settings import LauncherSettings
from graphmill.orchestration.checks import Check, PreviousRun, SeverityName
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.metadata import Picture
from graphmill.orchestration.page import asset_page
from graphmill.orchestration.pipes import WorkerClient, WorkerReport
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.orchestration.run_config import config_class, to_settings
from graphmill.settings import Settings

Job = dict[str, Any]
"""A worker's job, as JSON values; ``mode`` names what it does (without one, it trains)."""


@dataclass
class Step:
    """One materialization: the inputs of its job, and after the job the worker's report.

    ``settings``: the Launchpad's values, None for an asset without settings. ``inputs``: values of the upstream assets by
    part. A job may change ``launcher``, ``environment`` and ``processes`` of the worker.
    """

    context: dg.AssetExecutionContext
    plan: ModelPlan
    key: dg.AssetKey
    settings: Any
    inputs: Mapping[str, Any]
    previous: PreviousRun
    accelerator: AcceleratorResource
    launcher: LauncherSettings
    environment: dict[str, str]
    processes: int = 1
    followed: str = ""
    """What the run takes from the live version, and why, as a sentence (:mod:`graphmill.components.following`)."""
    report: WorkerReport = field(default_factory=WorkerReport)

    @property
    def run_dir(self) -> str:
        """The run directory of the export, relative to the project."""
        return str(self.inputs["export"]["run_dir"])

    @property
    def snapshot(self) -> str:
        """The name of the snapshot; "" for a dataset without snapshots."""
        return self.context.partition_key if self.plan.partitions_def else ""

    @property
    def run_root(self) -> str:
        """The folder of the model's run directories, relative to the project: of this snapshot only, if there are any."""
        snapshot = self.snapshot
        return (
            f"{OUTPUTS}/{self.plan.dataset}/{SNAPSHOTS}/{snapshot}/{self.plan.name}" if snapshot else self.plan.run_root
        )

    def path(self, name: str) -> Path:
        """A path of the project."""
        return self.plan.root / name

    def read(self, name: str) -> Any:
        """The content of a JSON file of the project."""
        return json.loads(self.path(name).read_text(encoding="utf-8"))

    def check(
        self,
        check: Check,
        passed: bool,
        summary: str,
        severity: SeverityName | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> dg.AssetCheckResult:
        """The result of a check of this asset. By default, a failure is an error if the check blocks, and otherwise has
        the severity of the component's ``checks``."""
        severity = severity or ("error" if check.blocking else self.plan.checks.severity)
        return check.result(self.key, passed, summary, severity=severity, metadata=metadata)

    def page(
        self,
        summary: str,
        rest: Mapping[str, Any],
        *,
        plotted: Mapping[str, Any] | Sequence[str] = (),
        pictures: Mapping[str, Picture] | None = None,
        **figures: Mapping[str, Any],
    ) -> dict[str, Any]:
        """The asset's metadata: the summary, pictures and figures of :func:`asset_page`, then ``rest``."""
        run_dir = str((self.inputs.get("export") or self.report.result or {}).get("run_dir", ""))
        page = asset_page(
            summary,
            plotted=plotted,
            previous=self.previous,
            pictures=pictures,
            root=self.plan.root,
            run_dir=run_dir,
            **figures,
        )
        return {**page, **rest}

    def result(
        self,
        value: Reference,
        metadata: Mapping[str, Any],
        checks: Sequence[dg.AssetCheckResult] = (),
        data_version: str = "",
    ) -> dg.MaterializeResult[Reference]:
        """What Dagster stores."""
        version = dg.DataVersion(data_version) if data_version else None
        return dg.MaterializeResult(
            asset_key=self.key, value=value, metadata=metadata, check_results=checks, data_version=version
        )


@dataclass(frozen=True)
class WorkerAsset:
    """The declaration of one asset of a model.

    ``part``: the end of its name, ``<dataset>/<model>_<part>``. ``job``: the worker's job, or None from it where there is
    nothing to do; an asset without ``job`` is computed by ``page`` in the step. ``settings``: what the Launchpad shows,
    without the dotted paths ``hidden``; ``given``: settings by dotted path from the inputs and the accelerator.
    ``trains``: it runs where the model's launcher says, and not always on this machine. ``more``: further arguments of
    ``dg.asset``.
    """

    part: str
    stage: str
    kinds: set[str]
    description: str
    page: Callable[[Step], dg.MaterializeResult[Reference]]
    job: Callable[[Step], Job | None] | None = None
    inputs: tuple[str, ...] = ("export",)
    checks: Sequence[Check] = ()
    settings: Settings | None = None
    hidden: tuple[str, ...] = ()
    given: Callable[[Mapping[str, Any], AcceleratorResource], Mapping[str, Any]] = lambda inputs, accelerator: {}
    trains: bool = False
    code_version: str = "1"
    more: Mapping[str, Any] = field(default_factory=dict)

    def build(self, plan: ModelPlan) -> dg.AssetsDefinition:
        """The asset of this model."""
        decorate = plan_asset(
            plan,
            self.part,
            self.stage,
            inputs=self.inputs,
            kinds=self.kinds,
            description=self.description,
            checks=self.checks,
            code_version=self.code_version,
            **({"pool": POOL} if self.job else {}),
            **self.more,
        )
        if self.settings is None:

            def without_config(
                context: dg.AssetExecutionContext,
                accelerator: AcceleratorResource,
                worker: WorkerClient,
                **inputs: Any,
            ) -> Iterator[dg.MaterializeResult[Reference]]:
                yield self._materialize(plan, context, accelerator, worker, inputs, None)

            return decorate(without_config)
        run_config = config_class(self.settings, without=self.hidden)

        def with_config(
            context: dg.AssetExecutionContext,
            config: run_config,  # type: ignore[valid-type]
            accelerator: AcceleratorResource,
            worker: WorkerClient,
            **inputs: Any,
        ) -> Iterator[dg.MaterializeResult[Reference]]:
            yield self._materialize(plan, context, accelerator, worker, inputs, config)

        return decorate(with_config)

    def _materialize(
        self,
        plan: ModelPlan,
        context: dg.AssetExecutionContext,
        accelerator: AcceleratorResource,
        worker: WorkerClient,
        inputs: Mapping[str, Any],
        config: dg.Config | None,
    ) -> dg.MaterializeResult[Reference]:
        key = plan.key(self.part)
        with user_errors():
            if "export" in inputs or "model" in inputs:
                plan = plan.of_run(str((inputs.get("export") or inputs["model"])["run_dir"]))
            settings = None
            if config is not None and self.settings is not None:
                settings = to_settings(config, self.settings, given=self.given(inputs, accelerator))
            previous = PreviousRun(context.instance, key)
            launcher = worker.place(plan.launcher) if self.trains else LauncherSettings()
            environment = accelerator.environment() if self.job and not launcher.elsewhere else {}
            step = Step(context, plan, key, settings, inputs, previous, accelerator, launcher, environment)
            job = self.job(step) if self.job else None
        if job is not None:
            step.report = worker.run(
                context,
                extras=job,
                asset_key=key,
                cwd=str(plan.root),
                processes=step.processes,
                environment=step.environment,
                launcher=step.launcher,
            )
        with user_errors():
            return self.page(step)
