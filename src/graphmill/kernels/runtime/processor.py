"""Detects the processor's features, which decide the form of operations on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from graphmill.kernels.runtime.threads import has_numba


@cache
def multiplies_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 faster than fp32. Also True if torch cannot tell.

    Intel's cores do so only with AMX, which a virtual machine may hide. Without it, they start one AVX-512 bfloat16
    instruction per cycle but two of fp32, and torch's library is slower in bfloat16 than in fp32.
    """
    about: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    pairs = about.get("avx512_bf16") and "Intel" not in about.get("cpu_name", "")
    return about.get("architecture") != "x86_64" or bool(pairs or about.get("amx_bf16"))


def wide_registers() -> bool:
    """Whether the processor has 512-bit registers. It asks llvmlite, which comes with numba."""
    return bool(_features().get("avx512f"))


def _features() -> dict[str, bool]:
    from llvmlite import binding

    return dict(binding.get_host_cpu_features())


@cache
def own_blocks() -> bool:
    """Whether the processor has the registers for graphmill's own register blocks: AVX-512, or AVX2 with FMA."""
    return has_numba() and (wide_registers() or all(_features().get(name) for name in ("avx2", "fma")))


@cache
def own_products() -> bool:
    """Whether graphmill's own products were measured to be faster than torch's on this processor."""
    if not has_numba() or not wide_registers():
        return False
    from llvmlite import binding

    # LLVM's names of AMD's cores. Zen 4 has 512-bit registers (with units of half the width), and Zen 5 has units of
    # the full width; MKL uses neither. On Zen 3, which has no such registers, MKL is faster for large products.
    name, _, generation = binding.get_host_cpu_name().partition("znver")
    return not name and generation.isdigit() and int(generation) >= 4
