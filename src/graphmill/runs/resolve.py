"""Resolves settings: reads the file, applies the preset, chooses device and precision, computes the fingerprint.

Importing this module does not import torch; resolving settings does.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmill.errors import InputError, SettingsError
from graphmill.settings import Settings, abbreviated, identity_of, parse, read_yaml
from graphmill.systems import registry
from graphmill.systems.auto import AUTO
from graphmill.training.run_files import RUN_FORMAT

if TYPE_CHECKING:
    from graphmill.training.run_directory import RunDirectory


@dataclass(frozen=True)
class Job:
    """Settings with every "auto" resolved, and the reasons for the choices."""

    settings: Any
    device: Any
    device_reason: str
    preset: str
    preset_reason: str
    precision: str
    batching: str
    notes: list[str] = field(default_factory=list)


def read_settings(path: Path) -> dict[str, Any]:
    """Read the mapping in a YAML or JSON settings file. The name of a system stands for its defaults.

    Raises:
        InputError: no such file, not YAML, or not a mapping.
    """
    if not path.is_file() and (name := registry.called(str(path))) in (*registry.SYSTEMS, AUTO):
        return {"system": name}
    if not path.is_file():
        raise InputError(
            f"settings file {path} does not exist; its sections are model, objective, training, acceleration, evaluation"
        )
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8: save it so") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    values = read_yaml(text, str(path))
    if not isinstance(values, dict):
        raise InputError(f"{path} holds no settings: it must be a mapping such as 'system: blend'")
    return values


def parse_settings(values: Mapping[str, Any], where: str) -> Settings:
    """Validate a settings mapping. A preset fills the missing fields (``auto`` is resolved later)."""
    if "recipe" in values:
        raise SettingsError(f"{where}: recipe is called system: write system: {abbreviated(values['recipe'])}")
    name = registry.called(str(values.get("system", registry.DEFAULT)))
    values = {**values, "system": name}
    preset = str(values.get("preset", "auto"))
    filled: Mapping[str, Any] = values
    if preset != "auto":
        known = registry.presets(name)
        if preset not in known:
            raise SettingsError(f"{where}: preset {abbreviated(preset)} is unknown (known: auto, {', '.join(known)})")
        filled = merge(known[preset], filled)
    return parse(registry.settings_model(name), dict(filled), where)


def stored_settings(run: RunDirectory) -> Any:
    """A run's settings. They are complete, so no preset fills them.

    Raises:
        InputError: the run has no readable settings file.
    """
    values = run.read_json("settings.json")
    settings = parse_settings({**values, "preset": "none"}, str(run.path / "settings.json"))
    return settings.model_copy(update={"preset": values.get("preset", "none")})


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; values of ``over`` replace those of the other."""
    out = dict(under)
    for key, value in over.items():
        below = out.get(key)
        out[key] = merge(below, value) if isinstance(below, Mapping) and isinstance(value, Mapping) else value
    return out


def resolve(values: Mapping[str, Any], where: str) -> Job:
    """Resolve every "auto" that depends on no more than the graph's size: preset (by device, memory and size), device,
    precision.

    ``batching: auto`` becomes full here. ``runs/planning.py`` fits it to memory when the graph is open.

    Raises:
        SettingsError: a setting is wrong, or this machine does not support it.
        ResourceError: the requested device is absent.
    """
    import os

    from graphmill.training.device import choose_device
    from graphmill.training.memory import device_memory, memory_limit, parse_size
    from graphmill.training.precision import resolve_precision

    settings: Any = parse_settings(values, where)
    name = settings.system
    acceleration = settings.acceleration
    rank = int(os.environ.get("LOCAL_RANK", 0))
    choice = choose_device(acceleration.device if settings.on_accelerators else "cpu", local_rank=rank)
    if not settings.on_accelerators:
        choice = replace(choice, reason=f"{name} is computed on the CPU")
    preset, why = settings.preset, "as asked for"
    if preset == "auto":
        # By total memory, not by free memory: the same command must always give the same training.
        memory = device_memory(choice.device).total or memory_limit()
        preset, why = registry.choose_preset(name, choice.device.type, memory, _training_edges(settings.data))
        if registry.presets(name)[preset]:
            settings = parse_settings(merge(values, {"preset": preset}), where)
            acceleration = settings.acceleration
    notes = [f"device: {choice.reason}", f"preset: {preset} ({why})"]
    precision = resolve_precision(acceleration.precision, choice.device)
    if acceleration.precision == "auto" and choice.device.type == "cuda":
        notes.append(f"precision: auto took {precision}, and TF32 for the matrix products that stay fp32")
    batching = "full" if acceleration.batching == "auto" else acceleration.batching
    parse_size(acceleration.memory_budget, auto=0, name=f"{where}: acceleration.memory_budget")
    return Job(settings, choice.device, choice.reason, preset, why, precision, batching, notes)


def _training_edges(data: str) -> int:
    """Number of training edges in the graph's manifest; 0 if it cannot be read (opening the graph reports why)."""
    try:
        manifest = json.loads((Path(data) / "manifest.json").read_text(encoding="utf-8"))
        return sum(int(relation["split"]["train"]) for relation in manifest["relations"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def fingerprint(job: Job, data_hash: str, algorithm_version: int, init: str = "") -> str:
    """The hash (64 hex digits) of everything that decides the result: data, resolved identity settings, algorithm version.

    Settings that this run does not read are left out.
    """
    known = identity_of(job.settings)
    known["acceleration"] |= {"precision": job.precision, "batching": job.batching}
    known["training"]["init_from"] = init
    for section, names in job.settings.unread(job.batching).items():
        for name in names:
            known[section].pop(name, None)
    # Evaluation settings are not part of a run's identity, with one exception: a run whose epoch is chosen on the test
    # split must not be confused with others, so it gets its own directory.
    known["selected_on"] = job.settings.evaluation.selected_on
    content = {"format": RUN_FORMAT, "data": data_hash, "algorithm_version": algorithm_version, "settings": known}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def run_root(settings: Any, override: str = "") -> Path:
    """The folder of this model's runs: ``override``, or a folder beside the graph that is named after the system."""
    return Path(override) if override else Path(settings.data).parent / settings.system
