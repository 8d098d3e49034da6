"""The optimizers of a run, one per phase. Their state is saved by parameter name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adagrad import adagrad
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from graphmill.errors import SettingsError
from graphmill.training.contract import ParameterGroup
from graphmill.training.settings import TrainingSettings


class PhaseOptimizer:
    """An optimizer over a phase's parameter groups that can be saved and restored as named tensors.

    It calls torch's functions: the classes of ``torch.optim`` import torch's compiler, a second of each start.
    """

    def __init__(self, settings: TrainingSettings, groups: list[ParameterGroup], device: torch.device) -> None:
        self.names = [name for group in groups for name in group.names]
        self.parameters: list[nn.Parameter] = [p for group in groups for p in group.parameters]
        if not self.parameters:
            raise SettingsError("there is nothing to train: the system gave this phase no parameters")
        self.settings = settings
        # One fused pass over parameter, gradient and moments instead of about ten: these models are mostly tables, so
        # the optimizer is bound by memory traffic. Every torch that is taken on MPS (``device.MPS_TORCH``) has it there,
        # too.
        self.fused = settings.OPTIMIZER != "adagrad" or device.type == "cpu"
        self._moments = ("sum",) if settings.OPTIMIZER == "adagrad" else ("exp_avg", "exp_avg_sq")
        # One list per weight decay, because each is a separate pass.
        self._by_decay: dict[float, list[tuple[str, nn.Parameter]]] = {}
        for group in groups:
            if not group.parameters:
                continue
            named = zip(group.names, group.parameters, strict=True)
            self._by_decay.setdefault(settings.weight_decay * group.decay, []).extend(named)
        self._state: dict[str, dict[str, Tensor]] = {}
        self._allocated = False
        if settings.OPTIMIZER == "adagrad":
            for name, parameter in zip(self.names, self.parameters, strict=True):
                self._begin(name, parameter)

    def _begin(self, name: str, parameter: nn.Parameter) -> None:
        moments = {key: torch.zeros_like(parameter) for key in self._moments}
        steps = torch.zeros((), dtype=torch.float32, device=parameter.device if self.fused else "cpu")
        self._state[name] = {"step": steps} | moments

    @property
    def guards_itself(self) -> bool:
        """Whether :meth:`step` can skip an update on the device, without the host reading the flag.

        torch's fused kernels can. Adagrad can without weight decay: gradients of zeros change nothing.
        """
        return self.fused or not any(self._by_decay)

    @torch.no_grad()
    def step(self, learning_rate: float, unless: Tensor | None = None) -> None:
        """Apply the accumulated gradients at this rate, unless ``unless`` (0-d, fp32, on the device) is 1.

        ``unless`` needs :attr:`guards_itself`. A skipped step leaves every bit of parameters and moments. Adagrad still
        counts it; that number is used only with a decay of the rate, which this optimizer does not have.
        """
        if unless is not None and not self.fused:
            skipped, unless = unless > 0, None
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.grad.masked_fill_(skipped, 0)
        self.allocate()
        for decay, named in self._by_decay.items():
            updated = [(parameter, self._state[name]) for name, parameter in named if parameter.grad is not None]
            moments = {key: [state[key] for _, state in updated] for key in ("step", *self._moments)}
            options: dict[str, Any] = {
                "params": [parameter for parameter, _ in updated],
                "grads": [parameter.grad for parameter, _ in updated],
                "state_steps": moments["step"],
                "lr": learning_rate,
                "weight_decay": decay,
                "maximize": False,
                "fused": self.fused,
                "found_inf": unless,
            }
            if self.settings.OPTIMIZER == "adagrad":
                adagrad(state_sums=moments["sum"], lr_decay=0.0, eps=1e-10, **options)
                continue
            options |= {"exp_avgs": moments["exp_avg"], "exp_avg_sqs": moments["exp_avg_sq"], "max_exp_avg_sqs": []}
            beta1, beta2 = self.settings.BETAS
            update = adamw if self.settings.OPTIMIZER == "adamw" else adam
            update(beta1=beta1, beta2=beta2, amsgrad=False, eps=1e-8, **options)

    def allocate(self) -> None:
        """Allocate the moments of parameters that have a gradient and no moments yet, before any parameter is updated.

        If memory runs out here, the call can be repeated; in the middle of an update it could not. Adam's moments begin
        with zeros. Adagrad allocates its own at once.
        """
        if self._allocated:
            return
        for name, parameter in zip(self.names, self.parameters, strict=True):
            if parameter.grad is not None and name not in self._state:
                self._begin(name, parameter)
        self._allocated = all(p.grad is not None for p in self.parameters)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """The state by ``prefix.parameter.key``; parameters that were never updated have none."""
        named = [(name, self._state.get(name, {})) for name in self.names]
        return {f"{prefix}.{name}.{key}": value for name, state in named for key, value in state.items()}

    def load(self, prefix: str, tensors: dict[str, Tensor]) -> None:
        """Restore :meth:`tensors`."""
        self._allocated = False
        if self.settings.OPTIMIZER != "adagrad":  # its state exists from the start
            self._state.clear()
        for name, parameter in zip(self.names, self.parameters, strict=True):
            start = f"{prefix}.{name}."
            saved_state = {k.removeprefix(start): v for k, v in tensors.items() if k.startswith(start)}
            state: dict[str, Tensor] = {}
            for key, value in saved_state.items():
                if "." not in key:
                    # The step counter goes to the device where the optimizer keeps it; moments go to their parameter's
                    # device.
                    extra = key != "step" or value.dim() or self.fused
                    state[key] = value.clone().to(parameter.device if extra else "cpu")
            if state:
                self._state[name] = state
