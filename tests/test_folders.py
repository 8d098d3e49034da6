"""The page of folders: as the code is, one sentence a folder, and no circle."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def folders(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("folders", repository / ".ci" / "folders.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_and_the_picture_are_current(folders: ModuleType) -> None:
    for path, text in folders.written().items():
        assert path.read_text(encoding="utf-8") == text, "python .ci/folders.py"


def test_no_folder_imports_one_above_it(folders: ModuleType) -> None:
    names = folders.order()
    found = folders.imports(names)
    assert [(a, b) for at, a in enumerate(names) for b in names[:at] if b in found[a]] == []
