"""Are clade supports honest when everything is learned: the share of true clades among those of a given support.

    python -m benchmarks.support [--replicates 150] [--correlated] [--out benchmarks/support.md]

Trees from the coalescent, data along them with some covariance, and leaf noise either from its prior, Exponential(1),
or the same in every data set; then `learn_posterior` with its defaults, which is told neither. Supports should
be right on average over the prior; nothing says that they are for one value of the noise. Errors are over data sets,
whose clades stand and fall together. --correlated: every two columns have the correlation ρ, noise from its prior
divided by ten, and the default, which learns a full covariance from so many rows, is beside a spherical one with
effective columns.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

import coaltree as ct

BANDS = ((0.5, 0.6), (0.6, 0.7), (0.7, 0.8), (0.8, 0.9), (0.9, 1.0), (1.0, 1.01))
PRIOR = "its prior"
CASES = (
    (16, 4, "spherical", PRIOR),
    (16, 16, "spherical", PRIOR),
    (32, 8, "diagonal", PRIOR),
    (32, 8, "wishart", PRIOR),
    (16, 4, "spherical", 0.0),
    (16, 16, "spherical", 0.1),
    (32, 8, "diagonal", 0.1),
    (32, 8, "wishart", 0.0),
)
CORRELATED = tuple((80, 6, covariance, rho) for rho in (0.5, 0.9) for covariance in (None, "spherical"))


def replicate(n, d, covariance, noise, number):
    """Sums over the clades of one data set: support, truth and count, by band."""
    rng = np.random.default_rng([n, d, number])
    truth = ct.sample_tree(n, random_state=rng)
    phi = np.eye(d) * (rng.gamma(3.0, size=d) if covariance == "diagonal" else 3.0)
    if covariance == "wishart":
        A = rng.normal(size=(d, 2 * d))
        phi = A @ A.T / (2 * d)
    X = ct.sample_data(truth, phi, leaf_noise=rng.exponential() if noise == PRIOR else noise, random_state=rng)
    return judge(X, truth, covariance, number)


def replicate_correlated(n, d, covariance, rho, number):
    """The same where every two columns have the correlation ρ; the tables of both covariances are the same."""
    rng = np.random.default_rng([n, d, number])
    truth = ct.sample_tree(n, random_state=rng)
    phi = np.full((d, d), rho) + (1.0 - rho) * np.eye(d)
    X = ct.sample_data(truth, phi, leaf_noise=0.1 * rng.exponential(), random_state=rng)
    return judge(X, truth, covariance, number)


def judge(X, truth, covariance, number):
    """Fit, and sum support, truth and count of clades, by band."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # chains that are not done
        posterior = ct.learn_posterior(X, covariance, random_state=number).posterior
    true = {clade.tobytes() for clade in truth.clades()}
    sums = np.zeros((len(BANDS), 3))
    weights = {}
    for tree, weight in zip(posterior, posterior.weights, strict=True):
        for clade in tree.clades()[:-1]:
            weights[clade.tobytes()] = weights.get(clade.tobytes(), 0.0) + weight
    for clade, weight in weights.items():
        for band, (low, high) in enumerate(BANDS):
            if low <= weight + 1e-9 < high:
                sums[band] += weight, clade in true, 1.0
    return sums


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--replicates", type=int, default=150, help="a third of them where the noise is always the same"
    )
    parser.add_argument("--correlated", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    bands = " | ".join("1" if low == 1.0 else f"{low:g}–{high:g}" for low, high in BANDS)
    last = "ρ" if options.correlated else "noise from"
    lines = [f"| n, d, covariance, {last} | {bands} | s a fit |", "|---" * (len(BANDS) + 2) + "|"]
    for case in CORRELATED if options.correlated else CASES:
        began = time.process_time()
        replicates = options.replicates if options.correlated or case[3] == PRIOR else options.replicates // 3
        run = replicate_correlated if options.correlated else replicate
        sums = np.array([run(*case, number) for number in range(replicates)])
        total = sums.sum(axis=0)
        share = total[:, 1] / total[:, 2]
        error = (sums[..., 1] - share * sums[..., 2]).std(axis=0, ddof=1) * np.sqrt(len(sums)) / total[:, 2]
        columns = np.column_stack((100 * share, 100 * error, total[:, 2]))
        cells = ["{:.0f} ± {:.0f} % of {:.0f}".format(*column) for column in columns]
        seconds = (time.process_time() - began) / len(sums)
        lines.append(
            f"| {', '.join('default' if part is None else str(part) for part in case)} | "
            + " | ".join(cells)
            + f" | {seconds:.1f} |"
        )
        print(lines[-1], flush=True)
    if options.out:
        options.out.write_text(f"# Clade supports\n\n{__doc__}\n" + "\n".join(lines) + "\n", "utf-8")


if __name__ == "__main__":
    main()
