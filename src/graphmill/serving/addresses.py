"""The address of the service, and of the page that it serves on a run or version. It does not import the service."""

from __future__ import annotations

import os
import urllib.request
from pathlib import Path
from urllib.parse import quote

from graphmill.verified_files import VERSION

SERVICE_VARIABLE = "GRAPHMILL_SERVICE"
"""The address of ``graphmill serve``. Empty: where ``make ui`` has it, on the port after the UI's."""
DEFAULT_PORT = 3000
"""Port of the UI."""
_SECONDS = 2.0


def service_address() -> str:
    """The service's address by today's setting."""
    return os.environ.get(SERVICE_VARIABLE, "").rstrip("/") or f"http://127.0.0.1:{DEFAULT_PORT + 1}"


def served_page(folder: Path) -> str:
    """The address of the page on a version's folder, or on a run directory's model, if the service answers; else ""."""
    path = folder.resolve()
    is_version = (path / VERSION).is_file()
    model = [quote(part) for part in path.parts[-3:]]
    address = service_address()
    try:
        with urllib.request.urlopen(f"{address}/v1/{model[0]}/{model[1]}", timeout=_SECONDS) as answer:
            served = answer.status == 200
    except (OSError, ValueError):
        return ""
    if not served:
        return ""
    return f"{address}/#/{'/'.join(model if is_version else model[:2])}"
