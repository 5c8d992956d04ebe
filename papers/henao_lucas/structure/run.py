"""Table 2: samplers with the true covariance, M = 100 particles, errors of times and distances, run time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from matplotlib.figure import Figure

import coaltree as ct
from coaltree.inference.effort import choose_sampler
from coaltree.metrics import distance_errors
from papers.henao_lucas.artificial import (
    KNOWN,
    N_REPLICATES,
    claims_against,
    describe_all,
    distance_claims,
    measures_if_known,
    simulate,
    table,
    tails,
    tree_measures,
)
from papers.henao_lucas.experiment import Claim, Experiment, Key, Options, Row, Summary, generator, mean_and_error
from papers.henao_lucas.figures import LABELS, MARKS, legend_below, panels, plain_logarithmic

SIZES = {"D1": 32, "D2": 64}
METHODS = ("postpost", "mpost1", "smc1", "mpost2", "tpost", "insertion")
DEFAULT = {name: choose_sampler("auto", size, size, 0.5)[0] for name, size in SIZES.items()}
N_PARTICLES = 100
FASTER = 50.0
# For the tails of distance errors: further data sets like D1, by default, in blocks as large as the paper's experiment.
N_BLOCKS = 6


def tasks(options: Options) -> Sequence[Key]:
    """One task a data set, method and replicate; quick: a few of the small ones."""
    names = ("D1",) if options.quick else tuple(SIZES)
    replicates = options.replicates or (12 if options.quick else N_REPLICATES)
    columns = (*METHODS, KNOWN)
    compared: list[Key] = [(name, method, k) for k in range(replicates) for name in names for method in columns]
    return compared if options.quick else [*compared, *(("tails", block) for block in range(N_BLOCKS))]


@cache
def compile_for(name: str, method: str) -> None:
    """Compile what a method needs at a size, once a process."""
    data = simulate(SIZES[name], SIZES[name], -1)
    ct.sample_posterior(data.X, data.phi, method=method, n_particles=N_PARTICLES)


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Sample trees for one data set by one method, or the errors of a block of data sets."""
    if key[0] == "tails":
        return {"distance_mse": [distance_error(1000 + N_REPLICATES * key[1] + k, rng) for k in range(N_REPLICATES)]}
    name, method, replicate = key
    data = simulate(SIZES[name], SIZES[name], replicate)
    if method == KNOWN:
        return measures_if_known(data, rng)
    compile_for(name, method)
    began = time.process_time()
    post = ct.sample_posterior(data.X, data.phi, method=method, n_particles=N_PARTICLES, random_state=rng)
    seconds = time.process_time() - began
    measures = tree_measures(data.tree, post.times, post.cophenetic(), post.weights)
    return {"seconds": seconds, **measures, "log_evidence": post.log_evidence}


def distance_error(replicate: int, rng: np.random.Generator) -> float:
    """Mean squared error of distances in a data set like D1, by the default sampler."""
    data = simulate(SIZES["D1"], SIZES["D1"], replicate)
    post = ct.sample_posterior(data.X, data.phi, n_particles=N_PARTICLES, random_state=rng)
    return distance_errors(data.tree, post.cophenetic()).mse


def summarise(rows: dict[Key, Row]) -> Summary:
    """Describe every measure by data set and method, and the averages that 50 data sets like D1 may have."""
    tables = describe_all(rows, SIZES, (*METHODS, KNOWN))
    blocks = [row["distance_mse"] for key, row in rows.items() if key[0] == "tails"]
    if not blocks:
        return {"tables": tables}
    values = np.concatenate(blocks)
    averages = generator("tails").choice(values, (10_000, N_REPLICATES)).mean(axis=1)
    mean, _, error = mean_and_error(values)
    more = {"n": len(values), "mean": mean, "se": error, "median": float(np.median(values))}
    return {"tables": tables, "tails": {**more, "averages": np.quantile(averages, [0.05, 0.5, 0.95]).tolist()}}


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """What `auto` takes is as good as the paper's best, and nearly as one that knows the merges; MPost2 is faster."""
    speed = [
        Claim(
            f"{name}: MPost2, CPU time of the paper's over ours, {N_PARTICLES} particles each",
            expected[name]["mpost2"]["seconds"][0] / ours["mpost2"]["seconds"]["mean"],
            FASTER,
            timed=True,
        )
        for name, ours in summary["tables"].items()
    ]
    tables = summary["tables"]
    return [*claims_against(tables, expected, DEFAULT), *distance_claims(tables, DEFAULT), *speed]


def show(summary: Summary, expected: Summary) -> Iterator[str]:
    """Table 2 with ours beside it."""
    yield from table(summary["tables"], expected, (*METHODS, KNOWN), DEFAULT)
    yield ""
    yield "Means ± standard deviations over replicates. Bold: the method `auto` takes, with its median in brackets."
    yield ""
    yield from tails(summary["tables"], claims(summary, expected), DEFAULT)
    if "tails" in summary:
        more = summary["tails"]
        low, _, high = more["averages"]
        yield (
            f"{more['n']} more data sets like D1, by default: MSE of distances {more['mean']:.3g} ± {more['se']:.2g} "
            f"(standard error), median {more['median']:.3g}; averages of {N_REPLICATES} of them lie between {low:.2g} "
            f"and {high:.2g} nine times out of ten."
        )


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """Error of merge times against CPU time, one point a replicate."""
    names = [name for name in SIZES if any(key[0] == name for key in rows)]
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
