"""The sample chains as they are shipped, from their files to the last asset, through Dagster with the real worker."""

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml
from rich.console import Console

from graphmill.errors import EXIT_OK
from graphmill.orchestration import demo
from graphmill.orchestration.home import dagster_home
from tests.ui.conftest import REPOSITORY

LESS: dict[str, dict[str, Any]] = {
    "training": {"epochs": 3},
}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a chain of the repository in a project of its own, trained for a few epochs only; the instance and the text."""

    def chain(name: str, sample: str, *models: str) -> tuple[dg.DagsterInstance, str]:
        module = f"shortened_{name}"  # of its own: `graphmill` has been imported, and its definitions would be taken
        package = tmp_path / "src" / module
        (package / "defs" / name).mkdir(parents=True)
        (package / "__init__.py").touch()
        project = f'[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "{module}"\n'
        (tmp_path / "pyproject.toml").write_text(project)
        monkeypatch.syspath_prepend(str(tmp_path / "src"))
        (tmp_path / "workspace.yaml").touch()
        shutil.copy(REPOSITORY / "src/graphmill/definitions.py", package)
        shutil.copytree(REPOSITORY / "data/01_raw" / sample, tmp_path / "data/01_raw" / sample)
        documents = list(yaml.safe_load_all((REPOSITORY / f"src/graphmill/defs/{name}/defs.yaml").read_text()))
        kept = documents[:1] + [d for d in documents[1:] if d["attributes"]["system"] in models]
        for document in kept[1:]:
            settings = document["attributes"]["settings"]
            for section, values in LESS.items():
                settings[section] = {**settings.get(section, {}), **values}
        for document in kept[2:]:  # the trained baseline of one model is enough
            evaluation = document["attributes"]["settings"].setdefault("evaluation", {})
            evaluation["baselines"] = ["popularity", "item_knn", "ease"]
        (package / "defs" / name / "defs.yaml").write_text(yaml.safe_dump_all(kept))
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("DAGSTER_HOME", str(tmp_path / "home"))
        home = dagster_home(tmp_path)
        console = Console(file=io.StringIO(), width=200)
        definitions = dg.load_from_defs_folder(path_within_project=package)
        code = demo.run(name, definitions, console)
        output = console.file.getvalue()  # type: ignore[attr-defined]
        assert code == EXIT_OK, output
        return dg.DagsterInstance.from_config(str(home)), output

    return chain


def metadata(instance: dg.DagsterInstance, *key: str) -> dict[str, Any]:
    event = instance.get_latest_materialization_event(dg.AssetKey(key))
    assert event is not None, key
    return {name: value.value for name, value in event.asset_materialization.metadata.items()}


@pytest.mark.slow
def test_triples_become_embeddings_rankings_and_influences(run: Any, tmp_path: Path) -> None:
    instance, output = run("kg_bench", "triples", "conve")
    with instance:
        ranking = metadata(instance, "kg_bench", "conve_ranking")
        assert ranking["queries"] == 2 * 196, "both sides of every test triple"
        assert len(ranking["by_relation"].records) == 2 * 6
        links = metadata(instance, "kg_bench", "conve_links")
        assert links["dagster/row_count"] == sum(row.data["links"] for row in links["by_relation"].records)
        assert "| relation | tail | probability |" in links["links"]
        influence = metadata(instance, "kg_bench", "conve_influence")
        assert (influence["explained_triples"], influence["training_triples"]) == (50, 1493)
        assert re.search(r"\| (drug|gene|disease|condition) \d+ → predicate:\d+ → ", influence["proponents"])
        assert "data:image/png;base64," in metadata(instance, "kg_bench", "conve_model")["loss_curve"]
    assert "kg_bench/conve_influence" in output


@pytest.mark.slow
def test_interactions_become_rankings_and_recommendations(run: Any, tmp_path: Path) -> None:
    instance, _ = run("watch", "watch", "tisasrec")
    with instance:
        ranking = metadata(instance, "watch", "tisasrec_ranking")
        for name in ("popularity", "item-kNN", "a Markov chain"):
            assert name in ranking["beside_the_baselines"]
        result = metadata(instance, "watch", "tisasrec_recommendations")
        assert (result["dagster/row_count"], result["users"]) == (6000, 300)
        assert result["examples"].count("\n") == 2 + 8 - 1
    run_dir = json.loads((tmp_path / "data/06_models/watch/tisasrec_model.json").read_text())["run_dir"]
    assert (tmp_path / run_dir / "recommendations.parquet").is_file()


@pytest.mark.slow
@pytest.mark.parametrize("models", ["kgat dragon", pytest.param("mmgcn", marks=pytest.mark.long)])
def test_listeners_tracks_and_facts_become_recommenders(run: Any, tmp_path: Path, models: str) -> None:
    instance, output = run("music", "music", *models.split())
    with instance:
        for model in models.split():
            ranking = metadata(instance, "music", f"{model}_ranking")
            trained = ["matrix factorisation"] if model == models.split()[0] else []
            for name in ("popularity", "item-kNN", "EASE", *trained):
                assert name in ranking["beside_the_baselines"], (model, name)
            result = metadata(instance, "music", f"{model}_recommendations")
            assert result["dagster/row_count"] == 20 * result["users"]
            assert metadata(instance, "music", f"{model}_embeddings")["dagster/row_count"] > result["users"]
            assert f"music/{model}_recommendations" in output
