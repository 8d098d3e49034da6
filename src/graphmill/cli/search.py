"""Commands that try settings: ``search``."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from graphmill.cli.entry import Json, app, overrides
from graphmill.cli.output import print_json, print_table


@app.command()
def search(
    settings: Annotated[
        Path, typer.Argument(help="settings.yaml with a section 'search' (docs/how-to/search_settings.md)")
    ],
    set_: Annotated[list[str] | None, typer.Option("--set", help="section.name=value, again for more")] = None,
    output: Annotated[str, typer.Option(help="Folder for the study and its runs; default: beside the graph")] = "",
    as_json: Json = False,
) -> None:
    """Try settings, choose by validation, and write the best as a file. The same command goes on after a kill."""
    from graphmill.evaluation.json_values import plain
    from graphmill.runs.resolve import merge, read_settings
    from graphmill.search.leaderboard import COLUMNS, leaderboard
    from graphmill.search.study import open_search, run_search
    from graphmill.training.signals import StopRequest

    wanted = open_search(merge(read_settings(settings), overrides(set_ or [])), str(settings), output)
    with StopRequest() as stop:
        study = run_search(wanted, lambda line: print(line, file=sys.stderr, flush=True), stop)
    found = leaderboard(wanted, study)
    if as_json:
        print_json(plain(asdict(found)))
        return
    print_table(f"Trials by validation {found.metric}", COLUMNS, found.rows())
    if found.importance:
        print("what mattered: " + ", ".join(f"{name} {share:.0%}" for name, share in found.importance.items()))
    print(f"{len(found.entries)} finished, {found.pruned} ended early, {found.failed} failed, in {found.seconds:.0f} s")
    shown = {name: value for name, value in found.test.items() if "mistic" not in name}
    print("the winner on the test: " + ", ".join(f"{name} {value:.4f}" for name, value in list(shown.items())[:6]))
    print(f"its settings: {found.folder}/best.yaml; its run: {found.best.runs[0]}")
