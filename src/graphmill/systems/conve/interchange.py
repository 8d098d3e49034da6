"""Writes a run as ``config.json``, ``.pt`` checkpoints (``torch.save``) and a training history, for scripts that read these.

A checkpoint has every size of the network, so that the model can be rebuilt from it alone.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from graphmill.atomic_files import replacing, write_atomically
from graphmill.errors import InputError
from graphmill.training.checkpoint import CheckpointInfo, CheckpointMissingError, CheckpointStore

if TYPE_CHECKING:
    from graphmill.systems.conve.system import ConveSystem
    from graphmill.training.run_directory import RunDirectory


def write_torch_files(system: ConveSystem, run: RunDirectory, out: Path) -> list[Path]:
    """Writes ``config.json``, ``checkpoints/checkpoint_epoch_<k>.pt`` (all that the run has), ``best_model.pt``,
    ``final_model.pt`` and ``training_history.json`` into ``out``; returns their paths.

    Raises :class:`InputError` if the run has no checkpoint.
    """  # fmt: skip
    store = CheckpointStore(run.checkpoints)
    kept = store.list()
    if not kept:
        raise InputError(f"{run.path} has no checkpoint; train first")
    written = [out / "config.json"]
    write_atomically(written[0], (json.dumps(config(system), indent=2) + "\n").encode())
    for info in kept:
        targets = [out / "checkpoints" / f"checkpoint_epoch_{info.epoch}.pt"]
        targets += [out / "best_model.pt"] if "best" in info.roles else []
        targets += [out / "final_model.pt"] if info is kept[-1] else []
        try:
            content = _checkpoint(system, store, info)
        except CheckpointMissingError as error:
            run.log("train").warning("not among the .pt files: %s", error)
            continue
        for path in targets:
            with replacing(path) as part:
                torch.save(content, part.file)
        written += targets
    history = out / "training_history.json"
    write_atomically(history, (json.dumps(run.metrics.read("epoch"), indent=1) + "\n").encode())
    return [*written, history]


def config(system: ConveSystem) -> dict[str, Any]:
    """``data``, ``model``, ``training`` and ``optimizations``."""
    settings, acceleration = system.settings, system.settings.acceleration
    data = system.data
    return {
        "data": {
            "num_entities": data.num_entities,
            "num_relations": data.num_relations,
            "num_train": len(data.triples),
            "graph": settings.data,
            "content_hash": system.graph.content_hash,
        },
        "model": system.config.to_dict(),
        "training": {
            "num_epochs": settings.training.epochs,
            "batch_size": system.batch_size,
            "learning_rate": settings.training.learning_rate,
            **settings.objective.model_dump(),
            "optimizer": settings.training.OPTIMIZER,
            "seed": settings.training.seed,
        },
        "optimizations": {
            "use_mixed_precision": acceleration.precision in ("bf16", "fp16"),
            "use_gradient_checkpointing": acceleration.gradient_checkpointing,
            "enable_memory_cleanup": True,
        },
    }


def _checkpoint(system: ConveSystem, store: CheckpointStore, info: CheckpointInfo) -> dict[str, Any]:
    tensors = store.load(info).snapshot.tensors

    def part(prefix: str) -> dict[str, Tensor]:
        return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}

    metrics: dict[str, Any] = {"loss": info.loss, "learning_rate": info.learning_rate}
    if info.metric is not None:
        metrics[system.settings.evaluation.selection_metric] = info.metric
    return {
        "epoch": info.epoch,
        "model_state_dict": part("model."),
        "optimizer_state_dict": part("optimizer.train."),
        "model_config": system.config.to_dict(),
        "metrics": metrics,
    }
