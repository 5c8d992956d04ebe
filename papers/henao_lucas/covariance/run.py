"""Table 3: ℓ learned with the tree, M = 50 particles, 50 iterations, 10 of them burn-in."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.figure import Figure

import coaltree as ct
from coaltree.inference.smc import choose_method
from coaltree.posterior.learning import LearnedPosterior
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

SIZES = {"D1": 32, "D2": 64}
METHODS = ("mpost1", "smc1", "mpost2", "tpost")
DEFAULT = {name: choose_method("auto", size, size) for name, size in SIZES.items()}
SETTINGS = {"n_particles": 50, "n_iter": 50, "burn_in": 10}
FEWER = {"n_particles": 50, "n_iter": 20, "burn_in": 5}  # of a quick run


def tasks(options: Options) -> Sequence[Key]:
    """One task a data set, method and replicate; quick: a few of the small ones."""
    names = ("D1",) if options.quick else tuple(SIZES)
    replicates = options.replicates or (3 if options.quick else N_REPLICATES)
    return [(name, method, k) for k in range(replicates) for name in names for method in METHODS]


def learn(name: str, method: str, X: np.ndarray, **how: Any) -> LearnedPosterior:
    """Learn tree and ℓ."""
    return ct.learn_posterior(X, length_family(SIZES[name]), leaf_noise=0.0, method=method, **how)


@cache
def compile_for(name: str, method: str) -> None:
    """Compile what a method needs at a size, once a process."""
    learn(name, method, simulate(SIZES[name], SIZES[name], -1).X, n_particles=2, n_iter=2, burn_in=1)


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Learn from one data set by one method."""
    name, method, replicate = key
    compile_for(name, method)
    data = simulate(SIZES[name], SIZES[name], replicate)
    began = time.process_time()
    learned = learn(name, method, data.X, random_state=rng, **(FEWER if options.quick else SETTINGS))
    seconds = time.process_time() - began
    post = learned.posterior
    trace = learned.trace["k1__length_scale"][learned.burn_in :]
    drawn = lengths({"k1__length_scale": value} for value in trace)
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
    yield from table(summary, expected, METHODS, DEFAULT)
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
