"""A stranger's version can be wrong; it can't crash or run anything, in this process or under ``graphmill serve``."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.errors import GraphmillError, InputError
from graphmill.graph.summary import GraphSummary
from graphmill.promotion.versions import Versions
from graphmill.runs.warm_start import read_champion
from graphmill.serving.application import application
from graphmill.usage.exported import Run
from graphmill.verified_files import read_json_file
from tests.serving.strangers import SYSTEMS, seal, stranger, whole_version
from tests.serving.test_server import served

QUESTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("vector", {"id": "DI7"}),
    ("neighbors", {"id": "DI7", "k": 3}),
    ("links", {"name": "drug 5", "k": 3, "paths": 2}),
    ("links", {"name": "Drug 7", "type": "drug", "relation": "indication"}),
    ("links", {"id": "DR1", "k": 3, "known": "true"}),
    ("links", {"id": "GE3", "k": 3}),
    ("recommendations", {"id": "DR3"}),
    ("report", {}),
)
COUNTS = [100, pytest.param(500, marks=pytest.mark.long)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("whole")
    return [whole_version(folder, system) for system in SYSTEMS]


def strangers(whole: list[Path], promoted: Path, count: int) -> Iterator[tuple[str, Path, Path, bool]]:
    """The model, its folder, the version that it was made of, and whether its hashes are right."""
    rng = random.Random(58)
    for number in range(count):
        model, source = f"toy/m{number:03d}", whole[number % len(whole)]
        folder, forged = stranger(source, promoted / model, rng)
        yield model, folder, source, forged


def uses(folder: Path) -> dict[str, Callable[[], Any]]:
    """What is read of a version besides what the service shows."""

    def command(*arguments: str) -> str:
        process = CliRunner().invoke(app, [*arguments, "--folder", str(folder.parents[2])])
        if process.exception is not None and not isinstance(process.exception, SystemExit):
            raise process.exception
        return process.output

    model = f"{folder.parents[1].name}/{folder.parents[0].name}"
    return {
        "score": lambda: Run(folder).score(["DR5", "DR6"], "indication", ["DI7", "DI8"]).tolist(),
        "links": lambda: Run(folder).links("DR5", "indication", 3).to_json(),
        "weights": lambda: {name: t.tolist() for name, t in read_champion(folder).tensors.items()},
        "graph": lambda: GraphSummary.load(folder).degrees.tolist(),
        "card": lambda: command("card", model),
        "versions": lambda: Versions(folder.parent).all()[0].verify(),
    }


@pytest.mark.parametrize("count", COUNTS)
def test_each_use_gives_what_the_whole_version_gives_or_one_sentence(
    count: int, whole: list[Path], tmp_path: Path
) -> None:
    expected = {path: {name: use() for name, use in uses(path).items()} for path in whole}
    refused: list[GraphmillError] = []
    used = 0
    for model, folder, source, forged in strangers(whole, tmp_path, count):
        for name, use in uses(folder).items():
            try:
                result = use()
            except GraphmillError as error:
                refused.append(error)
                continue
            used += 1
            assert forged or name == "card" or result == expected[source][name], f"{name} of {model} changed silently"
    assert len(refused) > count / 3
    assert [str(error) for error in refused if "\n" in str(error) or error.exit_code != 2] == []
    assert used > count


def ask_all(client: httpx.Client, models: list[str]) -> tuple[int, list[str]]:
    """The number of answers with 200, and those that are neither that nor an error of its own kind."""
    good, wrong = 0, []
    for model in models:
        for name, query in QUESTIONS:
            result = client.get(f"/v1/{model}/current/{name}", params=query)
            good += result.status_code == 200
            expected = result.status_code in (200, 400, 404, 409, 503) and (
                result.status_code == 200 or "error" in result.json()
            )
            wrong += [] if expected else [f"{model} {name}: {result.status_code} {result.text[:200]}"]
    return good, wrong


@pytest.mark.parametrize("count", COUNTS)
def test_the_service_survives_them_all_and_names_them(count: int, whole: list[Path], tmp_path: Path) -> None:
    promoted = tmp_path / "data" / "07_promoted"
    made = list(strangers(whole, promoted, count))
    fine = "toy/fine"
    shutil.copytree(whole[0].parent, promoted / fine, symlinks=True)
    with served(promoted) as address, httpx.Client(base_url=address, timeout=30) as client:
        good, wrong = ask_all(client, [model for model, *_ in made])
        health = client.get("/healthz").json()
        assert ask_all(client, [fine]) == (len(QUESTIONS), [])
        listed = client.get("/v1")
        assert listed.status_code == 200, listed.text[:500]
        assert len(listed.json()["models"]) == count + 1
        for model, *_ in made[:20]:
            assert client.get(f"/v1/{model}").status_code in (200, 503)
    assert wrong == []
    assert good > count
    named = {name.rpartition("/")[0] for name in health["problems"]}
    assert {model for model, _, _, forged in made if not forged} <= named


def test_half_a_character_is_a_damage(tmp_path: Path) -> None:
    (tmp_path / "version.json").write_text(r'{"metric": "\ud800"}')
    with pytest.raises(InputError, match="is damaged: it is not JSON"):
        read_json_file(tmp_path / "version.json", "")
    (tmp_path / "version.json").write_text(r'{"metric": "\ud83d\ude00"}')
    assert read_json_file(tmp_path / "version.json", "") == {"metric": "😀"}


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_whole_version_answers_every_question_also_with_new_hashes(system: str, tmp_path: Path) -> None:
    seal(whole_version(tmp_path / "data" / "07_promoted", system))
    with TestClient(application(tmp_path / "data" / "07_promoted"), base_url="http://127.0.0.1") as client:
        for name, query in QUESTIONS:
            result = client.get(f"/v1/whole/{system}/current/{name}", params=query)
            assert result.status_code == 200, (name, result.text)
        assert client.get("/healthz").json() == {"status": "ok", "problems": []}
