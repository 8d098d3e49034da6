"""Commands for live versions: ``promote``, ``rollback``, ``versions``, ``export``, ``drift`` and ``serve``."""

import contextlib
import json
import logging
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from graphmill.cli.entry import JUDGE, RELEASE, USE, Json, app
from graphmill.cli.output import number, print_json, print_table, show
from graphmill.errors import EXIT_CHECK_FAILED, InputError

if TYPE_CHECKING:
    from graphmill.promotion.versions import Versions

Model = Annotated[str, Argument(help="DATASET/MODEL, such as biomed/hgt")]
Folder = Annotated[Path, Option(help="Where the versions of all models are")]
Why = Annotated[str, Option(help="The reason, for those who look at the versions later")]
PROMOTED = Path("data/07_promoted")


@app.command(rich_help_panel=RELEASE)
def promote(
    run: Annotated[Path, Argument(help="Run directory")],
    policy: Annotated[str, Option("--if", help="Only if better, or checks_pass (its health)")] = "",
    question: Annotated[str, Option(help="YAML file: the links and the metric to compare")] = "",
    min_gain: Annotated[float, Option(help="--if better: the gain's lower end must be above this")] = 0.0,
    keep: Annotated[int, Option(help="Versions to keep", min=1)] = 5,
    to: Annotated[str, Option(help="Folder of all versions; default: beside the run's 06_models")] = "",
    why: Why = "",
    force: Annotated[bool, Option(help="Although its embeddings are not sound")] = False,
    as_json: Json = False,
) -> None:
    """Make a run's export the live version of its model, and compare it with the version before.

    Exit code 1 if --if keeps the version that is live.
    """
    from graphmill.promotion.policy import PromotionSettings
    from graphmill.promotion.promote import export_trial, health_failures, promote_run, somebody, versions_folder
    from graphmill.settings import parse

    if policy not in ("", "better", "checks_pass"):
        raise InputError(f"--if {policy}: better or checks_pass")
    values = {"when": policy or "manual", "question": question, "min_gain": min_gain, "keep": keep}
    settings = parse(PromotionSettings, values, "promote")
    store = versions_folder(run, to)

    if policy and not force:
        export_trial(run)
    failed = health_failures(run) if policy and not force else []
    outcome = promote_run(
        run, store, settings, by=somebody(), why=why, person=not policy, force=force, failed_checks=failed
    )
    _record(store, outcome)
    show(outcome, lambda: _show_promotion(store, outcome), as_json=as_json)
    if outcome["outcome"] != "promoted" and policy:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command(rich_help_panel=USE)
def export(
    what: Annotated[str, Argument(help="Run directory, DATASET/MODEL[/VERSION], or a file of embeddings")],
    target: Annotated[str, Argument(help="A file ending in .parquet or .csv")],
    folder: Folder = PROMOTED,
    as_json: Json = False,
) -> None:
    """Write vectors with their ids, names and types to a file, and replace its content."""
    from graphmill.evaluation.embedding_files import read_embeddings
    from graphmill.export.writers import check_target, write_to
    from graphmill.promotion.versions import folder_of

    check_target(target)
    path = folder_of(what, folder)
    written = write_to(target, read_embeddings(path))
    show(written, f"{written['rows']:,} vectors of {path} are in {target}", as_json=as_json)


@app.command(rich_help_panel=RELEASE)
def rollback(
    model: Model,
    version: Annotated[str, Argument(help="Name or number; empty: the one before")] = "",
    folder: Folder = PROMOTED,
    why: Why = "",
    as_json: Json = False,
) -> None:
    """Make an older version live again."""
    from graphmill.promotion.promote import roll_back, somebody

    store = _versions(model, folder)
    outcome = roll_back(store, version, by=somebody(), why=why)
    _record(store, {**outcome, "outcome": "rolled back", "champion": outcome["before"]})
    text = f"{store.label}: {outcome['version']} is live, {outcome['before']} was ({outcome['path']})"
    show(outcome, text, as_json=as_json)


@app.command(rich_help_panel=RELEASE)
def versions(
    model: Annotated[str, Argument(help="DATASET/MODEL, such as biomed/hgt; default: all models")] = "",
    folder: Folder = PROMOTED,
    as_json: Json = False,
) -> None:
    """List versions: which is live, and each one's date, verdict, figures, reason, author, and what left with it.

    Without a model, of all.
    """
    from graphmill.promotion.versions import Versions, version_rows

    paths = [] if model else [path.parent for path in sorted(folder.glob("*/*/current"))]
    stores = [_versions(model, folder)] if model else [Versions(path) for path in paths]
    if as_json:
        listed = {store.label: version_rows(store) for store in stores}
        print_json(listed[stores[0].label] if model else listed)
        return
    if not stores:
        print(f"nothing is promoted in {folder}; `graphmill promote RUN` makes a run live")
    for store in stores:
        _show_versions(store, version_rows(store))


def _show_versions(store: "Versions", rows: list[dict[str, Any]]) -> None:
    lines = [
        [
            ("→ " if row["live"] else "  ") + row["version"],
            row["snapshot"],
            row["when"],
            row["verdict"].get("word", ""),
            f"{row['metric']} {number(row['valid'])}" if row["valid"] is not None else "",
            number(row["test"]),
            row["problem"] or (f"{row['kind']}: {row['why']}" if row["why"] else row["kind"]),
            row["by"],
        ]
        for row in rows
    ]
    names = ["version", "snapshot", "when", "verdict", "valid", "test", "why", "who"]
    if not any(row["snapshot"] for row in rows):
        names, lines = names[:1] + names[2:], [line[:1] + line[2:] for line in lines]
    print_table(f"Versions of {store.label}", names, lines)
    for row in rows:
        if any(row["left"].get(part) for part in ("nodes", "edges")):
            print(f"{row['version']}: {_departed(row['left'])}")


def _departed(left: Mapping[str, Any]) -> str:
    """What left with a version, such as ``1 node left (drug DB01), 3 edges left``."""
    parts = []
    for name in ("node", "edge"):
        count, sample = left[f"{name}s"], left[f"{name}_sample"]
        listed = f" ({', '.join(sample)}{', …' * (count > len(sample))})" if sample else ""
        parts.append(f"{count:,} {name}{'s' * (count != 1)}{listed}")
    return f"{' and '.join(parts)} left with it"


@app.command(rich_help_panel=JUDGE)
def drift(
    before: Annotated[str, Argument(help="Run directory, DATASET/MODEL[/VERSION], or a file of embeddings")],
    after: Annotated[str, Argument(help="The same: what is compared with it")],
    out: Annotated[Path | None, Option(help="Folder for drift.json; RUN/drift: its card has it")] = None,
    folder: Folder = PROMOTED,
    as_json: Json = False,
) -> None:
    """Measure how far an embedding, or its lists of the ten best, moved, and why. Exit code 1 if it fails."""
    from graphmill.promotion.drift import compare_sides, side_of, write_report

    first, second = side_of(before, folder), side_of(after, folder)
    report = compare_sides(first, second)
    values = {"before": before, "after": after, "against": first.name, **report.to_dict()}
    if out is not None:
        write_report(values, out)
    show(values, lambda: _show_drift(values), as_json=as_json)
    if report.status == "fail":
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command(rich_help_panel=RELEASE)
def serve(
    folder: Folder = PROMOTED,
    port: Annotated[int, Option(help="Port; 0: any that is free", min=0, max=65535)] = 3030,
    host: Annotated[str, Option(help="Address; any but this machine's own needs GRAPHMILL_TOKEN")] = "127.0.0.1",
) -> None:
    """Serve promoted versions over HTTP, read-only, with an explorer page at /. Ctrl-C stops it."""
    from graphmill.serving.server import serve as run

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(message)s")

    def say(address: str) -> None:
        if not any(folder.glob("*/*/current")):
            print(f"note: nothing is promoted in {folder} yet; `graphmill promote RUN` does it", file=sys.stderr)
        print(f"graphmill serves {folder} at {address}; Ctrl-C stops it", flush=True)

    with contextlib.suppress(KeyboardInterrupt):  # the way to stop it
        run(folder, host, port, say)


def _versions(model: str, folder: Path) -> "Versions":
    from graphmill.promotion.versions import Versions

    dataset, slash, name = model.strip("/").partition("/")
    if not (dataset and slash and name) or "/" in name or ".." in (dataset, name):
        raise InputError(f"'{model}' is not a model; write DATASET/MODEL, such as biomed/hgt")
    store = Versions(folder / dataset / name)
    if not store.names():
        models = ", ".join(sorted(f"{p.parent.parent.name}/{p.parent.name}" for p in folder.glob("*/*/current")))
        raise InputError(f"{folder} has no version of {model}; it has versions of: {models or 'nothing'}")
    return store


def _show_promotion(store: "Versions", outcome: dict[str, Any]) -> None:
    rows = [
        ["outcome", outcome["outcome"]],
        ["reason", outcome["reason"]],
        ["live version", outcome["version"] or "none"],
        ["where", outcome["path"]],
        ["live before", outcome["champion"] or "none"],
    ]
    compared = outcome["comparison"]
    if compared:
        interval = f"{compared['difference']:+.4f} ({compared['low']:+.4f} to {compared['high']:+.4f})"
        rows += [
            [f"valid {compared['metric']}", f"{number(compared['candidate'])}, before {number(compared['champion'])}"],
            ["gain and its 95 % interval", interval],
            ["queries, left out", f"{compared['queries']:,}, {compared['left_out']:,}"],
        ]
        name = compared["metric"]
        test = [number(outcome["test"][who].get(name)) for who in ("candidate", "champion")]
        rows.append([f"test {name} (decides nothing)", f"{test[0]}, before {test[1]}"])
    elif outcome["problem"]:
        rows.append(["not compared", outcome["problem"]])
    if outcome["removed"]:
        rows.append(["removed", ", ".join(outcome["removed"])])
    print_table(f"Promotion to {store.label}", ["what", "value"], rows)


def _show_drift(values: dict[str, Any]) -> None:
    rows = [[f["name"], f["status"], f"{f['meaning']} {f['remedy']}".strip()] for f in values["findings"]]
    print_table(f"{values['after']} against {values['before']}", ["finding", "verdict", "meaning"], rows)
    names = ("shared", "new", "vanished", "overlap_10", "cosine_raw", "cosine_aligned")
    sides = [values["overall"], *values["types"]]
    rows = [[side["name"] or "all", *(number(side.get(name)) for name in names)] for side in sides]
    print_table("By node type", ["type", *(name.replace("_", " ") for name in names)], rows)
    rows = [
        [n["name"] or n["id"], n["type"], number(n.get("cosine")), number(n["overlap_10"])]
        for n in values["moved"][:10]
    ]
    print_table("Moved most", ["node", "type", "cosine with itself", "neighbours kept"], rows)
    if values["graph"]:
        changed = values["graph"]
        pairs = f"{changed['before']:,} → {changed['after']:,} node pairs"
        print(f"graph: {pairs}, {changed['lost']:,} gone, {changed['added']:,} new")


def _record(store: "Versions", outcome: dict[str, Any]) -> None:
    """Records the promotion in Dagster's event log, if there is one: in a separate process, because this module must
    not import Dagster."""
    from graphmill.promotion.promote import dagster_home, somebody

    home = dagster_home(store.path)
    if home is None:
        return
    event = {"dataset": store.path.parent.name, "model": store.path.name, "by": somebody(), "decision": outcome}
    process = subprocess.run(
        [sys.executable, "-m", "graphmill.orchestration.promotion", str(home)],
        input=json.dumps(event, default=str),
        text=True,
        capture_output=True,
        check=False,
    )
    if process.returncode:
        last = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"note: Dagster's event log ({home}) was not told: {last}", file=sys.stderr)
