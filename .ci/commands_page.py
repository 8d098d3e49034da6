"""``docs/reference/commands.md`` from the command line: ``python .ci/commands_page.py``, which ``make pages`` runs."""

from __future__ import annotations

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


def _value(parameter: Any) -> str:
    """What is written behind an option, as a word; nothing behind a flag."""
    if parameter.is_flag:
        return ""
    if choices := getattr(parameter.type, "choices", None):
        return f" `{'|'.join(map(str, choices))}`"
    kind = parameter.type.name.split()[0]
    return f" `{parameter.metavar or {'integer': 'N', 'float': 'X', 'path': 'PATH'}.get(kind, 'TEXT')}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _default(parameter: Any) -> str:
    value = parameter.default
    if callable(value) or value in (None, "", False, (), []) or parameter.required:
        return ""
    return f" (default: `{value}`)"


def _command(name: str, command: Any) -> list[str]:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = [p for p in command.params if p.param_type_name == "option" and not getattr(p, "hidden", False)]
    words = [p.name.upper() + ("…" if p.nargs == -1 else "") for p in arguments]
    usage = ["graphmill", name, *(w if p.required else f"[{w}]" for w, p in zip(words, arguments, strict=True))]
    usage += ["[OPTIONS]"] if options else []
    lines = [f"## `{name}`", "", " ".join((command.help or "").split()), "", "```", " ".join(usage), "```", ""]
    rows = [(f"`{word}`", p) for word, p in zip(words, arguments, strict=True) if getattr(p, "help", None)]
    rows += [(", ".join(f"`{each}`" for each in p.opts) + _value(p), p) for p in options]
    if rows:
        lines += ["| | meaning |", "| --- | --- |"]
        lines += [f"| {left} | {_cell(p.help or '')}{_default(p)} |" for left, p in rows]
        lines.append("")
    return lines


def commands_markdown() -> str:
    """The whole page."""
    lines = [_HEAD]
    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        if not command.hidden:
            lines += _command(name, command)
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(commands_markdown(), encoding="utf-8")
