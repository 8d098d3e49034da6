"""``graphmill track``: sends runs, or their missing parts, to MLflow."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from graphmill.cli.entry import TRAIN, app, overrides
from graphmill.errors import InputError


@app.command(rich_help_panel=TRAIN)
def track(
    runs: Annotated[list[Path], typer.Argument(help="Run directories")],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="tracker.address=…, tracker.experiment=…, tracker.writer=…; default: as the run says"
        ),
    ] = None,
) -> None:
    """Send runs to MLflow: the parts that are missing there, or whole runs."""
    from graphmill.runs.tracker import require_tracker, send, tracker_of
    from graphmill.settings import parse
    from graphmill.training.settings import TrackerSettings

    requested = overrides(set_ or [])
    if unknown := sorted(requested.keys() - {"tracker"}):
        raise InputError(f"--set {unknown[0]}: only settings of the tracker can be given here")
    for run in runs:
        settings = parse(TrackerSettings, {**tracker_of(run).model_dump(), **requested.get("tracker", {})}, "tracker")
        if settings.writer == "none":
            raise InputError(f"{run} has no tracker: name one, such as --set tracker.writer=mlflow")
        require_tracker(settings)
        try:
            epochs = send(run, settings)
        except Exception as error:  # whatever a tracker raises
            if isinstance(error, InputError):
                raise
            why = " ".join(str(error).split())[:200]
            raise InputError(f"{run} could not be sent to {settings.address or settings.writer}: {why}") from None
        print(f"{run}: {epochs} epochs sent", file=sys.stderr)
