"""How pictures are drawn: matplotlib's object API without global state, colours for every eye, small PNGs."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe & Ito's palette, told apart with any colour vision; repeated with another marker beyond eight.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
MARKERS = ("o", "^", "s", "D", "v", "P")
GREY = "#888888"
#: What the metadata of an asset shows inline.
INLINE_BYTES = 80_000
DPI = 110
LEAST_DPI = 20


def blank(width: float = 7.0, height: float = 4.5) -> tuple["Figure", "Axes"]:
    """A figure of one plot, in inches; safe in any thread, since pyplot knows nothing of it."""
    # matplotlib takes half a second to import, and most runs draw nothing.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def style_of(number: int) -> dict[str, Any]:
    """Colour and marker of the ``number``-th of a series of things."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number // len(COLOURS) % len(MARKERS)]}


def png(figure: "Figure", dpi: int = DPI) -> bytes:
    """The picture as PNG of 128 colours, which flat plots never miss and which halves the bytes; deterministic."""
    from PIL import Image  # matplotlib brings it

    drawn, reduced = io.BytesIO(), io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    Image.open(drawn).convert("RGB").quantize(128, dither=Image.Dither.NONE).save(reduced, format="png", optimize=True)
    return reduced.getvalue()


def shrink(figure: "Figure", max_bytes: int = INLINE_BYTES) -> bytes:
    """The picture as PNG at the highest resolution, from 110 dpi down, that fits ``max_bytes``.

    Raises ValueError when even 20 dpi does not fit.
    """
    dpi = DPI
    while True:
        data = png(figure, dpi)
        if len(data) <= max_bytes:
            return data
        if dpi <= LEAST_DPI:
            raise ValueError(f"a picture of {len(data)} bytes at {dpi} dpi does not fit {max_bytes}")
        # Bytes grow with dpi to a power between one and two: aim a little lower, but always move.
        aim = int(dpi * (max_bytes / len(data)) ** 0.6 * 0.97)
        dpi = max(LEAST_DPI, min(aim, dpi - 2))
