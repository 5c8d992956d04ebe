"""What the experiments on artificial data share: the data, the measures, the comparison with the paper.

A tree from Kingman's coalescent, a Gaussian process along it with Φ = exp(−(i − j)²/2ℓ) + σ²δ, i, j = 1 … d. The paper
states neither ℓ nor the grid; with a known Φ the errors do not depend on them, because inference sees whitened data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.gaussian_process.kernels import RBF, WhiteKernel

import coaltree as ct
from coaltree.inference.moves.whole_tree import Schedule, trace
from coaltree.metrics import Errors, distance_errors, last_time_difference, merge_time_errors
from coaltree.model.diffusion import whiten
from coaltree.model.gp import GaussianProcess
from coaltree.posterior.coclustering import pair_sums
from papers.henao_lucas.experiment import Claim, Key, Row, Summary, generator
from papers.henao_lucas.figures import LABELS

LENGTH, NOISE = 4.0, 1e-9
N_REPLICATES = 50  # of the paper
KNOWN = "known"  # in the place of a method: Φ and all merges are known, only their times are not
INEFFICIENCY = 1.25  # how much larger a root mean squared error may be than one that knows more

MEASURES = {
    "time_mse": "merge times, MSE",
    "time_mae": "merge times, MAE",
    "time_mab": "merge times, MAB",
    "td": "last merge, TD",
    "distance_mse": "distances, MSE",
    "distance_mae": "distances, MAE",
    "distance_mab": "distances, MAB",
    "length_mse": "ℓ, MSE",
    "length_mae": "ℓ, MAE",
    "length_mab": "ℓ, MAB",
    "seconds": "run time, s",
}


class Replicate(NamedTuple):
    """A data set and the truth behind it."""

    tree: ct.Tree
    X: np.ndarray  # (n, d)
    phi: np.ndarray  # (d, d)


def squared_exponential(d: int) -> np.ndarray:
    """Φ of the artificial data, (d, d)."""
    gaps = np.subtract.outer(np.arange(d), np.arange(d))
    return np.asarray(np.exp(-(gaps**2) / (2 * LENGTH)) + NOISE * np.eye(d))


def simulate(n: int, d: int, replicate: int) -> Replicate:
    """Draw the data set of a replicate: the same for every method."""
    rng = generator("artificial", n, d, replicate)
    tree, phi = ct.sample_tree(n, random_state=rng), squared_exponential(d)
    return Replicate(tree, ct.sample_data(tree, phi, random_state=rng), phi)


def length_family(d: int) -> GaussianProcess:
    """Φ with everything known but ℓ, whose logarithm is uniform."""
    kernel = RBF(1.0, (1e-2, 1e3)) + WhiteKernel(NOISE, "fixed")
    return GaussianProcess(kernel, np.arange(float(d)), amplitude=1.0, jitter=0.0)


def lengths(values: Iterable[Mapping[str, Any]]) -> list[float]:
    """ℓ, a squared length, of states of `length_family`."""
    return [float(value["k1__length_scale"]) ** 2 for value in values]


def least_deviation(n: int, d: int) -> float:
    """Cramér and Rao's bound: the least standard deviation of an unbiased estimate of ℓ, all merges known but when.

    The n − 1 contrasts are then independent N(0, vΦ), each with its own unknown v. With A = Φ⁻¹ ∂Φ/∂ℓ the information
    that is left about ℓ is (n − 1)/2 · (tr A² − (tr A)²/d).
    """
    squares = np.subtract.outer(np.arange(d), np.arange(d)) ** 2.0
    slope = np.exp(-squares / (2 * LENGTH)) * squares / (2 * LENGTH**2)
    relative = np.linalg.solve(squared_exponential(d), slope)
    return float((0.5 * (n - 1) * (np.trace(relative @ relative) - np.trace(relative) ** 2 / d)) ** -0.5)


def tree_measures(truth: ct.Tree, times: Any, cophenetic: Any, weights: Any = None) -> Row:
    """Errors of log merge times and of distances, and the difference of last merge times."""
    return {
        **_named("time", merge_time_errors(truth, times, weights=weights)),
        "td": last_time_difference(truth, times, weights=weights),
        **_named("distance", distance_errors(truth, cophenetic)),
    }


def measures_if_known(data: Replicate, rng: np.random.Generator, n_draws: int = 400) -> Row:
    """Errors of the posterior mean when Φ and all merges are known: no estimate has a smaller expected squared error.

    The chain starts at the truth, which is a draw from this posterior; the first tenth, still close to it, is left out.
    """
    rows, alone = whiten(data.X, data.phi).rows, Schedule(regrafts=0)
    drawn = trace(data.tree, rows, np.zeros(len(rows)), n_draws, rng, thin=2, schedule=alone)
    children, times = drawn.children[n_draws // 10 :], drawn.times[n_draws // 10 :]
    return tree_measures(data.tree, times, pair_sums(children, times) / len(times))


def length_measures(draws: Sequence[float]) -> Row:
    """Errors of ℓ after burn-in: of the median, as the paper summarises it, and MAB over all draws."""
    error = abs(float(np.median(draws)) - LENGTH)
    return _named("length", Errors(error**2, error, float(np.abs(np.asarray(draws) - LENGTH).max())))


def _named(what: str, errors: Errors) -> Row:
    return {f"{what}_{name}": value for name, value in errors._asdict().items()}


def describe(rows: Iterable[Row]) -> Summary:
    """Mean, standard deviation, standard error, median and the largest replicate's share of the sum, by measure."""
    rows = list(rows)
    summary = {}
    for name in MEASURES:
        if name in rows[0]:
            values = np.array([row[name] for row in rows])
            spread = float(values.std(ddof=1))
            summary[name] = {
                "n": len(values),
                "mean": float(values.mean()),
                "sd": spread,
                "se": spread / len(values) ** 0.5,
                "median": float(np.median(values)),
                "largest_share": float(np.abs(values).max() / np.abs(values).sum()),
            }
    return summary


def describe_all(rows: Mapping[Key, Row], names: Iterable[str], methods: Iterable[str]) -> Summary:
    """Describe by data set and method all that has two replicates at least."""
    methods, found = list(methods), {}
    for name in names:
        chosen = {m: [row for key, row in rows.items() if key[:2] == (name, m)] for m in methods}
        described = {method: describe(each) for method, each in chosen.items() if len(each) > 1}
        if described:
            found[name] = described
    return found


def papers_best(expected: Summary, measure: str) -> tuple[str, float, float]:
    """The paper's best method by a measure, its mean and its standard deviation; of TD the one nearest to zero."""
    found = {method: values[measure] for method, values in expected.items() if measure in values}
    best = min(found, key=lambda method: abs(found[method][0]))
    return best, abs(found[best][0]), found[best][1]


def claims_against(
    summary: Summary, expected: Summary, which: Mapping[str, str], medians: Sequence[str] = ()
) -> Iterator[Claim]:
    """One claim a data set and measure: ours, by the method that `which` names, at most the paper's best.

    The tolerance is one standard error of the difference, for `medians` 1.25 times as large. Run times have claims of
    their own.
    """
    for name, ours in summary.items():
        method = which[name]
        for measure, words in MEASURES.items():
            if measure not in ours[method] or measure == "seconds":
                continue
            best, bound, spread = papers_best(expected[name], measure)
            value = ours[method][measure]
            error = float(np.hypot(value["se"], spread / N_REPLICATES**0.5))
            by_median = measure in medians
            yield Claim(
                f"{name}, {words}: {LABELS[method]} against the paper's best, {LABELS[best]}",
                abs(value["median" if by_median else "mean"]),
                bound,
                at_least=False,
                tolerance=1.25 * error if by_median else error,
            )


def length_claims(summary: Summary, sizes: Mapping[str, int], which: Mapping[str, str]) -> Iterator[Claim]:
    """Error of ℓ against the least that an unbiased estimate could have with all merges known."""
    for name, ours in summary.items():
        bound = least_deviation(sizes[name], sizes[name])
        words = f"{name}, ℓ: root mean squared error over Cramér and Rao's bound given all merges ({bound:.3g})"
        yield _inefficiency(words, ours[which[name]]["length_mse"], {"mean": bound**2, "se": 0.0})


def distance_claims(summary: Summary, which: Mapping[str, str]) -> Iterator[Claim]:
    """Error of distances against that of the posterior mean with Φ and all merges known."""
    for name, ours in summary.items():
        words = f"{name}, distances: root mean squared error over that with Φ and all merges known"
        yield _inefficiency(words, ours[which[name]]["distance_mse"], ours[KNOWN]["distance_mse"])


def _inefficiency(words: str, squared: Mapping[str, float], least: Mapping[str, float]) -> Claim:
    """Say that the root of a mean is at most so many times that of another."""
    ratio = (squared["mean"] / least["mean"]) ** 0.5
    error = 0.5 * ratio * float(np.hypot(squared["se"] / squared["mean"], least["se"] / least["mean"]))
    return Claim(words, ratio, INEFFICIENCY, at_least=False, tolerance=error)


def table(summary: Summary, expected: Summary, methods: Sequence[str], chosen: Mapping[str, str]) -> Iterator[str]:
    """Ours beside the paper's best, means ± standard deviations; in brackets the median of the method in bold."""
    yield "| | measure | paper's best | " + " | ".join(LABELS[m] for m in methods) + " |"
    yield "|---" * (3 + len(methods)) + "|"
    for name, ours in summary.items():
        counts = [str(ours[method]["seconds"]["n"]) if method in ours else "0" for method in methods]
        yield f"| {name} | replicates | {N_REPLICATES} | {' | '.join(counts)} |"
        for measure, words in MEASURES.items():
            if measure not in ours[chosen[name]]:
                continue
            best, mean, spread = papers_best(expected[name], measure)
            cells = [f"{mean:.3g} ± {spread:.2g} ({LABELS[best]})"]
            for method in methods:
                if measure not in ours.get(method, {}) or (method, measure) == (KNOWN, "seconds"):
                    cells.append("–")
                    continue
                value = ours[method][measure]
                text = f"{value['mean']:.3g} ± {value['sd']:.2g}"
                cells.append(f"**{text}** [{value['median']:.2g}]" if method == chosen[name] else text)
            yield f"| {name} | {words} | " + " | ".join(cells) + " |"


def tails(summary: Summary, claims: Iterable[Claim], which: Mapping[str, str]) -> Iterator[str]:
    """For each claim that fails: the median beside the mean, and what one replicate contributes."""
    failed = [c.statement for c in claims if not c.holds and not c.timed]
    for name, ours in summary.items():
        for measure, words in MEASURES.items():
            if any(s.startswith(f"{name}, {words}:") for s in failed):
                value = ours[which[name]][measure]
                yield (
                    f"{name}, {words}: mean {value['mean']:.3g} ± {value['se']:.2g} (standard error), median "
                    f"{value['median']:.3g}; one replicate is {100 * value['largest_share']:.0f} % of the sum."
                )
