"""Systems without vectors from their data to a served version and back, with the worker's own modes."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient
from typer.testing import CliRunner

from graphmill.cli import app
from graphmill.components import EmbeddingModel
from graphmill.components.promoted_asset import failed_checks, gating_checks
from graphmill.errors import InputError, SettingsError
from graphmill.promotion.promote import promote_run, roll_back
from graphmill.promotion.versions import Versions
from graphmill.serving.application import application
from graphmill.usage.exported import Run
from tests.components.conftest import (
    INTERACTIONS,
    PER_TYPE,
    TYPES,
    Project,
    WorkerHere,
    checks,
    failure,
    write_interactions,
)

EVALUATION = {"ease": {"top_k": [5], "selection_metric": "recall@5", "baselines": ["popularity"]}, "knn": {}}
MODEL = {
    "ease": [{"regularisation": 5.0}, {"regularisation": 5000.0}],
    "knn": [{"shrinkage": 1.0}, {"shrinkage": 30.0}],
}


class Chain:
    """The assets of one model on its data set."""

    def __init__(self, project: Project, system: str) -> None:
        self.project, self.system = project, system
        write_interactions(project.root / "data" / "views.tsv")
        sources = {"sources": [INTERACTIONS]} if system == "ease" else {}
        self.dataset = project.dataset(**sources)
        self.versions = Versions(project.root / "data" / "07_promoted" / "toy" / system)

    def run(self, model: dict[str, Any], **promote: Any) -> dg.ExecuteInProcessResult:
        settings = {"evaluation": EVALUATION[self.system], "model": model}
        attributes = {"system": self.system, "settings": settings, "promote": promote}
        if self.system == "knn":
            relation = "_".join(sorted(kind[:4] for kind in TYPES[:2]))
            rows = [f"node 0,{relation},node {PER_TYPE + other},{word}" for other, word in enumerate(("yes", "no"))]
            (self.project.root / "judged.csv").write_text("\n".join(["head,relation,tail,judgement", *rows]) + "\n")
            attributes["links"] = {"k": 3, "csv": False, "judgements": "judged.csv"}
            attributes["ranking"] = {"truth": "judged.csv"}
        return self.project.materialize(self.dataset, self.project.model(**attributes), worker=WorkerHere())

    def page(self, part: str) -> dict[str, Any]:
        return self.project.metadata(f"toy/{self.system}_{part}")

    @property
    def run_dir(self) -> Path:
        return self.project.root / self.project.value(f"toy/{self.system}_scorer")["run_dir"]

    @property
    def client(self) -> TestClient:
        return TestClient(application(self.versions.path.parents[1]), base_url="http://127.0.0.1")


@pytest.mark.parametrize("system", ["ease", "knn"])
def test_a_system_without_vectors_is_promoted_served_and_rolled_back(project: Project, system: str) -> None:
    chain = Chain(project, system)
    gates = gating_checks(EmbeddingModel(dataset="toy", system=system).plan(project.context))
    policy = {"when": "checks_pass", "except_checks": sorted({check.name for check in gates})}
    first, second = MODEL[system]
    result = chain.run(first, **policy)
    assert result.success, failure(result)
    assert {"weights_finite", "ids_aligned", "version_is_whole", "lists_stayed"} <= set(checks(result))
    assert not {"finite", "neighbours_stayed"} & set(checks(result))
    assert checks(result)["weights_finite"].passed
    assert "loss" not in chain.page("model"), "a closed form has none"
    assert project.metadata(f"toy/{system}_ranking")["beside_the_baselines" if system == "ease" else "queries"]
    assert not [name for name in failed_checks(project.instance, gates) if "not evaluated" in name]
    if system == "knn":
        assert "AUC" in chain.page("ranking")["truth"]
        assert "training links of the target" in chain.page("ranking")["by_part"]
        assert "judged" in pq.read_schema(chain.run_dir / "links" / "links.parquet").names
    one = chain.versions.current()
    assert one is not None
    assert {"weights.safetensors", "nodes.parquet", "relations.parquet", "lists.parquet", "card.md"} <= set(
        one.about["files"]
    )
    card = (one.path / "card.md").read_text()
    assert "Health" not in card
    assert "there are no vectors" in card

    answers = chain.client
    with answers:
        assert answers.get("/healthz").json() == {"status": "ok", "problems": []}
        at = f"/v1/toy/{system}/current"
        run, about = Run(one.path), answers.get(f"{at}/report").json()["about"]
        assert about["dim"] == 0
        assert [each["model"] for each in answers.get("/v1").json()["models"]] == [system]
        node = run.nodes.ids[0]
        for place in ("vector", "neighbors"):
            refused = answers.get(f"{at}/{place}", params={"id": node, "type": run.type_of(0)})
            assert refused.status_code == 404
            assert "has no vectors: ask /" in refused.json()["error"]
        wanted = "recommendations" if system == "ease" else "links"
        assert about["answers"] == [wanted]
        assert answers.get(f"{at}/search", params={"q": node}).json()["nodes"]
        params: dict[str, Any] = {"id": node, "type": run.type_of(0), "k": 3 if system == "ease" else 6}
        answer = answers.get(f"{at}/{wanted}", params=params).json()[wanted]
        assert len(answer) >= 3
        if system == "knn":
            assert {each["from"] for each in answer} == {"table", "scores"}, "the run scores what the table lacks"

    # Another setting on the same data: compared on the same queries, and its lists with those of the live version.
    result = chain.run(second, **policy)
    assert result.success, failure(result)
    two = chain.versions.current()
    assert two is not None
    assert two.name != one.name
    assert chain.page("promoted")["metric"]
    drift = chain.page("drift")
    assert drift["against"] == one.name
    assert drift["finding"] in ("unchanged", "moved_little", "moved")

    for request in (
        ["drift", str(one.path), str(two.path)],
        ["card", str(one.path), "--json"],
        ["card", str(chain.run_dir)],
    ):
        output = CliRunner().invoke(app, request, catch_exceptions=False)
        assert output.exit_code in (0, 1), output.output  # 1: it drifted
    assert "no vectors" in repr(Run(two.path))

    assert roll_back(chain.versions, by="me")["version"] == one.name
    assert chain.client.get(f"/v1/toy/{system}/current/report").json()["version"] == one.name

    # One changed byte is refused, wherever it is.
    weights = two.path / "weights.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match=r"weights\.safetensors is damaged"):
        roll_back(chain.versions, two.name, by="me")
    assert chain.client.get("/healthz").json()["status"] == "degraded"
    (chain.run_dir / "scorer" / "weights.safetensors").write_bytes(content)
    with pytest.raises(InputError, match="has changed since the export"):
        promote_run(chain.run_dir, Versions(project.root / "elsewhere" / "toy" / system), by="me", person=True)
    with pytest.raises(InputError, match=r"weights\.safetensors is damaged"):
        Run(chain.run_dir)


def test_a_ranking_of_items_refuses_what_is_for_links(project: Project) -> None:
    with pytest.raises(SettingsError, match="ease recommends items: remove it"):
        project.model(system="ease", ranking={"truth": "truth.csv"})


def test_a_place_for_vectors_is_refused_when_the_project_loads(project: Project) -> None:
    with pytest.raises(SettingsError, match="ease has none: remove it"):
        project.model(system="ease", publish="x.csv")
