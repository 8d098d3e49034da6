"""MPS cannot be run here: one step of each case is held to the operators and dtypes that torch's MPS backend has.

``mps_operators.txt`` is committed: the operators that our steps use and that torch registers for MPS. It is renewed with
``python -m tests.training.test_mps_operators`` when a recipe changes; what torch has comes from the operator table that
every torch wheel ships (torchgen). No tensor may be float64, which MPS does not have.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch.utils._python_dispatch import TorchDispatchMode

from graphmill.graph.typed_graph import TypedGraph
from graphmill.training.contract import Execution
from graphmill.training.optimizers import PhaseOptimizer
from graphmill.training.precision import Precision
from graphmill.training.processes import Ranks
from graphmill.training.step import clip_, compute_gradient
from tests.training.cases import CASES, Case

LIST = Path(__file__).with_name("mps_operators.txt")
# Never run on the device: reading the losses on the host, and what builds a batch there.
HOST = {
    "aten::_local_scalar_dense",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit._RecordFunction",
}


class Recorder(TorchDispatchMode):
    """Operators called, and those that made a float64 tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.used: set[str] = set()
        self.float64: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        namespace, _, overload = func.name().rpartition(".") if "." in func.name() else (func.name(), "", "")
        name = f"{namespace}.{overload}" if overload and overload != "default" else namespace or func.name()
        self.used.add(name)
        outputs = out if isinstance(out, list | tuple) else [out]
        if any(isinstance(t, torch.Tensor) and t.dtype == torch.float64 for t in outputs):
            self.float64.add(name)
        return out


def operators(case: Case, graph: TypedGraph, patch: pytest.MonkeyPatch) -> Recorder:
    """What one whole optimizer step of the case calls, as on MPS: plain torch kernels, fp32 sums, nothing sparse."""
    import graphmill.kernels.hgt as hgt
    from graphmill.kernels import (
        bi_interaction,
        combination,
        dropout,
        fact_losses,
        hgt_edges_into,
        hgt_torch,
        hyper_connections,
        input_embedding,
        layer_norm,
        link_scores,
        next_item_losses,
        normed_convolution,
        one_to_n,
        pair_losses,
        products,
        propagation,
        row_norm,
        sequence_attention,
        sublayers,
        table_rows,
        time_attention,
    )
    from graphmill.training import guards

    patch.setattr(hgt, "edge_backend", lambda *_: hgt_torch)
    patch.setattr(hgt_torch, "_ONE_BY_ONE", frozenset())
    patch.setattr(hgt_edges_into, "_GATHERS", frozenset({"cpu"}))
    # These go by their tensors' device, which is the CPU here.
    compiled = (
        bi_interaction,
        combination,
        normed_convolution,
        one_to_n,
        dropout,
        hyper_connections,
        input_embedding,
        layer_norm,
        next_item_losses,
        sequence_attention,
        sublayers,
    )
    for module in (*compiled, fact_losses, link_scores, pair_losses, propagation, row_norm, table_rows):
        patch.setattr(module, "has_numba", lambda: False)
    for module in (normed_convolution, one_to_n):
        patch.setattr(module, "sum_dtype", lambda device, wide: wide)
    for module in (sequence_attention, time_attention):
        patch.setattr(module, "by_hand", lambda x: False)
    patch.setattr(propagation, "_plain", propagation._in_parts)
    patch.setattr(dropout, "_by_torch", lambda x: True)
    patch.setattr(products, "own_products", lambda: False)
    patch.setattr(guards, "_is_plain", lambda gradient: False)
    job, recipe = case.build(graph)
    model = case.model(recipe)
    with Recorder() as recorder:
        for phase in recipe.phases:
            groups = recipe.parameter_groups(model, phase)
            optimizer = PhaseOptimizer(job.settings.training, groups, torch.device("mps"))
            gradient = compute_gradient(
                recipe,
                model,
                optimizer.parameters,
                recipe.step(phase, 0, 0),
                execution=Execution(loss_chunks=2),
                precision=Precision("fp32", torch.device("mps")),
                ranks=Ranks(),
                seed_parts=(0,),
            )
            clip_(optimizer.parameters, gradient.norm, gradient.norm / 2)
            optimizer.step(0.001)
    return recorder


def supported() -> set[str]:
    """Operators that torch registers for MPS, or that are composed of others, by the table in the torch wheel."""
    import torchgen

    table = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    entries = {entry["func"].split("(")[0]: entry for entry in yaml.safe_load(table.read_text())}

    def keys(entry: dict[str, Any]) -> set[str]:
        return {key.strip() for names in entry.get("dispatch", {}) for key in names.split(",")}

    def has(name: str, entry: dict[str, Any]) -> bool:
        delegate = entry.get("structured_delegate")
        if delegate:
            return bool(keys(entries[delegate]) & {"MPS", "CompositeExplicitAutograd"})
        found = keys(entry)
        composite = {"CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"}
        return not found or bool(found & ({"MPS"} | composite))

    return {f"aten::{name}" for name, entry in entries.items() if has(name, entry)}


def committed() -> set[str]:
    return set(LIST.read_text().split())


def test_a_step_calls_only_operators_on_the_committed_list(
    case: tuple[Case, TypedGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = operators(*case, monkeypatch)
    assert found.used - HOST <= committed(), "not on the list of operators that MPS has; see this file's head"


def test_no_tensor_of_a_step_is_float64(case: tuple[Case, TypedGraph], monkeypatch: pytest.MonkeyPatch) -> None:
    assert operators(*case, monkeypatch).float64 == set()


def test_torch_has_every_operator_of_the_list_for_mps() -> None:
    assert committed() - supported() == set()


def renew(names: Iterable[str]) -> None:
    """Write the list, refusing operators that MPS lacks."""
    missing = set(names) - HOST - supported()
    if missing:
        raise SystemExit(f"MPS lacks: {', '.join(sorted(missing))}")
    LIST.write_text("\n".join(sorted(set(names) - HOST)) + "\n")


if __name__ == "__main__":
    import tempfile

    used: set[str] = set()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        for name, own in CASES.items():
            used |= operators(own, own.graph(Path(folder) / name), patch).used
    renew(used)
