"""Layout: leaf order, node positions, axes with a time direction and a leaf direction."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.tree import Tree

Orientation = Literal["left", "right", "top", "bottom"]
TimeScale = Literal["linear", "sqrt", "log"]

INK = "#3A3F47"
FAINT = "#9AA1AB"
# Paul Tol's "muted" scheme, safe for colour-blind readers; reordered so that the first few differ most.
PALETTE = ("#332288", "#CC6677", "#117733", "#DDAA33", "#44AA99", "#882255", "#88CCEE", "#999933", "#AA4499")

_LABEL_SIZES = (5.5, 9.5)
_POINTS_PER_INCH = 72.0
_LOG_FLOOR = 0.05


class Canvas(NamedTuple):
    """Axes with one direction for time and one for leaves, whatever the orientation."""

    ax: Axes
    orientation: Orientation

    @property
    def time_is_horizontal(self) -> bool:
        """Whether time runs along x."""
        return self.orientation in ("left", "right")

    def xy(self, time: npt.ArrayLike, place: npt.ArrayLike) -> Floats:
        """Stack times and leaf positions into data coordinates (…, 2)."""
        pair = (time, place) if self.time_is_horizontal else (place, time)
        return np.stack(np.broadcast_arrays(*pair), axis=-1).astype(np.float64)

    def points_per_leaf(self, n_leaves: int) -> float:
        """Room for one leaf along the leaf axis, in points."""
        box = self.ax.bbox
        pixels = box.height if self.time_is_horizontal else box.width
        return float(pixels / self.ax.figure.dpi * _POINTS_PER_INCH / (n_leaves + 1))

    def toward_root(self, along: float, across: float) -> tuple[float, float]:
        """Offset in points: `along` toward the root, `across` away from the leaf axis' start."""
        sign = -1.0 if self.orientation in ("left", "bottom") else 1.0
        return (sign * along, across) if self.time_is_horizontal else (across, sign * along)


def make_canvas(ax: Axes | None, orientation: Orientation, n_leaves: int) -> Canvas:
    """Check the orientation; make a figure of suitable size if no axes are given."""
    if orientation not in ("left", "right", "top", "bottom"):
        raise InputError(
            f'orientation must be "left", "right", "top" or "bottom", the side of the root, got {orientation!r}.'
        )
    if ax is None:
        long = float(np.clip(0.19 * n_leaves + 0.9, 3.0, 9.0))
        size = (6.5, long) if orientation in ("left", "right") else (max(long, 4.5), 4.5)
        _, ax = plt.subplots(figsize=size, layout="constrained")
    return Canvas(ax, orientation)


def ladderised_order(tree: Tree, rows: Ints | None = None) -> Ints:
    """Leaf order in which the larger side of every merge comes last, (n,); a leaf may count for several rows."""
    size = np.concatenate([np.ones(tree.n_leaves, dtype=np.int64) if rows is None else rows, tree.sizes()])
    if rows is not None:
        for node, (left, right) in enumerate(tree.children.tolist(), start=tree.n_leaves):
            size[node] = size[left] + size[right]
    by_size = np.argsort(size[tree.children], axis=1, kind="stable")
    return Tree(np.take_along_axis(tree.children, by_size, axis=1), tree.times).leaf_order()


def plain(text: str, longest: int = 40) -> str:
    """A label as it is drawn: on one line, shortened in the middle, dollar signs not read as mathematics."""
    line = " ".join(text.encode(errors="replace").decode().split())  # a lone surrogate cannot be drawn
    if len(line) > longest:
        kept = longest - 1
        line = f"{line[: kept - kept // 3]}\N{HORIZONTAL ELLIPSIS}{line[len(line) - kept // 3 :]}"
    return line.replace("$", r"\$")


def node_places(children: Ints, order: Ints) -> Floats:
    """Position of every node of M trees along the leaf axis, (M, 2n−1): midway between its children."""
    n_trees, n_merges, _ = children.shape
    n = n_merges + 1
    places = np.empty((n_trees, 2 * n - 1))
    places[:, order] = np.arange(n)
    rows = np.arange(n_trees)
    for k in range(n_merges):
        places[:, n + k] = 0.5 * (places[rows, children[:, k, 0]] + places[rows, children[:, k, 1]])
    return places


def drawn_times(times: Floats, scale: TimeScale) -> tuple[Floats, float]:
    """Merge times as they are drawn, and the time at which leaves are drawn: 0, or a floor on a log axis.

    The floor is below all but the earliest twentieth of the merges.
    """
    if scale not in ("linear", "sqrt", "log"):
        raise InputError(f'time_scale must be "linear", "sqrt" or "log", got {scale!r}.')
    if scale != "log":
        return times, 0.0
    positive = times[times > 0.0]
    # The first merges of a large tree span decades in which nothing can be distinguished: they go to the edge.
    floor = 0.7 * float(np.quantile(positive, _LOG_FLOOR, method="lower")) if positive.size else 1.0
    return np.maximum(times, floor), floor


def finish_axes(canvas: Canvas, n_leaves: int, time_limits: tuple[float, float], scale: TimeScale) -> None:
    """Set limits and scale, keep only the time axis' spine, put the leaves opposite the root."""
    ax, horizontal = canvas.ax, canvas.time_is_horizontal
    time_axis, leaf_axis = (ax.xaxis, ax.yaxis) if horizontal else (ax.yaxis, ax.xaxis)
    set_time_scale, set_time_limits = (ax.set_xscale, ax.set_xlim) if horizontal else (ax.set_yscale, ax.set_ylim)
    set_leaf_limits = ax.set_ylim if horizontal else ax.set_xlim
    if scale == "sqrt":
        set_time_scale("function", functions=(lambda t: np.sqrt(np.maximum(t, 0.0)), np.square))
    else:
        set_time_scale(scale)
    leaf_time, root_time = time_limits
    set_time_limits(*((root_time, leaf_time) if canvas.orientation in ("left", "bottom") else (leaf_time, root_time)))
    margin = max(0.8, 0.01 * n_leaves)
    set_leaf_limits(-margin, n_leaves - 1 + margin)
    for side in ("left", "right", "top", "bottom"):
        ax.spines[side].set_visible(side == ("bottom" if horizontal else "left"))
    ax.spines["bottom" if horizontal else "left"].set_color(FAINT)
    time_axis.set_tick_params(color=FAINT, labelcolor=INK, labelsize=8)
    time_axis.set_label_text("merge time", color=INK, fontsize=9)
    opposite = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}[canvas.orientation]
    leaf_axis.set_ticks_position(opposite)  # type: ignore[arg-type]
    leaf_axis.set_label_position(opposite)  # type: ignore[arg-type]
    leaf_axis.set_tick_params(length=0, pad=3)


def label_leaves(canvas: Canvas, labels: tuple[str, ...], order: Ints) -> bool:
    """Write one label per leaf if there is room, else only their number; return whether there was room."""
    axis = canvas.ax.yaxis if canvas.time_is_horizontal else canvas.ax.xaxis
    room = canvas.points_per_leaf(len(order))
    smallest, largest = _LABEL_SIZES
    fits = room >= smallest
    if fits:
        # A font size is the height of the whole line; letters fill about four fifths of it, so lines may touch.
        axis.set_ticks(range(len(order)), [plain(labels[leaf]) for leaf in order])
        axis.set_tick_params(labelsize=min(largest, max(smallest, 0.85 * room)), labelcolor=INK)
        if not canvas.time_is_horizontal and max(map(len, labels)) * 0.6 * min(largest, room) > 0.75 * room:
            axis.set_tick_params(rotation=90)
    else:
        axis.set_ticks([])
        axis.set_label_text(f"{len(order):,} leaves", color=INK, fontsize=9)
    return fits


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """Return a new figure, size in inches, and its axes: pages draw on these, without pyplot."""
    figure = Figure(figsize=(float(width), float(height)), layout="constrained")
    return figure, figure.add_subplot()


def tidy_axes(ax: Axes, size: float = 8.0) -> None:
    """Keep only the left and bottom axes, faint, with labels of the given size."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.tick_params(color=FAINT, labelcolor=INK, labelsize=size)
