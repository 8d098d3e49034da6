"""``graphmill card`` and ``report``: what a run or version is, for a person and for a program."""

from pathlib import Path
from typing import Annotated

import typer

from graphmill.cli.entry import Json, app
from graphmill.cli.output import print_json
from graphmill.cli.promotion import PROMOTED, Folder
from graphmill.errors import InputError

What = Annotated[
    str, typer.Argument(help="Run directory, DATASET/MODEL for the live version, or DATASET/MODEL/VERSION")
]


@app.command()
def card(what: What, folder: Folder = PROMOTED, as_json: Json = False) -> None:
    """The card of a run or version: data, figures beside baselines, health, limits, how it was made.

    --json prints the Croissant description of its files instead.
    """
    from graphmill.promotion.versions import folder_of
    from graphmill.runs.card import card_text
    from graphmill.runs.card_files import read_card_files
    from graphmill.runs.croissant import croissant

    path = folder_of(what, folder)
    files = read_card_files(path)
    if as_json:
        print_json(croissant(files, "" if files.export_folder == files.folder else "embeddings/"))
        return
    # A version keeps the card that it was promoted with; a run's is as true as its files are now.
    kept = files.folder / "card.md"
    print(kept.read_text(encoding="utf-8") if files.version and kept.is_file() else card_text(files), end="")


@app.command()
def report(
    what: What,
    out: Annotated[Path | None, typer.Option(help="The file to write; default report.html in the folder")] = None,
    folder: Folder = PROMOTED,
    as_json: Json = False,
) -> None:
    """A run or version on one page: an HTML file with its pictures in it, to be read anywhere, sent, or printed."""
    from graphmill.promotion.versions import folder_of
    from graphmill.runs.report_html import write_report

    path = folder_of(what, folder)
    if out is None and (path / "version.json").is_file():
        raise InputError("a promoted version never changes: say where its report goes, with --out FILE")
    written = write_report(path, out or "")
    if as_json:
        print_json({"report": str(written)})
    else:
        print(written)
