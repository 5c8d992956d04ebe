"""Where rows join a tree: against the sum over all edges, and each rule of the search by breaking it."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

import coaltree as ct
from coaltree.places import host as hosts
from coaltree.places import locate, predict, search
from coaltree.places.cells import no_cells
from coaltree.places.exact import View
from coaltree.places.host import exact_clock, make_clock, make_host
from tests.reference.places import edge_masses, log_densities, messages
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
    """Return what a function says by all edges, and by those that are not negligible."""

    def ask(function):
        with monkeypatch.context() as patch:
            patch.setattr(locate, "MARGIN", 1e9)
            whole = function()
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


@pytest.mark.parametrize(("n", "d", "noise"), [(12, 2, 0.02), (150, 3, 0.05), (150, 20, 0.3)])
def test_density_from_the_definitions(n, d, noise):
    """By the midpoint rule on every edge; and on small trees by adaptive quadrature."""
    tree, X, new, _ = held_out(n, d, noise, n_new=4, number=n + 3 * d)
    points = np.vstack([new, X[:1] + 3.0])
    found = predict.log_predictive(fit_to([tree], X, np.ones(d), noise), points)
    np.testing.assert_allclose(found, log_densities(tree, X, np.full(n, noise), points, noise), atol=1e-4)
    if n < 20:
        masses = [edge_masses(tree, X, np.full(n, noise), x, noise)[0].sum() for x in points[-2:]]
        np.testing.assert_allclose(found[-2:], np.log(masses), atol=1e-4)
    # Negative control: another noise.
    other = log_densities(tree, X, np.full(n, noise), points, 1.5 * noise)
    assert np.abs(found - other).max() > 1e-2


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
    monkeypatch.setattr(locate, "POINTS_AT_ONCE", 6)
    monkeypatch.setattr(predict, "LABEL_ENTRIES", 2 * 1400)
    np.testing.assert_allclose(predict.label_probabilities(fit, points, labels), one, atol=1e-3)


# ---- the rules of the search


def task_of(tree, X, noise, margin=search.MARGIN, kinks=search.KINKS):
    d = X.shape[1]
    view = View(np.arange(d), np.empty((0, d)))
    return search.Task(make_host(tree, X, np.full(len(X), noise)), view, no_cells(d), float(d), margin, kinks)


def sums(tree, X, noise, points, **how):
    return search.find_places(task_of(tree, X, noise, **how), points, noise)


def test_each_rule_matters():
    """Stopped early, or with bounds that are too low, mass is lost; a search looks at a few edges."""
    tree, X, points, _ = held_out(2000, 2, 1e-4, number=10)
    right, found = sums(tree, X, 1e-4, points, margin=1e9), sums(tree, X, 1e-4, points)
    lost = right.log_sum - found.log_sum
    assert (lost > -1e-9).all()
    assert lost.max() < np.exp(-search.MARGIN) * 3
    assert (right.looked == 3999).all()
    assert np.median(found.looked) < 600
    lost = right.log_sum - sums(tree, X, 1e-4, points, margin=0.0).log_sum
    assert lost.mean() > 5e-3
    low = task_of(tree, X, 1e-4)
    low.host.radius[:] *= -1.0
    assert (right.log_sum - search.find_places(low, points, 1e-4).log_sum).mean() > 5e-3


def test_bounds_hold_under_every_node():
    """No place under a node is farther than its radius, or surer than its least variance."""
    # Some clades have more leaves than are measured one by one.
    tree, X, _, _ = held_out(100, 3, 1e-2, number=14)
    noise = np.full(100, 1e-2)
    host = make_host(tree, X, noise)
    mean, variance = messages(tree, X, noise)
    times = tree.node_times()
    beyond = np.append(times[tree.parents()[:-1]], np.inf) - times
    share = variance[0] / (variance[0] + variance[1] + beyond)
    position = mean[0] + share[:, None] * (mean[1] - mean[0])
    np.testing.assert_allclose(host.position, position, rtol=1e-9, atol=1e-12)
    spread = times + variance[0] * (1 - share)
    for node in range(100, 199):
        under = [node]
        for k in under:
            under.extend(tree.children[k - 100] if k >= 100 else [])
        farthest = np.sqrt(np.square(position[under] - position[node]).sum(axis=1).max())
        assert farthest <= host.radius[node] * (1 + 1e-9)
        assert host.least[node] == pytest.approx(spread[under].min(), rel=1e-9)
        masses = [np.log(edge_prior(tree, k)) for k in under[1:]]
        assert np.logaddexp.reduce(masses) <= host.log_prior[node] + 1e-4


def edge_prior(tree, node):
    """∫ exp(−Λ) along an edge below the root, by the midpoint rule."""
    times, exact = tree.node_times(), exact_clock(tree.times)
    low, high = times[node], times[tree.parents()[node]]
    t = low + (high - low) * (np.arange(2000) + 0.5) / 2000
    return np.exp(-np.interp(t, np.append(0.0, exact.times), exact.exposure)).mean() * (high - low)


def test_without_a_leaf_positions_move_less_than_is_allowed():
    """What a search without a leaf takes for the radius of a clade, against the tree without it, node by node."""
    tree, X, _, _ = held_out(40, 3, 1e-2, number=15)
    host = make_host(tree, X, np.full(40, 1e-2))
    for leaf in (0, 7, 23):
        kept = np.delete(np.arange(40), leaf)
        rest, name = restrict(tree, kept)
        other = make_host(rest, X[kept], np.full(39, 1e-2))
        above, node = set(), int(tree.parents()[leaf])
        while node >= 0:
            above.add(node)
            node = int(tree.parents()[node])
        for top in range(40, 79):
            if top in above:
                continue
            under = [top]
            for k in under:
                under.extend(tree.children[k - 40] if k >= 40 else [])
            new = name[under]
            moved = np.linalg.norm(other.position[new[0]] - host.position[top])
            farthest = np.linalg.norm(other.position[new] - other.position[new[0]], axis=1).max()
            assert farthest <= host.radius[top] + moved + 1e-9
            assert other.least[new[0]] >= host.least[top] - 1e-12
            assert (
                other.log_prior[new[0]]
                <= host.log_prior[top] + min(tree.times[top - 40], tree.node_times()[tree.parents()[leaf]]) + 1e-4
            )


def test_edges_without_length():
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
    everything = sums(tree, X, 1e-3, points, margin=1e9)
    np.testing.assert_allclose(sums(tree, X, 1e-3, points).log_sum, everything.log_sum, atol=1e-4)
    np.testing.assert_allclose(
        everything.log_sum - 1.5 * np.log(2 * np.pi), log_densities(tree, X, np.full(n, 1e-3), points, 1e-3), atol=1e-4
    )


def test_clock_is_near_the_exact_one():
    tree = ct.sample_tree(3000, random_state=seed(12))
    exact = exact_clock(tree.times)
    clock = make_clock(exact)
    assert len(clock.times) < 1000
    t = np.append(np.geomspace(1e-7, tree.times[-1], 5000), tree.times)
    true, found = (np.interp(t, np.append(0.0, each.times), each.exposure) for each in (exact, clock))
    assert (true - found).max() < hosts.CLOCK
    assert (true - found).min() > -1e-12
    assert (true - found).max() > 0.1 * hosts.CLOCK
    # Slopes are those of the pieces, and of one lineage above the root.
    pieces = np.diff(clock.exposure) / np.diff(clock.times, prepend=0.0)
    np.testing.assert_allclose(clock.rate, np.append(pieces, 1.0), rtol=1e-9)
