"""Commands for trainings: ``train``, ``estimate`` (memory and time), ``search``, ``track``, ``evaluate``."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from graphmill.cli.entry import JUDGE, TRAIN, Checkpoint, Json, app, overrides
from graphmill.cli.output import number, print_json, print_table, restored_run, show_result
from graphmill.cli.waiting import progress
from graphmill.errors import EXIT_CHECK_FAILED, InputError, SettingsError
from graphmill.systems.auto import AUTO, AutoSettings


@app.command(rich_help_panel=TRAIN)
def train(
    settings: Annotated[Path, Argument(help="settings.yaml, a system, or auto: try all that suit the data")],
    output: Annotated[str, Option(help="Folder of this model's runs; default beside the graph")] = "",
    set_: Annotated[list[str] | None, Option("--set", help="Override, such as training.epochs=20")] = None,
    force: Annotated[bool, Option(help="Start over even if this training is finished")] = False,
    as_json: Json = False,
) -> None:
    """Train, resume a stopped run, or reuse a finished one; then export the embeddings."""
    from graphmill.runs.resolve import merge, read_settings
    from graphmill.settings import parse

    values = merge(read_settings(settings), overrides(set_ or []))
    if values.get("system") == AUTO:
        if force:
            raise SettingsError(f"{settings}: system: auto has only the options --set, --output and --json")
        _choose(parse(AutoSettings, values, str(settings)), output, as_json=as_json)
        return
    if force:
        values = merge(values, {"acceleration": {"resume": "never"}})
    result = _train(values, str(settings), output)
    if as_json:
        print_json(result)
    else:
        show_result(result)


@app.command(rich_help_panel=TRAIN)
def estimate(
    settings: Annotated[Path, Argument(help="settings.yaml, or a system such as hgt")],
    set_: Annotated[list[str] | None, Option("--set", help="Override, such as model.hidden_dim=128")] = None,
    as_json: Json = False,
) -> None:
    """Estimate the memory and time of each way to train, before it starts."""
    from graphmill.runs.messages import duration
    from graphmill.runs.planning import estimate_run, open_graph
    from graphmill.runs.resolve import merge, read_settings, resolve

    where = str(settings)
    job = resolve(merge(read_settings(settings), overrides(set_ or [])), where)
    run = estimate_run(job, open_graph(job, where), where)
    if as_json:
        print_json(run.to_json())
    else:
        print_table(f"{settings}: what a training takes", ["", *run.columns], run.rows())
        print(run.sentence)
        if run.seconds_per_step:
            print(
                f"A step takes {run.seconds_per_step:.3g} s here (measured), the {run.steps:,} steps of the training "
                f"{duration(run.steps * run.seconds_per_step)}, without evaluations and export."
            )
    if run.chosen is None:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command(rich_help_panel=TRAIN)
def search(
    settings: Annotated[Path, Argument(help="settings.yaml with a section 'search'")],
    set_: Annotated[list[str] | None, Option("--set", help="section.name=value, again for more")] = None,
    output: Annotated[str, Option(help="Folder for the study and its runs; default: beside the graph")] = "",
    as_json: Json = False,
) -> None:
    """Try settings, choose by validation, and write the best ones to a file. The same command resumes after a kill."""
    from graphmill.runs.resolve import merge, read_settings
    from graphmill.search import open_search, run_search
    from graphmill.training.signals import StopRequest

    wanted = open_search(merge(read_settings(settings), overrides(set_ or [])), str(settings), output)
    with StopRequest() as stop:
        result = run_search(wanted, lambda line: print(line, file=sys.stderr, flush=True), stop)
    if as_json:
        print_json(result)
        return
    rows = [
        [str(each["trial"]), number(each["value"]), f"{each['seconds']:.0f}",
         ", ".join(f"{path} {value}" for path, value in each["settings"].items())]
        for each in result["entries"][:20]
    ]  # fmt: skip
    print_table(f"Trials by validation {result['metric']}", ["trial", "mean", "seconds", "settings"], rows)
    print(f"{len(result['entries'])} finished, {result['pruned']} ended early, {result['failed']} failed")
    print(f"its settings: {result['folder']}/best.yaml")
    run = shlex.quote(result["entries"][0]["runs"][0])
    print(f"on the test, beside its baselines: graphmill rank {run}")
    print(f"to make it live: graphmill promote {run}")


@app.command(rich_help_panel=TRAIN)
def track(
    runs: Annotated[list[Path], Argument(help="Run directories")],
    set_: Annotated[
        list[str] | None, Option("--set", help="Such as tracker.address=…; default: as the run says")
    ] = None,
) -> None:
    """Send runs to MLflow: the parts that are missing there, or whole runs."""
    from graphmill.runs.tracker import require_tracker, send, tracker_of
    from graphmill.settings import parse
    from graphmill.training.settings import TrackerSettings

    requested = overrides(set_ or [])
    if unknown := sorted(requested.keys() - {"tracker"}):
        raise InputError(f"--set {unknown[0]}: only settings of the tracker can be given here")
    for run in runs:
        settings = parse(TrackerSettings, {**tracker_of(run).model_dump(), **requested.get("tracker", {})}, "tracker")
        if settings.writer == "none":
            raise InputError(f"{run} has no tracker: name one, such as --set tracker.writer=mlflow")
        require_tracker(settings)
        try:
            epochs = send(run, settings)
        except Exception as error:  # whatever a tracker raises
            if isinstance(error, InputError):
                raise
            why = " ".join(str(error).split())[:200]
            raise InputError(f"{run} could not be sent to {settings.address or settings.writer}: {why}") from None
        print(f"{run}: {epochs} epochs sent", file=sys.stderr)


@app.command(rich_help_panel=JUDGE)
def evaluate(
    run: Annotated[Path, Argument(help="Run directory")],
    checkpoint: Checkpoint = "",
    as_json: Json = False,
) -> None:
    """Measure a run's checkpoint on the held-out splits, with every metric."""
    from graphmill.runs.export import evaluate_run

    result = evaluate_run(restored_run(run, checkpoint))
    if as_json:
        print_json(result)
        return
    rows = [[name, number(result["valid"].get(name)), number(value)] for name, value in result["test"].items()]
    caution = ", chosen on test: optimistic" if result["selected_on"] == "test" else ""
    print_table(f"{run} at epoch {result['epoch']}{caution}", ["metric", "valid", "test"], rows)


def _choose(settings: AutoSettings, root: str, *, as_json: bool) -> None:
    from graphmill.training.signals import StopRequest
    from graphmill.usage.choose import choose

    graph = settings.data
    if not graph:
        raise SettingsError("system: auto needs a graph: graphmill train auto --set data=GRAPH")

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with progress("graphmill train auto"), StopRequest() as stop:
        result = choose(
            graph, settings.budget, systems=settings.systems, root=root, overrides=settings.shared, tell=tell, stop=stop
        )
    if as_json:
        print_json(result.to_json())
        return
    print_table(
        f"{graph} by {result.metric} on {result.queries:,} validation queries", list(result.columns), result.rows()
    )
    print(result.sentence)
    test = {name: value for name, value in result.test.items() if name in (result.metric, "mrr")}
    if test:
        print("on the test, read for it alone: " + ", ".join(f"{name} {value:.4f}" for name, value in test.items()))
    print(f"to make it live: graphmill promote {shlex.quote(result.run)}")


def _train(values: dict[str, Any], where: str, root: str) -> dict[str, Any]:
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.launch import run_processes
    from graphmill.runs.messages import Terminal
    from graphmill.runs.resolve import parse_settings
    from graphmill.training.machine import require_processes
    from graphmill.training.signals import StopRequest

    acceleration = parse_settings(values, where).acceleration  # type: ignore[attr-defined]
    require_processes(acceleration.processes, where)
    processes = acceleration.processes
    with StopRequest() as stop:
        if processes > 1:
            result = run_processes(values, processes, where=where, root=root, stop=stop)
        else:
            from graphmill.runs.train import train as run_training

            terminal = Terminal()
            try:
                result = run_training(values, where, root=root, outlets=[terminal], stop=stop)
            finally:
                terminal.close()
    with progress("graphmill train, export"):
        manifest = export_run(restore(result["run_dir"]))
    return {**result, "exported": sorted(manifest["files"])}
