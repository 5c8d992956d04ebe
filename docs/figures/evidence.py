"""Log evidence of the samplers against tpost's, from benchmarks/evidence.md."""

import re
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt

from coaltree.plots import PALETTE

SHOWN = ("mpost1", "mpost2", "postpost", "smc1", "insertion")
NUMBER = re.compile(r"([+-][\d.]+) ± ([\d.]+)")
file = Path(__file__).parents[2] / "benchmarks" / "evidence.md"
lines = file.read_text(encoding="utf-8").splitlines()
table = [[cell.strip() for cell in line.strip("| ").split("|")] for line in lines if line.startswith("|")]
head, rows = table[0], [row for row in table[2:] if len(row) == len(table[0])]
place = {name: head.index(name) for name in ("n", "d", *SHOWN) if name in head}

sizes = (32, 64, 128)
figure, axes = plt.subplots(1, 3, figsize=(9.0, 3.2), layout="constrained")
for ax, n in zip(axes, sizes, strict=True):
    for k, name in enumerate(name for name in SHOWN if name in place):
        found = [(int(row[place["d"]]), NUMBER.search(row[place[name]])) for row in rows if int(row[place["n"]]) == n]
        points = np.array([(d, float(match[1]), float(match[2])) for d, match in found if match]).reshape(-1, 3)
        if len(points):
            ax.errorbar(
                points[:, 0] * 1.03**k,
                points[:, 1],
                yerr=2 * points[:, 2],
                color=PALETTE[k],
                marker="osD^v"[k],
                markersize=4,
                linewidth=1.0,
                label=name,
            )
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_xticks([1, 2, 4, 8, 16, 32, 64, 128], ["1", "2", "4", "8", "16", "32", "64", "128"])
    ax.set_title(f"n = {n}")
    ax.set_xlabel("dimension d")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("log evidence minus tpost's")
axes[0].legend(frameon=False, fontsize=8)
