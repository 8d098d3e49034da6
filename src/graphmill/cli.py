"""``graphmill …``: thin commands over the library. Results go to stdout (``--json`` for programs), progress to stderr.

Exit codes: 0 well; 1 a check failed; 2 a user's error; 75 stopped, to be resumed (docs/exit_codes.md).
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from graphmill.cli_output import number, print_json, print_table, show_result
from graphmill.cli_promotion import app as promotion_commands
from graphmill.errors import EXIT_CHECK_FAILED, EXIT_STOPPED, EXIT_USER_ERROR, GraphmillError, InputError

if TYPE_CHECKING:
    from graphmill.runs.launch import Nodes

app = typer.Typer(
    name="graphmill",
    help="Knowledge graphs and interactions in, validated and versioned embeddings out.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.add_typer(promotion_commands)

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program instead of a table.")]


def main() -> None:
    """Entry point: errors with a sentence end with their exit code and no traceback."""
    from graphmill.training.memory import memory_in_a_sentence
    from graphmill.training.waiting import machine_is_quiet, waiting_environment

    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    # Other commands are short: they need not look.
    os.environ.update(waiting_environment(quiet=machine_is_quiet if sys.argv[1:2] == ["train"] else lambda: False))
    try:
        if sys.argv[1:2] == ["train"]:
            _with_allocator()
        with memory_in_a_sentence():
            app(standalone_mode=True)
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Somebody closed the pipe (head, less): not an error of ours.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(EXIT_STOPPED)


@app.command()
def train(
    settings: Annotated[Path, typer.Argument(help="settings.yaml (docs/settings.md)")],
    output: Annotated[str, typer.Option(help="Folder of this model's runs; default beside the graph")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, such as training.epochs=20")] = None,
    force: Annotated[bool, typer.Option(help="Start over even where this training has been done")] = False,
    nodes: Annotated[int, typer.Option(help="Machines that train together (docs/processes.md)", min=1)] = 1,
    node_rank: Annotated[int, typer.Option(help="Which of them this is; 0 writes the run", min=0)] = 0,
    master: Annotated[str, typer.Option(help="HOST:PORT of machine 0, where they meet")] = "",
    as_json: Json = False,
) -> None:
    """Train, or go on, or reuse what is done; then export the embeddings."""
    from graphmill.runs.launch import Nodes
    from graphmill.runs.resolve import merge, read_settings

    values = merge(read_settings(settings), _overrides(set_ or []))
    if force:
        values = merge(values, {"training": {"force": True}})
    result = _train(values, str(settings), output, Nodes(nodes, node_rank, master))
    if as_json:
        print_json(result)
    elif result:
        show_result(result)


@app.command()
def estimate(
    settings: Annotated[Path, typer.Argument(help="settings.yaml (docs/settings.md)")],
    set_: Annotated[list[str] | None, typer.Option("--set", help="Override, such as model.hidden_dim=128")] = None,
    as_json: Json = False,
) -> None:
    """Memory and time of a training before it starts, in every way that it could be run (docs/memory_planning.md)."""
    from graphmill.runs.planning import estimate_run
    from graphmill.runs.resolve import merge, read_settings

    found = estimate_run(merge(read_settings(settings), _overrides(set_ or [])), str(settings))
    if as_json:
        print_json(found.to_json())
    else:
        print_table(f"{settings}: what a training takes", ["", *found.columns], found.rows())
        print(found.sentence)
    if found.refusal:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run directory")],
    checkpoint: Annotated[str, typer.Option(help="best, last, final, or an epoch number")] = "",
    as_json: Json = False,
) -> None:
    """Held-out figures of a run's checkpoint, with every metric."""
    from graphmill.runs.export import evaluate_run, restore

    found = evaluate_run(restore(run, int(checkpoint) if checkpoint.isdigit() else checkpoint))
    if as_json:
        print_json(found)
        return
    rows = [[name, number(found["valid"].get(name)), number(value)] for name, value in found["test"].items()]
    caution = ", chosen on test: optimistic" if found["selected_on"] == "test" else ""
    print_table(f"{run} at epoch {found['epoch']}{caution}", ["metric", "valid", "test"], rows)


@app.command()
def rank(
    run: Annotated[Path, typer.Argument(help="Run directory")],
    split: Annotated[str, typer.Option(help="valid or test")] = "test",
    checkpoint: Annotated[str, typer.Option(help="best, last, final, or an epoch number")] = "",
    as_json: Json = False,
) -> None:
    """A run's ranking beside all that it has to beat; BPR-MF, and HGT without messages, are trained for it."""
    from graphmill.runs.export import restore
    from graphmill.runs.messages import Terminal
    from graphmill.runs.ranking import rank_any

    if split not in ("valid", "test"):
        raise InputError(f"--split {split}: valid or test")
    terminal = Terminal()
    try:
        found = rank_any(
            restore(run, int(checkpoint) if checkpoint.isdigit() else checkpoint), split, outlets=[terminal]
        )
    finally:
        terminal.close()
    figures = found["beside"] if "beside" in found else {who: {"mrr": value} for who, value in found["mrr"].items()}
    if as_json:
        print_json({"epoch": found["epoch"], "split": split, "figures": figures})
        return
    rows = [[m, *(number(own.get(m)) for own in figures.values())] for m in next(iter(figures.values()))]
    print_table(f"{run} at epoch {found['epoch']}, {split}", ["metric", *figures], rows)


@app.command()
def recommend(
    run: Annotated[Path, typer.Argument(help="Run directory of a recommender or a sequence model")],
    k: Annotated[int, typer.Option("--k", help="Items for each user", min=1)] = 20,
    checkpoint: Annotated[str, typer.Option(help="best, last, final, or an epoch number")] = "",
    as_json: Json = False,
) -> None:
    """The best new items of every user, with names and scores, as recommendations.parquet in the run directory."""
    from graphmill.runs.export import restore
    from graphmill.runs.recommendations import recommend_run

    restored = restore(run, int(checkpoint) if checkpoint.isdigit() else checkpoint)
    found = {"epoch": restored.epoch, **recommend_run(restored, k)}
    if as_json:
        print_json(found)
    else:
        print_table(
            f"Recommendations of {run}", ["what", "value"], [[name, str(value)] for name, value in found.items()]
        )


@app.command()
def validate(
    embeddings: Annotated[Path, typer.Argument(help="embeddings.parquet, .csv or .npy, or a run directory")],
    graph: Annotated[str, typer.Option(help="The typed graph, for link ranking by cosine")] = "",
    as_json: Json = False,
) -> None:
    """Health of an embedding: figures, verdicts, and the failure's name. Exit code 1 when it fails."""
    from graphmill.runs.validation import validate_file

    report = validate_file(embeddings, graph)
    if as_json:
        print_json(report.to_dict())
    else:
        rows = [
            [v.name, number(v.value), number(v.threshold), v.status, f"{v.meaning} {v.remedy}".strip()]
            for v in report.verdicts
        ]
        print_table(f"Health of {embeddings}", ["figure", "value", "bound", "verdict", "meaning"], rows)
        print(f"failure: {report.failure}: {report.detail}" if report.failure else "no failure found")
    if report.status == "fail":
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def neighbors(
    run: Annotated[Path, typer.Argument(help="Run directory")],
    node: Annotated[str, typer.Argument(help="Node id")],
    k: Annotated[int, typer.Option("--k", "-k", help="How many", min=1)] = 10,
    node_type: Annotated[str, typer.Option("--type", help="Node type, where ids of several types collide")] = "",
    as_json: Json = False,
) -> None:
    """The nearest nodes by cosine."""
    from graphmill.api import Run

    found = Run(run).neighbors(node, k, node_type)
    if as_json:
        print_json(found.to_dict(orient="records"))
        return
    rows = [[str(r.node_id), str(r.node_name), str(r.node_type), number(r.cosine)] for r in found.itertuples()]
    print_table(f"Neighbours of {node}", ["id", "name", "type", "cosine"], rows)


@app.command()
def tracin(
    run: Annotated[Path, typer.Argument(help="Run directory of a recipe on triples (conve)")],
    settings: Annotated[str, typer.Option(help="YAML file with influence settings (docs/influence.md)")] = "",
    set_: Annotated[list[str] | None, typer.Option("--set", help="One of them, such as mode=self")] = None,
    output: Annotated[str, typer.Option(help="Folder for the JSON and CSV; default inside the run")] = "",
    as_json: Json = False,
) -> None:
    """Which training triples made the model say so: proponents and opponents by TracIn. Goes on where it stopped."""
    from graphmill.influence.settings import InfluenceSettings
    from graphmill.runs.influence import trace_influence
    from graphmill.runs.resolve import merge, read_settings
    from graphmill.settings import parse

    values = merge(read_settings(Path(settings)) if settings else {}, _overrides(set_ or []))
    chosen = parse(InfluenceSettings, values, settings or "--set")
    found = trace_influence(run, chosen, out=output, note=lambda text: print(f"note: {text}", file=sys.stderr))
    if as_json:
        print_json(found)
    else:
        print(Path(output or run / "influence") / f"{chosen.mode}.csv")


@app.command("ingest-report")
def ingest_report(
    path: Annotated[str, typer.Argument(help="The file, local or a URL; or the folder, of formats that are one")],
    format_: Annotated[
        str, typer.Option("--format", help="kg_csv, triples, interactions_csv, mmrec, kgat, …")
    ] = "kg_csv",
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


@app.command()
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


@app.command()
def doctor(
    processes: Annotated[int, typer.Option(help="Also do one all-reduce over so many processes", min=0)] = 0,
    as_json: Json = False,
) -> None:
    """What this machine can do, and why not."""
    from graphmill.runs.doctor import examine

    found = examine(processes)
    if as_json:
        print_json([vars(f) for f in found])
    else:
        print_table(
            "This machine", ["what", "", "detail"], [[f.what, "yes" if f.ok else "no", f.detail] for f in found]
        )
    if any(f.required and not f.ok for f in found):
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def compare(
    run_a: Annotated[Path, typer.Argument(help="Run directory A")],
    run_b: Annotated[Path, typer.Argument(help="Run directory B")],
    picture: Annotated[Path | None, typer.Option(help="Write the loss curves of both as PNG here")] = None,
    as_json: Json = False,
) -> None:
    """Two runs side by side: what differs in the settings, metrics, time, memory, and the loss curves."""
    from graphmill.runs.compare import compare_picture, compare_runs

    found = compare_runs(run_a, run_b)
    if picture is not None:
        picture.write_bytes(compare_picture(run_a, run_b))
    if as_json:
        print_json(found.to_dict())
        return
    print_table("Settings that differ", ["setting", "A", "B"], found.setting_rows())
    print_table("Figures", ["figure", "A", "B", "B / A"], found.figure_rows())


@app.command("compare-devices")
def compare_devices(settings: Annotated[Path, typer.Argument(help="settings.yaml")], as_json: Json = False) -> None:
    """The same training on the CPU and on the accelerator: time, memory, loss trace, metrics, neighbours."""
    from graphmill.runs.compare_devices import compare
    from graphmill.runs.resolve import read_settings

    found = compare(read_settings(settings), str(settings))
    if as_json:
        print_json(found.to_dict())
    else:
        if found.results:
            print_table("Devices", ["", *found.devices, "agree"], found.rows())
        print(found.sentence)
    if not found.agree:
        raise typer.Exit(EXIT_CHECK_FAILED)


@app.command()
def demo(
    chain: Annotated[str, typer.Argument(help="biomed; the others run with `make demo CHAIN=...`")] = "biomed",
    folder: Annotated[Path, typer.Option(help="Where to put everything")] = Path("data/06_models/demo"),
) -> None:
    """The sample chain without Dagster, with a table of the results at the end."""
    from graphmill.runs.demo import run_demo

    rows = run_demo(chain, folder)
    print_table(f"The {chain} chain", ["what", "value"], rows)


def _with_allocator() -> None:
    """Start this process again with the allocator's environment, which has to be there before Python runs."""
    from graphmill.training.allocator import allocator_environment

    added = allocator_environment()
    if added:
        os.execve(sys.executable, [sys.executable, "-m", "graphmill.cli", *sys.argv[1:]], {**os.environ, **added})


def _train(values: dict[str, Any], where: str, root: str, nodes: "Nodes") -> dict[str, Any]:
    from graphmill.runs.export import export_run, restore
    from graphmill.runs.launch import run_processes
    from graphmill.runs.messages import Terminal
    from graphmill.runs.resolve import parse_settings
    from graphmill.training.signals import StopRequest

    processes = parse_settings(values, where).acceleration.processes  # type: ignore[attr-defined]
    with StopRequest() as stop:
        if processes > 1 or nodes.count > 1:
            result = run_processes(values, processes, where=where, root=root, stop=stop, nodes=nodes)
        else:
            from graphmill.runs.train import train as run_training

            terminal = Terminal()
            try:
                result = run_training(values, where, root=root, outlets=[terminal], stop=stop)
            finally:
                terminal.close()
    if not result:
        return {}
    manifest = export_run(restore(result["run_dir"]))
    return {**result, "embeddings": sorted(manifest["files"])}


def _overrides(pairs: list[str]) -> dict[str, Any]:
    import yaml

    out: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals:
            raise InputError(f"--set {pair}: write it as section.name=value, such as training.epochs=20")
        place = out
        *parents, name = path.split(".")
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = yaml.safe_load(text)
    return out


if __name__ == "__main__":
    main()
