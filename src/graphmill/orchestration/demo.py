"""``python -m graphmill.orchestration.demo CHAIN``: runs a sample chain through Dagster in this process, and prints the
results.

It uses the same ``DAGSTER_HOME`` as ``make ui``, so that the UI shows the assets with their checks and pictures.
"""

import argparse
import importlib
import logging
import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
from rich.console import Console

from graphmill.errors import EXIT_CHECK_FAILED, EXIT_OK, GraphmillError, InputError
from graphmill.orchestration.home import code_location, dagster_home, project_root
from graphmill.orchestration.instance import open_instance

JOB_SUFFIX = "_refresh"
DEFAULT_CHAIN = "biomed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chain and print the results; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m graphmill.orchestration.demo", description=__doc__)
    parser.add_argument("chain", nargs="?", default="", help="name of the dataset (default: the only one, or biomed)")
    chain = parser.parse_args(arguments).chain
    console = Console()
    # Dagster's warnings about its own preview and beta features, which a user cannot change.
    warnings.simplefilter("ignore", dg.PreviewWarning)
    warnings.simplefilter("ignore", dg.BetaWarning)
    try:
        root = project_root()
        dagster_home(root)
        return run(chain, load(root), console, code_location(root).name)
    except GraphmillError as error:
        console.print(f"[red]graphmill:[/red] {error}", highlight=False)
        return error.exit_code


def load(root: Path) -> dg.Definitions:
    """The project's definitions. Raises :class:`InputError` if its module does not have them under the expected name."""
    location = code_location(root)
    if (folder := str(location.folder.resolve())) not in sys.path:
        sys.path.insert(0, folder)
    loaded = getattr(importlib.import_module(location.module), location.attribute, None)
    definitions = loaded() if callable(loaded) else loaded
    if not isinstance(definitions, dg.Definitions):
        raise InputError(f"the module {location.module} has no definitions under the name '{location.attribute}'")
    return definitions


def run(chain: str, definitions: dg.Definitions, console: Console, location: str = "") -> int:
    """Execute the chain's job in this process. "" means the only chain, or biomed. ``location``: the name of the code
    location in the UI, which then lists the run with the job.

    Raises :class:`InputError` for an unknown chain.
    """
    known = [job.name.removesuffix(JOB_SUFFIX) for job in definitions.jobs or () if job.name.endswith(JOB_SUFFIX)]
    chain = chain or (known[0] if len(known) == 1 else DEFAULT_CHAIN)
    if chain not in known:
        listed = ", ".join(sorted(known)) or "none; `graphmill init . --data FILE` adds one"
        raise InputError(f"there is no chain {chain!r} (known: {listed})")
    quiet = dg.Definitions(loggers={"console": _logger(console)})
    job = dg.Definitions.merge(definitions, quiet).resolve_job_def(f"{chain}{JOB_SUFFIX}")
    console.print(f"\n[bold]{chain}[/bold]: from its files to checked embeddings\n")
    begun = time.monotonic()
    with open_instance() as instance:
        result = job.execute_in_process(
            run_config={"loggers": {"console": {}}},
            instance=instance,
            raise_on_error=False,
            tags={".dagster/repository": f"__repository__@{location}"} if location else None,
        )
    console.print()
    evaluations = result.get_asset_check_evaluations()
    failed = [evaluation for evaluation in evaluations if not evaluation.passed]
    console.print(f"{len(evaluations) - len(failed)} of {len(evaluations)} checks passed")
    for check in failed:
        console.print(
            f"  [yellow]{check.asset_key.to_user_string()} · {check.check_name}[/yellow]: {check.description}"
        )
    for model, verdict in verdicts(result).items():
        console.print(f"\n{model}: {verdict}", highlight=False, soft_wrap=True)
    state = "[green]done[/green]" if result.success else "[red]failed[/red]"
    console.print(f"\n{state} in {time.monotonic() - begun:.0f} s. `make ui` opens the assets, checks and pictures.\n")
    return EXIT_OK if result.success else EXIT_CHECK_FAILED


def verdicts(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    """The last verdict on each model, by its asset's key without the part."""
    outcome: dict[str, str] = {}
    for event in result.all_events:
        if event.is_step_materialization:
            made = event.step_materialization_data.materialization
            if isinstance(said := made.metadata.get("verdict"), dg.MarkdownMetadataValue):
                outcome[made.asset_key.to_user_string().rpartition("_")[0]] = str(said.md_str).replace("**", "")
    return outcome


def _logger(console: Console) -> dg.LoggerDefinition:
    """A Dagster logger that prints steps, their progress, and the reason of a failure."""
    logger = logging.Logger("graphmill.demo", level=logging.DEBUG)  # events of steps have the level debug
    logger.addHandler(_Teller(console))
    return dg.LoggerDefinition(lambda _: logger)


class _Teller(logging.Handler):
    def __init__(self, console: Console) -> None:
        super().__init__(level=logging.DEBUG)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        meta: dict[str, Any] = getattr(record, "dagster_meta", None) or {}
        event = meta.get("dagster_event")
        message = str(meta.get("orig_message") or record.getMessage())
        if event is None and record.levelno >= logging.INFO and not message.startswith("[pipes]"):
            self._console.print(f"    {message}", style="dim", highlight=False, soft_wrap=True)
        elif event is not None and event.event_type_value == "STEP_START":
            self._console.print(f"  {str(event.step_key).replace('__', '/', 1)}")
        elif event is not None and event.event_type_value == "STEP_FAILURE":
            self._console.print(f"  [red]{_cause(event)}[/red]", highlight=False, soft_wrap=True)


def _cause(event: Any) -> str:
    failure = event.step_failure_data
    if failure.user_failure_data is not None:
        return str(failure.user_failure_data.description)
    error = failure.error.cause or failure.error
    return str(error.message).strip()


if __name__ == "__main__":
    sys.exit(main())
