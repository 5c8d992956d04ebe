"""When a pair merges: the prior's impatience times the likelihood of the distance."""

import numpy as np
from matplotlib import pyplot as plt

from coaltree.model import gig
from coaltree.plots import PALETTE

D, RATE = 3, 1.0
v = np.linspace(1e-3, 6.0, 1500)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.2), layout="constrained", sharey=True)
for k, eps in enumerate((0.5, 3.0, 9.0)):
    style = ("-", "--", "-.")[k]
    log_density = -0.5 * D * np.log(v) - 0.5 * eps / v - 0.5 * RATE * v
    left.plot(
        v / 2, 2 * np.exp(log_density - gig.log_integral(D, eps, RATE, 0.0)), style, color=PALETTE[k], label=f"{eps:g}"
    )
    r = 1.6
    alive = v > r
    truncated = 2 * np.exp(log_density[alive] - gig.log_integral(D, eps, RATE, r))
    right.plot(v[alive] / 2, truncated, style, color=PALETTE[k], label=f"{eps:g}")
right.axvspan(0.0, 0.8, color="0.9", linewidth=0)
right.text(0.4, 2.2, "already\npast", ha="center", fontsize=8)
left.set_title("Before anything has merged")
right.set_title("At time 0.8, not merged yet")
for ax in (left, right):
    ax.set_xlabel("merge time of the pair")
    ax.set_xlim(0, 3)
    ax.spines[["top", "right"]].set_visible(False)
left.set_ylabel("density")
left.legend(title="squared distance ε", frameon=False, fontsize=8)
