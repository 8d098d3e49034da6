"""Writes a defs.yaml for ``dg scaffold defs graphmill.components.… PATH``; the user only has to correct its path."""

import dagster as dg
from dagster.components.component_scaffolding import scaffold_component
from pydantic import BaseModel, Field


class DatasetParams(BaseModel):
    """Options of the command for a dataset."""

    name: str = Field("my_graph", description="Name of the dataset.")
    path: str = Field("data/01_raw/my_graph.csv", description="The edge CSV, relative to the project or a URL.")


class ModelParams(BaseModel):
    """Options of the command for a model."""

    dataset: str = Field("my_graph", description="Name of the dataset.")
    recipe: str = Field("hgt", description="The system.")


class GraphDatasetScaffolder(dg.Scaffolder[DatasetParams]):
    """Writes a dataset from one edge CSV with PrimeKG's columns."""

    @classmethod
    def get_scaffold_params(cls) -> type[DatasetParams]:
        """The options."""
        return DatasetParams

    def scaffold(self, request: dg.ScaffoldRequest[DatasetParams]) -> None:
        """Write the defs.yaml."""
        params = request.params
        attributes = {
            "name": params.name,
            "sources": [{"name": "edges", "format": "kg_csv", "path": params.path}],
            "graph": {"add_reverse": "missing", "split": {"valid": 0.05, "test": 0.05, "seed": 0}},
            "watch": {"enabled": True, "interval_seconds": 60},
        }
        scaffold_component(request, attributes)


class EmbeddingModelScaffolder(dg.Scaffolder[ModelParams]):
    """Writes a model with the settings that users change most."""

    @classmethod
    def get_scaffold_params(cls) -> type[ModelParams]:
        """The options."""
        return ModelParams

    def scaffold(self, request: dg.ScaffoldRequest[ModelParams]) -> None:
        """Write the defs.yaml."""
        params = request.params
        attributes = {
            "dataset": params.dataset,
            "recipe": params.recipe,
            "settings": {"training": {"seed": 0}},
            "checks": {"severity": "warn"},
            "schedule": {"cron": "0 3 * * 1", "timezone": "UTC"},
            "freshness": {"warn_hours": 170, "fail_hours": 192},
        }
        scaffold_component(request, attributes)
