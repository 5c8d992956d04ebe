"""`refine`: a tree in, a tree of higher joint density out.

Annealing comes first: sweeps of the Markov chain (`moves.whole_tree`) at a temperature that falls from a little above 1
to 0, which take the tree out of its local maximum. Then comes a climb: every subtree in turn moves to the best of all
places in the tree, with its best time there, and every merge to its best time, until a pass over the whole tree
changes nothing.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from coaltree._arrays import Ints
from coaltree._compile import kernel
from coaltree.errors import InputError
from coaltree.inference.moves import edge_density
from coaltree.inference.moves.mutable_tree import (
    MutableTree,
    attach,
    detach,
    make_chain,
    other_child,
    recompute_tree,
    to_tree,
)
from coaltree.inference.moves.regraft_proposal import edge_at, make_survey, visit_edges
from coaltree.inference.moves.whole_tree import EXACTLY, advance, slice_node_times
from coaltree.model.coalescent import log_prior
from coaltree.model.diffusion import log_density, whiten_leaves
from coaltree.randomness import RandomState, Stream, as_generator, make_streams
from coaltree.tree import Tree
from coaltree.validation import check_count, check_real

# The climb ends when a pass gains less than this.
NEGLIGIBLE = 1e-4
# Share of the sweeps spent on annealing.
ANNEALED = 0.7


@kernel
def climb_all(state: MutableTree, cuts: Ints) -> None:
    """Move each of the subtrees in turn to the place with the highest joint, unless it is there already."""
    d = float(state.mean.shape[1])
    survey = make_survey(state.variance.size)
    for cut in cuts:
        if cut == state.children[-1, 0]:
            continue
        home, home_time = other_child(state, cut), state.time[state.parent[cut]]
        detach(state, cut)
        n_edges = visit_edges(state, cut, EXACTLY, survey)
        best = survey.edge[0]
        for k in range(1, n_edges):
            if survey.log_mass[survey.edge[k]] > survey.log_mass[best]:
                best = survey.edge[k]
        gain = survey.log_mass[best] - edge_density.log_edge_density(
            edge_at(state, survey, cut, home), state.others, d, home_time
        )
        # Merges tied in time have several equivalent places: rounding must not move a subtree among them.
        if gain > 1e-9 * abs(survey.log_mass[best]):
            state.log_joint[0] += gain
            attach(state, cut, best, survey.peak[best])
        else:
            attach(state, cut, home, home_time)


def refine(
    tree: Tree,
    X: npt.ArrayLike,
    covariance: npt.ArrayLike | None = None,
    *,
    leaf_noise: npt.ArrayLike = 0.0,
    max_sweeps: int = 60,
    random_state: RandomState = 0,
    progress: bool = False,
    temperature: float = 3.0,
) -> Tree:
    """Refine a tree: search near it for one of higher log joint, and never return a worse one.

    Parameters
    ----------
    tree : Tree
        Where to start, such as a greedy tree or the best particle.
    X : array-like (n, d)
        One row per leaf.
    covariance : array-like (d, d) or (d,), optional
        Covariance Φ of the diffusion per unit of time, or the variances of a diagonal one. Default: the identity.
    leaf_noise : float or array-like (n,)
        Variance of each leaf around its true value, in units of the covariance.
    max_sweeps : int
        Limit on sweeps, annealing and climbing together. A sweep weighs O(n²) places at O(d) each.
    random_state : int, Generator, …
        Seed. The same seed gives the same tree.
    progress : bool
        Show a progress bar.
    temperature : float
        Where annealing begins; 0 only climbs, which is faster and stops at the nearest local maximum.

    Returns
    -------
    Tree

    Examples
    --------
    >>> import coaltree as ct
    >>> from coaltree.inference.moves.refine import refine
    >>> X = ct.sample_data(ct.sample_tree(20, random_state=1), 5, random_state=2)
    >>> start = ct.greedy_tree(X)
    >>> ct.log_joint(refine(start, X), X) > ct.log_joint(start, X)
    True
    """
    max_sweeps = check_count(max_sweeps, "max_sweeps", at_least=1)
    temperature = check_real(temperature, "temperature", at_least=0.0)
    rows, noise, _ = whiten_leaves(X, covariance, leaf_noise)
    if len(rows) != tree.n_leaves:
        raise InputError(f"X must have one row per leaf of the tree ({tree.n_leaves}), got {len(rows)}.")
    rng = as_generator(random_state)
    stream = make_streams(rng, 1)[0]
    state = make_chain(tree, rows, noise)
    n_annealed = int(ANNEALED * max_sweeps) if temperature > 0.0 else 0
    counts = np.zeros(5, dtype=np.int64)
    with tqdm(total=max_sweeps, desc="sweeps", disable=not progress) as bar:
        for k in range(n_annealed):
            advance(state, 1, stream, counts, beta=1.0 / (temperature * (1.0 - k / n_annealed)))
            bar.update()
        for _ in range(n_annealed, max_sweeps):
            before = float(state.log_joint[0])
            _best_times(state, stream)
            climb_all(state, rng.permutation(len(state.variance)))
            bar.update()
            if state.log_joint[0] - before < NEGLIGIBLE:
                break
        _best_times(state, stream)
    found = to_tree(state, tree.names)
    # An impossible start, two leaves merged at time 0, has no joint to compare with.
    before, after = (log_prior(each) + log_density(each, rows, noise) for each in (tree, found))
    return tree if before >= after else found


def _best_times(state: MutableTree, stream: Stream) -> None:
    """Maximise the joint over the times, one merge at a time."""
    for _ in range(50):
        before = float(state.log_joint[0])
        slice_node_times(state, math.inf, stream)
        if not math.isfinite(before):
            recompute_tree(state)
        if state.log_joint[0] - before < NEGLIGIBLE:
            break
