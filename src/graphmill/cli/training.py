"""Commands for trainings: ``train``, ``estimate`` (memory and time), ``evaluate``."""

import shlex
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from graphmill.cli.entry import JUDGE, TRAIN, Json, app, overrides
from graphmill.cli.output import number, print_json, print_table, restored_run, show_result
from graphmill.cli.waiting import progress
from graphmill.errors import EXIT_CHECK_FAILED, SettingsError
from graphmill.systems.auto import AUTO, AutoSettings


@app.command(rich_help_panel=TRAIN)
def train(
    settings: Annotated[
        Path,
        typer.Argument(help="settings.yaml, a system such as hgt, or auto: try all that suit the data, choose one"),
    ],
    output: Annotated[str, typer.Option(help="Folder of this model's runs; default beside the graph")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, such as training.epochs=20")] = None,
    force: Annotated[bool, typer.Option(help="Start over even if this training is finished")] = False,
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
    settings: Annotated[
        Path,
        typer.Argument(help="settings.yaml, or a system such as hgt"),
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, such as model.hidden_dim=128")] = None,
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


@app.command(rich_help_panel=JUDGE)
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run directory")],
    checkpoint: Annotated[str, typer.Option(help="best, last, final, or an epoch number")] = "",
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

    work = partial(choose, graph, settings.budget, systems=settings.systems, root=root, overrides=settings.shared)

    def tell(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with progress("graphmill train auto"), StopRequest() as stop:
        result = work(tell=tell, stop=stop)
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
