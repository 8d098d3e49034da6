"""Commands about projects: ``graphmill init``."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from graphmill.cli.data import Columns, Force, asking, named_columns
from graphmill.cli.entry import PROJECT, app
from graphmill.cli.output import print_json


@app.command(rich_help_panel=PROJECT)
def init(
    folder: Annotated[Path, typer.Argument(help="The new project's folder; or a Dagster project that is there")] = Path(
        "."
    ),
    sample: Annotated[
        str, typer.Option(help="Sample to begin with: biomed (the default), music, watch, kg_bench or none")
    ] = "",
    data: Annotated[
        list[str] | None,
        typer.Option(help="Your file, folder or URL; again for more edges, for nodes, and for features of them"),
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", help="Format of the data, where its content does not say it")
    ] = "",
    columns: Columns = None,
    name: Annotated[str, typer.Option(help="Name of the dataset; default: the file's")] = "",
    in_place: Annotated[
        bool, typer.Option(help="Leave the data where they are; default: copied to data/01_raw")
    ] = False,
    kit: Annotated[
        bool, typer.Option("--kit", help="Add deploy/: Dockerfile, compose file, Kubernetes manifests, PostgreSQL")
    ] = False,
    force: Force = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of text.")] = False,
) -> None:
    """Create a Dagster project, or add a dataset to an existing one; existing files do not change."""
    from graphmill.project.create import init as make

    made = make(
        folder, sample=sample, data=data or (), format=format_, columns=named_columns(columns), name=name,
        in_place=in_place, kit=kit, ask=None if as_json else asking(), force=force,
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
