"""``docs/reference/commands.md`` from the command line: ``python .ci/commands_page.py``, which ``make pages`` runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import typer

from graphmill.cli import app

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "commands.md"
_HEAD = """# Commands

Written by `make pages`; do not edit. `graphmill COMMAND --help` says the same. Results go to standard output,
`--json` writes them for a program; progress and messages go to standard error. [Exit codes](exit_codes.md).

A `RUN` is a run directory, a version (`data/07_promoted/DATASET/MODEL/current`), or the URL of either.
"""
MANY = 3  # An option of so many commands, word for word the same, is explained once, at the top.


def _value(parameter: Any) -> str:
    """What is written behind an option; nothing behind a flag."""
    if parameter.is_flag:
        return ""
    if choices := getattr(parameter.type, "choices", None):
        return f"={'|'.join(map(str, choices))}"
    kind = parameter.type.name.split()[0]
    return f"={parameter.metavar or {'integer': 'N', 'float': 'X', 'path': 'PATH'}.get(kind, 'TEXT')}"


def _default(parameter: Any) -> str:
    value = parameter.default
    if callable(value) or value in (None, "", False, (), []) or parameter.required:
        return ""
    return f" (default: `{value}`)"


def _line(parameter: Any) -> str:
    """An option with what it takes, its meaning and its default."""
    names = ", ".join(f"`{each}{_value(parameter) if each.startswith('--') else ''}`" for each in parameter.opts)
    return f"- {names}: {' '.join((parameter.help or '').split()).rstrip('.')}{_default(parameter)}."


def _options(command: Any) -> list[Any]:
    return [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]


def _command(name: str, command: Any, several: set[str]) -> list[str]:
    """The section of a command: what it does, its usage, its arguments and the options that only few commands have."""
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    words = [p.name.upper() + ("…" if p.nargs == -1 else "") for p in arguments]
    usage = ["graphmill", name, *(w if p.required else f"[{w}]" for w, p in zip(words, arguments, strict=True))]
    options = _options(command)
    usage += ["[OPTIONS]"] if any(_line(p) not in several for p in options) else []
    usage += [f"[{p.opts[0]}]" for p in options if _line(p) in several]
    lines = [f"## `{name}`", "", f"`{' '.join(usage)}`", "", " ".join((command.help or "").split()), ""]
    rows = [
        f"- `{word}`: {' '.join(p.help.split()).rstrip('.')}."
        for word, p in zip(words, arguments, strict=True)
        if getattr(p, "help", None)
    ]
    rows += [_line(p) for p in options if _line(p) not in several]
    return [*lines, *rows, ""] if rows else lines


def commands_markdown() -> str:
    """The whole page."""
    commands = {name: each for name, each in typer.main.get_command(app).commands.items() if not each.hidden}  # type: ignore[attr-defined]
    uses = Counter(_line(option) for command in commands.values() for option in _options(command))
    several = {line: None for line, count in uses.items() if count >= MANY}
    lines = [_HEAD, "Options of several commands:", "", *several, ""]
    for name, command in commands.items():
        lines += _command(name, command, set(several))
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(commands_markdown(), encoding="utf-8")
