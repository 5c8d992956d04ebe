"""The same number of points with and without a hierarchy, as the posterior sees them."""

import numpy as np
from matplotlib import pyplot as plt

import coaltree as ct
from coaltree.plots import plot_densitree

rng = np.random.default_rng(1)
nested = ct.sample_data(ct.sample_tree(12, random_state=4), np.eye(8), random_state=5)
star = rng.normal(size=(12, 8))
figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.6), layout="constrained")
for ax, X, title in zip(axes, (nested, star), ("Data with a hierarchy", "Twelve independent points"), strict=True):
    learned = ct.learn_posterior(X, "spherical", n_draws=100, random_state=0)
    post = learned.posterior
    plot_densitree(post, ax)
    support = post.clade_support(post.point_tree())[:-1]
    ax.set_title(f"{title}: mean support of a clade {support.mean():.2f}")
