"""What MPS cannot do, by torch's own table of operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def mps_lacks() -> set[str]:
    """Operators without an MPS kernel, by the table in every torch wheel; those composed of others are not among them."""
    import torchgen
    import yaml

    table = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native" / "native_functions.yaml"
    entries = {entry["func"].split("(")[0]: entry for entry in yaml.safe_load(table.read_text())}
    composite = {"CompositeExplicitAutograd", "CompositeImplicitAutograd", "CompositeExplicitAutogradNonFunctional"}

    def keys(entry: dict[str, Any]) -> set[str]:
        return {key.strip() for names in entry.get("dispatch", {}) for key in names.split(",")}

    def has(entry: dict[str, Any]) -> bool:
        if delegate := entry.get("structured_delegate"):
            return bool(keys(entries[delegate]) & {"MPS", "CompositeExplicitAutograd"})
        found = keys(entry)
        return not found or bool(found & (composite | {"MPS"}))

    return {f"aten::{name}" for name, entry in entries.items() if not has(entry)}
