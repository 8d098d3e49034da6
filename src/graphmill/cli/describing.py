"""``graphmill card``, ``report`` and ``explain``: describe a run or version, and explain its predictions."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from graphmill.cli.entry import JUDGE, USE, Checkpoint, Json, app
from graphmill.cli.output import number, on_its_device, print_json, print_table, restored_run, show
from graphmill.cli.promotion import PROMOTED, Folder

What = Annotated[str, Argument(help="Run directory, or DATASET/MODEL[/VERSION]")]


@app.command(rich_help_panel=JUDGE)
def card(what: What, folder: Folder = PROMOTED, as_json: Json = False) -> None:
    """Print the card of a run or version: data, figures beside baselines, health, limits, how it was made."""
    from graphmill.promotion.versions import folder_of
    from graphmill.reports.card import CARD, card_sections, card_text
    from graphmill.reports.card_files import read_card_files
    from graphmill.verified_files import verified_file

    path = folder_of(what, folder)
    files = read_card_files(path)
    if as_json:
        print_json([asdict(section) for section in card_sections(files)])
        return
    # A version keeps its card from promotion; a run's card is made from its current files.
    kept = CARD in files.version.get("files", ())
    text = verified_file(files.folder, CARD).read_text(encoding="utf-8", errors="replace") if kept else card_text(files)
    print(text, end="")


@app.command(rich_help_panel=JUDGE)
def report(
    what: What,
    out: Annotated[Path | None, Option(help="The file to write; default report.html in the folder")] = None,
    folder: Folder = PROMOTED,
    as_json: Json = False,
) -> None:
    """Write one page about a run: an HTML file that includes its pictures. A version has the page of its promotion."""
    from graphmill.promotion.versions import folder_of
    from graphmill.reports.report_html import write_report

    written = write_report(folder_of(what, folder), out or "")
    show({"report": str(written)}, written, as_json=as_json)


@app.command("open", rich_help_panel=JUDGE)
def open_(
    what: What,
    folder: Folder = PROMOTED,
    show_: Annotated[
        bool, Option("--show/--no-show", help="Open it in the browser, besides printing the address")
    ] = True,
) -> None:
    """Open the page of a run or version: in the explorer if it is served, else as the file that `report` writes."""
    import webbrowser

    from graphmill.promotion.versions import folder_of
    from graphmill.reports.report_html import write_report
    from graphmill.serving.addresses import served_page

    path = folder_of(what, folder)
    address = served_page(path) or write_report(path).resolve().as_uri()
    print(address)
    if show_:
        webbrowser.open(address)


@app.command(rich_help_panel=USE)
def explain(
    run: Annotated[Path, Argument(help="Run directory of blend, hgt, nbfnet or conve")],
    relation: Annotated[str, Option(help="Its name, or source|name|target")],
    head: Annotated[str, Option(help="Id or name of the node that the link leaves")],
    tail: Annotated[str, Option(help="Id or name of the node that it leads to")],
    k: Annotated[int, Option("--k", "-k", help="Edges to list", min=1)] = 10,
    paths: Annotated[int, Option(help="Paths to list", min=0)] = 5,
    neighbors: Annotated[int, Option(help="Neighbours of a node and relation to look at, at most", min=1)] = 64,
    max_edges: Annotated[int, Option(help="Edges to trace the layers' part in, at most", min=1)] = 20_000,
    verify: Annotated[bool, Option("--verify", help="Score it without the listed edges, too")] = False,
    checkpoint: Checkpoint = "",
    as_json: Json = False,
) -> None:
    """Explain a predicted link by the edges and paths that led to its score; for conve by training triples (TracIn)."""
    from graphmill.explain.explanation import ExplainSettings
    from graphmill.usage.explain import explain_link

    requested = ExplainSettings(edges=k, paths=paths, neighbors=neighbors, max_edges=max_edges)
    result = on_its_device(
        lambda: explain_link(restored_run(run, checkpoint), head, relation, tail, requested, verify=verify)
    )
    if as_json:
        print_json(result.to_dict())
        return
    title = f"{result.head} –{result.relation}– {result.tail}: score {number(result.score)}"
    known = [name for name in ("weight", "confidence", "time", "evidence") if any(name in e for e in result.edges)]
    rows = [
        [e["head"], e["relation"], e["tail"], f"{e['share']:+.4f}", *(number(e.get(name)) for name in known)]
        for e in result.edges
    ]
    print_table(f"{title}; {result.method}", ["from", "relation", "to", "share", *known], rows)
    if result.paths:
        rows = [[path["path"].rpartition(" (")[0], number(path["strength"])] for path in result.paths]
        print_table("Paths, the strongest first", ["path", "strength"], rows)
    if result.parts:
        print_table("The score is the sum of", ["part", "score"], [[n, number(v)] for n, v in result.parts.items()])
    if not result.whole:
        print("The neighbourhood is larger than what was looked at; --max-edges and --neighbors look at more.")
    if result.deletion:
        listed, others = result.deletion["without_the_listed_edges"], result.deletion["without_as_many_others"]
        print(
            f"Without the {result.deletion['edges']} edges that speak for it its score is {number(listed)}; without as many "
            f"others around the two nodes {number(others)}."
        )
