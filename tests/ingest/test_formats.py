"""A format is one registration: what each must bring, and that the docs and settings page have it."""

from pathlib import Path

import pytest

from graphmill.ingest.format import Candidate
from graphmill.ingest.formats import FORMATS
from graphmill.ingest.public_readers import ingest_report


@pytest.mark.parametrize("name", FORMATS)
def test_each_has_settings_a_reader_and_words_in_the_docs(name: str, repository: Path) -> None:
    format = FORMATS[name]
    assert format.settings.__doc__
    assert (format.read is None) == (format.gives in ("features", "attributes"))
    assert f"`{name}`" in (repository / "docs/reference/ingestion.md").read_text(encoding="utf-8")
    assert f"## Format `{name}`" in (repository / "docs/reference/settings/sources.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FORMATS)
def test_none_claims_what_is_not_there_or_empty(name: str, tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("", encoding="utf-8")
    (tmp_path / "some.csv").write_text("words without any meaning\n", encoding="utf-8")
    for path in (tmp_path / "nothing.csv", tmp_path / "empty.csv", tmp_path / "some.csv"):
        assert FORMATS[name].recognises(Candidate(str(path))) == 0


@pytest.mark.parametrize("name", [name for name, each in FORMATS.items() if each.read or each.examine])
def test_each_reports_in_a_sentence_on_what_is_not_there(name: str, tmp_path: Path) -> None:
    result = ingest_report(tmp_path / "nothing.csv", name)
    assert result.problem
    assert "\n" not in result.problem
