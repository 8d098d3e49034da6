"""Commands about projects, this machine and its stored runs: ``init``, ``prune`` and ``doctor``."""

import shlex
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from graphmill.cli.data import Columns, Force, asking, named_columns
from graphmill.cli.entry import PROJECT, Json, app
from graphmill.cli.output import print_json, print_table
from graphmill.errors import EXIT_CHECK_FAILED, InputError


@app.command(rich_help_panel=PROJECT)
def init(
    folder: Annotated[Path, Argument(help="The new project's folder; or a Dagster project that is there")] = Path("."),
    sample: Annotated[str, Option(help="biomed (the default), music, watch, kg_bench or none")] = "",
    data: Annotated[list[str] | None, Option(help="Your file, folder or URL; again for more")] = None,
    format_: Annotated[str, Option("--format", help="Format of the data; default: by the content")] = "",
    columns: Columns = None,
    name: Annotated[str, Option(help="Name of the dataset; default: the file's")] = "",
    in_place: Annotated[bool, Option(help="Leave the data where they are; else copied")] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Create a Dagster project, or add a dataset to an existing one; existing files do not change."""
    from graphmill.project.create import init as make

    made = make(
        folder, sample=sample, data=data or (), format=format_, columns=named_columns(columns), name=name,
        in_place=in_place, ask=None if as_json else asking(), force=force,
    )  # fmt: skip
    if as_json:
        print_json({**vars(made), "root": str(made.root)})
        return
    print("\n".join(made.notes))
    verb = "new Dagster project" if made.new else "added to the Dagster project"
    print(f"{verb} {made.root}: {', '.join(made.written) or 'nothing was missing'}")
    if made.kept:
        print(f"kept as they are: {', '.join(made.kept)}")
    for line in made.to_do:
        print(f"to do: {line}")
    go = "" if made.root.resolve() == Path.cwd() else f"cd {shlex.quote(str(made.root))} && "
    makefile = made.root / "Makefile"
    if makefile.is_file() and "\ndemo:" in makefile.read_text(encoding="utf-8"):
        run = "make demo" if made.new or not made.dataset else f"make demo CHAIN={made.dataset}"
    else:
        run = f"python -m graphmill.orchestration.demo {made.dataset}".rstrip()
    print(f"next: {go}dg check defs && {run}")


@app.command(rich_help_panel=PROJECT)
def prune(
    root: Annotated[Path, Argument(help="Folder of a model's runs")],
    keep: Annotated[int, Option(help="Newest runs to keep", min=1)] = 5,
) -> None:
    """Remove older runs of a model; never the last good one."""
    from graphmill.training.run_directory import prune_runs

    if not root.is_dir():
        raise InputError(f"{root} is not a folder of runs")
    removed = prune_runs(root, keep, set())
    print("\n".join(f"removed {path}" for path in removed) or "nothing to remove")


@app.command(rich_help_panel=PROJECT)
def doctor(
    project: Annotated[Path | None, Argument(help="A project: look at its processes, locks and files instead")] = None,
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
