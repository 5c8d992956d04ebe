"""Table 4 and the figure after it: greedy trees by four rules, with ℓ learned; last merge times against d, Φ known."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from matplotlib.figure import Figure

import coaltree as ct
from coaltree.model.diffusion import scatter
from papers.henao_lucas.artificial import (
    KNOWN,
    N_REPLICATES,
    claims_against,
    describe_all,
    distance_claims,
    length_family,
    length_measures,
    lengths,
    measures_if_known,
    simulate,
    table,
    tails,
    tree_measures,
)
from papers.henao_lucas.experiment import Claim, Experiment, Key, Options, Row, Summary, generator
from papers.henao_lucas.figures import LABELS, MARKS, legend_below, panels

SIZES = {"D1": 32, "D2": 128}
RULES = ("mode", "mean", "truncated_mean", "peak")
BEST = dict.fromkeys(SIZES, "peak")  # what `learn_posterior(method="greedy")` merges by
N_ITER, BURN_IN = 50, 10
# The paper's standard deviations of ℓ's errors are larger than 50 numbers with its averages can have, its MSE is the
# square of its MAE: these must be medians.
MEDIANS = ("length_mse", "length_mae", "length_mab")
DIMENSIONS = (4, 8, 16, 32, 64, 128)
N_IN_FIGURE = 5  # times as many replicates as in the table: 250


def tasks(options: Options) -> Sequence[Key]:
    """One task a data set, rule and replicate; for the figure one a data set and dimension."""
    names = ("D1",) if options.quick else tuple(SIZES)
    replicates = options.replicates or (8 if options.quick else N_REPLICATES)
    learned = [(name, rule, k) for k in range(replicates) for name in names for rule in (*RULES, KNOWN)]
    return learned + [("times", name, d, N_IN_FIGURE * replicates) for name in names for d in DIMENSIONS]


def learn(X: np.ndarray, rule: str, n_iter: int, burn_in: int, rng: np.random.Generator) -> tuple[ct.Tree, list[float]]:
    """Alternate the greedy tree and a draw of ℓ; return the tree at the median of ℓ, and all ℓ after burn-in."""
    family = length_family(X.shape[1])
    state, kept = family.start(np.cov(X, rowvar=False)), []
    for iteration in range(n_iter):
        tree = ct.greedy_tree(X, state.matrix(), rule=rule)
        state = family.update(state, scatter(tree, X), len(X) - 1, rng)
        if iteration >= burn_in:
            kept.append(state)
    return ct.greedy_tree(X, family.summarise(kept).matrix(), rule=rule), lengths(state.values for state in kept)


@cache
def compile_for(name: str, rule: str) -> None:
    """Compile what a rule needs at a size, once a process."""
    learn(simulate(SIZES[name], SIZES[name], -1).X, rule, 2, 1, np.random.default_rng(0))


def run(key: Key, options: Options, rng: np.random.Generator) -> Row:
    """Learn from one data set by one rule, or compare last merge times at one dimension."""
    if key[0] == "times":
        _, name, d, replicates = key
        return last_times(SIZES[name], d, replicates)
    name, rule, replicate = key
    data = simulate(SIZES[name], SIZES[name], replicate)
    if rule == KNOWN:
        return measures_if_known(data, rng)
    compile_for(name, rule)
    began = time.process_time()
    tree, drawn = learn(data.X, rule, N_ITER, BURN_IN, rng)
    seconds = time.process_time() - began
    return {
        "seconds": seconds,
        **tree_measures(data.tree, tree.times, tree.cophenetic()),
        **length_measures(drawn),
    }


def last_times(n: int, d: int, replicates: int) -> Row:
    """True minus greedy last merge times, one a replicate, by rule; Φ known, so the identity will do."""
    differences: Row = {rule: [] for rule in RULES}
    for replicate in range(replicates):
        rng = generator("last times", n, d, replicate)
        truth = ct.sample_tree(n, random_state=rng)
        X = ct.sample_data(truth, d, random_state=rng)
        for rule in RULES:
            differences[rule].append(float(truth.times[-1] - ct.greedy_tree(X, rule=rule).times[-1]))
    return differences


def summarise(rows: dict[Key, Row]) -> Summary:
    """Describe every measure by data set and rule, and the differences by data set, dimension and rule."""
    tables = describe_all(rows, SIZES, (*RULES, KNOWN))
    times: Summary = {name: {} for name in tables}
    for key, row in rows.items():
        if key[0] == "times":
            gain = np.array(row["mode"]) - np.array(row["mean"])  # the mean's trees are later
            times[key[1]][str(key[2])] = {
                "gain": float(gain.mean()),
                "gain_se": float(gain.std(ddof=1) / np.sqrt(len(gain))),
                **{rule: np.quantile(row[rule], [0.05, 0.5, 0.95]).tolist() for rule in RULES},
            }
    return {"tables": tables, "times": times}


def claims(summary: Summary, expected: Summary) -> Sequence[Claim]:
    """As good as the paper's table; the mean comes later than the mode, by less as d grows."""
    found = [*claims_against(summary["tables"], expected, BEST, MEDIANS), *distance_claims(summary["tables"], BEST)]
    for name, ours in summary["times"].items():
        for d, values in ours.items():
            found.append(
                Claim(
                    f"{name}, d = {d}: the mean's last merge is later than the mode's, on average by",
                    values["gain"],
                    0.0,
                    tolerance=0.0,
                )
            )
        few, many = ours[str(DIMENSIONS[0])], ours[str(DIMENSIONS[-1])]
        found.append(
            Claim(
                f"{name}: that gain falls from d = {DIMENSIONS[0]} to {DIMENSIONS[-1]} by",
                few["gain"] - many["gain"],
                0.0,
                tolerance=float(np.hypot(few["gain_se"], many["gain_se"])),
            )
        )
        found.append(
            Claim(
                f"{name}, d = {DIMENSIONS[0]}: |median TD| of the mean less than of the mode, by",
                abs(few["mode"][1]) - abs(few["mean"][1]),
                0.0,
            )
        )
    return found


def show(summary: Summary, expected: Summary) -> Iterator[str]:
    """Table 4 with ours beside it, then medians of the figure."""
    yield from table(summary["tables"], expected, (*RULES, KNOWN), BEST)
    yield ""
    yield "Means ± standard deviations over replicates; bold: the rule that learning takes, its median in brackets."
    yield ""
    yield from tails(summary["tables"], claims(summary, expected), BEST)
    yield ""
    yield "| median TD, Φ known | " + " | ".join(f"d = {d}" for d in DIMENSIONS) + " |"
    yield "|---" * (1 + len(DIMENSIONS)) + "|"
    for name, ours in summary["times"].items():
        for rule in RULES:
            cells = " | ".join(f"{ours[str(d)][rule][1]:+.3f}" for d in DIMENSIONS)
            yield f"| {name}, {LABELS[rule]} | {cells} |"


def figures(rows: dict[Key, Row]) -> dict[str, Figure]:
    """Median and 90 % quantiles of true minus greedy last merge times, against d."""
    names = list(dict.fromkeys(key[1] for key in rows if key[0] == "times"))
    figure, axes = panels(len(names), width=3.5 * len(names), height=3.2)
    for axis, name in zip(axes, names, strict=True):
        found = {key[2]: row for key, row in rows.items() if key[:2] == ("times", name)}
        for k, rule in enumerate(RULES):
            low, middle, high = np.array([np.quantile(found[d][rule], [0.05, 0.5, 0.95]) for d in DIMENSIONS]).T
            where = np.array(DIMENSIONS) * 1.07 ** (k - 1.5)
            bars = [middle - low, high - middle]
            axis.errorbar(where, middle, bars, **MARKS[rule], label=LABELS[rule], capsize=2, elinewidth=0.9)
        axis.axhline(0.0, color="black", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_xticks(DIMENSIONS, [str(d) for d in DIMENSIONS])
        axis.set(xlabel="d", ylabel="last merge time, true − greedy", title=f"{name}: n = {SIZES[name]}")
    legend_below(figure, axes[0], 4)
    return {"last_times": figure}


EXPERIMENT = Experiment("greedy", tasks, run, summarise, claims, show, figures)
