"""The point tree against every tree that the seen clades can make."""

import numpy as np
import pytest

import coaltree as ct
from coaltree import Tree, TreePosterior
from coaltree.inference.moves import whole_tree
from coaltree.metrics import robinson_foulds
from coaltree.posterior import point
from tests.reference import point as reference
from tests.reference.posteriors import clades_of, log_credibility, make_posterior, noisy_posterior, support
from tests.reference.trees import caterpillar, random_tree
from tests.seeds import seed


def log_product(tree, posterior):
    return reference.log_product(clades_of(tree), support(posterior))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6])
@pytest.mark.parametrize("n_trees", [1, 3, 8, 20])
@pytest.mark.parametrize("number", range(4))
def test_no_tree_of_seen_clades_is_better(n, n_trees, number):
    rng = np.random.default_rng([n, n_trees, number])
    trees = [random_tree(rng, n) for _ in range(n_trees)]
    posterior = make_posterior(trees, rng.dirichlet(np.ones(n_trees)))
    best, clades, _ = reference.best_trees(posterior)
    found = posterior.point_tree()
    assert log_product(found, posterior) == pytest.approx(best, abs=1e-9)
    assert frozenset(clades_of(found)) in clades


def test_the_best_tree_may_be_in_no_draw():
    """Two halves, each best resolved in another draw; their splits were seen, their union as one tree was not."""
    one = Tree([[0, 1], [2, 6], [3, 5], [4, 8], [7, 9]], np.arange(1.0, 6.0))
    two = Tree([[3, 4], [5, 6], [1, 2], [0, 8], [7, 9]], np.arange(1.0, 6.0))
    three = Tree([[0, 1], [2, 6], [3, 4], [5, 8], [7, 9]], np.arange(1.0, 6.0) + 10)
    posterior = make_posterior([one, two], [0.6, 0.4])
    assert log_product(posterior.point_tree(), posterior) == pytest.approx(log_product(one, posterior))
    mixed = make_posterior([one, two, random_tree(np.random.default_rng(0), 6)], [0.4, 0.35, 0.25])
    assert log_product(mixed.point_tree(), mixed) >= log_product(mixed.mcc_tree(), mixed) - 1e-12
    # With one draw more for each half the point tree takes the better half of either.
    halves = make_posterior([one, two, one, two, three], [0.2, 0.2, 0.2, 0.2, 0.2])
    assert set(clades_of(halves.point_tree())) == set(clades_of(three))


def split_unseen():
    """Half of the trees have the clade 01, half 23, all 0123, which none makes of the two."""
    orders = ((0, 1, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1), (2, 3, 1, 0))
    return [Tree([[a, b], [c, 5], [d, 6], [4, 7]], np.arange(1.0, 5.0)) for a, b, c, d in orders]


@pytest.mark.parametrize("few", [point.FEW, 0])
def test_a_split_that_no_tree_has_made(few, monkeypatch):
    """By trying all clades, or only those near by in the trees that hold the clade."""
    monkeypatch.setattr(point, "FEW", few)
    posterior = make_posterior(split_unseen(), np.full(4, 0.25))
    found = posterior.point_tree()
    assert frozenset({0, 1}) in clades_of(found)
    assert frozenset({2, 3}) in clades_of(found)
    assert log_product(found, posterior) > log_credibility(posterior).max() + 0.5
    # The control: alone, a tree can only be itself.
    assert clades_of(make_posterior(split_unseen()[:1], [1.0]).point_tree()) == clades_of(split_unseen()[0])


@pytest.mark.parametrize("few", [point.FEW, 0])
def test_at_least_as_credible_as_every_draw(few, monkeypatch):
    monkeypatch.setattr(point, "FEW", few)
    gains = []
    for number in range(10):
        posterior = noisy_posterior(np.random.default_rng(number), n_leaves=25, noise=1.0, n_trees=60)
        gains.append(log_product(posterior.point_tree(), posterior) - log_credibility(posterior).max())
    assert min(gains) > -1e-9
    assert np.median(gains) > 1.0  # not just the best draw


def test_one_tree_is_itself():
    tree = random_tree(np.random.default_rng(0), 30, [f"t{i}" for i in range(30)])
    found = make_posterior([tree], [1.0]).point_tree()
    assert found.names == tree.names
    np.testing.assert_allclose(found.cophenetic(), tree.cophenetic())


def test_deep_trees():
    tree = caterpillar(3_000)
    found = make_posterior([tree, tree], [0.5, 0.5]).point_tree()
    np.testing.assert_array_equal(found.times, tree.times)


def test_times_are_those_of_near_clades():
    early = Tree([[0, 1], [2, 4], [3, 5]], [0.1, 0.2, 9.0])
    late = Tree([[2, 3], [0, 1], [4, 5]], [0.1, 8.0, 9.0])
    found = make_posterior([early, late], [0.6, 0.4]).point_tree()
    assert clades_of(found) == clades_of(early)
    np.testing.assert_array_equal(found.times, [0.1, 0.2, 9.0])


def test_ties_go_to_the_highest_joint_density():
    trees = [Tree([[a, b], [c, 3]], [1.0, 2.0]) for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 2, 0))]
    for best in range(3):
        for order in ([0, 1, 2], [2, 0, 1], [1, 2, 0]):
            log_joint = np.where(np.arange(3) == best, 0.0, -5.0)[order]
            posterior = make_posterior([trees[i] for i in order], np.full(3, 1 / 3), log_joint=log_joint)
            assert clades_of(posterior.point_tree()) == clades_of(trees[best])


def test_draws_without_weight_do_not_count():
    trees = [random_tree(np.random.default_rng(m), 9) for m in range(3)]
    posterior = make_posterior(trees, [0.0, 1.0, 0.0], log_joint=[5.0, 0.0, 9.0])
    assert posterior.point_tree() == make_posterior(trees[1:2], [1.0]).point_tree()


@pytest.mark.slow
def test_nearer_to_the_truth_and_steadier_than_draws():
    """Chains on data from the model: distance to the true tree, and between the trees of two chains."""
    n, gain, control, apart = 40, [], [], []
    for number in range(12):
        truth = ct.sample_tree(n, random_state=seed(number))
        X = ct.sample_data(truth, 16, random_state=seed(number))
        posteriors = []
        for run in range(2):
            start = ct.sample_posterior(X, n_particles=20, random_state=run).best_tree()
            chain = whole_tree.trace(start, X, np.zeros(n), 120, np.random.default_rng(run), thin=2)
            trees = [Tree(*pair) for pair in zip(chain.children[20:], chain.times[20:], strict=True)]
            posteriors.append(make_posterior(trees, np.full(100, 0.01), log_joint=chain.log_joint[20:]))
        errors = np.array([robinson_foulds(tree, truth) for tree in posteriors[0]])
        gain.append(errors.mean() - robinson_foulds(posteriors[0].point_tree(), truth))
        control.append(errors.mean() - errors[50])
        apart.append(
            [
                robinson_foulds(*(method(p) for p in posteriors))
                for method in (TreePosterior.point_tree, TreePosterior.mcc_tree)
            ]
        )

    def errors_above_zero(values):
        return np.mean(values) / np.std(values, ddof=1) * np.sqrt(len(values))

    assert errors_above_zero(gain) > 4.0
    assert errors_above_zero(control) < 4.0  # any draw is as good as the draws
    assert 1.5 * np.mean(apart, axis=0)[0] < np.mean(apart, axis=0)[1]
