"""``graphmill serve``: promoted versions over HTTP, and the explorer."""

import contextlib
import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from graphmill.cli.entry import RELEASE, app
from graphmill.cli.promotion import PROMOTED


@app.command(rich_help_panel=RELEASE)
def serve(
    folder: Annotated[Path, typer.Option(help="Where the versions of all models are")] = PROMOTED,
    port: Annotated[int, typer.Option(help="Port; 0: any that is free", min=0, max=65535)] = 3030,
    host: Annotated[
        str, typer.Option(help="Address; any but this machine's own needs the environment variable GRAPHMILL_TOKEN")
    ] = "127.0.0.1",
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
