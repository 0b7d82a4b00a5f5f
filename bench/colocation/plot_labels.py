"""Places labels beside points so that labels cover no other label, no point and, if possible, no line.

Labels of crowded points are placed first; each takes the nearest free position around its point. A line connects a
label that is far from its point. Rejected: a legend with numbers (the reader has to look up each point), and iterative
repulsion (a small change of the data changes the whole picture).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox
from numpy.typing import ArrayLike, NDArray

RADII = (9, 16, 25, 36, 50, 66, 84, 104, 126)  # points
ANGLES = (0, 180, 45, -45, 135, -135, 90, -90, 22, -22, 158, -158, 68, -68, 112, -112)
NEAR = 16  # points; a label that is nearer to its point has no line
MARGIN = 2.0  # pixels around a label
STEP = 5.0  # pixels between the samples of a line
INK = "#22262b"

Pixels = NDArray[np.float64]
"""Positions in pixels, one per row."""


@dataclass(frozen=True)
class Label:
    """A text at a point, in the axes' data coordinates."""

    x: float
    y: float
    text: str
    colour: str
    """Colour of the line between the point and the label."""


def place(axes: Axes, labels: Sequence[Label], size: float, lines: Sequence[ArrayLike] = ()) -> None:
    """Draw the labels.

    Args:
        axes: Axes with final limits and scales.
        labels: One label for each point.
        size: Font size, in points.
        lines: Other lines in the plot, each a list of (x, y) in data coordinates.
    """
    figure = axes.figure
    assert isinstance(figure, Figure)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()  # type: ignore[no-untyped-call]
    renderer = canvas.get_renderer()  # type: ignore[no-untyped-call]
    pixel = figure.dpi / 72
    inside = axes.get_window_extent(renderer)
    points = [tuple(axes.transData.transform((label.x, label.y))) for label in labels]
    taken = [Bbox.from_extents(x - 5 * pixel, y - 5 * pixel, x + 5 * pixel, y + 5 * pixel) for x, y in points]
    crossed = np.concatenate(
        [np.empty((0, 2)), *(_sampled(axes.transData.transform(np.asarray(one))) for one in lines)]
    )
    for number in sorted(range(len(labels)), key=lambda one: -_neighbours(points, one)):
        label, (x, y) = labels[number], points[number]
        probe = axes.text(0, 0, label.text, fontsize=size)
        extent = probe.get_window_extent(renderer)
        probe.remove()
        best = min(
            (_candidate(x, y, extent.width, extent.height, radius * pixel, angle) for radius in RADII
             for angle in ANGLES),
            key=lambda box: _cost(box, taken, inside, crossed, (x, y)),
        )  # fmt: skip
        taken.append(best)
        _draw(axes, label, best, (x, y), pixel, size)


def _draw(axes: Axes, label: Label, box: Bbox, point: tuple[float, float], pixel: float, size: float) -> None:
    middle = ((box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2)
    offset = ((middle[0] - point[0]) / pixel, (middle[1] - point[1]) / pixel)
    line = {"arrowstyle": "-", "color": label.colour, "linewidth": 0.7, "shrinkA": 1, "shrinkB": 4}
    axes.annotate(
        label.text,
        (label.x, label.y),
        xytext=offset,
        textcoords="offset points",
        ha="center",
        va="center",
        fontsize=size,
        color=INK,
        arrowprops=line if _distance(box, point) > NEAR * pixel else None,
        zorder=5,
    )


def _neighbours(points: Sequence[tuple[float, float]], one: int) -> int:
    x, y = points[one]
    return sum(1 for other in points if math.hypot(other[0] - x, other[1] - y) < 80)


def _candidate(x: float, y: float, width: float, height: float, radius: float, angle: float) -> Bbox:
    """Return the box of a label that lies in direction `angle` from its point.

    The edge or corner of the box that is nearest to the point is on the circle of this radius.
    """
    across, up = math.cos(math.radians(angle)), math.sin(math.radians(angle))
    middle_x = x + radius * across + width / 2 * _clipped(2 * across)
    middle_y = y + radius * up + height / 2 * _clipped(2 * up)
    return Bbox.from_bounds(
        middle_x - width / 2 - MARGIN, middle_y - height / 2 - MARGIN, width + 2 * MARGIN, height + 2 * MARGIN
    )


def _clipped(value: float) -> float:
    return max(-1.0, min(1.0, value))


def _sampled(path: Pixels) -> Pixels:
    """Return positions along a line; both are in pixels."""
    pieces = []
    for begin, end in itertools.pairwise(path):
        count = max(2, int(np.hypot(*(end - begin)) / STEP))
        pieces.append(begin + (end - begin) * np.linspace(0, 1, count)[:, None])
    return np.concatenate(pieces) if pieces else np.empty((0, 2))


def _cost(box: Bbox, taken: Sequence[Bbox], inside: Bbox, crossed: Pixels, point: tuple[float, float]) -> float:
    """Return the cost of a box: overlap with points and labels costs most, then parts off the plot, lines, distance."""
    covered = sum(_overlap(box, other) for other in taken)
    outside = box.width * box.height - _overlap(box, inside)
    x, y = crossed[:, 0], crossed[:, 1]
    on_lines = int(((x > box.x0) & (x < box.x1) & (y > box.y0) & (y < box.y1)).sum())
    return 1e4 * covered + 1e3 * outside + 12 * on_lines + _distance(box, point)


def _overlap(one: Bbox, other: Bbox) -> float:
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return width * height if width > 0 and height > 0 else 0.0


def _distance(box: Bbox, point: tuple[float, float]) -> float:
    """Return the pixels from a point to the nearest part of a box."""
    across = max(box.x0 - point[0], 0.0, point[0] - box.x1)
    up = max(box.y0 - point[1], 0.0, point[1] - box.y1)
    return math.hypot(across, up)
