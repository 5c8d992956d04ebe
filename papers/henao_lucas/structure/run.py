"""Table 2: samplers with the true covariance, M = 100 particles, errors of times and distances, run time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from matplotlib.figure import Figure

import coaltree as ct
from coaltree.inference.smc import choose_method
from papers.henao_lucas.artificial import (
    N_REPLICATES,
    claims_against,
    describe,
    simulate,
    table,
    tails,
    tree_measures,
)
from papers.henao_lucas.experiment import Claim, Experiment, Key, Options, Row, Summary
from papers.henao_lucas.figures import LABELS, MARKS, legend_below, panels, plain_logarithmic

SIZES = {"D1": 32, "D2": 64}
METHODS = ("postpost", "mpost1", "smc1", "mpost2", "tpost")
DEFAULT = {name: choose_method("auto", size, size) for name, size in SIZES.items()}
N_PARTICLES = 100
FASTER = 50.0


def tasks(options: Options) -> Sequence[Key]:
    """One task a data set, method and replicate; quick: a few of the small ones."""
    names = ("D1",) if options.quick else tuple(SIZES)
    replicates = options.replicates or (12 if options.quick else N_REPLICATES)
    return [(name, method, k) for k in range(replicates) for name in names for method in METHODS]


@cache
def compile_for(name: str, method: str) -> None:
    """Compile what a method needs at a size, once a process."""
    data = simulate(SIZES[name], SIZES[name], -1)
    ct.sample_posterior(data.X, data.phi, method, n_particles=2)


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Sample trees for one data set by one method."""
    name, method, replicate = key
    compile_for(name, method)
    data = simulate(SIZES[name], SIZES[name], replicate)
    began = time.process_time()
    post = ct.sample_posterior(data.X, data.phi, method, N_PARTICLES, random_state=rng)
    seconds = time.process_time() - began
    measures = tree_measures(data.tree, post.times, post.cophenetic(), post.weights)
    return {"seconds": seconds, **measures, "log_evidence": post.log_evidence}


def summarise(rows: dict[Key, Row]) -> Summary:
    """Describe every measure by data set and method."""
    names = dict.fromkeys(key[0] for key in rows)
    return {
        name: {m: describe(row for key, row in rows.items() if key[:2] == (name, m)) for m in METHODS} for name in names
    }


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """What `auto` takes is as good as the paper's best by every measure; MPost2 is fifty times faster."""
    speed = [
        Claim(
            f"{name}: MPost2, CPU time of the paper's over ours, {N_PARTICLES} particles each",
            expected[name]["mpost2"]["seconds"][0] / summary[name]["mpost2"]["seconds"]["mean"],
            FASTER,
            timed=True,
        )
        for name in summary
    ]
    return [*claims_against(summary, expected, DEFAULT), *speed]


def show(summary: Summary, expected: Summary) -> Iterator[str]:
    """Table 2 with ours beside it."""
    yield from table(summary, expected, METHODS, DEFAULT)
    yield ""
    yield "Means ± standard deviations over replicates. Bold: the method `auto` takes, with its median in brackets."
    yield ""
    yield from tails(summary, claims(summary, expected), DEFAULT)


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """Error of merge times against CPU time, one point a replicate."""
    names = list(dict.fromkeys(key[0] for key in rows))
    figure, axes = panels(len(names), width=3.5 * len(names))
    for axis, name in zip(axes, names, strict=True):
        for method in METHODS:
            chosen = [row for key, row in rows.items() if key[:2] == (name, method)]
            look = {**MARKS[method], "linestyle": "none"}
            cost = [row["seconds"] for row in chosen]
            error = [row["time_mse"] for row in chosen]
            axis.plot(cost, error, **look, alpha=0.25, markeredgewidth=0)
            axis.plot(np.mean(cost), np.mean(error), **look, label=LABELS[method], markeredgecolor="black", zorder=3)
        plain_logarithmic(axis)
        axis.set(xlabel="CPU seconds, 100 particles", ylabel="MSE of log merge times")
        axis.set_title(f"{name}: n = d = {SIZES[name]}")
    legend_below(figure, axes[0], len(METHODS))
    return {"structure": figure}


EXPERIMENT = Experiment("structure", tasks, run, summarise, claims, show, figures)
