"""The component type ``graphmill.components.GraphDataset``: builds a typed graph from files, configured by a few lines
of YAML."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import dagster as dg
from pydantic import Field

from graphmill.components.fields import Watch, as_settings, resolved, section
from graphmill.components.graph_asset import graph_asset
from graphmill.components.names import is_first_dataset, require_unique_names
from graphmill.components.plan import DatasetPlan
from graphmill.components.raw_asset import raw_asset
from graphmill.components.table_assets import table_assets
from graphmill.errors import SettingsError
from graphmill.graph.settings import GraphSettings
from graphmill.ingest.id_columns import read_aliases
from graphmill.ingest.snapshots import PLACE, SnapshotSettings, require_places, snapshot_names
from graphmill.ingest.sources import checked_name, graph_settings, located, parse_attributes, parse_sources
from graphmill.orchestration.automation import evaluate, evaluate_snapshots, file_sensor
from graphmill.orchestration.defaults import shared_resources
from graphmill.orchestration.lost_runs import lost_runs


def _parsed_by(parse: Callable[..., Any]) -> Callable[[dg.ResolutionContext, Any], Any]:
    def resolve(context: dg.ResolutionContext, value: Any) -> Any:
        parse(content := resolved(context, value), root=Path())  # here, so that an error is shown with its line
        return content

    return resolve


class GraphDataset(dg.Component, dg.Model, dg.Resolvable):
    """A dataset: its files, the settings of its typed graph, and a sensor that may watch the files."""

    name: str = Field(description="Name of the dataset; the first part of its asset keys.")
    sources: Annotated[
        Any,
        dg.Resolver(
            _parsed_by(parse_sources),
            model_field_type=list[dict[str, Any]],
            description="Files: name, format, path (local or fsspec URL) and the settings of the format.",
        ),
    ]
    attributes: Annotated[
        Any,
        dg.Resolver(
            _parsed_by(parse_attributes),
            model_field_type=dict[str, Any],
            description="Attributes of nodes: node type → file, id, and each attribute's kind: "
            "text, category, number, date or list.",
        ),
    ] = Field(default_factory=dict)
    graph: Annotated[Any, section(GraphSettings, "graph")] = Field(default_factory=GraphSettings)
    rejected_share_max: float = Field(
        0.01, description="Share of the rows that may be unusable (0 to 1). If more are, the chain stops."
    )
    aliases: str = Field(
        "",
        description="Table with the columns old_id and id (local or fsspec URL): ids that are replaced in all sources.",
    )
    repair_ids: list[str] = Field(
        default_factory=list,
        description="Repairs of the ids of all sources, after aliases: `prefix MONDO:` takes this beginning off; `case`, "
        "`unicode` and `invisible` (characters) do not count.",
    )
    ids_match_min: float = Field(
        0.5,
        description="Share of the ids of the smaller of two sources that must be in the other (0 to 1). If fewer are, the "
        "chain stops.",
    )
    partitions: Annotated[Any, section(SnapshotSettings, "partitions")] = Field(
        None, description="For a dataset of snapshots, whose paths have `{partition}`: mode and keep."
    )
    watch: Watch = Field(default_factory=Watch, description="A sensor that watches the files.")
    owners: list[str] = Field(default_factory=list, description='People ("a@b.org") or teams ("team:ml").')

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Make the assets from the files to the graph, two jobs, and the sensor if there is one."""
        require_unique_names(context)
        name, root = checked_name(self.name, "dataset name"), context.project_root
        sources = parse_sources(self.sources, root, self.attributes)
        if not 0 <= self.rejected_share_max <= 1:
            raise SettingsError(f"rejected_share_max = {self.rejected_share_max:g}: must be between 0 and 1")
        if not 0 <= self.ids_match_min <= 1:
            raise SettingsError(f"ids_match_min = {self.ids_match_min:g}: must be between 0 and 1")
        if self.watch.interval_seconds < 5:
            raise SettingsError(f"watch.interval_seconds = {self.watch.interval_seconds}: must be ≥ 5")
        settings = graph_settings(as_settings(GraphSettings, self.graph, "graph"), sources)
        aliases = located(self.aliases, root) if self.aliases else ""
        if PLACE in aliases:
            raise SettingsError(f"aliases: one table is for all snapshots; take {PLACE} out of its path")
        read_aliases("", self.repair_ids)
        given = self.partitions
        snapshots = None if given is None else as_settings(SnapshotSettings, given, "partitions")
        require_places(sources, snapshots)
        plan = DatasetPlan(
            name, sources, self.rejected_share_max, self.ids_match_min, aliases, self.repair_ids, settings, root,
            self.owners, snapshots,
        )  # fmt: skip
        assets = [*(raw_asset(plan, source) for source in sources), table_assets(plan), graph_asset(plan)]
        refresh = dg.define_asset_job(
            f"{name}_refresh",
            dg.AssetSelection.key_prefixes([name]),
            description=f"Runs everything of {name}, from its files to the rankings. Launch it after the files changed.",
        )
        jobs = [
            dg.define_asset_job(
                f"{name}_build_graph",
                dg.AssetSelection.assets(*(key for asset in assets for key in asset.keys)),
                description=f"Reads the files of {name} and builds its graph, without training, to try graph settings.",
            ),
            refresh,
        ]
        sensors = []
        if self.watch.enabled:
            looked_at = [*(source.path for source in sources), *([self.aliases] if self.aliases else [])]
            sensors.append(
                file_sensor(
                    f"{name}_files",
                    refresh,
                    looked_at,
                    lambda cursor: _evaluate(plan, cursor),
                    self.watch.interval_seconds,
                )
            )
        if is_first_dataset(context):
            sensors.append(lost_runs)
        return dg.Definitions(assets=assets, jobs=jobs, sensors=sensors, resources=shared_resources(context))


def _evaluate(plan: DatasetPlan, cursor: str | None) -> dg.SensorResult:
    """One tick of the sensor of the files."""
    if plan.snapshots is None or plan.partitions_def is None:
        return evaluate(cursor, plan.files)
    newest = slice(-plan.snapshots.keep or None, None)
    return evaluate_snapshots(cursor, lambda: snapshot_names(plan.sources)[newest], plan.files, plan.partitions_def)
