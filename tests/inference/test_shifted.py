"""Regrafts that take coordinates along: weights against quadrature, and laws that they leave as they are.

`discrepancy` draws tables, trees and coordinates from the prior and the model, and compares means before and after some
sweeps: exact, however slowly the moves mix. Trees of three rows are compared with their posterior by quadrature.
"""

import math
from itertools import permutations

import numpy as np
import pytest
from scipy.integrate import simpson
from scipy.special import log_ndtr, ndtr

import coaltree as ct
from coaltree._compile import kernel
from coaltree.inference.learning.boxes import boxes, unboxed
from coaltree.inference.learning.chain import _near_rows
from coaltree.inference.learning.latent import Augmentation
from coaltree.inference.learning.levels import CladeShifts
from coaltree.inference.learning.start import Unknowns
from coaltree.inference.moves import shifted
from coaltree.inference.moves import walk as walk_module
from coaltree.inference.moves.lineages import remove
from coaltree.inference.moves.local import compiled_regraft
from coaltree.inference.moves.mutable_tree import take_out
from coaltree.inference.moves.search import N_ANCHORS, compiled_search, tell_from_above
from coaltree.inference.moves.walk import Walk, recompute
from coaltree.model.columns import Columns
from coaltree.model.covariance import Fixed
from coaltree.model.missing import Imputed
from coaltree.model.truncated import roughly_between
from tests.inference.test_augment import BINARY, CHOICE, CONTINUOUS, GRID, ORDERED, draw_all
from tests.model.invariance import LIMIT, stream
from tests.reference.regraft import hang

# ---- weights


@kernel
def weigh_places(state, cut, nodes, times, out):
    """Log weight of hanging the subtree under `cut` at each place, exactly and as proposed: out (2, places)."""
    shifted.confine(state, cut)
    merge = state.parent[cut]
    remove(state.lineages, merge, state.time[merge])
    take_out(state, cut)
    state.search.now[0] += 1
    state.search.stamp[state.parent.size - 1] = state.search.now[0]
    for k in range(nodes.size):
        tell_from_above(state, nodes[k])
        shifted.describe_cells(state, cut, nodes[k])
        edge = shifted.edge_at(state, state.search.survey, cut, nodes[k])
        out[0, k] = shifted.SEARCH.log_target(state, cut, nodes[k], times[k])
        out[1, k] = shifted.log_rough(state, cut, nodes[k], edge, times[k])
        out[1, k] += out[0, k] - shifted.log_place_of_cells(state, cut, nodes[k], edge, times[k])


def leaves_under(tree, node):
    n = tree.n_leaves
    return [node] if node < n else [leaf for child in tree.children[node - n] for leaf in leaves_under(tree, child)]


def integral(tree, column, inside, low, high, noise):
    """Log ∫ of the likelihood of one column over shifts of the rows `inside` that leave each in its cell."""

    def log_likelihood(shift):
        moved = column.copy()
        moved[inside] += shift
        return ct.log_joint(tree, moved[:, None], None, leaf_noise=noise) - ct.log_prior(tree)

    least = max(low[i] - column[i] for i in inside)
    most = min(high[i] - column[i] for i in inside)
    if least == most:
        return log_likelihood(0.0)
    # The logarithm of the likelihood is a parabola in the shift.
    parabola = np.polyfit([-1.0, 0.0, 1.0], [log_likelihood(shift) for shift in (-1.0, 0.0, 1.0)], 2)
    grid = np.linspace(max(least, -30.0), min(most, 30.0), 20001)
    values = np.polyval(parabola, grid)
    return values.max() + math.log(simpson(np.exp(values - values.max()), x=grid))


def test_weights_are_integrals_over_the_shift():
    rng = np.random.default_rng(7)
    n, noise = 5, 0.2
    tree = ct.sample_tree(n, random_state=rng)
    Z = ct.sample_data(tree, 4, leaf_noise=noise, random_state=rng)
    low, high = Z.copy(), Z.copy()
    low[:, 1], high[:, 1] = np.where(Z[:, 1] > 0, 0.0, -np.inf), np.where(Z[:, 1] > 0, np.inf, 0.0)
    low[:, 2], high[:, 2] = np.floor(Z[:, 2] / 0.3) * 0.3, np.floor(Z[:, 2] / 0.3) * 0.3 + 0.3
    low[1:, 3], high[1:, 3] = -np.inf, np.inf
    near = np.array([np.delete(np.arange(n), i) for i in range(n)])
    for cut in range(2 * n - 2):
        walk = Walk(tree, near, Z, np.full(n, noise), rng)
        number = walk.place
        walk.confine(low, high)
        recompute(walk.state)
        inside, gone = leaves_under(tree, cut), tree.parents()[cut]
        below = {node for node in range(2 * n - 1) if set(leaves_under(tree, node)) <= set(inside)}
        nodes, times = [], []
        for node in set(range(2 * n - 1)) - below - {gone}:
            parent = tree.parents()[node]
            upper = tree.parents()[gone] if parent == gone else parent
            start = max(tree.node_times()[node], tree.node_times()[cut])
            end = tree.node_times()[upper] if upper >= 0 else start + 2.0
            if start < end:
                nodes += [node] * 2
                times += [*rng.uniform(start, end, 2)]
        out = np.empty((2, len(nodes)))
        weigh_places(walk.shifted, number[cut], number[nodes], np.array(times), out)
        trees = [ct.Tree(*hang(tree, cut, *place)) for place in zip(nodes, times, strict=True)]
        expected = [
            ct.log_prior(moved) + sum(integral(moved, Z[:, k], inside, low[:, k], high[:, k], noise) for k in range(4))
            for moved in trees
        ]
        np.testing.assert_allclose(out[0] - out[0, 0], np.array(expected) - expected[0], atol=1e-6)
        assert np.abs(np.diff(out[1] - out[0])).max(initial=0.0) < 0.5


@kernel
def each_roughly(low, high, out):
    for i in range(out.size):
        out[i] = roughly_between(low[i], high[i])


def test_rough_logarithms_of_normal_probabilities():
    rng = np.random.default_rng(3)
    low, width = rng.uniform(-20.0, 20.0, 4000), rng.uniform(0.5, 10.0, 4000)
    ends = np.array([low, low + width])
    ends[1, :500], ends[0, 500:1000] = np.inf, -np.inf
    out = np.empty(4000)
    each_roughly(*ends, out)
    one, two = np.sort(np.where(ends.sum(axis=0) > 0, -ends[::-1], ends), axis=0)
    np.testing.assert_allclose(out, log_ndtr(two) + np.log1p(-np.exp(log_ndtr(one) - log_ndtr(two))), atol=0.02)


# ---- laws


def sweep(latent, now, rng, n_sweeps=1):
    """Some sweeps of regrafts with shifts alone: no slices of merge times."""
    for _ in range(n_sweeps):
        boxed = boxes(latent, now, rng)
        walk = Walk(now.tree, _near_rows(boxed.rows), boxed.rows, now.leaf_noise, rng, fresh=True)
        walk.confine(boxed.least, boxed.most)
        walk.sweep()
        now = unboxed(latent, now._replace(tree=walk.to_tree()), boxed, walk.rows)
    return now


def statistics(latent, now):
    """Functions of tree and coordinates, of light tails."""
    Z, codes = latent.table(now), latent.encoded.codes
    off, T = Z - Z.mean(axis=0), now.tree.cophenetic()
    pairs = np.triu_indices(len(Z), 1)
    apart = np.abs(Z[pairs[0]] - Z[pairs[1]]).T
    together = np.log(T[pairs])
    return np.array(
        [
            *np.log(now.tree.times),
            *np.log(np.abs(off).mean(axis=0)),
            *np.arctan(Z.mean(axis=0)),
            *np.arctan(Z[0]),
            *np.arctan((off * codes.sum(axis=1, keepdims=True)).mean(axis=0)),
            *(np.log1p(apart) * together).mean(axis=1),
            *(np.arctan(apart) * (together < 0.0)).mean(axis=1),
        ]
    )


def discrepancy(models, kind, share_missing, rng, n_tables, n_sweeps=4):
    """Largest difference of means before and after, in standard errors, and how much was changed."""
    changes = []
    for _ in range(n_tables):
        _, latent, now = draw_all(Columns(models), kind, share_missing, rng)
        before = statistics(latent, now)
        changes.append(statistics(latent, sweep(latent, now, rng, n_sweeps)) - before)
    changes = np.array(changes)
    spread = changes.std(axis=0) / math.sqrt(len(changes))
    moved = spread > 0.0
    return float(np.abs(changes.mean(axis=0)[moved] / spread[moved]).max())


CASES = {
    "binary": ((CONTINUOUS, BINARY), "spherical", 0.0),
    "ordinal": ((CONTINUOUS, ORDERED), "diagonal", 0.0),
    "categorical": ((CONTINUOUS, CHOICE), "spherical", 0.0),
    "rounded": ((GRID, CONTINUOUS), "diagonal", 0.1),
    "missing": ((CONTINUOUS, CHOICE), "spherical", 0.15),
    "levels alone": ((ORDERED,), "spherical", 0.0),
    "full": ((BINARY, ORDERED), "wishart", 0.0),
}


LONG = [pytest.mark.slow, pytest.mark.ci]


@pytest.mark.parametrize("case", [pytest.param(case, marks=[] if case == "ordinal" else LONG) for case in CASES])
def test_moves_leave_the_law_unchanged(case, request):
    models, kind, share = CASES[case]
    assert discrepancy(models, kind, share, stream(request), 40) < LIMIT


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_moves_leave_the_law_unchanged_with_many_tables(case, request):
    models, kind, share = CASES[case]
    assert discrepancy(models, kind, share, stream(request), 300 if kind == "wishart" else 1500) < LIMIT


def without_the_sum(state, cut, node, edge, time):
    """What a place is worth without the probabilities of shifts there."""
    share, v = shifted.variance_at(edge, time)
    exact = state.exact
    eps = shifted.blend_distance(share, exact[0, node], exact[1, node], exact[2, node])
    return -0.5 * (state.numbers[0] * math.log(v) + eps / v)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["normaliser", "interval"])
def test_wrong_moves_are_seen(broken, request, monkeypatch):
    """The places' probabilities of shifts are left out of the ratio, or bounds depend on where coordinates are."""
    if broken == "normaliser":
        borrowing = shifted.borrowing
        search = compiled_search(shifted.describe_cells, shifted.log_rough, borrowing(without_the_sum))
        regraft = compiled_regraft(search, shifted.draw_shift)

        def nodes(state, first, step, most, stream, counts):
            starts = np.empty(N_ANCHORS + 1, dtype=np.int64)
            for cut in range(first, state.variance.size, step):
                if cut != state.children[-1, 0]:
                    shifted.confine(state, cut)
                    regraft(state, cut, most, starts, stream, counts)

        monkeypatch.setattr(walk_module.shifted, "regraft_with_rows", kernel(nodes))
    else:
        right = Walk.confine
        monkeypatch.setattr(
            Walk, "confine", lambda self, low, high: right(self, np.maximum(low, self.rows - 0.3), high)
        )
    models = (CONTINUOUS, ORDERED, ORDERED)
    assert discrepancy(models, "spherical", 0.0, stream(request), n_tables=1500, n_sweeps=6) > LIMIT


# ---- three rows, by quadrature

NOISE = 0.1
X = np.array([[0.2], [-0.3], [0.9]])
SIGNS = np.array([1, 0, 1])


def exact_three():
    """Probability of each row to be the one that joins last, and the mean of the log of the root's time."""
    t1, steps = np.meshgrid(np.geomspace(1e-4, 6.0, 90), np.geomspace(1e-4, 12.0, 90), indexing="ij")
    t2 = t1 + steps
    area = np.gradient(t1, axis=0) * np.gradient(steps, axis=1)
    points = np.linspace(-25.0, 25.0, 501)
    sign = np.where(SIGNS == 1, 1.0, -1.0)
    masses, means = [], []
    for a, b, c in ((1, 2, 0), (0, 2, 1), (0, 1, 2)):
        first = 2.0 * (t1 + NOISE)
        rest = 2.0 * t2 - t1 + NOISE + 0.5 * (t1 + NOISE)
        log_p = -3.0 * t1 - steps - 0.5 * (np.log(first) + (X[a] - X[b]) ** 2 / first)
        log_p -= 0.5 * (np.log(rest) + (X[c] - 0.5 * (X[a] + X[b])) ** 2 / rest)
        inner = 0.0  # over the value at the first merge, which is flat
        for p in points:
            inner += np.prod([ndtr(sign[i] * p / np.sqrt(t1 + NOISE)) for i in (a, b)], axis=0) * ndtr(
                sign[c] * p / np.sqrt(2.0 * t2 - t1 + NOISE)
            )
        weight = np.exp(log_p) * inner * area
        masses.append(weight.sum())
        means.append((weight * np.log(t2)).sum())
    return np.array(masses) / sum(masses), sum(means) / sum(masses)


def sampled_three(rng, n_iter, n_batches=20):
    """The same from a chain of regrafts with shifts, slices of times and draws of coordinates, with standard errors."""
    columns = Columns((CONTINUOUS, BINARY))
    latent = Augmentation(columns, columns.encode(np.column_stack([X, SIGNS])))
    state = Fixed(np.eye(2)).start(np.eye(2))
    start = ct.Tree([[0, 2], [1, 3]], [0.3, 1.0])
    Z = latent.encoded.start[latent.drawn]
    now = Unknowns(start, state, np.full(3, NOISE), Imputed(Z, Z), np.zeros(1))
    boxed = boxes(latent, now, rng)
    walk = Walk(
        start, np.array([list(p)[1:] for p in list(permutations(range(3)))[::2]]), boxed.rows, now.leaf_noise, rng
    )
    drawn = np.empty((n_iter, 4))
    for k in range(n_iter):
        boxed = boxes(latent, now, rng)
        walk.given(boxed.rows, now.leaf_noise, now.tree.times)
        walk.confine(boxed.least, boxed.most)
        walk.sweep()
        now = latent.draw(unboxed(latent, now._replace(tree=walk.to_tree()), boxed, walk.rows), rng, move_cuts=False)
        last = min(now.tree.children[1])
        drawn[k] = [*(np.arange(3) == last), math.log(now.tree.times[1])]
    batches = drawn.reshape(n_batches, -1, 4).mean(axis=1)
    return drawn.mean(axis=0), batches.std(axis=0, ddof=1) / math.sqrt(n_batches)


def off_by(rng, n_iter):
    shares, mean = exact_three()
    drawn, error = sampled_three(rng, n_iter)
    return np.abs((drawn - np.append(shares, mean)) / error).max()


@pytest.mark.slow
@pytest.mark.ci
def test_three_rows_against_quadrature(request):
    assert off_by(stream(request), 6000) < LIMIT


@pytest.mark.slow
def test_another_noise_is_seen_with_three_rows(request, monkeypatch):
    rng = stream(request)
    shares, mean = exact_three()
    monkeypatch.setattr("tests.inference.test_shifted.NOISE", 0.6)
    drawn, error = sampled_three(rng, 6000)
    assert np.abs((drawn - np.append(shares, mean)) / error).max() > LIMIT


# ---- levels


def drift_of_draws(models, kind, share_missing, rng, n_tables):
    """Largest change of means by draws of coordinates, which shift whole clades, in standard errors."""
    changes = []
    for _ in range(n_tables):
        _, latent, now = draw_all(Columns(models), kind, share_missing, rng)
        before = statistics(latent, now)
        for _ in range(4):
            now = latent.draw(now, rng)
        changes.append(statistics(latent, now) - before)
    changes = np.array(changes)
    spread = changes.std(axis=0) / math.sqrt(len(changes))
    moved = spread > 0.0
    return float(np.abs(changes.mean(axis=0)[moved] / spread[moved]).max())


@pytest.mark.parametrize("case", ["binary", pytest.param("ordinal", marks=LONG), pytest.param("missing", marks=LONG)])
def test_shifts_of_clades_leave_the_law_unchanged(case, request):
    models, kind, share = CASES[case]
    assert drift_of_draws(models, kind, share, stream(request), 60 if case == "binary" else 300) < LIMIT


@pytest.mark.slow
def test_shifts_by_another_noise_are_seen(request, monkeypatch):
    right = CladeShifts.__init__
    monkeypatch.setattr(CladeShifts, "__init__", lambda self, tree, spread: right(self, tree, 9.0 * spread))
    assert drift_of_draws((BINARY, ORDERED), "spherical", 0.0, stream(request), 3000) > LIMIT
