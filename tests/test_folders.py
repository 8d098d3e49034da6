"""The page of folders: as the code is, one sentence a folder, and no circle."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.conftest import page_writer


@pytest.fixture(scope="module")
def folders() -> ModuleType:
    return page_writer("folders")


def test_the_page_and_the_picture_are_current(folders: ModuleType) -> None:
    for path, text in folders.written().items():
        assert path.read_text(encoding="utf-8") == text, "make pages"


@pytest.mark.parametrize("which", ["order", "subfolders"])
def test_no_folder_imports_one_above_it(folders: ModuleType, which: str) -> None:
    names = getattr(folders, which)()
    result = folders.imports(names)
    assert [(a, b) for at, a in enumerate(names) for b in names[:at] if b in result[a]] == []
