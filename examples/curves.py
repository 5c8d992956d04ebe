"""
Curves, series and images: a kernel for the columns
===================================================

Columns are often places: times of a curve, pixels of an image. Then neighbouring columns move together, and a
Gaussian-process kernel over the columns' coordinates says so with a few numbers instead of a full matrix.
"""

# %%
# Forty smooth curves
# -------------------
# Simulated from the model, at thirty points in time, with a squared-exponential kernel of length 3 and a little noise.

import numpy as np
from matplotlib import pyplot as plt
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree.plots import PALETTE, plot_dendrogram

time = np.linspace(0.0, 20.0, 30)
true_kernel = RBF(3.0) + WhiteKernel(0.01)
truth = ct.sample_tree(40, random_state=5)
X = ct.sample_data(truth, true_kernel(time[:, None]), leaf_noise=0.01, random_state=6)

# %%
# A kernel instead of a matrix
# ----------------------------
# Any scikit-learn kernel will do. Its free hyperparameters are learned within their bounds, and an amplitude for the
# whole is always added. A full matrix would have 465 entries to learn from forty rows.

kernel = RBF(1.0, (0.1, 30.0)) + WhiteKernel(0.1, (1e-4, 10.0))
fitted = {}
for name, covariance in {"kernel": kernel, "spherical": "spherical"}.items():
    fitted[name] = ct.learn_posterior(
        X,
        covariance,
        coordinates=time if name == "kernel" else None,
        random_state=0,
    )
    evidence = ct.sample_posterior(
        X, fitted[name].covariance, leaf_noise=fitted[name].leaf_noise
    ).log_evidence
    print(f"{name:<10} log evidence at the learned values {evidence:10.1f}")

learned = fitted["kernel"]
low, middle, high = np.quantile(
    learned.trace["k1__length_scale"][:, learned.warmup :], [0.05, 0.5, 0.95]
)
print(
    f"length scale {middle:.2f}, 90 % interval {low:.2f} to {high:.2f}; simulated with 3"
)

# %%
# The log evidences are estimates of :math:`\log p(X)` on the same data, so they can be compared: smooth curves are next
# to impossible under independent columns.

_, (left, right) = plt.subplots(1, 2, figsize=(9.0, 4.2), layout="constrained")
labels = learned.posterior.point_tree().cut(n_clusters=4)
for row, label in zip(X, labels, strict=True):
    left.plot(time, row, color=PALETTE[label], linewidth=0.9)
left.set_xlabel("time")
left.set_title("Forty curves, coloured by cluster")
tree = learned.posterior.point_tree()
plot_dendrogram(
    tree, right, support=learned.posterior.clade_support(tree), n_clusters=4
)
right.set_title("Their tree")

# %%
# Does the kernel find more of the true tree?
# -------------------------------------------
# The kernel knows which differences between curves are cheap, and finds more of the clades that were simulated.

from coaltree.metrics import robinson_foulds

for name, each in fitted.items():
    found = 38 - robinson_foulds(each.posterior.point_tree(), truth) / 2
    print(f"{name:<10} {found:.0f} of 38 clades")

# %%
# Images
# ------
# For pixels the coordinates have two columns. ``Columns`` lets a kernel see some of them only; a product over the axes
# of a full grid is recognised, and then whitening and the updates of the kernel's parameters use its Kronecker
# structure.

from sklearn.gaussian_process.kernels import Matern

from coaltree.model.gp import GaussianProcess, OnColumns

pixels = np.stack(
    np.meshgrid(np.arange(16.0), np.arange(16.0), indexing="ij"), axis=-1
).reshape(-1, 2)
axes = OnColumns(Matern(2.0, nu=1.5), [0]) * OnColumns(
    Matern(2.0, nu=1.5), [1]
) + WhiteKernel(0.1)
family = GaussianProcess(axes, pixels)
print(family.d, "pixels on a separable grid:", family.grid is not None)
