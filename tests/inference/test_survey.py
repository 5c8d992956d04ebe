"""The places for a subtree and the proposal over them: against the joint, the plain twin and quadrature."""

import math

import numba
import numpy as np
import pytest
from scipy.stats import kstest

import coaltree as ct
from coaltree._compile import kernel
from coaltree.inference.moves.edge_density import N_KNOTS, draw_from_knots
from coaltree.inference.moves.mutable_tree import attach, detach, make_chain, other_child, recompute_tree
from coaltree.inference.moves.regraft_proposal import ROUGHLY, make_survey, visit_edges, weigh_place, weigh_proposals
from coaltree.randomness import make_streams
from tests.reference.regraft import Proposal, hang
from tests.reference.trees import leaves_below
from tests.seeds import seed


@kernel
def weigh_places(state, cut, node, time, beta, out):
    """Log f^β and log q of hanging the subtree under `cut` at each place, out (2, number of places)."""
    survey = make_survey(state.variance.size)
    home, home_time = other_child(state, cut), state.time[state.parent[cut]]
    detach(state, cut)
    n_edges = visit_edges(state, cut, ROUGHLY, survey)
    log_total = weigh_proposals(state, cut, beta, n_edges, survey)
    for k in range(node.size):
        out[0, k], out[1, k] = weigh_place(state, cut, node[k], time[k], beta, survey, log_total)
    attach(state, cut, home, home_time)


def places(proposal, rng):
    """Random places on every edge, as (nodes, times)."""
    ends = [(node, edge.low, min(edge.high, edge.low + 3)) for node, edge in proposal.edges.items()]
    found = [(node, low + (high - low) * u) for node, low, high in ends for u in rng.random(3)]
    return np.array([node for node, _ in found]), np.array([t for _, t in found])


@pytest.mark.parametrize(("n", "d", "leaf_noise"), [(3, 2, 0.0), (6, 3, 0.0), (7, 1, 0.2), (8, 40, 0.0)])
def test_proposal_equals_its_twin_and_the_joint(n, d, leaf_noise):
    rng = np.random.default_rng(seed(51))
    tree = ct.sample_tree(n, random_state=rng)
    X = ct.sample_data(tree, d, leaf_noise=leaf_noise, random_state=rng)
    chain = make_chain(tree, X, np.full(n, leaf_noise))
    for cut in range(2 * n - 2):
        proposal = Proposal(tree, X, leaf_noise, cut)
        nodes, times = places(proposal, rng)
        out = np.empty((2, len(nodes)))
        weigh_places(chain, cut, nodes, times, 1.0, out)
        trees = [ct.Tree(*hang(tree, cut, *place)) for place in zip(nodes, times, strict=True)]
        log_joint = np.array([ct.log_joint(moved, X, None, leaf_noise=leaf_noise) for moved in trees])
        np.testing.assert_allclose(log_joint - log_joint[0], out[0] - out[0, 0], rtol=1e-8, atol=1e-7)
        log_f, log_q = np.array(
            [[proposal.log_f(*place), proposal.log_q(*place)] for place in zip(nodes, times, strict=True)]
        ).T
        np.testing.assert_allclose(out[0], log_f, rtol=1e-8)
        np.testing.assert_allclose(out[1], log_q, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("beta", [0.5, 1.0])
@pytest.mark.parametrize(("d", "leaf_noise"), [(1, 0.0), (3, 0.1), (30, 0.0)])
def test_proposal_is_a_density_close_to_the_target(d, leaf_noise, beta):
    """∫ q = 1 by quadrature, and half of ∫|q − f/∫f|, the chance to be refused, is small."""
    n = 7
    rng = np.random.default_rng(seed(52))
    tree = ct.sample_tree(n, random_state=rng)
    X = ct.sample_data(tree, d, leaf_noise=leaf_noise, random_state=rng)
    chain, parents, node_times = make_chain(tree, X, np.full(n, leaf_noise)), tree.parents(), tree.node_times()
    for cut in (0, 3, n):
        gone = parents[cut]
        nodes, times, weights = [], [], []
        for node in range(2 * n - 1):
            if node == gone or leaves_below(tree, node) <= leaves_below(tree, cut):
                continue
            parent = parents[gone] if parents[node] == gone else parents[node]
            low, high = max(node_times[node], node_times[cut]), node_times[parent] if parent >= 0 else math.inf
            if low < high:
                length = min(high - low, 80.0)
                edges = low + length * np.concatenate([[0.0], np.geomspace(1e-7, 1.0, 3000)])
                nodes += [node] * 3000
                times += list((edges[1:] + edges[:-1]) / 2)
                weights += list(np.diff(edges))
        out = np.empty((2, len(nodes)))
        weigh_places(chain, cut, np.array(nodes), np.array(times), beta, out)
        f, q = np.exp(out - out.max(axis=1, keepdims=True)) * weights
        assert np.exp(out[1]) @ weights == pytest.approx(1.0, abs=2e-3)
        assert 0.5 * np.abs(f / f.sum() - q / q.sum()).sum() < 0.2


@numba.njit
def draw_many(knots, stream, out):
    for k in range(out.size):
        out[k] = draw_from_knots(knots, stream)


def test_draws_from_knots_follow_the_interpolated_density():
    rng = np.random.default_rng(seed(54))
    knots = np.array([np.sort(rng.random(N_KNOTS)), rng.normal(0, 2, N_KNOTS)])
    grid = np.linspace(knots[0, 0], knots[0, -1], 200_001)
    draws = np.empty(20_000)
    draw_many(knots, make_streams(rng, 1)[0], draws)

    def distance(logs):
        """Kolmogorov's, times √N; above 2.2 once in 8 000."""
        density = np.exp(np.interp(grid, knots[0], logs))
        cdf = np.cumsum(density) / density.sum()
        return kstest(draws, lambda t: np.interp(t, grid, cdf)).statistic * math.sqrt(len(draws))

    assert distance(knots[1]) < 2.2
    assert distance(knots[1] + 0.5 * np.arange(N_KNOTS)) > 2.2


def test_proposal_forgets_where_the_subtree_hung():
    n, d, cut = 9, 4, 2
    rng = np.random.default_rng(seed(53))
    tree = ct.sample_tree(n, random_state=rng)
    X = ct.sample_data(tree, d, random_state=rng)
    proposal = Proposal(tree, X, 0.0, cut)
    chain = make_chain(tree, X, np.zeros(n))
    # Node numbers stay with the chain; those of the tree it is made from are its own.
    nodes, times = places(proposal, rng)
    before, after = np.empty((2, len(nodes))), np.empty((2, len(nodes)))
    weigh_places(chain, cut, nodes, times, 1.0, before)
    for node, t in zip(nodes[::5], times[::5], strict=True):
        merge, upper = chain.parent[cut], chain.parent[chain.parent[cut]]
        sibling = chain.children[merge][chain.children[merge] != cut][0]
        chain.children[upper][chain.children[upper] == merge] = sibling
        chain.parent[sibling] = upper
        above = chain.parent[node]
        chain.children[above][chain.children[above] == node] = merge
        chain.children[merge] = node, cut
        chain.parent[node], chain.parent[merge], chain.time[merge] = merge, above, t
        chain.merge_times[:] = np.sort(chain.time[n:-1])
        recompute_tree(chain)
        weigh_places(chain, cut, nodes, times, 1.0, after)
        np.testing.assert_allclose(after, before, rtol=1e-8, atol=1e-8)
