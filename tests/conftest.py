"""Fixtures that every test may use."""

import gc
import importlib.util
import os
import signal
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import settings

# Before torch is imported: threads that wait by spinning starve the processes that these tests start.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# One thread for each training, so that figures do not depend on the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell's background job ignores Ctrl-C and hands that on to every process that these tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test run judges the change at hand: its examples are the same each time. `HYPOTHESIS_PROFILE=explore` looks for new ones.
settings.register_profile("same", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's root."""
    return ROOT


def page_writer(name: str) -> ModuleType:
    """``.ci/NAME_page.py``, which writes a page of the documentation (``make pages``)."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def datasets() -> Path:
    """The public data sets: ``$GRAPHMILL_DATASETS``, or ``../shared/datasets`` beside the checkout."""
    path = Path(os.environ.get("GRAPHMILL_DATASETS", ROOT.parent / "shared" / "datasets"))
    if not path.is_dir():
        missing = f"the public data sets are not at {path}; set GRAPHMILL_DATASETS to run the real_data tests"
        pytest.skip(missing)  # third-party data, which the repository may not hold
    return path


@pytest.fixture(autouse=True)
def _no_service(monkeypatch: pytest.MonkeyPatch) -> None:
    """A demo or a UI that another test ran in this process says where its pictures are; pages of this test have none."""
    monkeypatch.delenv("GRAPHMILL_SERVICE", raising=False)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A long test may take longer than another one: half an hour, unless it names its own limit."""
    for item in items:
        if item.get_closest_marker("long") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1800))


def pytest_collection_finish() -> None:
    """All that is loaded by now stays to the end. A training that collects garbage need not go through it each time."""
    gc.collect()
    gc.freeze()
