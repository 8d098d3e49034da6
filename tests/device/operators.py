"""What torch's operators do on a device: which start no kernel, which start several, which wait, which MPS lacks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_ALLOCATE_OR_RENAME = """empty.memory_format empty_strided empty_like new_empty new_empty_strided detach alias _unsafe_view
    lift_fresh _local_scalar_dense set_.source_Tensor view is_same_size resize_ _reshape_alias lift is_pinned"""
_SIZE_OF_ITS_OWN = (
    """nonzero bincount masked_select equal _local_scalar_dense unique_dim _unique2 repeat_interleave.Tensor"""
)
_BY_INDEX = """index.Tensor index_put_ index_put _index_put_impl_ _unsafe_index.Tensor"""


def _named(words: str) -> frozenset[str]:
    return frozenset(f"aten::{name}" for name in words.split())


FREE = _named(_ALLOCATE_OR_RENAME)
"""Operators that start no kernel."""
WAITS = _named(_SIZE_OF_ITS_OWN)
"""Operators whose result the host has to know, so that it waits for the device."""
INDEXING = _named(_BY_INDEX)
KERNELS = {
    "aten::nonzero": 4, "aten::sort": 3, "aten::sort.stable": 3, "aten::argsort": 3, "aten::index_put": 2,
    "aten::bincount": 6, "aten::topk": 4, "aten::native_layer_norm_backward": 3, "aten::cumsum": 2, "aten::cumsum.out": 2,
    "aten::embedding_dense_backward": 6, "aten::logsumexp": 6, "aten::native_batch_norm": 2, "aten::unique_dim": 8,
    "aten::masked_select": 5, "aten::_foreach_norm.Scalar": 2,
}  # fmt: skip
"""Kernels that CUDA launches for one call, where it is not one (about, from torch's sources)."""


def mps_lacks() -> set[str]:
    """Operators without an MPS kernel, by the table in every torch wheel; those composed of others are not among them."""
    import torchgen  # type: ignore[import-untyped]
    import yaml

    table = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    entries = {entry["func"].split("(")[0]: entry for entry in yaml.safe_load(table.read_text())}
    composite = {"CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"}

    def keys(entry: dict[str, Any]) -> set[str]:
        return {key.strip() for names in entry.get("dispatch", {}) for key in names.split(",")}

    def has(entry: dict[str, Any]) -> bool:
        if delegate := entry.get("structured_delegate"):
            return bool(keys(entries[delegate]) & {"MPS", "CompositeExplicitAutograd"})
        result = keys(entry)
        return not result or bool(result & (composite | {"MPS"}))

    return {f"aten::{name}" for name, entry in entries.items() if not has(entry)}
