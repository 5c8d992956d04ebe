"""Places in large trees, from near rows: against the sum over all edges, and each rule of the search by breaking it."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import coaltree as ct
from coaltree.inference.neighbors import nearest_to
from coaltree.inference.predictive import locate, near, predict
from coaltree.inference.predictive.mass import make_sites
from tests.reference.posteriors import make_posterior
from tests.seeds import seed

PHI = np.array([[1.0, 0.4, 0.1], [0.4, 2.0, -0.3], [0.1, -0.3, 0.5]])


def restrict(tree, kept):
    """The tree over some of the leaves, and which of its nodes each node of the whole tree has become."""
    name = np.full(2 * tree.n_leaves - 1, -1)
    name[kept] = np.arange(len(kept))
    children, times = [], []
    for merge, (left, right) in enumerate(tree.children, start=tree.n_leaves):
        left, right = name[left], name[right]
        name[merge] = max(left, right)
        if min(left, right) >= 0:
            name[merge] = len(kept) + len(children)
            children.append((left, right))
            times.append(tree.times[merge - tree.n_leaves])
    return ct.Tree(children, times), name


def held_out(n, covariance, noise, n_new=40, number=0):
    """A tree over n rows, and points that were leaves of the same tree; and where each was taken from."""
    rng = np.random.default_rng(seed(number))
    whole = ct.sample_tree(n + n_new, random_state=rng)
    Z = ct.sample_data(whole, covariance, leaf_noise=noise, random_state=rng)
    order = rng.permutation(n + n_new)
    kept, new = np.sort(order[:n]), order[n:]
    tree, name = restrict(whole, kept)
    # The first ancestor that has rows of the tree under it is where a point's way up joins it.
    parents, home = whole.parents(), new.copy()
    while (name[home] < 0).any():
        home = np.where(name[home] < 0, parents[home], home)
    return tree, Z[kept], Z[new], name[home]


def fit_to(trees, X, covariance, noise):
    posterior = make_posterior(trees, np.full(len(trees), 1 / len(trees)))
    return predict.make_fit(posterior, X, np.asarray(covariance)[None], np.full((1, len(X)), noise))


@pytest.fixture
def both(monkeypatch):
    """Return what a function says by all edges, and by near ones."""

    def ask(function):
        monkeypatch.setattr(locate, "EXACT", 10**9)
        whole = function()
        monkeypatch.setattr(locate, "EXACT", 1)
        return whole, function()

    return ask


@pytest.mark.parametrize(
    ("n", "d", "noise"), [(400, 2, 0.0), (400, 16, 1e-3), (2000, 2, 1e-4), (2000, 16, 0.0), (600, 1, 1e-3)]
)
def test_density_is_that_of_all_edges(both, n, d, noise):
    tree, X, new, _ = held_out(n, d, noise, number=n + d)
    fit = fit_to([tree], X, np.ones(d), noise)
    points = np.vstack([new, X[:2] + 30.0, X[:2] + 1e-7, X.mean(axis=0, keepdims=True)])
    whole, found = both(lambda: predict.log_predictive(fit, points))
    np.testing.assert_allclose(found, whole, atol=1e-3)
    assert abs(found - whole).mean() < 2e-4


def test_digits(both):
    X = PCA(16).fit_transform(load_digits().data)[:1040]
    X /= X.std()
    tree = ct.greedy_tree(X[:1000], leaf_noise=0.05)
    fit = fit_to([tree], X[:1000], np.ones(16), 0.05)
    whole, found = both(lambda: predict.log_predictive(fit, X[1000:]))
    np.testing.assert_allclose(found, whole, atol=1e-3)


@pytest.mark.parametrize("covariance", [PHI, np.array([0.5, 1.0, 2.0])], ids=["full", "diagonal"])
def test_gaps_labels_places_and_imputation(both, covariance):
    phi = covariance if covariance.ndim == 2 else np.diag(covariance)
    tree, X, points, _ = held_out(600, phi, 1e-3, number=5)
    fit = fit_to([tree], X, covariance, 1e-3)
    points[:8, 0] = points[4:12, 2] = points[10:12, 1] = np.nan
    points[20] = points[21] = np.nan
    labels = tree.cut(n_clusters=7)
    for function, tolerance in (
        (lambda: predict.log_predictive(fit, points), 1e-3),
        (lambda: predict.label_probabilities(fit, points, labels), 1e-3),
        (lambda: predict.impute(fit, points), 2e-3),
        (lambda: predict.attachments(tree, fit.given(0), X, points, 3).probability, 1e-3),
        (lambda: predict.attachments(tree, fit.given(0), X, points, 1).time, 2e-3),
    ):
        whole, found = both(function)
        np.testing.assert_allclose(found, whole, atol=tolerance)
    assert predict.log_predictive(fit, points)[20] == pytest.approx(0.0, abs=1e-9)


def test_a_noiseless_row_met_exactly():
    tree, X, new, _ = held_out(700, 3, 0.0, number=6)
    fit = fit_to([tree], X, np.ones(3), 0.0)
    density = predict.log_predictive(fit, np.vstack([X[17], new[:2]]))
    assert density[0] == np.inf
    assert np.isfinite(density[1:]).all()
    found = predict.attachments(tree, fit.given(0), X, X[17:18], 3)
    assert found.node[0, 0] == 17
    np.testing.assert_array_equal(found.probability[0], [1.0, 0.0, 0.0])


def test_held_out_rows_are_put_back_where_they_were():
    """As often as the probabilities say, with many columns nearly always; a row in another's place is the control."""
    for d, at_least in ((2, 0.02), (60, 0.7)):
        tree, X, new, home = held_out(2000, d, 1e-4, n_new=200, number=7)
        found = predict.attachments(tree, locate.Given(np.ones(d), np.full(2000, 1e-4)), X, new, 1)
        p, hit = found.probability[:, 0], found.node[:, 0] == home
        error = np.sqrt((p * (1 - p)).sum())
        assert abs(hit.sum() - p.sum()) < 4.5 * error
        assert hit.mean() > at_least
        assert (found.node[:, 0] == np.roll(home, 1)).sum() < p.sum() - 4.5 * error


def test_more_places_than_were_found_come_after_with_no_probability():
    tree, X, new, _ = held_out(700, 16, 0.0, number=8)
    found = predict.attachments(tree, locate.Given(np.ones(16), np.zeros(700)), X, new[:3], 1399)
    assert all(len(set(nodes)) == 1399 for nodes in found.node.tolist())
    np.testing.assert_allclose(found.probability.sum(axis=1), 1.0)
    assert (np.diff(found.probability, axis=1) <= 0).all()
    upper = np.append(tree.node_times(), np.inf)[np.append(tree.parents()[:-1], 1399)]
    assert ((tree.node_times()[found.node] <= found.time) & (found.time <= upper[found.node])).all()


def test_threads_and_batches_change_nothing(monkeypatch):
    tree, X, points, _ = held_out(700, PHI, 1e-3, number=9)
    points[:9, 1] = np.nan
    times = [tree.times, tree.times * 1.1, tree.times * 0.9]
    fit = fit_to([ct.Tree(tree.children, t) for t in times], X, PHI, 1e-3)
    labels = tree.cut(n_clusters=5)
    one, two = (predict.label_probabilities(fit, points, labels, n_jobs) for n_jobs in (1, 2))
    assert one.tobytes() == two.tobytes()
    monkeypatch.setattr(locate, "_POINTS", 6)
    monkeypatch.setattr(predict, "_ENTRIES", 2 * 1400)
    np.testing.assert_allclose(predict.label_probabilities(fit, points, labels), one, atol=1e-3)


# ---- the rules of the search


def search(tree, X, noise, points, n_near=8, margin=None, in_vain=near.MOST_IN_VAIN):
    margin = near.MARGIN + np.log(2 * len(X) - 1) if margin is None else margin
    sites = make_sites(tree, X, np.full(len(X), noise))
    view = near.View(np.arange(X.shape[1]), np.empty((0, X.shape[1])))
    rows = nearest_to(X, points, n_near)[0].astype(np.int64)
    clades, clock = near.make_clades(sites), near.make_clock(sites.merges)
    task = near.Task(sites, clades, clock, points, noise, view, float(X.shape[1]), margin)
    return near.find_places(task, rows, in_vain)


def test_each_rule_matters():
    """Stopped early, or begun from one row and not searched from above, mass is lost."""
    tree, X, points, _ = held_out(2000, 2, 1e-4, number=10)
    right = search(tree, X, 1e-4, points)
    assert right.proved.all()
    for broken in ({"margin": 3.0}, {"n_near": 1, "in_vain": 0}):
        lost = right.log_sum - search(tree, X, 1e-4, points, **broken).log_sum
        assert (lost > -1e-9).all()
        assert lost.mean() > 5e-3
    assert not search(tree, X, 1e-4, points, in_vain=0).proved.any()
    # Where the search downwards comes to its end, it does not matter from where the other began.
    np.testing.assert_allclose(search(tree, X, 1e-4, points, n_near=1).log_sum, right.log_sum, atol=2e-4)


def test_bounds_hold_under_every_node():
    """No edge under a node has more than the bound says, wherever the point is."""
    tree, X, points, _ = held_out(60, 3, 1e-2, number=14)
    sites = make_sites(tree, X, np.full(60, 1e-2))
    clades = near.make_clades(sites)
    for node in range(60, 119):
        leaves = tree.leaves(node)
        farthest = np.sqrt(np.square(X[leaves] - sites.mean[node]).sum(axis=1).max())
        assert farthest <= clades.radius[node] * (1 + 1e-9)
    # With everything searched and with as little as the bounds allow.
    points = np.vstack([points, X[:10] + 1.0])
    whole = search(tree, X, 1e-2, points, margin=40.0, in_vain=10**6)
    little = search(tree, X, 1e-2, points, margin=14.0, n_near=1)
    assert little.proved.all()
    np.testing.assert_allclose(little.log_sum, whole.log_sum, atol=1e-4)


def test_an_edge_without_length_leads_on():
    """Merges at one time: the edges between them have no mass but must not end a search."""
    rng = np.random.default_rng(seed(11))
    n = 600
    # Ten groups in a row of merges at time 1, each group a chain of merges at time 1e-3.
    children, times, tops, node = [], [], [], n
    for group in range(10):
        top = 60 * group
        for leaf in range(60 * group + 1, 60 * group + 60):
            children.append((top, leaf))
            times.append(1e-3)
            top, node = node, node + 1
        tops.append(top)
    top = tops[0]
    for other in tops[1:]:
        children.append((top, other))
        times.append(1.0)
        top, node = node, node + 1
    tree = ct.Tree(children, times)
    X = ct.sample_data(tree, 3, leaf_noise=1e-3, random_state=rng)
    points = X[::50] + 0.02
    found = search(tree, X, 1e-3, points, n_near=1, in_vain=0)
    everything = search(tree, X, 1e-3, points, margin=40.0, in_vain=10**6)
    # All of the row's own group is found from one row, or the sum would be off by 1 and more; other groups are not.
    assert np.median(everything.log_sum - found.log_sum) < 1e-4
    np.testing.assert_allclose(search(tree, X, 1e-3, points).log_sum, everything.log_sum, atol=1e-4)


def test_clock_is_near_the_exact_one():
    tree = ct.sample_tree(3000, random_state=seed(12))
    exact = make_sites(tree, np.zeros((3000, 0)), np.zeros(3000)).merges
    clock = near.make_clock(exact)
    assert len(clock.times) < 1000
    t = np.append(np.geomspace(1e-7, tree.times[-1], 5000), tree.times)
    true, found = (np.interp(t, np.append(0.0, each.times), each.exposure) for each in (exact, clock))
    assert (true - found).max() < near.CLOCK
    assert (true - found).min() > -1e-12
    assert (true - found).max() > 0.1 * near.CLOCK
    # Slopes are those of the pieces, and of one lineage above the root.
    pieces = np.diff(clock.exposure) / np.diff(clock.times, prepend=0.0)
    np.testing.assert_allclose(clock.rate, np.append(pieces, 1.0), rtol=1e-9)


@pytest.mark.parametrize(("n", "d", "k"), [(50, 3, 60), (2500, 2, 7), (2500, 40, 7)])
def test_nearest_rows_of_points(n, d, k):
    rng = np.random.default_rng(seed(13))
    rows, points = rng.normal(size=(n, d)) + 1e3, rng.normal(size=(50, d)) + 1e3
    rows[5] = rows[3]
    points[0] = rows[5]
    points[1] = rows[9] + 1e-9
    index, distance = nearest_to(rows, points, k)
    everyone = np.square(rows - points[:, None]).sum(axis=2)
    np.testing.assert_allclose(np.take_along_axis(everyone, index, axis=1), distance, rtol=1e-12)
    everyone[:, 5] = np.inf
    np.testing.assert_allclose(distance, np.sort(everyone, axis=1)[:, : distance.shape[1]], rtol=1e-12)
    assert distance.shape == (50, min(k, n - 1))
    assert index[0, 0] == 3
