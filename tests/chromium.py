"""The browser of the tests marked ``ui``."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

PATH = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"),
    *("--disable-sync", "--no-first-run"),
)
REQUIRED = "CHROMIUM_REQUIRED"
"""Environment variable that ``.ci/run`` sets: without Chromium the tests fail there, and are skipped elsewhere."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """A headless browser, which is closed at the end."""
    if not Path(PATH).exists():
        missing = "no Chromium here; install the package chromium to run the browser tests"
        if os.environ.get(REQUIRED):  # CI
            pytest.fail(missing)
        pytest.skip(missing)  # a developer's machine may lack the package; CI fails above
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=PATH, args=list(FLAGS))
        yield running
        running.close()
