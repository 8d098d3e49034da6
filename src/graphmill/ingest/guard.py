"""Wraps each reader, so that any error of a library on a damaged file becomes one sentence about the file."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from graphmill.errors import GraphmillError, InputError, ResourceError, one_line
from graphmill.ingest.files import path_text

P = ParamSpec("P")
R = TypeVar("R")


def guarded(read: Callable[P, R]) -> Callable[P, R]:
    """Wrap ``read``, whose first argument is the path: errors of libraries become :class:`InputError`.

    The exception keeps its cause, for debugging the reader.
    """

    @wraps(read)
    def inside(*args: P.args, **kwargs: P.kwargs) -> R:
        file = path_text(str(args[0])) if args else "the source"
        try:
            return read(*args, **kwargs)
        except GraphmillError:
            raise
        except MemoryError as error:
            raise InputError(f"{file} cannot be read: it asks for more memory than there is; is it whole?") from error
        except Exception as error:
            if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                raise ResourceError(
                    f"{file} cannot be read: {tempfile.gettempdir()} has no room for its temporary files; set TMPDIR "
                    "to a folder with more"
                ) from error
            raise InputError(f"{file} cannot be read ({one_line(error)}); is it whole, and of this format?") from error

    return inside
