"""Commands about this machine and its stored runs."""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.cli.entry import PROJECT, Json, app
from graphmill.cli.output import print_json, print_table
from graphmill.errors import EXIT_CHECK_FAILED, InputError


@app.command(rich_help_panel=PROJECT)
def prune(
    root: Annotated[Path, typer.Argument(help="Folder of a model's runs")],
    keep: Annotated[int, typer.Option(help="Newest runs to keep", min=1)] = 5,
) -> None:
    """Remove older runs of a model; never the last good one."""
    from graphmill.training.run_directory import prune_runs

    if not root.is_dir():
        raise InputError(f"{root} is not a folder of runs")
    removed = prune_runs(root, keep, set())
    print("\n".join(f"removed {path}" for path in removed) or "nothing to remove")


@app.command(rich_help_panel=PROJECT)
def doctor(
    project: Annotated[
        Path | None,
        typer.Argument(help="A project, such as `.`: look at its processes, locks, files and versions instead"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show which devices, kernels and extras this machine can use, or what is wrong in a project, and what to do."""
    from graphmill.diagnostics.doctor import examine
    from graphmill.project.examination import examine_project

    result = examine() if project is None else examine_project(project)
    if as_json:
        print_json([vars(f) for f in result])
    else:
        title = "This machine" if project is None else str(project)
        print_table(title, ["what", "", "detail"], [[f.what, "yes" if f.ok else "no", f.detail] for f in result])
    if any(not f.ok and (f.required or project is not None) for f in result):
        raise typer.Exit(EXIT_CHECK_FAILED)
