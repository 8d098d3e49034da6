"""The health report of an embedding: figures, verdicts with remedies, and the name of the failure.

It works on arrays alone (no torch, no graph). docs/reference/checks.md explains each check and what to do.
"""

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from graphmill.errors import InputError
from graphmill.evaluation.health.check import CheckInput, Status, Verdict
from graphmill.evaluation.health.checks import CHECKS, HealthThresholds
from graphmill.evaluation.health.figures import Figures, figures_of
from graphmill.evaluation.json_values import plain

if TYPE_CHECKING:
    from graphmill.evaluation.ranking.links import LinkRanking

#: Rows per block: large enough for BLAS, 16 MB in float64 at 512 dimensions.
BLOCK_ROWS = 4096


@dataclass(frozen=True)
class HealthReport:
    """The health of one embedding: figures and verdicts.

    ``figures``: all measurements. ``verdicts``: one per figure with a bound.
    """

    figures: Figures
    verdicts: tuple[Verdict, ...]
    thresholds: HealthThresholds
    link_signal: float

    @property
    def status(self) -> Status:
        """The status of the worst verdict."""
        result = {verdict.status for verdict in self.verdicts}
        return "fail" if "fail" in result else "warn" if "warn" in result else "pass"

    def verdict(self, name: str) -> Verdict:
        """The verdict on the figure ``name``. Raises KeyError if this embedding has none."""
        return {verdict.name: verdict for verdict in self.verdicts}[name]

    def numbers(self) -> dict[str, float]:
        """The scalar figures in one mapping, with the names in docs/reference/checks.md; undefined figures are nan."""
        f = self.figures
        return {
            "rows": f.rows,
            "dimensions": f.dimensions,
            "live_rows": f.live,
            "non_finite_rows": f.non_finite,
            "dead_rows": f.dead,
            "duplicated_rows": f.duplicated,
            "unconnected_rows": f.unconnected,
            "alike_rows": f.alike,
            "duplicated_share": f.duplicated_share,
            "norm_spread": f.norm_spread,
            "mean_cosine": f.mean_cosine,
            "components_90": f.components_90,
            "components_90_share": f.share(f.components_90),
            "effective_rank": f.effective_rank,
            "effective_rank_share": f.share(f.effective_rank),
            "link_signal": self.link_signal,
        } | {verdict.name: verdict.value for verdict in self.verdicts}

    def to_dict(self) -> dict[str, Any]:
        """Plain values for strict JSON (undefined figures are null), with stable keys."""
        f = self.figures
        return plain(
            {
                "status": self.status,
                "figures": self.numbers(),
                "types": [asdict(each) for each in f.types],
                "verdicts": [asdict(verdict) for verdict in self.verdicts],
                "thresholds": self.thresholds.model_dump(),
            }
        )


def health_report(
    X: NDArray[Any],
    types: NDArray[Any],
    type_names: Sequence[str],
    *,
    thresholds: HealthThresholds | None = None,
    ranking: "LinkRanking | None" = None,
    block_rows: int = BLOCK_ROWS,
    settings: Collection[str] | None = None,
    neighbourhoods: NDArray[np.int64] | None = None,
) -> HealthReport:
    """Measure and judge an embedding.

    X: floats (n × d), also memory-mapped; ``types``: int codes (n) into ``type_names``. ``ranking``: the held-out link
    ranking of the same vectors, the only figure that detects shuffled ids. ``block_rows`` changes speed and memory,
    never a result. ``settings``: names of the system's settings, so that remedies mention no others (None: unknown).
    ``neighbourhoods``: int64 (n), equal for nodes with the same training neighbours, whose rows may be equal; 0: without
    any, whose rows may be zero; None: unknown, so that no row may.
    Raises :class:`InputError` if the arrays do not fit together.
    """
    X, types = np.asanyarray(X), np.asarray(types)
    _require_fitting(X, types, type_names)
    thresholds = thresholds or HealthThresholds()
    figures = figures_of(X, types.astype(np.int64), tuple(type_names), thresholds, block_rows, neighbourhoods)
    link_signal = ranking.signal if ranking is not None else float("nan")
    evidence = CheckInput(X, types, figures, thresholds, link_signal)
    verdicts = tuple(result for check in CHECKS if (result := check.verdict(evidence, settings)) is not None)
    return HealthReport(figures, verdicts, thresholds, link_signal)


def _require_fitting(X: NDArray[Any], types: NDArray[Any], type_names: Sequence[str]) -> None:
    if X.ndim != 2 or X.shape[1] == 0 or X.dtype.kind != "f":
        raise InputError(f"An embedding is a table of floats, rows × dimensions; this one is {X.shape} of {X.dtype}.")
    if len(X) < 2:
        raise InputError(f"An embedding of {len(X)} rows cannot be judged; at least 2 are needed.")
    if types.shape != (len(X),):
        raise InputError(
            f"The embedding has {len(X)} rows but there are {types.shape} type codes: one per row is needed."
        )
    if types.dtype.kind not in "iu" or types.min() < 0 or types.max() >= len(type_names):
        raise InputError(
            f"Type codes must be integers from 0 to {len(type_names) - 1}, one for each of the type names."
        )
