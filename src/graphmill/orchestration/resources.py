"""Resources that the Launchpad shows: which device a training runs on.

The worker chooses the device, because only it imports torch. It reports the choice and the reason.
"""

import os
from typing import Any, Literal

import dagster as dg
from pydantic import Field

from graphmill.errors import SettingsError


class AcceleratorResource(dg.ConfigurableResource[Any]):
    """The device for training, export and ranking."""

    device: Literal["auto", "cuda", "mps", "cpu"] = Field(
        default="auto",
        description="auto takes cuda, then mps, then cpu; the choice and its reason are in the metadata.",
    )
    index: int = Field(default=0, description="Which CUDA device of this machine (≥ 0).")

    def overrides(self) -> dict[str, object]:
        """The system's settings that this resource sets, by dotted path."""
        return {"acceleration.device": self.device}

    def environment(self) -> dict[str, str]:
        """Environment variables that make the device with this index the worker's first device (empty for index 0).

        Raises :class:`SettingsError` for an index that is not in this machine's list of visible devices.
        """
        if self.index < 0:
            raise SettingsError(f"resources.accelerator.index = {self.index}: must be ≥ 0")
        visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
        if not visible:
            return {"CUDA_VISIBLE_DEVICES": str(self.index)} if self.index else {}
        if self.index >= len(visible):
            raise SettingsError(
                f"resources.accelerator.index = {self.index}, but CUDA_VISIBLE_DEVICES names {len(visible)} device(s)"
            )
        return {"CUDA_VISIBLE_DEVICES": visible[self.index]} if self.index else {}
