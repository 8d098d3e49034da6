"""The command ``search``, which tries settings."""

import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from graphmill.cli.entry import TRAIN, Json, app, overrides
from graphmill.cli.output import print_json, print_table


@app.command(rich_help_panel=TRAIN)
def search(
    settings: Annotated[
        Path,
        typer.Argument(help="settings.yaml with a section 'search'"),
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.name=value, again for more")] = None,
    output: Annotated[str, typer.Option(help="Folder for the study and its runs; default: beside the graph")] = "",
    as_json: Json = False,
) -> None:
    """Try settings, choose by validation, and write the best ones to a file. The same command resumes after a kill."""
    from graphmill.evaluation.json_values import plain

    result = _by_file(settings, set_ or [], output)
    if as_json:
        print_json(plain(asdict(result)))
        return
    _show(result)


def _by_file(settings: Path, set_: list[str], output: str) -> Any:
    from graphmill.runs.resolve import merge, read_settings
    from graphmill.search.leaderboard import leaderboard
    from graphmill.search.study import open_search, run_search
    from graphmill.training.signals import StopRequest

    wanted = open_search(merge(read_settings(settings), overrides(set_)), str(settings), output)
    with StopRequest() as stop:
        study = run_search(wanted, lambda line: print(line, file=sys.stderr, flush=True), stop)
    return leaderboard(wanted, study)


def _show(result: Any) -> None:
    from graphmill.search.leaderboard import COLUMNS

    print_table(f"Trials by validation {result.metric}", COLUMNS, result.rows())
    print(
        f"{len(result.entries)} finished, {result.pruned} ended early, {result.failed} failed, in {result.seconds:.0f} s"
    )
    print(f"its settings: {result.folder}/best.yaml")
    run = shlex.quote(str(result.best.runs[0]))
    print(f"on the test, beside its baselines: graphmill rank {run}")
    print(f"to make it live: graphmill promote {run}")
