"""``graphmill …``: thin commands over the library. Results go to stdout (``--json`` for programs), progress to stderr.

Exit codes: 0 success; 1 a check failed; 2 a user's error; 75 stopped and can be resumed (docs/reference/exit_codes.md).
"""

import os
import sys
from typing import Annotated, Any

import typer
from typer import Option

from graphmill.errors import EXIT_STOPPED, EXIT_USER_ERROR, GraphmillError, InputError

app = typer.Typer(
    name="graphmill",
    help="Turn knowledge graphs and interactions into validated, versioned embeddings.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

DATA, TRAIN, JUDGE, USE = "Data", "Train", "Judge a run", "Use a run"
RELEASE, PROJECT = "Release", "Projects and this machine"
"""The tasks by which ``--help`` groups the commands."""
WITHOUT_PROGRESS = ("train", "serve")
"""Commands that print the figures of a training, or run until they are stopped."""
Json = Annotated[bool, Option("--json", help="Print JSON for a program instead of a table.")]
Checkpoint = Annotated[str, Option(help="best, last, final, or an epoch number")]
Question = Annotated[str, Option(help="YAML file: relations, heads, candidates, split, metric")]
Judgements = Annotated[str, Option(help="Table of judged links: head, relation, tail, judgement (yes or no)")]


def _show_version(wanted: bool) -> None:
    if wanted:
        from graphmill.version import __version__

        print(f"graphmill {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Turn knowledge graphs and interactions into validated, versioned embeddings."""
    if context.invoked_subcommand not in WITHOUT_PROGRESS:
        from graphmill.cli.waiting import progress

        context.with_resource(progress(f"graphmill {context.invoked_subcommand}"))


def main() -> None:
    """Entry point: a :class:`GraphmillError` ends with its message and exit code, without a traceback."""
    from graphmill.runs.standard_streams import lost_output, spare_streams
    from graphmill.training.allocator import waiting_environment
    from graphmill.training.memory import memory_in_a_sentence

    spare_streams()
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    os.environ.update(waiting_environment())
    try:
        if sys.argv[1:2] == ["train"]:
            _with_allocator()
        with memory_in_a_sentence():
            app(prog_name="graphmill", standalone_mode=True)
    except GraphmillError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_STOPPED)
    except SystemExit as end:
        why = lost_output()
        if not why or end.code:
            raise
        training = sys.argv[1:2] == ["train"]
        kept = "; the run and its embeddings are complete" if training else ""
        print(f"error: the result could not be printed: {why}{kept}", file=sys.stderr)
        sys.exit(0 if training else EXIT_USER_ERROR)


def _with_allocator() -> None:
    """Starts this process again with the allocator's environment variables, which must be set before Python starts."""
    from graphmill.training.allocator import allocator_environment

    added = allocator_environment()
    if added:
        os.execve(sys.executable, [sys.executable, "-m", "graphmill.cli", *sys.argv[1:]], {**os.environ, **added})


def overrides(pairs: list[str]) -> dict[str, Any]:
    """``--set section.name=value …`` as nested settings; values are read as YAML. Raises InputError for any other form."""
    from graphmill.runs.resolve import merge
    from graphmill.settings import read_yaml

    out: dict[str, Any] = {}
    for pair in pairs:
        path, equals, text = pair.partition("=")
        if not equals or not all(path.split(".")):
            raise InputError(f"--set {pair}: write it as section.name=value, such as training.epochs=20")
        value = read_yaml(text, f"--set {pair}")
        for name in reversed(path.split(".")):
            value = {name: value}
        out = merge(out, value)
    return out
