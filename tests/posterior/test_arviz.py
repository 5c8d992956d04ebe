"""Traces in ArviZ, linkage in seaborn."""

import importlib.util
import sys

import numpy as np
import pytest

import coaltree as ct
from coaltree.posterior.diagnostics import effective_size, to_arviz

has_arviz = pytest.mark.skipif(importlib.util.find_spec("arviz") is None, reason="ArviZ is not installed")
RNG = np.random.default_rng(0)
TRACE = {
    "variance": RNG.normal(size=(2, 30)),
    "variances": RNG.normal(size=(2, 30, 3)),
    "log_joint": RNG.normal(size=(2, 30)),
}


@has_arviz
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_groups_and_dimensions():
    data = to_arviz(TRACE, burn_in=10)
    assert set(data.groups()) >= {"posterior", "sample_stats", "warmup_posterior"}
    assert data.posterior["variance"].dims == ("chain", "draw")
    assert data.posterior["variances"].dims == ("chain", "draw", "column")
    assert data.posterior.sizes["chain"] == 2
    np.testing.assert_array_equal(data.posterior["variance"][0], TRACE["variance"][0, 10:])
    np.testing.assert_array_equal(data.warmup_posterior["variance"][1], TRACE["variance"][1, :10])
    np.testing.assert_array_equal(data.sample_stats["lp"][0], TRACE["log_joint"][0, 10:])
    assert "warmup_posterior" not in to_arviz(TRACE).groups()


@has_arviz
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_effective_sample_sizes_agree():
    import arviz

    noise = RNG.normal(size=4000)
    chain = np.zeros(4000)
    for k in range(1, 4000):
        chain[k] = 0.8 * chain[k - 1] + noise[k]
    theirs = float(arviz.ess(to_arviz({"x": chain[None]}), method="bulk")["x"])
    assert effective_size(chain[None]) == pytest.approx(theirs, rel=0.02)


@has_arviz
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_learned_traces():
    X = ct.sample_data(ct.sample_tree(8, random_state=1), 3, random_state=2)
    learned = ct.learn_posterior(X, "diagonal", n_draws=8, warmup=2, thin=1)
    data = to_arviz(learned.trace, learned.warmup)
    assert data.posterior.sizes["draw"] == 4
    assert {"leaf_noise", "last_time"} <= set(data.posterior)


@has_arviz
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_bad_input():
    with pytest.raises(ValueError, match="burn_in must be between"):
        to_arviz(TRACE, burn_in=30)
    with pytest.raises(ValueError, match="must be a mapping of arrays"):
        to_arviz({"variance": TRACE["variance"][0]})


def test_without_arviz(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match="coaltree\\[arviz\\]"):
        to_arviz(TRACE)


@pytest.mark.filterwarnings("ignore")
def test_seaborn_takes_our_linkage():
    seaborn = pytest.importorskip("seaborn")
    import matplotlib

    matplotlib.use("Agg")
    X = ct.sample_data(ct.sample_tree(10, random_state=1), 4, random_state=2)
    tree = ct.greedy_tree(X)
    grid = seaborn.clustermap(X, row_linkage=tree.to_linkage(), col_cluster=False)
    shown = grid.dendrogram_row.reordered_ind
    # Every clade is a run of rows of the picture.
    place = np.argsort(shown)
    assert all(np.ptp(place[members]) == members.sum() - 1 for members in tree.clades())
