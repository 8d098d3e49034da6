"""What the processor is good at, and with it which form of an operation is taken on the CPU."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from graphmill.kernels.runtime.threads import has_numba


@cache
def multiplies_bfloat16() -> bool:
    """Whether the CPU multiplies bfloat16 faster than fp32. True as well where torch cannot tell.

    Intel's cores do with their tiles (AMX) alone, which a virtual machine may hide: of AVX-512's products of pairs they
    start one a cycle where they start two of fp32's, and torch's library makes fewer of them a second than of fp32.
    """
    about: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    pairs = about.get("avx512_bf16") and "Intel" not in about.get("cpu_name", "")
    return about.get("architecture") != "x86_64" or bool(pairs or about.get("amx_bf16"))


def wide_registers() -> bool:
    """Whether the processor has registers of 512 bits. It asks llvmlite, which comes with numba."""
    return bool(_features().get("avx512f"))


def _features() -> dict[str, bool]:
    from llvmlite import binding

    return dict(binding.get_host_cpu_features())


@cache
def own_blocks() -> bool:
    """Whether the processor has the registers that our own blocks are made for: AVX-512's, or AVX2's with fused products."""
    return has_numba() and (wide_registers() or all(_features().get(name) for name in ("avx2", "fma")))


@cache
def own_products() -> bool:
    """Whether this machine's processor is one on which our own products were measured to be the faster ones."""
    if not has_numba() or not wide_registers():
        return False
    from llvmlite import binding

    # LLVM's names of AMD's cores. The fourth generation has these registers (and units of half their width), the fifth
    # units as wide; MKL makes use of neither. On the third, which has none, MKL is the faster one for large products.
    name, _, generation = binding.get_host_cpu_name().partition("znver")
    return not name and generation.isdigit() and int(generation) >= 4
