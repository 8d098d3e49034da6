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
DPI = 110


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
    """The picture as a small PNG; deterministic."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    return small_png(drawn.getvalue())


def small_png(png: bytes, width: int = 0, colours: int = 128) -> bytes:
    """The picture at most ``width`` pixels wide (0: as it is). Flat plots miss none of the colours that go."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        shown = image.convert("RGB")
    if 0 < width < shown.width:
        shown = shown.resize((width, max(1, round(shown.height * width / shown.width))), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    shown.quantize(colours, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()
