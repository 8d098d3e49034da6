"""The page of commands is what the command line says."""

from tests.conftest import page_writer


def test_the_page_is_current() -> None:
    page = page_writer("commands")
    assert page.PAGE.read_text(encoding="utf-8") == page.commands_markdown(), "make pages"
