"""New points: against quadrature from the definitions, against the evidence of one more leaf, and at the boundary."""

import numpy as np
import pytest
from scipy.integrate import trapezoid

import coaltree as ct
from coaltree.places import predict, search
from coaltree.places.cells import no_cells
from coaltree.places.exact import View
from coaltree.places.host import CLOCK, exact_clock, make_host
from tests.reference.exact import exact_posterior
from tests.reference.places import edge_masses
from tests.reference.posteriors import make_posterior
from tests.seeds import seed

USUAL = (CLOCK, search.MARGIN, search.KINKS)
PHI = np.array([[1.0, 0.4, 0.1], [0.4, 2.0, -0.3], [0.1, -0.3, 0.5]])


def simulate(n, covariance, leaf_noise, number):
    rng = np.random.default_rng(seed(number))
    tree = ct.sample_tree(n, random_state=rng)
    return tree, ct.sample_data(tree, covariance, leaf_noise=leaf_noise, random_state=rng), rng


def one_tree(tree):
    return make_posterior([tree], [1.0])


def masses_of(tree, X, noise, points, new_noise, accuracy=(0.0, 30.0, 1e-4)):
    """Masses and mean times of all edges, (B, 2n−1), by a search that leaves out next to nothing, or as others do."""
    n, d = X.shape
    tolerance, *limits = accuracy
    host = make_host(tree, X, noise, tolerance)
    view = View(np.arange(d), np.empty((0, d)))
    task = search.Task(host, view, no_cells(d), float(d), *limits)
    found = search.find_places(task, points, new_noise)
    masses, times = np.zeros((2, len(points), 2 * n - 1))
    row = np.repeat(np.arange(len(points)), np.diff(found.first))
    masses[row, found.node] = np.exp(found.log_mass - d / 2 * np.log(2 * np.pi))
    times[row, found.node] = found.time
    return masses, times


@pytest.mark.parametrize(("n", "d", "noise"), [(2, 1, 0.0), (3, 2, 0.1), (5, 4, 0.01), (3, 40, 0.3)])
def test_edges_against_quadrature(n, d, noise):
    tree, X, rng = simulate(n, d, noise, 10 * n + d)
    points = np.array([X.mean(axis=0), X[0] + 0.1 * rng.normal(size=d)])
    found, times = masses_of(tree, X, np.full(n, noise), points, noise)
    for k, point in enumerate(points):
        expected, mean_times = edge_masses(tree, X, np.full(n, noise), point, noise)
        np.testing.assert_allclose(found[k].sum(), expected.sum(), rtol=5e-6)
        np.testing.assert_allclose(found[k], expected, atol=5e-6 * expected.sum())
        matters = expected > 1e-4 * expected.sum()
        np.testing.assert_allclose(times[k][matters], mean_times[matters], rtol=1e-3)


def test_mass_is_accurate_where_many_merges_make_kinks():
    # The Riemann sum over a fine grid of the same density, on one long edge crossed by most merges.
    tree, X, rng = simulate(200, 2, 0.01, 3)
    noise = np.full(200, 0.01)
    point = X[rng.integers(200)] + 0.2
    found, _ = masses_of(tree, X, noise, point[None], 0.01)
    node = int(np.argmax(found[0]))
    host = make_host(tree, X, noise)
    low, high = host.time[node], host.time[host.parent[node]]
    t = low + (high - low) * (np.arange(400_000) + 0.5) / 400_000
    lineages = 200 - np.searchsorted(tree.times, t, side="right")
    before = np.concatenate([[0.0], tree.times])
    exposure = exact_clock(tree.times).exposure[200 - lineages] + lineages * (t - before[200 - lineages])
    alpha = host.variance[node] + t - low
    share = alpha / (host.variance[node] + host.above_variance[node] + high - low)
    expected = (1 - share[:, None]) * host.mean[node] + share[:, None] * host.above_mean[node]
    v = 0.01 + t + alpha * (1 - share)
    f = np.exp(-exposure - ((point - expected) ** 2).sum(axis=1) / (2 * v)) / (2 * np.pi * v)
    assert found[0, node] == pytest.approx(f.mean() * (high - low), rel=1e-6)


def log_ratio_of_evidences(X, point, noise):
    """log p(X, x) − log p(X), both by enumeration and quadrature."""
    with_point = exact_posterior(np.vstack([X, point]), leaf_noise=noise).log_evidence
    return with_point - exact_posterior(X, leaf_noise=noise).log_evidence


@pytest.mark.parametrize(("d", "noise"), [(1, 0.2), (3, 0.05)])
def test_predictive_density_is_the_ratio_of_evidences(d, noise):
    """The coalescent of n + 1 leaves has that of n in it. With two leaves there is one time to integrate over."""
    rng = np.random.default_rng(seed(d))
    X, point = rng.normal(size=(2, d)), rng.normal(size=d)
    nodes, weights = np.polynomial.legendre.leggauss(80)
    # The merge time of two leaves, t = u³ from 0 to where e^(−t) is nothing.
    u = 3.4 * (nodes + 1) / 2
    trees = [ct.Tree([[0, 1]], [t]) for t in u**3]
    mass = np.exp([ct.log_joint(tree, X, leaf_noise=noise) for tree in trees]) * 3 * u**2 * weights
    posterior = make_posterior(trees, mass / mass.sum())
    fit = predict.make_fit(posterior, X, np.ones((1, d)), np.full((1, 2), noise))
    expected = log_ratio_of_evidences(X, point, noise)
    assert predict.log_predictive(fit, point[None])[0] == pytest.approx(expected, abs=2e-6)
    # The control: with another noise there is another density.
    others = [predict.make_fit(posterior, X, np.ones((1, d)), np.full((1, 2), c * noise)) for c in (2.0, 10.0)]
    assert max(abs(predict.log_predictive(other, point[None])[0] - expected) for other in others) > 1e-3


def test_predictive_density_of_sampled_trees():
    rng = np.random.default_rng(seed(8))
    X, point = rng.normal(size=(3, 2)), rng.normal(size=2)
    sampled = ct.sample_posterior(X, leaf_noise=0.1, method="postpost", n_particles=4000, random_state=seed(1))
    posterior = sampled.sample(400, seed(2))
    fit = predict.make_fit(posterior, X, np.ones((1, 2)), np.full((1, 3), 0.1))
    density = np.array([masses_of(tree, X, np.full(3, 0.1), point[None], 0.1, USUAL)[0].sum() for tree in posterior])
    error = density.std() / density.mean() / np.sqrt(400)
    found = predict.log_predictive(fit, point[None])[0]
    assert found == pytest.approx(np.log(density.mean()), abs=1e-9)
    assert abs(found - log_ratio_of_evidences(X, point, 0.1)) < 5 * error
    assert error < 0.05


def test_density_integrates_to_one():
    tree, X, _ = simulate(5, 1, 0.1, 4)
    fit = predict.make_fit(one_tree(tree), X, np.array([[0.7]]), np.full((1, 5), 0.1))
    # The flat root makes tails of |x|⁻² e^…: wide limits.
    grid = np.linspace(-60, 60, 4001)
    density = np.exp(predict.log_predictive(fit, grid[:, None]))
    assert trapezoid(density, grid) == pytest.approx(1.0, abs=1e-4)


@pytest.fixture(scope="module")
def fitted():
    _, Z, _ = simulate(40, PHI, 0.05, 5)
    X, new = Z[:32], Z[32:]
    post = ct.sample_posterior(X, PHI, leaf_noise=0.05, n_particles=10)
    return predict.make_fit(post, X, PHI[None], np.full((1, 32), 0.05)), new


def test_missing_entries_are_integrated_out(fitted):
    fit, new = fitted
    point = new[:1].copy()
    point[0, 1] = np.nan
    grid = np.linspace(-25, 25, 1501)
    full = np.repeat(new[:1], len(grid), axis=0)
    full[:, 1] = grid
    density = np.exp(predict.log_predictive(fit, full))
    assert np.exp(predict.log_predictive(fit, point)[0]) == pytest.approx(trapezoid(density, grid), rel=1e-4)
    # Imputation is the mean of the same density.
    mean = trapezoid(grid * density, grid) / trapezoid(density, grid)
    completed = predict.impute(fit, point)
    assert completed[0, 1] == pytest.approx(mean, rel=1e-3)
    np.testing.assert_array_equal(completed[0, [0, 2]], point[0, [0, 2]])


def test_a_row_of_gaps_has_density_one_and_every_row_its_own_pattern(fitted):
    fit, new = fitted
    rows = np.full((1, 3), np.nan)
    assert predict.log_predictive(fit, rows)[0] == pytest.approx(0.0, abs=1e-9)
    mixed = new.copy()
    mixed[0, 0] = mixed[1, 1:] = np.nan
    apart = np.concatenate([predict.log_predictive(fit, row[None]) for row in mixed])
    np.testing.assert_allclose(predict.log_predictive(fit, mixed), apart, rtol=1e-12)


def test_label_probabilities(fitted):
    fit, new = fitted
    labels = fit.posterior.mcc_tree().cut(n_clusters=4)
    table = predict.label_probabilities(fit, new, labels)
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    assert (table >= 0).all()
    # Rows of the fit, seen as new points, join their like far more often than by chance.
    own = predict.label_probabilities(fit, fit.X, labels)
    shares = np.bincount(labels) / len(labels)
    assert own[np.arange(len(labels)), labels].mean() > shares @ shares + 0.1
    # By hand for one tree: leaves under each edge, in proportion.
    tree = fit.posterior[0]
    single = fit._replace(posterior=one_tree(tree))
    rows = np.linalg.solve(np.linalg.cholesky(PHI), np.vstack([fit.X, new[:1]]).T).T
    masses, _ = masses_of(tree, rows[:32].copy(), np.full(32, 0.05), rows[32:], 0.05, USUAL)
    by_hand = sum(mass * np.eye(4)[labels[tree.leaves(node)]].mean(axis=0) for node, mass in enumerate(masses[0]))
    np.testing.assert_allclose(predict.label_probabilities(single, new[:1], labels)[0], by_hand / by_hand.sum())


@pytest.mark.parametrize("diagonal", [False, True])
def test_every_tree_goes_with_its_own_draw(fitted, diagonal):
    """Trees with different covariances and noises: what each says alone, by how well it foretells the point."""
    fit, new = fitted
    scales, noises = np.array([0.5, 1.0, 3.0]), np.array([0.02, 0.1, 0.3])[:, None] * np.ones(32)
    covariances = scales[:, None] * np.diag(PHI) if diagonal else scales[:, None, None] * PHI
    trees = [fit.posterior[m] for m in range(3)]
    together = make_posterior(trees, [0.5, 0.3, 0.2])
    whole = predict.make_fit(together, fit.X, covariances, noises)
    alone = [
        predict.make_fit(one_tree(tree), fit.X, scale * (np.diag(np.diag(PHI)) if diagonal else PHI)[None], noise[None])
        for tree, scale, noise in zip(trees, scales, noises, strict=True)
    ]
    point = new[:1].copy()
    point[0, 1] = np.nan
    density = np.array([0.5, 0.3, 0.2]) * [np.exp(predict.log_predictive(each, point)[0]) for each in alone]
    assert np.exp(predict.log_predictive(whole, point)[0]) == pytest.approx(density.sum(), rel=1e-12)
    said = [predict.impute(each, point)[0, 1] for each in alone]
    assert predict.impute(whole, point)[0, 1] == pytest.approx(density @ said / density.sum(), rel=1e-9)
    assert np.ptp(said) > 1e-3


def test_threads_change_nothing(fitted):
    fit, new = fitted
    labels = fit.posterior.mcc_tree().cut(n_clusters=3)
    one, two = (predict.label_probabilities(fit, new, labels, n_jobs) for n_jobs in (1, 2))
    assert one.tobytes() == two.tobytes()


def test_attachments(fitted):
    fit, new = fitted
    tree = fit.posterior.mcc_tree()
    found = predict.attachments(tree, fit.given(0), fit.X, new, n_places=63)
    np.testing.assert_allclose(found.probability.sum(axis=1), 1.0)
    assert (np.diff(found.probability, axis=1) <= 0).all()
    upper = np.append(tree.node_times(), np.inf)[np.append(tree.parents()[:-1], 63)]
    assert (found.time >= tree.node_times()[found.node]).all()
    assert (found.time <= upper[found.node]).all()
    assert predict.attachments(tree, fit.given(0), fit.X, new, n_places=2).node.shape == (8, 2)


def test_a_noiseless_row_met_exactly_has_infinite_density():
    tree, X, _ = simulate(6, 2, 0.0, 6)
    fit = predict.make_fit(one_tree(tree), X, np.ones((1, 2)), np.zeros((1, 6)))
    points = np.vstack([X[2], X[2] + 1e-9, X[2] + 0.1])
    density = predict.log_predictive(fit, points)
    assert density[0] == np.inf
    assert np.isfinite(density[1:]).all()
    assert density[1] > density[2]
    assert predict.label_probabilities(fit, points, np.arange(6))[0].argmax() == 2
    np.testing.assert_array_equal(predict.attachments(tree, fit.given(0), X, points, n_places=1).node[:2, 0], 2)
