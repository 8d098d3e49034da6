"""Basics of pictures: matplotlib's object API without global state, colours for all kinds of colour vision, small PNGs."""

import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Okabe & Ito's palette, distinguishable with any colour vision. Beyond eight it repeats with another marker.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000", "#F0E442")
MARKERS = ("o", "^", "s", "D", "v", "P")
GREY = "#888888"
DPI = 110


def blank(width: float = 7.0, height: float = 4.5, columns: int = 1) -> tuple["Figure", Any]:
    """A figure with one plot, or an array of so many side by side; sizes in inches. It does not use pyplot, so it is
    thread-safe."""
    # matplotlib takes half a second to import, and most runs draw nothing.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, columns)
    for each in figure.axes:
        each.spines[["top", "right"]].set_visible(False)
    return figure, axes


def labelled(
    figure: "Figure", axes: "Axes", title: str, x: str, y: str = "", legend: str = "best", **text: Any
) -> "Figure":
    """The figure with a title and labels. ``legend``: its place, "right" is beside the plot, "" for none; ``text``: its
    style."""
    axes.set(title=title, xlabel=x, ylabel=y)
    if legend == "right":
        text |= {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)}
    elif legend:
        text["loc"] = legend
    if legend:
        axes.legend(**{"fontsize": "small", "frameon": False} | text)
    return figure


def style_of(number: int) -> dict[str, Any]:
    """Colour and marker of the ``number``-th series."""
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number // len(COLOURS) % len(MARKERS)]}


def png(figure: "Figure", dpi: int = DPI) -> bytes:
    """The picture as a small, deterministic PNG."""
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=dpi, facecolor="white")
    return small_png(drawn.getvalue())


def small_png(png: bytes, width: int = 0, colours: int = 128) -> bytes:
    """The picture, at most ``width`` pixels wide (0: unchanged), with a reduced palette, which is enough for plots."""
    from PIL import Image

    with Image.open(io.BytesIO(png)) as image:
        displayed = image.convert("RGB")
    if 0 < width < displayed.width:
        displayed = displayed.resize(
            (width, max(1, round(displayed.height * width / displayed.width))), Image.Resampling.LANCZOS
        )
    buffer = io.BytesIO()
    displayed.quantize(colours, dither=Image.Dither.NONE).save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def png_width(png: bytes) -> int:
    """The width of a PNG in pixels, from its header."""
    return int.from_bytes(png[16:20], "big")
