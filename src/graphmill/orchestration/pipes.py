"""Runs the worker process from a Dagster step, with live figures while it works. A cancelled run leaves no process.

Dagster's own subprocess client signals only the direct child, and passes on custom messages only at the end. So this
module has its own loop. ``docs/how-to/train_elsewhere.md`` describes the worker's side.
"""

import contextlib
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import dagster as dg
from pydantic import Field
from sqlalchemy.exc import SQLAlchemyError

from graphmill.errors import EXIT_OK, EXIT_STOPPED, OutOfMemoryError
from graphmill.launchers import start
from graphmill.launchers.contract import UNSEEN, Worker, WorkerCommand
from graphmill.launchers.settings import LauncherSettings
from graphmill.orchestration.failures import user_errors
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.lost_runs import worker_above
from graphmill.orchestration.messages import (
    Message,
    MessageFile,
    epoch_line,
    progress_metadata,
    started_line,
    started_metadata,
)
from graphmill.settings import parse

POLL_SECONDS = 0.2
NOTE_DESCENDANTS_EVERY_SECONDS = 1.0
WORKER_MODULE = "graphmill.worker"
DATABASE_PATIENCE_SECONDS = 60.0
"""Seconds that the end of a step waits for the instance's database to accept the last figures."""
_ERROR_LINE = re.compile(r"(\[rank\d+\]: *)?[\w.]+(Error|Exception|Interrupt)\b")
# The worker's error for too little memory. Like a stop, it may be temporary; all other errors would occur again.
MEMORY_ERROR = OutOfMemoryError.__name__


@dataclass
class WorkerReport:
    """The worker's latest message of each kind, as plain dictionaries (empty: never sent)."""

    started: Message = field(default_factory=dict)
    progress: Message = field(default_factory=dict)
    result: Message = field(default_factory=dict)
    error: Message = field(default_factory=dict)

    def take(self, message: Message) -> None:
        """Store ``message`` by its kind. Unknown kinds are ignored."""
        if (kind := message.get("kind")) in ("started", "progress", "result", "error"):
            setattr(self, kind, message)


def worker_command(processes: int = 1) -> list[str]:
    """The command that starts the worker. For several processes, the worker supervises torchrun."""
    several = ["--processes", str(processes)] if processes > 1 else []
    return [sys.executable, "-m", WORKER_MODULE, *several]


class WorkerClient(dg.ConfigurableResource[Any]):
    """Starts the worker, shows its figures live, and ends it with all its children if the run is cancelled."""

    observe_seconds: float = Field(
        default=5.0, description="Shortest time between two observations on the asset, in seconds."
    )
    grace_seconds: float = Field(
        default=60.0,
        description="Time that a cancelled worker has to save its checkpoint, in seconds; after it the worker is killed.",
    )
    max_retries: int = Field(
        default=2,
        description="How often the step is repeated after a kill, a stop or a lack of memory; it resumes each time.",
    )
    retry_wait_seconds: float = Field(default=5.0, description="Pause before such a repetition, in seconds.")
    launcher: dict[str, Any] = Field(
        default_factory=dict,
        description="Where trainings run unless their model says otherwise: kind (local, ray, k8s) and "
        "what it needs; empty: on this machine.",
    )

    def place(self, of_model: LauncherSettings | None) -> LauncherSettings:
        """The launcher of a training: that of its model, else that of this resource, else the local one."""
        return of_model or parse(LauncherSettings, self.launcher, "the resource worker, launcher")

    def run(
        self,
        context: dg.AssetExecutionContext,
        *,
        extras: Mapping[str, Any],
        asset_key: dg.AssetKey,
        cwd: str,
        processes: int = 1,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        launcher: LauncherSettings | None = None,
    ) -> WorkerReport:
        """Run one job in the worker and return what it reported.

        ``extras``: the job, as JSON. ``cwd``: the folder for its relative paths. ``asset_key``: the asset of the
        observations. ``launcher``: where it runs; by default here. Raises ``Failure`` without retries for errors that
        would occur again (exit codes 1 and 2). Raises ``RetryRequested`` for errors that may not (a signal, exit code
        75, too little memory), as long as attempts are left.
        """
        launcher = launcher or LauncherSettings()
        report = WorkerReport()
        _require_not_cancelled(context, report)  # in a run of several steps, a cancelled one ended before
        observe = _Observer(context, asset_key, self.observe_seconds)
        with contextlib.ExitStack() as stack:
            # Another machine can see the project's folder, but not this machine's temporary files.
            messages = _shared_messages(cwd, launcher.root) if launcher.elsewhere else MessageFile()
            with warnings.catch_warnings():
                # Dagster warns here about its own preview and deprecated features, at every step; a user cannot change
                # this.
                warnings.simplefilter("ignore", dg.PreviewWarning)
                warnings.simplefilter("ignore", DeprecationWarning)
                injector = dg.PipesEnvContextInjector() if launcher.elsewhere else dg.PipesTempFileContextInjector()
                session = stack.enter_context(dg.open_pipes_session(context, injector, messages, extras=dict(extras)))
            inbox = _Inbox(session, (report.take, observe))
            ours = {} if launcher.elsewhere else os.environ
            job = WorkerCommand(
                command=command or worker_command(processes),
                environment={
                    **{key: value for key, value in _WORKER_DEFAULTS.items() if key not in ours},
                    **(environment or {}),
                    **session.get_bootstrap_env_vars(),
                },
                cwd=(launcher.root or cwd) if launcher.elsewhere else cwd,
                messages=messages.seen_as,
                processes=processes,
                name="-".join(("graphmill", *asset_key.path)),
            )
            with user_errors():
                tree = start(launcher, job)
            try:
                code = _watch(tree, inbox, context.log.warning, worker_above(context.instance, context.run.run_id))
            except BaseException as interrupt:
                # Not only for a cancellation: any exception here must end the worker.
                context.log.info(
                    f"stopping the worker ({type(interrupt).__name__}): {self.grace_seconds:g} s to save a checkpoint"
                )
                tree.stop(self.grace_seconds)
                inbox.read()
                _require_not_cancelled(context, report)  # an interrupt would be shown as a stack trace
                raise
            tree.kill()  # processes that the worker may have left
        inbox.read()  # the session ends when the last messages have arrived
        observe.last()
        self._judge(context, code, report, tree.stderr_tail())
        return report

    def _judge(self, context: dg.AssetExecutionContext, code: int, report: WorkerReport, stderr: str) -> None:
        """Return if the worker succeeded; otherwise raise the failure or retry for Dagster."""
        if code == EXIT_OK and report.result:
            return
        cause, may_pass = explain(code, report, stderr)
        if report.progress:
            cause += f", in epoch {report.progress.get('epoch', '?')} at step {report.progress.get('step', '?')}"
        metadata: dict[str, Any] = {"exit_code": code, "cause": cause}
        if run_dir := report.started.get("run_dir"):
            metadata["run_dir"] = dg.MetadataValue.path(str(run_dir))
        if stderr:
            metadata["stderr"] = dg.MetadataValue.md(f"```\n{stderr}\n```")
        if may_pass and context.retry_number < self.max_retries:
            failure = dg.Failure(f"{cause}; the next attempt resumes from the last checkpoint", metadata=metadata)
            context.log.warning(f"{cause}; attempt {context.retry_number + 2} of {self.max_retries + 1} will resume")
            raise dg.RetryRequested(self.max_retries, self.retry_wait_seconds) from failure
        attempts = f" ({context.retry_number + 1} attempts)" if may_pass else ""
        raise dg.Failure(f"{cause}{attempts}", metadata=metadata, allow_retries=False)


def _require_not_cancelled(context: dg.AssetExecutionContext, report: WorkerReport) -> None:
    """Raise the failure that says so if somebody has cancelled the run."""
    run = context.instance.get_run_by_id(context.run.run_id)
    if run is not None and run.status == dg.DagsterRunStatus.CANCELING:
        at = f" in epoch {report.progress['epoch']}" if report.progress.get("epoch") is not None else ""
        saved = "; what was done is saved, and materializing again goes on from there" if report.started else ""
        raise dg.Failure(f"Cancelled{at}{saved}.", allow_retries=False) from None


def explain(code: int, report: WorkerReport, stderr: str = "") -> tuple[str, bool]:
    """One sentence on why the worker ended with ``code``, and whether another attempt may succeed."""
    if report.error and code > 0:
        name, message = report.error.get("type", "error"), report.error.get("message", "")
        # A worker that lost a peer reports it, but the code may be that of the killed peer.
        stopped = EXIT_STOPPED in (code, report.error.get("exit_code"))
        return f"{name}: {message}", stopped or name == MEMORY_ERROR
    if code == UNSEEN:
        return stderr.strip().rpartition("\n")[2].removeprefix("graphmill: "), False
    if code == EXIT_STOPPED:
        return "the worker was told to stop and saved a checkpoint", True
    if code < 0 or code > 128:
        number = -code if code < 0 else code - 128
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        hint = "; most often the machine was out of memory" if number == signal.SIGKILL else ""
        return f"the worker was killed ({name}{hint})", True
    if code == EXIT_OK:
        return "the worker ended without a result", False
    return f"the worker ended with exit code {code}: {_last_words(stderr)}", False


def _last_words(stderr: str) -> str:
    """The last line with an error of the worker itself, else the last line that is not blank."""
    lines = [line.strip() for line in stderr.splitlines() if any(character.isalnum() for character in line)]
    # torchrun ends with a long text on its failed child, which does not contain the reason.
    named = [line for line in lines if _ERROR_LINE.match(line) and not line.startswith("torch.distributed.")]
    return ((named or lines)[-1] if lines else "it wrote nothing to stderr")[:200]


# torch reads these when it is imported, so they must be set before. The user's own environment has priority.
_WORKER_DEFAULTS = {
    "PYTHONUNBUFFERED": "1",
    "PYTORCH_ENABLE_MPS_FALLBACK": "1",
}


def _shared_messages(cwd: str, root: str) -> MessageFile:
    """A message file below the project's outputs, which are on storage shared with the worker's machine."""

    def seen(path: Path) -> str:
        return str(PurePosixPath(root) / path.relative_to(cwd).as_posix()) if root else str(path)

    return MessageFile(Path(cwd) / OUTPUTS / ".messages", seen)


class _Inbox:
    """Passes on each custom message of a Pipes session once."""

    def __init__(self, session: dg.PipesSession, receivers: Sequence[Callable[[Message], None]]) -> None:
        self._session, self._receivers, self._seen = session, receivers, 0

    def read(self) -> None:
        """Pass on the messages since the last call."""
        messages = self._session.get_custom_messages()
        for message in messages[self._seen :]:
            for receive in self._receivers:
                receive(message)
        self._seen = len(messages)


def _watch(tree: Worker, inbox: _Inbox, say: Callable[[str], None], above: int = 0) -> int:
    """Wait for the worker to end, and pass on its messages; returns the exit code. A reason for waiting is reported once.

    ``above``: the run's process, if this step has its own process. If it no longer exists, the run has ended, and the
    training would run at the same time as the next one.
    """
    noted, said = time.monotonic(), ""
    while (code := tree.poll()) is None:
        inbox.read()
        if above and os.getppid() != above:
            raise dg.Failure(f"the process {above} of the run is gone, so its step ends as well", allow_retries=False)
        if time.monotonic() - noted >= NOTE_DESCENDANTS_EVERY_SECONDS:
            tree.note_descendants()
            if (waits := tree.waits_for()) and waits != said:
                say(waits)
                said = waits
            noted = time.monotonic()
        time.sleep(POLL_SECONDS)
    return code


class _Observer:
    """Turns progress messages into observations of the asset, at a limited rate, so that the event log stays small.

    If the database is unavailable for a while, the training continues. What could not be written is written later; of
    progress messages, only the newest.
    """

    def __init__(self, context: dg.AssetExecutionContext, asset_key: dg.AssetKey, every_seconds: float) -> None:
        self._context, self._asset_key, self._every = context, asset_key, every_seconds
        self._next = 0.0
        self._started: list[Message] = []
        self._progress: Message = {}

    def __call__(self, message: Message) -> None:
        kind = message.get("kind")
        if kind == "started":
            self._started.append(message)
            self._next = 0.0
        elif kind == "progress":
            self._progress = message
        if (self._started or self._progress) and time.monotonic() >= self._next:
            self._show()

    def last(self) -> None:
        """Show the last message if it has not been shown because of the rate limit."""
        until = time.monotonic() + DATABASE_PATIENCE_SECONDS
        while (self._started or self._progress) and not self._show() and time.monotonic() < until:
            time.sleep(1.0)

    def _show(self) -> bool:
        try:
            while self._started:
                self._write(started_line(self._started[0]), started_metadata(self._started[0]))
                self._started.pop(0)
            if self._progress:
                self._next = time.monotonic() + self._every
                self._write(epoch_line(self._progress), progress_metadata(self._progress))
                self._progress = {}
        except SQLAlchemyError:
            self._next = time.monotonic() + self._every
            return False
        return True

    def _write(self, line: str, metadata: Mapping[str, Any]) -> None:
        self._context.log_event(dg.AssetObservation(asset_key=self._asset_key, metadata=metadata))
        self._context.log.info(line)
