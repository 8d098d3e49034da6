"""The errors that a user can get, each with the exit code of the command line.

A message says what is wrong, where, and what to do. It must be clear without a traceback; a bug raises another
exception.
"""

import re
from collections.abc import Iterable
from importlib.util import find_spec

EXIT_OK = 0
EXIT_CHECK_FAILED = 1
EXIT_USER_ERROR = 2
EXIT_STOPPED = 75  # EX_TEMPFAIL: stopped with a checkpoint saved; run the same command again to continue


class GraphmillError(Exception):
    """Base of all errors that are addressed to the user; ``exit_code`` is what the command line returns.

    A value of 400 characters or more without a blank, or in quotation marks, is cut: a cell may hold megabytes.
    """

    exit_code = EXIT_USER_ERROR

    def __init__(self, *message: object) -> None:
        super().__init__(*(_LONG.sub(_cut, each) if isinstance(each, str) else each for each in message))


_LONG = re.compile(r"\S{400,}|'[^'\n]{400,}'")


def _cut(value: re.Match[str]) -> str:
    return f"{value[0][:120]}… ({len(value[0]):,} characters)"


class InputError(GraphmillError):
    """A file or table cannot be used: names the file, the line or column, and the remedy."""


class SettingsError(GraphmillError):
    """A setting is unknown, out of bounds, or cannot be honoured by the system or on this machine."""


class ResourceError(GraphmillError):
    """The machine cannot do the run: memory, disk space, a missing device. The message has the numbers and the setting
    to change."""


class OutOfMemoryError(ResourceError):
    """Memory ran out, even with the smallest configuration. There may be more memory later, so Dagster repeats the step."""


class TrainingError(GraphmillError):
    """The training failed in a way that a repetition would not fix (a non-finite loss, too many skipped steps)."""


class CheckFailedError(GraphmillError):
    """A quality check failed; nothing is broken, but the result should not be used as it is."""

    exit_code = EXIT_CHECK_FAILED


class StoppedError(GraphmillError):
    """The run was asked to stop (a signal) and has saved a checkpoint: the same command continues it."""

    exit_code = EXIT_STOPPED


class RunLockedError(GraphmillError):
    """Another process is writing the run directory."""


def one_line(error: BaseException) -> str:
    """The message of a library's error as one short line."""
    text = " ".join(str(error).split())[:160]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def listed(names: Iterable[str], none: str = "none") -> str:
    """Column names for a message, whatever is in a file's header: the first thirty, each short and without line ends."""
    short = [" ".join(name.split()) for name in names]
    displayed = [name if len(name) <= 60 else f"{name[:60]}…" for name in short[:30]]
    more = f" and {len(short) - 30:,} more" if len(short) > 30 else ""
    return ", ".join(displayed) + more if displayed else none


def require(what: str, package: str, extra: str) -> None:
    """Raises :class:`SettingsError` if the package of an extra is not installed here. ``what``: what needs it."""
    if find_spec(package) is None:
        raise SettingsError(f'{what} needs the package {package} here: pip install "graphmill[{extra}]"')
