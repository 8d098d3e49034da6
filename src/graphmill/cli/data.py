"""Commands over files: what is in them, and synthetic samples."""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.cli.entry import Json, app
from graphmill.cli.output import print_json
from graphmill.errors import EXIT_USER_ERROR


@app.command("ingest-report")
def ingest_report(
    path: Annotated[str, typer.Argument(help="The file, local or a URL; or a folder")],
    format_: Annotated[
        str, typer.Option("--format", help="kg_csv, kgx, triples, interactions_csv, mmrec, …; auto: by the content")
    ] = "auto",
    as_json: Json = False,
) -> None:
    """Columns, guessed mapping, first bad rows, counts, and a ready defs.yaml."""
    from graphmill.ingest.report import ingest_report as report

    found = report(path, format_)
    if as_json:
        print_json(found.to_dict())
    else:
        print(found.text())
    if found.problem:
        raise typer.Exit(EXIT_USER_ERROR)


@app.command()
def sample(
    chain: Annotated[str, typer.Argument(help="biomed; the others run with `make demo CHAIN=...`")],
    preset: Annotated[str, typer.Argument(help="tiny, small or paper")],
    out: Annotated[Path, typer.Argument(help="File (or folder) to write")],
) -> None:
    """Write seeded synthetic data of a chain."""
    from graphmill.ingest.samples.catalog import write_sample

    print(write_sample(chain, preset, out))
