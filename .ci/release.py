#!/usr/bin/env python3
"""``make release``: sdist and wheel, checked as a user would meet them, and the notes of the version.

The version is that of pyproject.toml. Needs no package of the project itself, and uploads nothing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST, WORK = ROOT / "dist", ROOT / "build" / "release"
TITLE = re.compile(r"^## \[(?P<version>[^\]]+)\](?: - (?P<date>.*))?$", re.MULTILINE)


class ReleaseError(Exception):
    """Why there is no release, in a sentence."""


def version_of(pyproject: str) -> str:
    """The version in the text of a pyproject.toml."""
    return str(tomllib.loads(pyproject)["project"]["version"])


def notes_of(changelog: str, version: str) -> str:
    """What the changelog says of a version. Raises :class:`ReleaseError` where it is missing, empty or has no date."""
    titles = list(TITLE.finditer(changelog))
    for title, following in zip(titles, [*titles[1:], None], strict=True):
        if title["version"] != version:
            continue
        if not re.fullmatch(r"\d{4}-\d\d-\d\d", title["date"] or ""):
            raise ReleaseError(f"CHANGELOG.md dates {version} '{title['date']}': write the day, such as 2026-11-26")
        text = changelog[title.end() : following.start() if following else len(changelog)].strip()
        if not text:
            raise ReleaseError(f"CHANGELOG.md says nothing of {version}")
        return text + "\n"
    raise ReleaseError(f"CHANGELOG.md has no section ## [{version}]")


def require_tag(tag: str, version: str) -> None:
    """Raise :class:`ReleaseError` where a tag is of another version."""
    if tag and tag != f"v{version}":
        raise ReleaseError(f"the tag {tag} is not v{version}, the version in pyproject.toml")


def build() -> Path:
    """Both distributions into ``dist/``, checked by twine; returns the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    _run(sys.executable, "-m", "build", "--outdir", str(DIST), str(ROOT))
    files = sorted(str(path) for path in DIST.iterdir())
    _run(sys.executable, "-m", "twine", "check", "--strict", *files)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def try_out(wheel: Path) -> None:
    """Install the wheel with all that it needs into an empty environment, and make a project there that loads."""
    with tempfile.TemporaryDirectory(prefix="graphmill-release-") as outside:  # this checkout is a project itself
        folder = Path(outside)
        _run(sys.executable, "-m", "venv", str(folder / "env"))
        programs = folder / "env" / "bin"
        _run(str(programs / "python"), "-m", "pip", "install", "-q", str(wheel))
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
        environment["PATH"] = f"{programs}:{environment['PATH']}"
        for command, place in (
            (["graphmill", "--version"], folder),
            (["graphmill", "init", "project", "--sample", "kg_bench"], folder),
            (["dg", "check", "defs", "--use-active-venv"], folder / "project"),
        ):
            _run(*command, cwd=place, env=environment)


def _run(*command: str, **options: object) -> None:
    print("$", " ".join(command), flush=True)
    process = subprocess.run(command, check=False, **options)  # type: ignore[call-overload]
    if process.returncode:
        raise ReleaseError(f"{command[0]} ended with {process.returncode}")


def main() -> int:
    """Make the release; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tag", default="", help="the tag that is released, such as v0.2.0; it must be the version's")
    options = parser.parse_args()
    try:
        version = version_of((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
        require_tag(options.tag, version)
        notes = notes_of((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), version)
        wheel = build()
        try_out(wheel)
        WORK.mkdir(parents=True, exist_ok=True)
        (WORK / "notes.md").write_text(notes, encoding="utf-8")
    except ReleaseError as error:
        print(f"no release: {error}", file=sys.stderr)
        return 1
    print(f"graphmill {version} is ready: {DIST}, notes in {WORK / 'notes.md'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
