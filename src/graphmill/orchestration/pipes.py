"""Runs the worker process from a Dagster step: live figures while it works, no process left when it is cancelled.

Dagster's own subprocess client signals the direct child only and hands custom messages over at the end, so this one
owns the loop. The worker's side of the contract: ``docs/explanation/dagster.md``, "The worker".
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

from graphmill.errors import EXIT_OK, EXIT_STOPPED, GraphmillError, OutOfMemoryError
from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.launchers import start
from graphmill.orchestration.launchers.contract import UNSEEN, Worker, WorkerCommand
from graphmill.orchestration.launchers.settings import LauncherSettings
from graphmill.orchestration.lost_runs import worker_above
from graphmill.orchestration.message_file import MessageFile
from graphmill.orchestration.progress import (
    Message,
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
"""How long the end of a step waits for the instance's database to take the last figures."""
_ERROR_LINE = re.compile(r"(\[rank\d+\]: *)?[\w.]+(Error|Exception|Interrupt)\b")
# The worker's name for "the machine had too little memory this time": like a stop, it may pass; all else would fail again.
MEMORY_ERROR = OutOfMemoryError.__name__


@dataclass
class WorkerReport:
    """What the worker told: the latest message of each kind, as plain dictionaries (empty: never sent)."""

    started: Message = field(default_factory=dict)
    progress: Message = field(default_factory=dict)
    result: Message = field(default_factory=dict)
    error: Message = field(default_factory=dict)

    def take(self, message: Message) -> None:
        """Remember ``message`` by its kind; kinds that this version does not know are ignored."""
        kind = message.get("kind")
        if kind in ("started", "progress", "result", "error"):
            setattr(self, kind, message)


def worker_command(processes: int = 1) -> list[str]:
    """The command that starts the worker; for several processes it supervises torchrun itself."""
    several = ["--processes", str(processes)] if processes > 1 else []
    return [sys.executable, "-m", WORKER_MODULE, *several]


class WorkerClient(dg.ConfigurableResource):
    """Starts the worker, shows its figures live, and ends it with all its children when the run is cancelled."""

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
        description="Where trainings run unless their model says otherwise: kind (local, torchrun, ray, k8s, slurm) and "
        "what it needs; empty: on this machine. See docs/how-to/train_elsewhere.md.",
    )

    def place(self, own: LauncherSettings | None) -> LauncherSettings:
        """Where a training runs: where its model says (``own``), else where this resource says, else here."""
        return own or parse(LauncherSettings, self.launcher, "the resource worker, launcher")

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

        ``extras`` is the job, as JSON; ``cwd`` the directory that its relative paths start from; observations go to
        ``asset_key``; ``launcher`` says where, without it here. Raises ``Failure`` without retries for what would fail
        again (exit codes 1 and 2), and ``RetryRequested`` for what may not (a signal, exit code 75, too little memory) while
        attempts are left.
        """
        launcher = launcher or LauncherSettings()
        report = WorkerReport()
        observe = _Observer(context, asset_key, self.observe_seconds)
        with contextlib.ExitStack() as stack:
            # Another machine sees the project's folder, not our temporary files.
            messages = _shared_messages(cwd, launcher.root) if launcher.elsewhere else MessageFile()
            session = _open_session(stack, context, extras, messages, elsewhere=launcher.elsewhere)
            inbox = _Inbox(session, (report.take, observe))
            ours = {} if launcher.elsewhere else os.environ
            job = WorkerCommand(
                command=command or worker_command(processes if launcher.kind != "ray" else 1),
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
            tree = _start(launcher, job)
            try:
                code = _watch(tree, inbox, context.log.warning, worker_above(context.instance, context.run.run_id))
            except BaseException as interrupt:
                # Not only a cancellation: whatever ends the watching must end the worker.
                context.log.info(
                    f"stopping the worker ({type(interrupt).__name__}): {self.grace_seconds:g} s to save a checkpoint"
                )
                tree.stop(self.grace_seconds)
                raise
            tree.kill()  # what the worker may have left behind
        inbox.read()  # the session's end is when the last messages are there
        observe.last()
        self._judge(context, code, report, tree.stderr_tail())
        return report

    def _judge(self, context: dg.AssetExecutionContext, code: int, report: WorkerReport, stderr: str) -> None:
        """Return if the worker did its job; raise what Dagster should do otherwise."""
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


def explain(code: int, report: WorkerReport, stderr: str = "") -> tuple[str, bool]:
    """One sentence on why the worker ended with ``code``, and whether another attempt may go well."""
    if report.error and code > 0:
        name, message = report.error.get("type", "error"), report.error.get("message", "")
        # Who lost a peer says so, and the code may still be that of the peer, which was killed.
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
    """The last line that names an error of the worker's own, else the last one that says anything."""
    lines = [line.strip() for line in stderr.splitlines() if any(character.isalnum() for character in line)]
    # torchrun ends with a page about the failure of its child, which says nothing of the reason.
    named = [line for line in lines if _ERROR_LINE.match(line) and not line.startswith("torch.distributed.")]
    return ((named or lines)[-1] if lines else "it wrote nothing to stderr")[:200]


# Read when torch is imported, so they have to be there before; what the user's environment says goes first.
_WORKER_DEFAULTS = {
    "PYTHONUNBUFFERED": "1",
    "PYTORCH_ENABLE_MPS_FALLBACK": "1",
}


def _start(launcher: LauncherSettings, job: WorkerCommand) -> Worker:
    try:
        return start(launcher, job)
    except GraphmillError as error:
        raise dg.Failure(str(error), allow_retries=False) from None


def _shared_messages(cwd: str, root: str) -> MessageFile:
    """A file below the project's outputs, which are on storage that the worker's machine shares."""

    def seen(path: Path) -> str:
        return str(PurePosixPath(root) / path.relative_to(cwd).as_posix()) if root else str(path)

    return MessageFile(Path(cwd) / OUTPUTS / ".messages", seen)


def _open_session(
    stack: contextlib.ExitStack,
    context: dg.AssetExecutionContext,
    extras: Mapping[str, Any],
    messages: MessageFile,
    *,
    elsewhere: bool,
) -> dg.PipesSession:
    with warnings.catch_warnings():
        # Dagster warns of its own preview and deprecated parts here, at every step; the user can do nothing about it.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        return stack.enter_context(
            dg.open_pipes_session(
                context=context,
                context_injector=dg.PipesEnvContextInjector() if elsewhere else dg.PipesTempFileContextInjector(),
                message_reader=messages,
                extras=dict(extras),
            )
        )


class _Inbox:
    """Hands each custom message of a Pipes session on once."""

    def __init__(self, session: dg.PipesSession, receivers: Sequence[Callable[[Message], None]]) -> None:
        self._session, self._receivers, self._seen = session, receivers, 0

    def read(self) -> None:
        """Hand on what has come in since the last call."""
        messages = self._session.get_custom_messages()
        for message in messages[self._seen :]:
            for receive in self._receivers:
                receive(message)
        self._seen = len(messages)


def _watch(tree: Worker, inbox: _Inbox, say: Callable[[str], None], above: int = 0) -> int:
    """Wait for the end of the worker, handing on its messages; return the exit code. What it waits for is said once.

    ``above``: the run's process, where this step has one of its own. Without it the run has ended, and the training would go
    on beside the next one.
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
    """Turns progress messages into observations of the asset, not faster than the event log should grow.

    A database that is away for a while ends no training: what could not be written is written later, of progress the newest.
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
        """Show what has not been shown, which may have come too soon after the one before."""
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
