"""What a release is made of: one version, notes from the changelog, workflows that say what they run."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import graphmill

CHANGELOG = """# Changelog

## [0.3.0] - unreleased

### New
- soon

## [0.2.0] - 2026-11-30

### New
- a thing

## [0.1.0] - 2026-01-01
"""


@pytest.fixture(scope="module")
def release(repository: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", repository / ".ci" / "release.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_version_is_in_one_place(release: ModuleType, repository: Path) -> None:
    version = release.version_of((repository / "pyproject.toml").read_text())
    sources = [path.read_text() for path in (repository / "src").rglob("*.py")]
    assert not any(f'"{version}"' in text for text in sources)
    assert graphmill.__version__[0].isdigit()


def test_the_notes_are_the_versions_section(release: ModuleType) -> None:
    assert release.notes_of(CHANGELOG, "0.2.0") == "### New\n- a thing\n"


@pytest.mark.parametrize(
    ("version", "sentence"),
    [("0.3.0", "dates 0.3.0 'unreleased'"), ("0.1.0", "says nothing of 0.1.0"), ("9.9.9", "has no section")],
)
def test_a_version_without_notes_is_no_release(release: ModuleType, version: str, sentence: str) -> None:
    with pytest.raises(release.ReleaseError, match=sentence):
        release.notes_of(CHANGELOG, version)


def test_a_tag_of_another_version_is_no_release(release: ModuleType) -> None:
    release.require_tag("v0.2.0", "0.2.0")
    release.require_tag("", "0.2.0")
    with pytest.raises(release.ReleaseError, match=r"the tag v0\.1\.0 is not v0\.2\.0"):
        release.require_tag("v0.1.0", "0.2.0")


def test_the_changelog_has_the_version_that_is_being_made(release: ModuleType, repository: Path) -> None:
    version = release.version_of((repository / "pyproject.toml").read_text())
    assert f"## [{version}]" in (repository / "CHANGELOG.md").read_text()


def test_the_workflows_run_what_a_person_runs_and_publish_without_a_token(repository: Path) -> None:
    ci, publish = (
        yaml.safe_load((repository / ".github/workflows" / f"{name}.yml").read_text()) for name in ("ci", "release")
    )
    assert any(step.get("run") == ".ci/run" for step in ci["jobs"]["run"]["steps"])
    assert any("make release" in step.get("run", "") for step in publish["jobs"]["build"]["steps"])
    job = publish["jobs"]["publish"]
    assert job["permissions"] == {"id-token": "write"}
    assert job["steps"][-1]["uses"].startswith("pypa/gh-action-pypi-publish@")
    assert publish[True] == {"push": {"tags": ["v*"]}}
