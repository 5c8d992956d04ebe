"""Table 3: ℓ learned with the tree, M = 50 particles, 50 iterations, 10 of them burn-in."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from matplotlib.figure import Figure

from coaltree.inference.effort import choose_merging
from papers.henao_lucas.artificial import (
    LENGTH,
    N_REPLICATES,
    claims_against,
    describe_all,
    least_deviation,
    length_claims,
    length_family,
    length_measures,
    lengths,
    simulate,
    table,
    tails,
    tree_measures,
)
from papers.henao_lucas.experiment import Claim, Experiment, Key, Options, Row, Summary
from papers.henao_lucas.figures import LABELS, MARKS, legend_below, panels
from papers.henao_lucas.particle_gibbs import CHAIN, Learned, by_chain, by_particles

SIZES = {"D1": 32, "D2": 64}
METHODS = ("mpost1", "smc1", "mpost2", "tpost", CHAIN)
DEFAULT = {name: choose_merging("auto", size, size) for name, size in SIZES.items()}
N_PARTICLES = 50
N_ITER, BURN_IN = 50, 10
QUICK_ITER, QUICK_BURN_IN = 20, 5
# Of `learn_posterior`: draws of two chains together, and the warm-up of each.
N_DRAWS, WARMUP = 200, 100
QUICK_DRAWS, QUICK_WARMUP = 100, 50


def tasks(options: Options) -> Sequence[Key]:
    """One task a data set, method and replicate; quick: a few of the small ones."""
    names = ("D1",) if options.quick else tuple(SIZES)
    replicates = options.replicates or (3 if options.quick else N_REPLICATES)
    return [(name, method, k) for k in range(replicates) for name in names for method in METHODS]


def learn(name: str, method: str, X: np.ndarray, quick: bool, rng: np.random.Generator) -> Learned:
    """Learn tree and ℓ."""
    family = length_family(SIZES[name])
    if method == CHAIN:
        n_draws, warmup = (QUICK_DRAWS, QUICK_WARMUP) if quick else (N_DRAWS, WARMUP)
        return by_chain(X, family, False, n_draws, warmup, rng)
    n_iter, burn_in = (QUICK_ITER, QUICK_BURN_IN) if quick else (N_ITER, BURN_IN)
    return by_particles(X, family, False, method, N_PARTICLES, n_iter, burn_in, rng)


@cache
def compile_for(name: str, method: str) -> None:
    """Compile what a method needs at a size, once a process."""
    rng, X = np.random.default_rng(0), simulate(SIZES[name], SIZES[name], -1).X
    if method == CHAIN:
        by_chain(X, length_family(SIZES[name]), False, 2, 1, rng)
    else:
        by_particles(X, length_family(SIZES[name]), False, method, 2, 2, 1, rng)


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Learn from one data set by one method."""
    name, method, replicate = key
    compile_for(name, method)
    data = simulate(SIZES[name], SIZES[name], replicate)
    began = time.process_time()
    learned = learn(name, method, data.X, options.quick, rng)
    seconds = time.process_time() - began
    post = learned.posterior
    drawn = lengths({"k1__length_scale": value} for value in learned.trace["k1__length_scale"])
    return {
        "seconds": seconds,
        **tree_measures(data.tree, post.times, post.cophenetic(), post.weights),
        **length_measures(drawn),
        "length": float(np.median(drawn)),
    }


def summarise(rows: dict[Key, Row]) -> Summary:
    """Describe every measure by data set and method."""
    return describe_all(rows, SIZES, METHODS)


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """What `auto` takes is as good as the paper's best by every measure, and nearly as good at ℓ as can be."""
    return [*claims_against(summary, expected, DEFAULT), *length_claims(summary, SIZES, DEFAULT)]


def show(summary: Summary, expected: Summary) -> Iterator[str]:
    """Table 3 with ours beside it."""
    done = [method for method in METHODS if all(method in ours for ours in summary.values())]
    yield from table(summary, expected, done, DEFAULT)
    yield ""
    yield "Means ± standard deviations over replicates. Bold: the method `auto` takes, with its median in brackets."
    yield ""
    yield from tails(summary, claims(summary, expected), DEFAULT)


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """Learned ℓ of every replicate beside the truth and the least possible deviation."""
    names = list(dict.fromkeys(key[0] for key in rows))
    figure, axes = panels(len(names), width=3.5 * len(names))
    for axis, name in zip(axes, names, strict=True):
        least = least_deviation(SIZES[name], SIZES[name])
        axis.axvspan(LENGTH - 1.96 * least, LENGTH + 1.96 * least, color="#DDDDDD", label="95 %, merges known")
        axis.axvline(LENGTH, color="black", linewidth=1)
        for method in METHODS:
            values = np.sort([row["length"] for key, row in rows.items() if key[:2] == (name, method)])
            if not len(values):
                continue
            share = (np.arange(len(values)) + 0.5) / len(values)
            look = {key: value for key, value in MARKS[method].items() if key != "marker"}
            axis.step(values, share, where="mid", label=LABELS[method], **look)
        axis.set(xlabel="posterior median of ℓ", ylabel="share of replicates", ylim=(0, 1))
        axis.set_title(f"{name}: n = d = {SIZES[name]}")
    legend_below(figure, axes[0], 5)
    return {"covariance": figure}


EXPERIMENT = Experiment("covariance", tasks, run, summarise, claims, show, figures)
