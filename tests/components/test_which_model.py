"""The asset ``<dataset>/which_model``: its job, and the page of what the worker chose."""

import json

import dagster as dg
import pytest

from graphmill.components import EmbeddingModel, WhichModel
from graphmill.errors import SettingsError
from graphmill.usage.choice_names import FILE
from graphmill.usage.choose import Candidate, Choice
from tests.components.conftest import FakeWorker, Project, checks

RUNS = "data/06_models/toy/auto"


def which_model(project: Project, budget: str = "90s") -> dg.Definitions:
    return WhichModel(dataset="toy", budget=budget).build_defs(project.context)


def test_the_page_names_the_system_and_has_a_row_for_each(project: Project) -> None:
    finished = Candidate("knn", "finished", "", 0.3, 0.2, 0.4, (0.0, 0.0), 1.0, 10, 20, ("links",), f"{RUNS}/abc")
    others = (finished, Candidate("conve", "no time", "takes 3 min or more"))
    choice = Choice("knn", finished.run, "Use knn: it alone has finished.", "mrr", 12, others, {"mrr": 0.25}, RUNS)
    folder = project.root / RUNS
    folder.mkdir(parents=True)
    (folder / FILE).write_text(json.dumps(choice.to_json()))
    replies = {"choose": {"result": {"kind": "result", "system": "knn", "run_dir": finished.run, "folder": RUNS}}}
    worker = FakeWorker(replies=replies)
    result = project.materialize(project.dataset(), which_model(project), worker=worker)
    assert result.success
    page = project.metadata("toy/which_model")
    assert "Use knn" in page["summary"]
    assert (page["system"], page["valid_mrr"], page["test_mrr"]) == ("knn", 0.3, 0.25)
    assert [row.data["system"] for row in page["systems"].records] == ["knn", "conve"]
    decided = checks(result)["queries_decide"]
    assert not decided.passed
    assert decided.severity is dg.AssetCheckSeverity.WARN


def test_no_job_of_the_chain_takes_it_along(project: Project) -> None:
    resources = dg.Definitions(resources={"accelerator": None, "worker": None})
    merged = dg.Definitions.merge(project.dataset(), dg.Definitions(assets=which_model(project).assets), resources)
    job = merged.resolve_job_def("toy_refresh")
    assert dg.AssetKey(["toy", "which_model"]) not in job.asset_layer.executable_asset_keys


def test_mistakes_are_one_sentence(project: Project) -> None:
    with pytest.raises(SettingsError, match="budget"):
        which_model(project, "soon")
    for name in ("auto", "which"):
        with pytest.raises(SettingsError, match="which_model"):
            EmbeddingModel(dataset="toy", system="hgt", name=name).build_defs(project.context)
