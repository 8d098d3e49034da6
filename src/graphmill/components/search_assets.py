"""The assets ``<dataset>/<model>_trials``, with one partition per trial, and ``<dataset>/<model>_leaderboard``, and
their sensor.

Neither is in the chain's jobs. The sensor ``<dataset>_<model>_search`` materializes them after a user has switched it on.
"""

import shlex
from collections.abc import Mapping
from typing import Any

import dagster as dg
import yaml

from graphmill.components.plan import POOL, ModelPlan, Reference
from graphmill.components.worker_asset import Job, Step, WorkerAsset
from graphmill.errors import SettingsError
from graphmill.launchers.settings import LauncherSettings
from graphmill.orchestration.automation import chain_job
from graphmill.orchestration.checks import Check
from graphmill.orchestration.metadata import Picture, markdown_table, records, scalars
from graphmill.orchestration.progress import duration
from graphmill.orchestration.searching import sensor_result, studies_address
from graphmill.search.storage import VARIABLE
from graphmill.search.study import Search, open_search

LOOK_SECONDS = 30
TRAINED = Check("trials_trained", "At most half of the trials failed.")
WINNER = Check("winner_is_apart", "The winner's interval over seeds is above the mean of the second-best trial.")


def search_of(plan: ModelPlan, address: str = "") -> Search:
    """The model's search. Raises :class:`SettingsError` for an error in its section."""
    return open_search(plan.search, f"{plan.dataset}/{plan.name}", plan.run_root, base=plan.root, address=address)


def search_definitions(plan: ModelPlan) -> dg.Definitions:
    """Make both assets, a job for each, and the sensor."""
    partitions = dg.DynamicPartitionsDefinition(name=f"{plan.dataset}_{plan.name}_trials")
    trials, board = trials_asset(plan, partitions).build(plan), leaderboard_asset(plan).build(plan)
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
        study = search_of(plan, studies_address(context.instance))
        return sensor_result(context.instance, study, POOL, partitions, prefix)

    return dg.Definitions(assets=[trials, board], jobs=jobs, sensors=[search])


def trials_asset(plan: ModelPlan, partitions: dg.DynamicPartitionsDefinition) -> WorkerAsset:
    """The asset of trials. A trial trains the settings in the file named by its key with each seed; a bad trial is
    ended early."""
    return WorkerAsset(
        part="trials",
        stage="search",
        inputs=("graph",),
        kinds={"pytorch", "optuna"},
        description=(
            f"Trials of {plan.system} on {plan.dataset}, one partition each. A trial's settings are in "
            f"`{plan.run_root}/search-…/trials/KEY.yaml`. Switch on the sensor `{plan.dataset}_{plan.name}_search`: it runs "
            "all trials, then the leaderboard. `graphmill search` does the same."
        ),
        job=_trial_job,
        page=_trial_page,
        trains=True,
        on_demand=True,
        more={"partitions_def": partitions},
    )


def leaderboard_asset(plan: ModelPlan) -> WorkerAsset:
    """The leaderboard asset: the trials from best to worst, and the winner on the test split, which is read only for
    it."""
    return WorkerAsset(
        part="leaderboard",
        stage="search",
        inputs=(),
        kinds={"optuna", "markdown"},
        description=(
            f"Trials of {plan.system} on {plan.dataset} by validation, what mattered, what they cost, the winner's "
            "settings, and the command that promotes it. The test split is read for the winner alone."
        ),
        checks=(TRAINED, WINNER),
        job=_leaderboard_job,
        page=_leaderboard_page,
        on_demand=True,
        more={"deps": [dg.AssetDep(plan.key("trials"), partition_mapping=dg.AllPartitionMapping())]},
    )


def _job(plan: ModelPlan, mode: str) -> Job:
    where = f"{plan.dataset}/{plan.name}"
    return {"mode": mode, "search": dict(plan.search), "run_root": plan.run_root, "where": where}


def _trial_job(step: Step) -> Job:
    studies = _studies(step.context.instance)
    overrides = step.accelerator.applied({"data": step.inputs["graph"]["path"]})
    if step.launcher.kind not in ("ray", "k8s"):
        # Others can read a job's description on Ray and Kubernetes, and the address contains a password.
        step.environment |= studies
    step.launcher = _room_for_all(step.launcher, int(step.plan.settings.acceleration.processes))  # type: ignore[attr-defined]
    if not step.context.has_partition_key:
        name = f"{step.plan.dataset}/{step.plan.name}"
        raise SettingsError(f"no trial is chosen: run graphmill search {shlex.quote(name)}, which makes them")
    job = {"key": step.context.partition_key, "overrides": overrides, "shared": bool(studies)}
    return _job(step.plan, "trial") | job


def _leaderboard_job(step: Step) -> Job:
    step.environment |= _studies(step.context.instance)
    return _job(step.plan, "leaderboard")


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


def _trial_page(step: Step) -> dg.MaterializeResult[Reference]:
    trial = step.report.result
    metric, value = trial["metric"], trial["value"]
    reached = f"{metric} {value:.4f} on validation" if value is not None else trial["problem"]
    text = f"Trial {trial['trial']} {trial['state']}{': ' + reached if reached else ''}; {_words(trial['chosen'])}."
    rest = {
        "state": trial["state"],
        "launcher": step.launcher.kind,
        **scalars(trial["chosen"]),
        **{f"{metric}_seed_{seed}": figure for seed, figure in enumerate(trial["values"])},
        "settings": dg.MetadataValue.path(trial["settings"]),
        **{f"run_seed_{seed}": dg.MetadataValue.path(run) for seed, run in enumerate(trial["runs"])},
        **({"promote": _promote(trial["runs"][0])} if trial["runs"] else {}),
    }
    return step.result(
        {name: trial[name] for name in ("key", "trial", "state", "value", "runs")},
        step.page(text, rest, plotted={metric: value, "seconds": trial["seconds"]}),
    )


def _leaderboard_page(step: Step) -> dg.MaterializeResult[Reference]:
    folder = str(step.report.result["folder"])
    board = step.read(f"{folder}/leaderboard.json")
    metric, entries, winner = board["metric"], board["entries"], board["beside"]
    best, test, trials = entries[0], winner["figures"], len(entries) + board["pruned"] + board["failed"]
    figures = {
        f"valid_{metric}": best["value"],
        f"test_{winner['metric']}": test.get("model"),
        "trials": trials,
        "ended_early": board["pruned"],
        "failed": board["failed"],
        "seconds": board["seconds"],
    }
    settings = yaml.safe_load(step.path(f"{folder}/best.yaml").read_text(encoding="utf-8"))
    pasted = {name: value for name, value in settings.items() if name not in ("system", "data")}
    rows = [
        {"place": e["place"], "trial": e["trial"], metric: e["value"], "95 %": _interval(e), "seconds": e["seconds"]}
        | {path: _short(value) for path, value in e["chosen"].items()}
        for e in entries
    ]
    shares = [{"setting": name, "share": share} for name, share in board["importance"].items()]
    scorers = [{"scorer": who, f"test {winner['metric']}": value} for who, value in test.items()]
    rest = {
        "trials_by_validation": records(rows),
        "importance": dg.MetadataValue.md(markdown_table(shares)),
        "winner_on_the_test": dg.MetadataValue.md(markdown_table(scorers)),
        **({"about_the_test": winner["sentence"]} if winner["sentence"] else {}),
        "promote": _promote(best["runs"][0]),
        "settings": dg.MetadataValue.md(f"```yaml\n{yaml.safe_dump({'settings': pasted}, sort_keys=False)}```"),
        "best": dg.MetadataValue.path(f"{folder}/best.yaml"),
        "report": dg.MetadataValue.path(f"{folder}/leaderboard.json"),
    }
    drawn = step.path(f"{folder}/trials.png")
    pictures = {}
    if drawn.is_file():
        pictures["parallel_coordinates"] = Picture(drawn.read_bytes(), f"{folder}/trials.png", "trials")
    failed = f"{board['failed']} of {trials} failed"
    return step.result(
        {"folder": folder, "run_dir": best["runs"][0], "metric": metric, "value": best["value"]},
        step.page(_summary(board, trials), rest, plotted=scalars(figures), pictures=pictures),
        [step.check(TRAINED, 2 * board["failed"] <= trials, failed), _apart(step, entries)],
    )


def _apart(step: Step, entries: list[Mapping[str, Any]]) -> dg.AssetCheckResult:
    """The check whether the winner is significantly the best. It suggests more seeds and does not block."""
    best = entries[0]
    if best["low"] is None or len(entries) < 2:
        return step.check(WINNER, True, "not measured: it needs two trials, and search.seeds of 2 or more", "warn")
    apart = best["low"] > entries[1]["value"]
    text = f"the winner's mean lies in {_interval(best)}, the second has {entries[1]['value']:.4f}"
    remedy = "" if apart else "; they may be equally good: raise search.seeds to distinguish them"
    return step.check(WINNER, apart, text + remedy, "warn")


def _summary(board: Mapping[str, Any], trials: int) -> str:
    best, winner = board["entries"][0], board["beside"]
    text = (
        f"{trials} trials in {duration(board['seconds'])}: {len(board['entries'])} finished, {board['pruned']} ended early, "
        f"{board['failed']} failed. The best, trial {best['trial']}, has {board['metric']} {best['value']:.4f} on "
        f"validation ({_interval(best)}): {_words(best['chosen'])}."
    )
    figures = {who: value for who, value in winner["figures"].items() if value is not None}
    if "model" in figures:
        text += f"\n\nOn the test it has {winner['metric']} {figures.pop('model'):.4f}"
        if figures:
            rival = max(figures, key=lambda who: figures[who])
            text += f"; the best baseline, {rival}, {figures[rival]:.4f}"
        text += "."
    return f"{text}\n\n`graphmill promote {shlex.quote(str(best['runs'][0]))}` makes it live."


def _promote(run: str) -> dg.MetadataValue:
    return dg.MetadataValue.md(f"```\ngraphmill promote {shlex.quote(str(run))}\n```")


def _words(chosen: Mapping[str, Any]) -> str:
    return ", ".join(f"{path} {_short(value)}" for path, value in chosen.items())


def _interval(entry: Mapping[str, Any]) -> str:
    return "one seed" if entry["low"] is None else f"{entry['low']:.4f} to {entry['high']:.4f}"


def _short(value: Any) -> Any:
    return f"{value:.4g}" if isinstance(value, float) else value
