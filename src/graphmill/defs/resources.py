"""What all components share: the device, the launcher of the worker, and where tables are kept."""

import dagster as dg

from graphmill.orchestration.home import OUTPUTS
from graphmill.orchestration.io_managers import ArtifactStore
from graphmill.orchestration.pipes import WorkerClient
from graphmill.orchestration.resources import AcceleratorResource


@dg.definitions
def resources(context: dg.ComponentLoadContext) -> dg.Definitions:
    """The resources under the keys that the components ask for."""
    return dg.Definitions(
        resources={
            "accelerator": AcceleratorResource(),
            "worker": WorkerClient(),
            "io_manager": ArtifactStore(base_path=str(context.project_root / OUTPUTS)),
        }
    )
