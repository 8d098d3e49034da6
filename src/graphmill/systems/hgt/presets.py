"""Values of HGT's settings that the user did not write: by loss and by preset. Importable without torch."""

from typing import Any

LINK_CONTRASTIVE: dict[str, dict[str, Any]] = {
    "model": {"hidden_dim": 256, "num_heads": 8, "num_layers": 2},
    "training": {"epochs": 100, "learning_rate": 0.001, "warmup_steps": 100, "weight_decay": 0.00001},
    "sampling": {"edge_sample_size": 5000},
}
"""Defaults that differ with loss: link_contrastive. They fill settings that the user did not write."""


def _steps(edges: int, micro_batches: int, **acceleration: Any) -> dict[str, Any]:
    return {
        "sampling": {"edge_sample_size": edges, "accumulation_steps": micro_batches},
        "acceleration": {"micro_batches": micro_batches, **acceleration},
    }


_ONE_PART: dict[str, Any] = {"acceleration": {"micro_batches": 1}}
"""On an accelerator each part of a loss costs launches; the memory plan makes parts where one does not fit."""

# m1_* are for Apple machines with that much memory; `auto` chooses by device and memory.
PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "low_memory": {"acceleration": {"gradient_checkpointing": True, "micro_batches": 8}},
    "fast": {"model": {"embedding_dim": 256}},
    "quality": {"model": {"embedding_dim": 1024}},
    "m1_8gb": {"acceleration": {"micro_batches": 8}},
    "m1_16gb": _ONE_PART,
    "m1_32gb": _ONE_PART,
    "cuda": _ONE_PART,
}
PRESETS_OF_LINK_CONTRASTIVE: dict[str, dict[str, Any]] = {
    "none": {},
    "low_memory": _steps(3000, 8, batching="edge_sampled", gradient_checkpointing=True),
    "fast": _steps(8000, 2),
    "quality": {"training": {"epochs": 200, "learning_rate": 0.0005}},
    "m1_8gb": _steps(3000, 8, batching="edge_sampled"),
    "m1_16gb": _steps(5000, 4, batching="edge_sampled"),
    "m1_32gb": _steps(8000, 2, batching="edge_sampled"),
    "cuda": _ONE_PART,
}


def choose_preset(device: str, memory_bytes: int) -> tuple[str, str]:
    """The preset that ``auto`` stands for on this device, and why. ``memory_bytes``: what the device may use."""
    gib = memory_bytes / 2**30
    if device == "mps":
        name = "m1_8gb" if gib <= 8 else "m1_16gb" if gib <= 16 else "m1_32gb"
        return name, f"Apple GPU with {gib:.0f} GiB"
    if gib < 6:
        return "low_memory", f"{gib:.1f} GiB of memory for {device}"
    if device == "cuda":
        return "cuda", f"NVIDIA GPU with {gib:.0f} GiB"
    return "none", f"{gib:.0f} GiB of memory for {device} need no preset"
