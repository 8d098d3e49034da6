"""Resources that the Launchpad shows: which device a training runs on.

The worker chooses the device, because only it imports torch. It reports the choice and the reason.
"""

from typing import Any, Literal

import dagster as dg
from pydantic import Field


class AcceleratorResource(dg.ConfigurableResource[Any]):
    """The device for training, export and ranking."""

    device: Literal["auto", "cuda", "mps", "cpu"] = Field(
        default="auto",
        description="auto takes cuda, then mps, then cpu; the choice and its reason are in the metadata.",
    )

    def overrides(self) -> dict[str, object]:
        """The system's settings that this resource sets, by dotted path."""
        return {"acceleration.device": self.device}
