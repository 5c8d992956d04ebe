"""Samplers, the greedy tree, refinement and the learner, and what a posterior says."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import coaltree as ct
from coaltree.inference.greedy.build import RULES
from coaltree.inference.smc.proposals import METHODS
from tests.properties.strategies import (
    Refused,
    counts,
    covariances,
    is_finite,
    leaf_noises,
    outcome,
    scalars,
    seeds,
    tables,
    trees,
)
from tests.reference.posteriors import make_posterior

rows = st.integers(2, 7)
likely = st.one_of(tables(rows, st.integers(1, 3)), tables(rows, st.integers(1, 3), wild=False))
methods = st.sampled_from(("auto", *METHODS, "greedy", None))


def size(X):
    return (np.shape(X)[0], np.shape(X)[1]) if np.ndim(X) == 2 else (2, 2)


def check_posterior(post):
    assert is_finite(post.times, post.weights, post.log_joint, post.ess_per_step)
    assert abs(post.weights.sum() - 1) < 1e-9
    n = post.n_leaves
    assert is_finite(post.cophenetic(), post.coclustering(min(2, n)), post.clade_support(post.mcc_tree()), post.ess)
    assert post.consensus().to_newick().endswith(";")


@given(st.data(), likely)
def test_sample_posterior(data, X):
    n, d = size(X)
    post = outcome(
        ct.sample_posterior,
        X,
        data.draw(covariances(d)),
        method=data.draw(methods),
        n_particles=data.draw(counts),
        leaf_noise=data.draw(leaf_noises(n)),
        ess_threshold=data.draw(st.one_of(st.just(0.5), scalars)),
        random_state=data.draw(seeds),
    )
    if not isinstance(post, Refused):
        check_posterior(post)
        assert is_finite(post.log_evidence)


@given(st.data(), likely, st.sampled_from((*RULES, "best", None)))
def test_greedy_tree(data, X, rule):
    n, d = size(X)
    noise = data.draw(leaf_noises(n))
    tree = outcome(ct.greedy_tree, X, data.draw(covariances(d)), rule=rule, leaf_noise=noise)
    assert isinstance(tree, Refused) or (tree.n_leaves == n and is_finite(tree.times))


@settings(max_examples=max(5, settings().max_examples // 2))
@given(st.data(), trees(st.integers(2, 6)))
def test_refine(data, tree):
    n = tree.n_leaves
    X = data.draw(tables(st.integers(n, n + 1), st.integers(1, 3)))
    noise = data.draw(leaf_noises(n))
    better = outcome(
        ct.refine,
        tree,
        X,
        data.draw(covariances(size(X)[1])),
        leaf_noise=noise,
        max_sweeps=data.draw(counts),
        temperature=data.draw(st.one_of(st.just(0.0), scalars)),
        random_state=data.draw(seeds),
    )
    assert isinstance(better, Refused) or is_finite(better.times)


@settings(max_examples=max(5, settings().max_examples // 2))
@given(st.data(), likely)
def test_learn_posterior(data, X):
    n, d = size(X)
    learned = outcome(
        ct.learn_posterior,
        X,
        data.draw(st.one_of(st.sampled_from(["spherical", "diagonal", "wishart", "full"]), covariances(d))),
        leaf_noise=data.draw(st.one_of(st.just("learn"), leaf_noises(n))),
        n_draws=data.draw(st.sampled_from([1, 2, 3, 0, 2.5])),
        warmup=data.draw(st.sampled_from([0, 1, 2, -1])),
        n_chains=data.draw(st.sampled_from([1, 2, 3, 0])),
        thin=data.draw(st.sampled_from([1, 2, 0, "often"])),
        method=data.draw(st.sampled_from(["auto", "auto", "greedy", "tpost", None])),
        random_state=data.draw(seeds),
    )
    if isinstance(learned, Refused):
        return
    check_posterior(learned.posterior)
    assert is_finite(learned.covariance, learned.leaf_noise, learned.completed, learned.completed_sd)
    assert is_finite(*learned.trace.values())
    assert np.linalg.eigvalsh(learned.covariance)[0] > 0


@given(st.data(), trees(st.integers(2, 6)))
def test_what_a_posterior_says(data, tree):
    n_trees = data.draw(st.integers(1, 4))
    raw = np.random.default_rng(data.draw(st.integers(0, 99))).random(n_trees) + 1e-3
    post = make_posterior([tree] * n_trees, raw / raw.sum())
    check_posterior(post)
    found = outcome(post.coclustering, data.draw(counts))
    assert isinstance(found, Refused) or is_finite(found)
    found = outcome(post.time_intervals, tree, data.draw(st.one_of(st.just(0.9), scalars)))
    assert isinstance(found, Refused) or is_finite(found)
    found = outcome(post.sample, data.draw(counts), data.draw(seeds))
    assert isinstance(found, Refused) or len(found) >= 1
    found = outcome(post.consensus, data.draw(scalars))
    assert isinstance(found, Refused) or found.to_newick().endswith(";")
    found = outcome(post.clade_support, data.draw(trees(st.integers(2, 6))))
    assert isinstance(found, Refused) or is_finite(found)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "posterior.npz"
        post.save(path)
        again = ct.TreePosterior.load(path)
    assert again.names == post.names
    assert again.weights.tobytes() == post.weights.tobytes()


@given(st.data())
def test_any_arrays_of_a_posterior(data):
    n_trees, n = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 4))
    base = ct.sample_tree(max(n, 2), random_state=0)
    post = outcome(
        ct.TreePosterior,
        children=data.draw(st.one_of(tables(), st.just(np.repeat(base.children[None], n_trees, axis=0)))),
        times=data.draw(st.one_of(tables(), st.just(np.repeat(base.times[None], n_trees, axis=0)))),
        weights=data.draw(st.one_of(tables(), scalars, st.just(np.full(n_trees, 1 / max(n_trees, 1))))),
        log_evidence=data.draw(scalars),
        log_joint=data.draw(st.one_of(scalars, st.just(np.zeros(n_trees)))),
        ess_per_step=data.draw(st.one_of(scalars, st.just(np.ones(max(n, 2) - 1)))),
        info=data.draw(st.one_of(st.just({}), scalars)),
    )
    if not isinstance(post, Refused):
        check_posterior(post)
