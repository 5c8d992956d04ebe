r"""How well a fit predicts each row of a mixed table from the others; see `posterior.loo` for what is estimated.

A draw has coordinates and cutpoints too. What is seen of row i has, given those of the other rows, the density

    f_i = p(x_i | T₋ᵢ, Z₋ᵢ, Φ, κ, s),

its place in the tree and its own coordinates summed out (`posterior.mixed_places`); so p(x_i | X₋ᵢ) = 1 / E[1 / f_i] as
for numbers. Gaps are summed out as well, and every row can be held out.

Densities are of numbers in their own units and of levels, so models of the same table can be compared whatever they
take its columns for. A model that takes values on a grid for exact could be right about them without bound. So it is
asked for the probability of the whole cell, g_i, by the same weights: E[g_i / f_i] / E[1 / f_i], over the cell's width.
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from coaltree._arrays import Floats, Ints
from coaltree.errors import InputError
from coaltree.inference.heavy import Tails
from coaltree.posterior.ensemble import TreePosterior
from coaltree.posterior.loo import LeaveOneOut, noise_grid, one_noise, smooth
from coaltree.posterior.mixed import Mixed
from coaltree.posterior.mixed_places import Seen, look, weigh_row
from coaltree.posterior.new_rows import edges_for
from coaltree.posterior.places import Sites, make_sites
from coaltree.randomness import Stream, make_streams
from coaltree.tree import Tree

# So many rows are held out, of very many rows fewer, and so many draws asked; of rows with a noise of their own half.
MOST_ROWS, FEWEST_ROWS, MOST_LEAVES = 100, 30, 300_000
MOST_DRAWS = 60


def leave_one_out(
    mixed: Mixed,
    posterior: TreePosterior,
    completed: Floats,
    covariances: Floats,
    leaf_noises: Floats,
    tails: Floats | None = None,
) -> LeaveOneOut:
    """Leave-one-out densities of rows of a mixed table under a posterior by chains."""
    columns, cells = mixed.columns, mixed.values
    rows = np.flatnonzero(~np.isnan(cells).all(axis=1))
    n_rows = min(max(MOST_LEAVES // len(cells), FEWEST_ROWS), MOST_ROWS)
    if len(rows) > n_rows:
        rows = np.sort(np.random.default_rng(0).choice(rows, n_rows, replace=False))
    if len(rows) < 2 or len(cells) < 3:
        raise InputError("leave-one-out needs at least three rows, two of which have a value.")
    n_kept = len(mixed.index) or len(posterior)
    n_chains = int(posterior.info.get("n_chains", 1))
    n_chains = n_chains if n_kept % n_chains == 0 else 1
    most = MOST_DRAWS if tails is None else MOST_DRAWS // 2
    per_chain = n_kept // n_chains
    kept = np.unique(np.linspace(0, per_chain - 1, min(per_chain, -(-most // n_chains))).astype(int))
    log_f = np.empty((len(rows), n_chains, len(kept)))
    coarse = any(model.cell and not model.is_drawn for model in columns.models)
    log_g = np.empty_like(log_f) if coarse else None
    for place in np.ndindex(log_f.shape[1:]):
        k = place[0] * per_chain + int(kept[place[1]])
        m, table, cuts = mixed.draw(k, completed)
        tree, phi = posterior[m], covariances[m % len(covariances)]
        noise = np.asarray(leaf_noises[m % len(leaf_noises)], dtype=np.float64)
        # Half the dimension: steps between noises as wide as what d coordinates, seen in part, can tell apart.
        law = (
            one_noise(noise)
            if tails is None
            else noise_grid(Tails(*tails[m].tolist()), float(noise.max()), max(columns.d // 2, 1))
        )
        streams = make_streams(np.random.default_rng([m]), len(rows))
        for h, row in enumerate(rows.tolist()):
            others = np.delete(np.arange(len(cells)), row)
            rest = without(tree, row)
            sites = make_sites(rest, table[others], noise[others])
            seen = look(columns, cells[row], cuts, phi, recorded=False)
            edges = edges_for(seen, rest, table[others])
            log_f[(h, *place)] = _log_mass(sites, seen, edges, law, streams[h])
            if log_g is not None:
                as_cells = look(columns, cells[row], cuts, phi)
                log_g[(h, *place)] = _log_mass(sites, as_cells, edges, law, streams[h])
    log_f += columns.log_units(cells[rows], recorded=False)[:, None, None]
    if log_g is not None:
        log_g += columns.log_units(cells[rows])[:, None, None]
    return smooth(log_f, rows, len(cells), log_g)


def _log_mass(sites: Sites, seen: Seen, edges: Ints, law: tuple[Floats, Floats], stream: Stream) -> float:
    """Log density of a row over all places, and over the law of its noise."""
    terms = [
        weight + float(weigh_row(sites, seen, float(noise), edges, 0, stream)[0].log_density[0])
        for noise, weight in zip(*law, strict=True)
    ]
    return terms[0] if len(terms) == 1 else float(logsumexp(terms))


def without(tree: Tree, leaf: int) -> Tree:
    """Return the tree without one leaf; later leaves and merges move up by one."""
    n, parents = tree.n_leaves, tree.parents()
    merge = int(parents[leaf])
    pair = tree.children[merge - n]
    sibling = int(pair[0] + pair[1]) - leaf
    children = np.delete(np.where(tree.children == merge, sibling, tree.children), merge - n, axis=0)
    children = children - (children > leaf) - (children > merge)
    return Tree(children, np.delete(tree.times, merge - n))
