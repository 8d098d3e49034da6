"""A training's epochs as a table."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from graphmill.training.metrics_log import MetricsLog


def history(log: Path) -> pd.DataFrame:
    """One row per epoch of a metrics log: its losses (means over steps), and its validation metrics if there are any."""
    rows = [
        {
            "epoch": each["epoch"],
            **each["losses"],
            **{f"valid_{n}": v for n, v in (each.get("valid") or {}).items()},
        }
        for each in MetricsLog(log).read("epoch")
    ]
    return pd.DataFrame(rows)
