"""Draws with matplotlib, and returns SVG text. The same drawing gives the same bytes."""

import io
from collections.abc import Callable
from typing import Any

SIZE_INCHES = (9.0, 4.2)


def svg(plot: Callable[[Any], None], size_inches: tuple[float, float] = SIZE_INCHES) -> str:
    """Return a drawing as an SVG document.

    Args:
        plot: draws on the axes that it gets.
        size_inches: width and height.
    """
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    style: Any = {
        "svg.hashsalt": "orion", "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10,
        "axes.spines.top": False, "axes.spines.right": False,
    }  # fmt: skip
    with mpl.rc_context(style):
        figure = Figure(figsize=size_inches, layout="constrained")
        FigureCanvasSVG(figure)
        plot(figure.add_subplot())
        drawing = io.StringIO()
        figure.savefig(drawing, format="svg", metadata={"Date": None})
    return drawing.getvalue()
