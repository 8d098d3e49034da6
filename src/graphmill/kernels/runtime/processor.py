"""Detects the processor's features, which decide the form of operations on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies fp32 faster than MKL: on AMD's cores with 512-bit registers, which MKL does not use."""
    about: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()  # empty if this torch cannot tell
    return (
        "AMD" in about.get("cpu_name", "")
        and bool(about.get("avx512_f"))
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
