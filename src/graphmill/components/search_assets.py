"""The assets ``<dataset>/<model>_trials``, with one partition per trial, and ``<dataset>/<model>_leaderboard``, and
their sensor.

Neither is in the chain's jobs. The sensor ``<dataset>_<model>_search``, after a user has switched it on, or ``graphmill
search <dataset>/<model>`` materializes them.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg
import yaml

from graphmill.components.plan import ON_DEMAND, POOL, ModelPlan, Reference, plan_asset
from graphmill.errors import SettingsError
from graphmill.orchestration.automation import chain_job
from graphmill.orchestration.checks import Check, PreviousRun
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.launchers.settings import LauncherSettings
from graphmill.orchestration.metadata import markdown_table, picture, records, scalars
from graphmill.orchestration.page import asset_page
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.progress import duration
from graphmill.orchestration.resources import AcceleratorResource
from graphmill.orchestration.searching import SEARCH_METADATA, sensor_result, studies_address
from graphmill.search.storage import VARIABLE
from graphmill.search.study import Search, open_search
from graphmill.settings import put

LOOK_SECONDS = 30
TRAINED = Check("trials_trained", "At most half of the trials failed.")
WINNER = Check("winner_is_apart", "The winner's interval over seeds is above the mean of the second-best trial.")
CHECKS = (TRAINED, WINNER)


def search_of(plan: ModelPlan, address: str = "") -> Search:
    """The model's search. Raises :class:`SettingsError` for an error in its section."""
    return open_search(plan.search, f"{plan.dataset}/{plan.name}", plan.run_root, base=plan.root, address=address)


def search_definitions(plan: ModelPlan) -> dg.Definitions:
    """Make both assets, a job for each, and the sensor."""
    partitions = dg.DynamicPartitionsDefinition(name=f"{plan.dataset}_{plan.name}_trials")
    trials, board = trials_asset(plan, partitions), leaderboard_asset(plan)
    prefix = f"{plan.dataset}_{plan.name}"
    jobs = [
        chain_job(f"{prefix}_trial", dg.AssetSelection.assets(trials), "One trial of the search."),
        chain_job(f"{prefix}_leaderboard", dg.AssetSelection.assets(board), "The trials, best first."),
    ]

    @dg.sensor(
        name=f"{prefix}_search",
        jobs=jobs,
        minimum_interval_seconds=LOOK_SECONDS,
        default_status=dg.DefaultSensorStatus.STOPPED,
        description=(
            "Launches trials, as many at once as the pool `accelerator` allows, until all are finished. Then it "
            "makes the leaderboard. A killed trial is launched again and resumes."
        ),
    )
    def search(context: dg.SensorEvaluationContext) -> dg.SensorResult:
        if not (plan.root / str(plan.search["data"]) / "manifest.json").is_file():
            return dg.SensorResult(skip_reason=f"{plan.dataset}/graph does not exist yet: materialize it")
        found = search_of(plan, studies_address(context.instance))
        return sensor_result(context.instance, found, POOL, partitions, prefix)

    return dg.Definitions(assets=[trials, board], jobs=jobs, sensors=[search])


def trials_asset(plan: ModelPlan, partitions: dg.DynamicPartitionsDefinition) -> dg.AssetsDefinition:
    """Make the asset of trials. A trial trains the settings in the file named by its key with each seed; a bad trial is
    ended early."""
    key = plan.key("trials")
    about = {
        "settings": dict(plan.search),
        "run_root": plan.run_root,
        "partitions": partitions.name,
        "pool": POOL,
    }

    @plan_asset(
        plan,
        "trials",
        "search",
        partitions_def=partitions,
        inputs=("graph",),
        kinds={"pytorch", "optuna"},
        tags=dict([ON_DEMAND]),
        metadata={SEARCH_METADATA: dg.MetadataValue.json(about)},
        description=(
            f"Trials of {plan.recipe} on {plan.dataset}, one partition each. A trial's settings are in "
            f"`{plan.run_root}/search-…/trials/KEY.yaml`. Switch on the sensor `{plan.dataset}_{plan.name}_search`, or run "
            f"`graphmill search {plan.dataset}/{plan.name}`. See docs/how-to/search_settings.md."
        ),
        pool=POOL,
    )
    def trials(
        context: dg.AssetExecutionContext, graph: dict[str, Any], accelerator: AcceleratorResource, worker: WorkerClient
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            if not context.has_partition_key:
                raise SettingsError(
                    f"no trial is chosen: run graphmill search {plan.dataset}/{plan.name}, which makes them"
                )
            launcher = worker.place(plan.launcher)
            environment = {} if launcher.elsewhere else accelerator.environment()
            studies = _studies(context.instance)
        overrides: dict[str, Any] = {"data": graph["path"]}
        for path, value in accelerator.overrides().items():
            overrides = put(overrides, path, value)
        job = _job(plan, "trial") | {"key": context.partition_key, "overrides": overrides, "shared": bool(studies)}
        report = worker.run(
            context,
            extras=job,
            asset_key=key,
            cwd=str(plan.root),
            # Others can read a job's description on Ray and Kubernetes, and the address contains a password.
            environment=environment if launcher.kind in ("ray", "k8s") else {**environment, **studies},
            launcher=_room_for_all(launcher, int(plan.settings.acceleration.processes)),  # type: ignore[attr-defined]
        )
        yield _trial_page(plan, report.result, launcher.kind, PreviousRun(context.instance, key))

    return trials


def leaderboard_asset(plan: ModelPlan) -> dg.AssetsDefinition:
    """Make the leaderboard asset: the trials from best to worst, and the winner on the test split, which is read only
    for it."""
    key = plan.key("leaderboard")

    @plan_asset(
        plan,
        "leaderboard",
        "search",
        deps=[dg.AssetDep(plan.key("trials"), partition_mapping=dg.AllPartitionMapping())],
        kinds={"optuna", "markdown"},
        tags=dict([ON_DEMAND]),
        description=(
            f"Trials of {plan.recipe} on {plan.dataset} by validation, what mattered, what they cost, the winner's "
            "settings, and the command that promotes it. The test split is read for the winner alone."
        ),
        pool=POOL,
        checks=CHECKS,
    )
    def leaderboard(
        context: dg.AssetExecutionContext, accelerator: AcceleratorResource, worker: WorkerClient
    ) -> Iterator[dg.MaterializeResult[Reference]]:
        with user_errors():
            environment = accelerator.environment()
        report = worker.run(
            context,
            extras=_job(plan, "leaderboard"),
            asset_key=key,
            cwd=str(plan.root),
            environment={**environment, **_studies(context.instance)},
        )
        yield _leaderboard_page(plan, str(report.result["folder"]), PreviousRun(context.instance, key))

    return leaderboard


def _job(plan: ModelPlan, mode: str) -> dict[str, Any]:
    where = f"{plan.dataset}/{plan.name}"
    return {"mode": mode, "search": dict(plan.search), "run_root": plan.run_root, "where": where}


def _studies(instance: dg.DagsterInstance) -> dict[str, str]:
    """Pass the database's address in the environment, not in the job, because it contains a password."""
    address = studies_address(instance)
    return {VARIABLE: address} if address else {}


def _room_for_all(launcher: LauncherSettings, processes: int) -> LauncherSettings:
    """The launcher for a worker that itself starts the training's processes on its machine."""
    if launcher.kind not in ("ray", "k8s"):
        return launcher
    sizes = {name: processes * getattr(launcher, name) for name in ("cpus", "gpus", "memory_gib")}
    return launcher.model_copy(update=sizes)


def _trial_page(
    plan: ModelPlan, found: Mapping[str, Any], launcher: str, previous: PreviousRun
) -> dg.MaterializeResult[Reference]:
    words = ", ".join(f"{path} {_short(value)}" for path, value in found["chosen"].items())
    reached = (
        f"{found['metric']} {found['value']:.4f} on validation" if found["value"] is not None else found["problem"]
    )
    text = f"Trial {found['trial']} {found['state']}{': ' + reached if reached else ''}; {words}."
    promote = "\n".join(f"graphmill promote {run}" for run in found["runs"][:1])
    return dg.MaterializeResult(
        asset_key=plan.key("trials"),
        value={name: found[name] for name in ("key", "trial", "state", "value", "runs")},
        metadata={
            **asset_page(
                text, plotted={found["metric"]: found["value"], "seconds": found["seconds"]}, previous=previous
            ),
            "state": found["state"],
            "launcher": launcher,
            **scalars(found["chosen"]),
            **{f"{found['metric']}_seed_{seed}": value for seed, value in enumerate(found["values"])},
            "settings": dg.MetadataValue.path(found["settings"]),
            **{f"run_seed_{seed}": dg.MetadataValue.path(run) for seed, run in enumerate(found["runs"])},
            **({"promote": dg.MetadataValue.md(f"```\n{promote}\n```")} if promote else {}),
        },
    )


def _leaderboard_page(plan: ModelPlan, folder: str, previous: PreviousRun) -> dg.MaterializeResult[Reference]:
    key, place = plan.key("leaderboard"), plan.root / folder
    found = json.loads((place / "leaderboard.json").read_text(encoding="utf-8"))
    metric, entries, best, beside = found["metric"], found["entries"], found["entries"][0], found["beside"]
    trials = len(entries) + found["pruned"] + found["failed"]
    run, drawn = best["runs"][0], place / "trials.png"
    test = beside["figures"]
    figures = scalars(
        {
            f"valid_{metric}": best["value"],
            f"test_{beside['metric']}": test.get("model"),
            "trials": trials,
            "ended_early": found["pruned"],
            "failed": found["failed"],
            "seconds": found["seconds"],
        }
    )
    winner = yaml.safe_load((place / "best.yaml").read_text(encoding="utf-8"))
    pasted = {name: value for name, value in winner.items() if name not in ("recipe", "data")}
    rows = [
        {"place": e["place"], "trial": e["trial"], metric: e["value"], "95 %": _interval(e), "seconds": e["seconds"]}
        | {path: _short(value) for path, value in e["chosen"].items()}
        for e in entries
    ]
    return dg.MaterializeResult(
        asset_key=key,
        value={"folder": folder, "run_dir": run, "metric": metric, "value": best["value"]},
        metadata={
            **asset_page(
                _summary(found, trials),
                plotted=figures,
                previous=previous,
                pictures={"trials": f"{folder}/trials.png"} if drawn.is_file() else {},
            ),
            "trials_by_validation": records(rows),
            "importance": dg.MetadataValue.md(
                markdown_table([{"setting": name, "share": share} for name, share in found["importance"].items()])
            ),
            "winner_on_the_test": dg.MetadataValue.md(
                markdown_table([{"scorer": who, f"test {beside['metric']}": value} for who, value in test.items()])
            ),
            **({"about_the_test": beside["sentence"]} if beside["sentence"] else {}),
            "promote": dg.MetadataValue.md(f"```\ngraphmill promote {run}\n```"),
            "settings": dg.MetadataValue.md(f"```yaml\n{yaml.safe_dump({'settings': pasted}, sort_keys=False)}```"),
            "best": dg.MetadataValue.path(f"{folder}/best.yaml"),
            "report": dg.MetadataValue.path(f"{folder}/leaderboard.json"),
            **_picture(plan, folder),
        },
        check_results=[
            TRAINED.result(
                key,
                2 * found["failed"] <= trials,
                f"{found['failed']} of {trials} failed",
                severity=plan.checks.severity,
            ),
            _apart(plan, entries),
        ],
    )


def _apart(plan: ModelPlan, entries: list[Mapping[str, Any]]) -> dg.AssetCheckResult:
    """The check whether the winner is significantly the best. It suggests more seeds and does not block."""
    key = plan.key("leaderboard")
    best = entries[0]
    if best["low"] is None or len(entries) < 2:
        return WINNER.result(key, True, "not measured: it needs two trials, and search.seeds of 2 or more")
    told = f"the winner's mean lies in {_interval(best)}, the second has {entries[1]['value']:.4f}"
    apart = best["low"] > entries[1]["value"]
    remedy = "" if apart else "; they may be equally good: raise search.seeds to distinguish them"
    return WINNER.result(key, apart, told + remedy)


def _picture(plan: ModelPlan, folder: str) -> dict[str, dg.MetadataValue]:
    file = plan.root / folder / "trials.png"
    if not file.is_file():
        return {}
    return {"parallel_coordinates": picture(file.read_bytes(), plan.root, f"{folder}/trials.png", "trials")}


def _summary(found: Mapping[str, Any], trials: int) -> str:
    best, beside = found["entries"][0], found["beside"]
    chosen = ", ".join(f"{path} {_short(value)}" for path, value in best["chosen"].items())
    text = (
        f"{trials} trials in {duration(found['seconds'])}: {len(found['entries'])} finished, {found['pruned']} ended early, "
        f"{found['failed']} failed. The best, trial {best['trial']}, has {found['metric']} {best['value']:.4f} on "
        f"validation ({_interval(best)}): {chosen}."
    )
    if beside["figures"].get("model") is not None:
        text += f"\n\nOn the test it has {beside['metric']} {beside['figures']['model']:.4f}"
        others = {who: value for who, value in beside["figures"].items() if who != "model" and value is not None}
        if others:
            rival = max(others, key=lambda who: others[who])
            text += f"; the best baseline, {rival}, {others[rival]:.4f}"
        text += "."
    return f"{text}\n\n`graphmill promote {best['runs'][0]}` makes it live."


def _interval(entry: Mapping[str, Any]) -> str:
    return "one seed" if entry["low"] is None else f"{entry['low']:.4f} to {entry['high']:.4f}"


def _short(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
