"""Detects the processor's features, which decide the form of operations on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch


def _about() -> dict[str, Any]:
    """The processor's features; empty if this torch cannot tell."""
    about: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return about


@cache
def multiplies_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 faster than fp32. Also True if torch cannot tell.

    Intel's cores do so only with AMX, which a virtual machine may hide. Without it, they start one AVX-512 bfloat16
    instruction per cycle but two of fp32, and torch's library is slower in bfloat16 than in fp32.
    """
    about = _about()
    pairs = about.get("avx512_bf16") and "Intel" not in about.get("cpu_name", "")
    return about.get("architecture") != "x86_64" or bool(pairs or about.get("amx_bf16"))


@cache
def onednn_is_faster() -> bool:
    """Whether oneDNN multiplies fp32 faster than MKL: on AMD's cores with 512-bit registers, which MKL does not use."""
    about = _about()
    return (
        "AMD" in about.get("cpu_name", "")
        and bool(about.get("avx512_f"))
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
