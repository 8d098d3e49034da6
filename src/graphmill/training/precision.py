"""Mixed precision: the dtype of a run, its autocast region, and the loss scaler that fp16 needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

from graphmill.errors import SettingsError

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}


def resolve_precision(requested: str, device: torch.device) -> str:
    """``auto``: bf16 on CUDA that has it, fp16 on older CUDA, fp32 on CPU and MPS.

    Raises:
        SettingsError: TF32 on a device other than CUDA.
    """
    if requested == "tf32" and device.type != "cuda":
        raise SettingsError(f"acceleration.precision: tf32 exists only on CUDA; {device.type} has fp32 and bf16")
    if requested != "auto":
        return requested
    if device.type != "cuda":
        return "fp32"
    return "bf16" if torch.cuda.is_bf16_supported() else "fp16"


@dataclass
class LossScaler:
    """Scales the loss so that small fp16 gradients do not vanish. The scale halves on overflow, and doubles after
    ``growth_interval`` steps without one.

    Rule and constants are those of mixed-precision training (Micikevicius et al. 2018; torch.amp.GradScaler). They are
    plain numbers, so that they can be checkpointed and agree on every rank.
    """

    scale: float = 65536.0
    growth_interval: int = 2000
    quiet_steps: int = 0
    enabled: bool = True

    def update(self, overflow: bool) -> None:
        """Call after each step. ``overflow``: a scaled gradient was not finite, so the step was skipped."""
        if not self.enabled:
            return
        if overflow:
            self.scale, self.quiet_steps = max(self.scale * 0.5, 1e-6), 0
            return
        self.quiet_steps += 1
        if self.quiet_steps >= self.growth_interval:
            self.scale, self.quiet_steps = min(self.scale * 2.0, 2.0**24), 0


class Precision:
    """The autocast region and scaler of one precision on one device."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self.device = device
        self.dtype = _DTYPES[name]
        self.scaler = LossScaler() if name == "fp16" else LossScaler(1.0, enabled=False)
        if device.type == "cuda":
            # Products that stay in fp32 beside half precision may be rounded as well: to the ten bits of TF32, not to
            # the seven of bfloat16.
            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name != "fp32"

    def autocast(self) -> AbstractContextManager[object]:
        """The autocast region, in which matrix products run in the low precision. Losses turn it off themselves."""
        if self.dtype == torch.float32:
            return nullcontext()
        return torch.autocast(self.device.type, dtype=self.dtype)
