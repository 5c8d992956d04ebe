"""Learning by the paper's samplers has the same posterior as the chain."""

import numpy as np
import pytest
from papers.henao_lucas.particle_gibbs import by_chain, by_particles

import coaltree as ct
from coaltree.model.covariance import Spherical
from coaltree.posterior.diagnostics import effective_size
from tests.seeds import seed

# As a statistical test's tolerance: standard errors.
ERRORS = 5.0


def mean_and_error(trace):
    values = np.log(trace["variance"])
    return values.mean(), values.std() / np.sqrt(effective_size(values[None]))


@pytest.fixture(scope="module")
def table():
    return ct.sample_data(ct.sample_tree(10, random_state=1), 4, leaf_noise=0.1, random_state=2)


@pytest.fixture(scope="module")
def of_the_chain(table):
    return mean_and_error(by_chain(table, Spherical(), True, 1000, 100, np.random.default_rng(seed(3))).trace)


def gap(X, method, of_the_chain):
    learned = by_particles(X, Spherical(), True, method, 10, 300, 30, np.random.default_rng(seed(4)))
    mean, error = mean_and_error(learned.trace)
    return abs(mean - of_the_chain[0]) / np.hypot(error, of_the_chain[1])


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("method", ["mpost2", "smc1"])
def test_particles_and_chain_learn_the_same(table, of_the_chain, method):
    assert gap(table, method, of_the_chain) < ERRORS


@pytest.mark.slow
@pytest.mark.ci
def test_another_scale_would_be_noticed(table, of_the_chain):
    """Negative control: the variance of a table twice as large."""
    assert gap(2 * table, "smc1", of_the_chain) > ERRORS


@pytest.mark.slow
@pytest.mark.ci
def test_trees_are_sampled_at_the_medians(table):
    learned = by_particles(table, Spherical(), False, "mpost2", 7, 12, 2, np.random.default_rng(5), list("abcdefghij"))
    assert len(learned.posterior) == 7
    assert learned.posterior.names == tuple("abcdefghij")
    assert learned.leaf_noise.tolist() == [0.0] * 10
    assert learned.trace["variance"].shape == (10,)
    assert learned.covariance == pytest.approx(np.median(learned.trace["variance"]) * np.eye(4))
