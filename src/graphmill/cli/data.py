"""Commands for files: report on them, build a graph from them, write the samples."""

import csv
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from graphmill.cli import waiting
from graphmill.cli.entry import DATA, Json, app, overrides
from graphmill.cli.output import print_json, show, show_coverage
from graphmill.errors import EXIT_USER_ERROR, SettingsError

Columns = Annotated[
    list[str] | None, Option(help="Columns by their roles, such as head_id=src,tail_id=dst or user=who,item=what")
]
RepairIds = Annotated[
    list[str] | None, Option(help='Repair of all ids: case, unicode, invisible, "prefix MONDO:"; again for more')
]
Force = Annotated[bool, Option("--force", help="Use the file although more than a tenth of its rows is refused")]


def named_columns(given: list[str] | None) -> dict[str, str]:
    """Role → column. Raises :class:`SettingsError` for an entry without ``=``."""
    parts = [part.strip() for text in given or [] for part in next(csv.reader([text])) if part.strip()]
    if wrong := [part for part in parts if "=" not in part]:
        raise SettingsError(f"--columns: {wrong[0]!r} is not role=column, such as head_id=src")
    return {role.strip(): column.strip() for role, _, column in (part.partition("=") for part in parts)}


def asking() -> Callable[[str, Sequence[str]], str] | None:
    """The function that asks a person to choose; None where nobody sits at a terminal."""
    return _ask if sys.stdin.isatty() and sys.stderr.isatty() else None


def _ask(question: str, answers: Sequence[str]) -> str:
    """Ask for one of the answers by its number."""
    import click

    with waiting.question():
        for number, answer in enumerate(answers, 1):
            typer.echo(f"  {number}  {answer}", err=True)
        return answers[int(typer.prompt(question, type=click.IntRange(1, len(answers)), err=True)) - 1]


@app.command("ingest-report", rich_help_panel=DATA)
def ingest_report(
    path: Annotated[str, Argument(help="The file, local or a URL; or a folder")],
    format_: Annotated[
        str, Option("--format", help="kg_csv, triples, interactions_csv, mmrec, …; auto: by the content")
    ] = "auto",
    columns: Columns = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Show a file's columns, guessed mapping, first bad rows and counts, and print a ready defs.yaml."""
    from graphmill.ingest.public_readers import ingest_report as report
    from graphmill.project.data import ask_columns

    named = named_columns(columns)
    described = report(path, format_, named, force=force)
    ask = None if as_json or named or format_ != "auto" else asking()
    if described.problem and not described.counts and ask is not None and (named := ask_columns(path, ask)):
        described = report(path, format_, named, force=force)
    show(described.to_dict(), described.text(), as_json=as_json)
    if described.problem:
        raise typer.Exit(EXIT_USER_ERROR)


@app.command(rich_help_panel=DATA)
def build(
    files: Annotated[list[str], Argument(help="Edges (with nodes) or interactions, and features of nodes")],
    output: Annotated[Path, Option("--output", "-o", help="Folder of the graph")],
    format_: Annotated[str, Option("--format", help="Format of the edges; default: by the content")] = "",
    columns: Columns = None,
    set_: Annotated[list[str] | None, Option("--set", help="Graph setting, such as split.valid=0.1")] = None,
    read: Annotated[list[str] | None, Option(help="Setting of the format, such as min_weight=3")] = None,
    aliases: Annotated[str, Option(help="Table with the columns old_id and id: ids to replace")] = "",
    repair_ids: RepairIds = None,
    attributes: Annotated[
        list[str] | None, Option(help="Table that describes nodes, or TYPE=FILE; once a type")
    ] = None,
    kinds: Annotated[
        list[str] | None, Option("--kind", help="COLUMN=KIND (text, category, number, date, list); default: all")
    ] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Build a typed graph from files, as the assets of a project do; `graphmill train` trains on it."""
    from graphmill.api import build_graph, read_attributes, read_features
    from graphmill.ingest.id_columns import read_aliases, with_aliases
    from graphmill.ingest.public_readers import read_tables
    from graphmill.project.data import SPLIT, Dataset, dataset_of
    from graphmill.runs.resolve import merge

    settings = overrides(read or [])
    if format_ and settings and len(files) == 1:
        guess = Dataset("", "", attributes={"sources": [{"format": format_, "path": files[0]}]})
    else:
        named, ask = named_columns(columns), None if as_json else asking()
        guess = dataset_of(files, lambda path, _: path, format=format_, columns=named, ask=ask, force=force)
    main, *others = guess.attributes["sources"]
    main = merge(main, settings)
    tables = read_tables(main["path"], main["format"], _settings(main), f"{main['path']}, {main['format']}")
    mended: Any = {"aliases": aliases, "repair_ids": repair_ids or []}
    tables = with_aliases(tables, read_aliases(aliases, repair_ids or []))
    for each in others:
        tables = read_features(tables, each["path"], **mended, **_settings(each))
    for path, kind, kinds_of in _attributes(attributes or [], overrides(kinds or [])):
        tables = read_attributes(tables, path, kind, **mended, **kinds_of)
    matches = [each.to_dict() for each in tables.coverage]
    if not as_json:
        show_coverage(matches)
    chosen = overrides(set_ or [])
    graph = build_graph(tables, output, force=force, **merge(guess.attributes.get("graph", {}), chosen))
    if as_json:
        print_json({"path": str(graph.path), "content_hash": graph.content_hash, "format": tables.format,
                    "counts": tables.counts, "notes": tables.notes, "coverage": matches, **graph.describe()})  # fmt: skip
        return
    for line in "\n".join(guess.notes).splitlines():
        if not ("split" in chosen and line.startswith(SPLIT)):  # it tells the default, and another one was asked for
            print(line)
    for note in tables.notes:
        print(f"note: {note}")
    for row in tables.rejects.slice(0, 5).to_pylist():
        print(f"not used: {row['file']}, line {row['line']}: {row['reason']} ({row['column']}: {row['value']})")
    relations = f"{len(graph.relations)} relation{'s' * (len(graph.relations) > 1)}"
    print(f"{graph.path}: {graph.num_nodes:,} nodes, {graph.num_edges:,} edges, {relations}")
    print(f"next: graphmill train auto --set {shlex.quote(f'data={graph.path}')}")


def _attributes(files: list[str], kinds: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """Path, node type ("": the one with most of the ids) and kinds of each file of attributes."""
    if kinds and len(files) != 1:
        raise SettingsError(f"--kind says the kinds of one file of --attributes, and there are {len(files)}")
    parts = [("", "", file) if Path(file).exists() else file.rpartition("=") for file in files]
    return [(file, kind, kinds) for kind, _, file in parts]


def _settings(source: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in source.items() if name not in ("name", "format", "path")}


@app.command(rich_help_panel=DATA)
def sample(
    chain: Annotated[str, Argument(help="biomed, kg_bench, music or watch")],
    out: Annotated[Path, Argument(help="File (or folder) to write")],
) -> None:
    """Write the synthetic data of a sample chain."""
    from graphmill.ingest.samples import write_sample

    print(write_sample(chain, out))
