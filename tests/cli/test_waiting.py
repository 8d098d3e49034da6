"""Every command that takes its time says so on stderr, and leaves its result on stdout alone."""

import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner

from graphmill.cli import app, waiting
from graphmill.ingest import samples


@pytest.fixture
def printed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a line is printed, which is due at once."""
    event = threading.Event()

    def tell(*words: object, **options: object) -> None:
        print(*words, **options)  # type: ignore[call-overload]
        event.set()

    monkeypatch.setattr(waiting, "_REPORTED_AT", (0,))
    monkeypatch.setattr(waiting, "print", tell, raising=False)
    return event


def test_a_command_that_takes_long_says_so(monkeypatch: pytest.MonkeyPatch, printed: threading.Event) -> None:
    def slow(chain: str, out: Path) -> str:
        assert printed.wait(60)
        return f"{chain} is in {out}"

    monkeypatch.setattr(samples, "write_sample", slow)
    process = CliRunner().invoke(app, ["sample", "biomed", "kg.csv"])
    assert process.stdout == "biomed is in kg.csv\n"
    assert process.stderr.startswith("graphmill sample: 0 s")
    assert process.stderr.count("\n") == 1


def test_nothing_is_said_while_a_person_answers(printed: threading.Event, capsys: pytest.CaptureFixture[str]) -> None:
    with waiting.question(), waiting.progress("graphmill init"):
        pass
    assert capsys.readouterr().err == ""
