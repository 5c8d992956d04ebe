"""The look of all figures: colours that the colour-blind can tell apart, markers and dashes for print without colour.

The colours are those of Okabe and Ito. A method keeps its colour, marker and dashes in every figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE, GREY = "#F0E442", "#0072B2", "#D55E00", "#CC79A7", "#7F7F7F"

# In force while figures are drawn and saved (the salt makes SVG files reproducible).
STYLE: Mapping[str, Any] = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "svg.hashsalt": "coaltree",
}

# What each method is drawn with.
MARKS: Mapping[str, Mapping[str, Any]] = {
    "postpost": {"color": GREY, "marker": "s", "linestyle": (0, (1, 1))},
    "mpost1": {"color": ORANGE, "marker": "^", "linestyle": (0, (5, 1))},
    "mpost2": {"color": VERMILION, "marker": "v", "linestyle": "--"},
    "smc1": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "tpost": {"color": GREEN, "marker": "D", "linestyle": "-."},
    "insertion": {"color": PURPLE, "marker": "P", "linestyle": (0, (3, 1, 1, 1))},
    "chain": {"color": BLACK, "marker": "*", "linestyle": "-"},
    "mode": {"color": ORANGE, "marker": "v", "linestyle": "--"},
    "mean": {"color": BLUE, "marker": "o", "linestyle": "-"},
    "truncated_mean": {"color": GREEN, "marker": "D", "linestyle": "-."},
    "peak": {"color": PURPLE, "marker": "s", "linestyle": ":"},
}

LABELS: Mapping[str, str] = {
    "postpost": "Post-Post",
    "mpost1": "MPost1",
    "mpost2": "MPost2",
    "smc1": "SMC1",
    "tpost": "tpost",
    "insertion": "insertion",
    "chain": "chain",
    "mode": "mode (Greedy)",
    "mean": "mean (MGreedy)",
    "truncated_mean": "truncated mean",
    "peak": "peak",
    "known": "merges known",
}


def panels(n_columns: int, n_rows: int = 1, width: float = 7.0, height: float = 2.8) -> tuple[Figure, list[Axes]]:
    """Return a figure of `width` inches, each row of panels `height` high, and its axes row by row."""
    figure = Figure(figsize=(width, height * n_rows), layout="constrained")
    return figure, list(figure.subplots(n_rows, n_columns, squeeze=False).ravel())


def legend_below(figure: Figure, axes: Axes, n_columns: int) -> None:
    """Put one legend for all panels under them."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=n_columns)


def plain_logarithmic(axes: Axes, which: str = "xy", ticks: tuple[float, ...] = (1.0, 2.0, 5.0)) -> None:
    """Make axes logarithmic, with numbers in full at `ticks` of every decade."""
    for name in which:
        axes.set(**{f"{name}scale": "log"})
        axis: Axis = getattr(axes, f"{name}axis")
        axis.set_major_locator(LogLocator(subs=ticks))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
