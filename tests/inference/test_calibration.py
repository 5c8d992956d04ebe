"""Simulation-based calibration: trees from the prior, data given trees, ranks in the posterior uniform."""

import numpy as np
import pytest
from scipy import stats

import coaltree as ct
from tests.seeds import seed

pytestmark = [pytest.mark.slow, pytest.mark.ci]
N, D, N_REPLICATES, N_DRAWS = 8, 3, 300, 19


def statistics(tree):
    """Last merge time, mean log time, merge time of leaves 0 and 1."""
    return [tree.times[-1], np.log(tree.times).mean(), tree.cophenetic()[0, 1]]


def ranks(method, scale=1.0, start=0):
    """Rank of the truth among draws; `scale` wrongly scales the data, for the negative control."""
    out = []
    for replicate in range(N_REPLICATES):
        rng = np.random.default_rng(seed(start + replicate))
        tree = ct.sample_tree(N, random_state=rng)
        X = ct.sample_data(tree, D, random_state=rng)
        post = ct.sample_posterior(scale * X, method=method, n_particles=200, random_state=rng)
        draws = np.array([statistics(t) for t in post.sample(N_DRAWS, random_state=rng)])
        out.append((draws < statistics(tree)).sum(axis=0))
    return np.array(out)


def p_values(table):
    return [stats.chisquare(np.bincount(column, minlength=N_DRAWS + 1)).pvalue for column in table.T]


@pytest.mark.parametrize("method", ["auto", "smc1"])
def test_ranks_are_uniform(method):
    assert min(p_values(ranks(method))) > 1e-3 / 3


def test_wrong_scale_is_noticed():
    assert min(p_values(ranks("auto", scale=1.25))) < 1e-4
