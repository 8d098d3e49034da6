"""The optimizers of a run, one per phase. Their state is saved by parameter name."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from graphmill.errors import SettingsError
from graphmill.training.contract import ParameterGroup
from graphmill.training.settings import TrainingSettings


class PhaseOptimizer:
    """An optimizer over a phase's parameter groups that can be saved and restored as named tensors."""

    def __init__(self, settings: TrainingSettings, groups: list[ParameterGroup], device: torch.device) -> None:
        self.names = [name for group in groups for name in group.names]
        self.parameters: list[nn.Parameter] = [p for group in groups for p in group.parameters]
        # One group per weight decay, because each group is a separate pass.
        by_decay: dict[float, list[nn.Parameter]] = {}
        for group in groups:
            by_decay.setdefault(settings.weight_decay * group.decay, []).extend(group.parameters)
        options = [{"params": result, "weight_decay": decay} for decay, result in by_decay.items() if result]
        self.optimizer = _build(settings, options, device)
        self._allocated = False

    @property
    def guards_itself(self) -> bool:
        """Whether :meth:`step` can skip an update on the device, without the host reading the flag.

        torch's fused kernels can. Adagrad can without weight decay: gradients of zeros change nothing.
        """
        if self.optimizer.defaults.get("fused"):
            return True
        decays = any(group["weight_decay"] for group in self.optimizer.param_groups)
        return isinstance(self.optimizer, torch.optim.Adagrad) and not decays

    def step(self, learning_rate: float, unless: Tensor | None = None) -> None:
        """Apply the accumulated gradients at this rate, unless ``unless`` (0-d, fp32, on the device) is 1.

        ``unless`` needs :attr:`guards_itself`. A skipped step leaves every bit of parameters and moments. Adagrad still
        counts it; that number is used only with a decay of the rate, which this optimizer does not have.
        """
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        if unless is not None and not self.optimizer.defaults.get("fused"):
            skipped, unless = unless > 0, None
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.masked_fill_(skipped, 0)
        # torch's GradScaler sets the same attribute, and the fused kernels read it.
        self.optimizer.found_inf = unless  # type: ignore[attr-defined]
        self.optimizer.step()

    def allocate(self) -> None:
        """Allocate the moments of parameters that have a gradient and no moments yet, before any parameter is updated.

        If memory runs out here, the call can be repeated; in the middle of an update it could not. Adam's moments begin
        with zeros. Adagrad allocates its own at once.
        """
        if self._allocated or not isinstance(self.optimizer, torch.optim.Adam):
            return
        for parameter in self.parameters:
            if parameter.grad is None or self.optimizer.state[parameter]:
                continue
            place = parameter.device if self.optimizer.defaults.get("fused") else "cpu"
            moments = {name: torch.zeros_like(parameter) for name in ("exp_avg", "exp_avg_sq")}
            self.optimizer.state[parameter] = {"step": torch.zeros((), dtype=torch.float32, device=place)} | moments
        self._allocated = all(p.grad is not None for p in self.parameters)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """The state by ``prefix.parameter.key``; parameters that were never updated have none."""
        out = {}
        for name, parameter in zip(self.names, self.parameters, strict=True):
            for key, value in self.optimizer.state.get(parameter, {}).items():
                out[f"{prefix}.{name}.{key}"] = value if isinstance(value, Tensor) else torch.tensor(value)
        return out

    def load(self, prefix: str, tensors: dict[str, Tensor]) -> None:
        """Restore :meth:`tensors`."""
        self._allocated = False
        if not isinstance(self.optimizer, torch.optim.Adagrad):  # its state exists from the start
            self.optimizer.state.clear()
        for name, parameter in zip(self.names, self.parameters, strict=True):
            start = f"{prefix}.{name}."
            saved_state = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
            state: dict[str, Any] = {}
            for key, value in saved_state.items():
                if "." not in key:
                    # The step counter goes to the device where the optimizer keeps it; moments go to their parameter's
                    # device.
                    extra = key != "step" or value.dim() or self.optimizer.defaults.get("fused")
                    state[key] = value.clone().to(parameter.device if extra else "cpu")
            if state:
                self.optimizer.state[parameter] = state


def _build(settings: TrainingSettings, options: list[dict[str, Any]], device: torch.device) -> torch.optim.Optimizer:
    if not options:
        raise SettingsError("there is nothing to train: the system gave this phase no parameters")
    rate = settings.learning_rate
    # One fused pass over parameter, gradient and moments instead of about ten: these models are mostly tables, so the
    # optimizer is bound by memory traffic. Every torch that is taken on MPS (``device.MPS_TORCH``) has it there, too.
    if settings.OPTIMIZER == "adagrad":
        return _uncompiled(torch.optim.Adagrad)(options, lr=rate, fused=device.type == "cpu")
    adam = _uncompiled(torch.optim.AdamW if settings.OPTIMIZER == "adamw" else torch.optim.Adam)
    return adam(options, lr=rate, betas=settings.BETAS, fused=True)


@cache
def _uncompiled(kind: type[torch.optim.Optimizer]) -> Any:
    """``kind`` without the wrappers that keep torch.compile out of its methods: they import the compiler, which takes
    longer than torch itself, and an optimizer is compiled nowhere here."""
    add, step = (inspect.unwrap(getattr(kind, name)) for name in ("add_param_group", "step"))
    return type(kind.__name__, (kind,), {"add_param_group": add, "step": torch.no_grad()(step)})
