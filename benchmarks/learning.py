"""What learning the covariance, the noise and the scale gives: the experiments behind `learn_posterior` and `refine`.

    python -m benchmarks.learning covariance mixing missing cost
    python -m benchmarks.learning amplitude noise refine --data FOLDER     # with usps.npz and osu_run1.npz
    python -m benchmarks.learning --data FOLDER --out benchmarks/learning.md     # all of it, about two hours

`--quick` takes a few replicates and iterations of each.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.impute import KNNImputer

import coaltree as ct
from coaltree.inference.learning import chain as learn
from coaltree.metrics import distance_errors, merge_time_errors
from coaltree.model.covariance import Spherical
from coaltree.model.gp import GaussianProcess
from coaltree.model.noise import SHARED, GivenNoise

NOISE = WhiteKernel(1e-9, "fixed")
SMOOTH = RBF(1.0, (1e-2, 1e3))
Options = argparse.Namespace
Lines = Iterator[str]


def covariance(options: Options) -> Lines:
    """The paper's covariance experiment: squared exponential of known amplitude, noise 1e-9, length learned."""
    yield "| n = d | grid step | true ℓ | amplitude | merge-time MSE | distance MSE (median) | error of ℓ | s |"
    yield "|---|---|---|---|---|---|---|---|"
    n_replicates = 3 if options.quick else 50
    settings = [(32, 1.0, 4.0, 1.0), (64, 1.0, 4.0, 1.0)]
    few = [(32, 1.0, 1.0, 1.0), (32, 1.0, 16.0, 1.0), (32, 0.5, 4.0, 1.0), (32, 1.0, 4.0, None)]
    for n, step, length, amplitude in settings + ([] if options.quick else few):
        rows = []
        for replicate in range(n_replicates if (n, step, length, amplitude) in settings else n_replicates // 5):
            began = time.process_time()
            rows.append([*covariance_replicate(n, step, length, amplitude, replicate), time.process_time() - began])
        mean, error = np.mean(rows, axis=0), np.std(rows, axis=0) / np.sqrt(len(rows))
        yield (
            f"| {n} | {step:g} | {length:g} | {'learned' if amplitude is None else 'known'} "
            f"| {mean[0]:.4f} ± {error[0]:.4f} | {mean[1]:.3f} ± {error[1]:.3f} ({np.median(rows, axis=0)[1]:.3f}) "
            f"| {100 * np.median(np.abs(rows), axis=0)[2]:.1f} % | {mean[3]:.1f} |"
        )


def covariance_replicate(n: int, step: float, length: float, amplitude: float | None, replicate: int) -> list[float]:
    """Errors of merge times, of distances, and of ℓ (relative)."""
    where = step * np.arange(n)
    # ℓ is a squared length, exp(−d²/2ℓ).
    phi = (RBF(np.sqrt(length)) + NOISE)(where[:, None])
    rng = np.random.default_rng([3, n, replicate])
    truth = ct.sample_tree(n, random_state=rng)
    X = ct.sample_data(truth, phi, random_state=rng)
    family = GaussianProcess(SMOOTH + NOISE, where, amplitude=amplitude, jitter=0.0)
    learned = ct.learn_posterior(X, family, leaf_noise=0.0, warmup=100, n_draws=200, thin=1, random_state=replicate)
    name = next(name for name in learned.trace if "length_scale" in name)
    squared = np.median(learned.trace[name][:, learned.warmup :]) ** 2
    post = learned.posterior
    merge = merge_time_errors(truth, post.times, weights=post.weights)
    distance = distance_errors(truth, post.cophenetic())
    return [merge.mse, distance.mse, squared / length - 1.0]


def mixing(options: Options) -> Lines:
    """Effective sample size of log amplitude an iteration, with and without the joint scale move, n = d = 32."""
    from coaltree.posterior.diagnostics import effective_size

    yield "| data set | with | without | ratio |"
    yield "|---|---|---|---|"
    n_iter = 200 if options.quick else 1000
    for k in range(1 if options.quick else 4):
        rng = np.random.default_rng([4, k])
        X = ct.sample_data(ct.sample_tree(32, random_state=rng), 9.0 * np.eye(32), random_state=rng)
        chains = [amplitudes(X, n_iter, with_scale, k) for with_scale in (True, False)]
        sizes = [effective_size(chain[None]) / len(chain) for chain in chains]
        yield f"| {k} | {sizes[0]:.3f} | {sizes[1]:.3f} | {sizes[0] / sizes[1]:.1f} |"


def amplitudes(X: np.ndarray, n_iter: int, with_scale: bool, seed: int) -> np.ndarray:
    """Log amplitudes of a chain without leaf noise, the first tenth dropped."""
    family, rng = Spherical(), np.random.default_rng(seed)
    now, values = learn.first_guess(X, family, GivenNoise(np.zeros(len(X)))), []
    for _ in range(n_iter):
        now = learn.draw_covariance(learn.draw_tree(now, X, rng), X, family, rng)
        if with_scale:
            now = learn.draw_scale(now, X, family, rng)
        values.append(float(now.covariance.values["variance"]))
    return np.log(values[n_iter // 10 :])


def missing(options: Options) -> Lines:
    """Root mean squared error of imputing 20 % of the entries, relative to column means."""
    yield "| data | coaltree | k nearest neighbours (best of 1, 3, 5, 10, 20) | 90 % intervals cover |"
    yield "|---|---|---|---|"
    n_replicates = 2 if options.quick else 10
    for covariance in ("spherical", "diagonal", "wishart"):
        rows = []
        for k in range(n_replicates):
            rng = np.random.default_rng([5, k])
            half = rng.standard_normal((10, 20))
            phi = {"spherical": np.eye(10), "diagonal": np.diag(rng.gamma(2.0, size=10)), "wishart": half @ half.T / 20}
            X = ct.sample_data(ct.sample_tree(60, random_state=rng), 4.0 * phi[covariance], random_state=rng)
            rows.append(imputation(X, rng, covariance=covariance, warmup=50, n_draws=200))
        yield f"| simulated, 60 × 10, {covariance} | " + " | ".join(f"{x:.3f}" for x in np.mean(rows, axis=0)) + " |"
    if options.data:
        Y = np.load(options.data / "osu_run1.npz")["Y"]  # frames, markers, axes
        series = Y.reshape(len(Y), -1).T
        series = (series - series.mean()) / series.std()
        kernel = RBF(10.0, (1.0, 1e3)) + WhiteKernel(1e-3, (1e-8, 1.0))
        chain = {"warmup": 4, "n_draws": 16} if options.quick else {"warmup": 50, "n_draws": 100}
        rng = np.random.default_rng(6)
        where = np.arange(float(series.shape[1]))
        found = imputation(series, rng, covariance=kernel, coordinates=where, thin=1, **chain)
        yield "| motion capture, 102 × 217, squared exponential | " + " | ".join(f"{x:.3f}" for x in found) + " |"


def imputation(X: np.ndarray, rng: np.random.Generator, **how: Any) -> list[float]:
    hidden = rng.random(X.shape) < 0.2
    gaps = np.where(hidden, np.nan, X)
    base = np.sqrt(np.mean((np.broadcast_to(np.nanmean(gaps, axis=0), X.shape) - X)[hidden] ** 2))
    learned = ct.learn_posterior(gaps, **how, random_state=int(rng.integers(2**31)))
    neighbours = [KNNImputer(n_neighbors=k).fit_transform(gaps) for k in (1, 3, 5, 10, 20)]
    errors = [np.sqrt(np.mean((table - X)[hidden] ** 2)) / base for table in (learned.completed, *neighbours)]
    covered = np.abs(learned.completed - X)[hidden] < 1.645 * learned.completed_sd[hidden]
    return [errors[0], min(errors[1:]), float(covered.mean())]


def cost(options: Options) -> Lines:
    """CPU milliseconds a block of one iteration (full Φ)."""
    yield "| n | d | tree | scatter S | Φ given S | noise | scale |"
    yield "|---|---|---|---|---|---|---|"
    from coaltree.model.covariance import HuangWand
    from coaltree.model.diffusion import scatter

    for n, d in [(50, 10), (200, 10), (800, 10), (50, 40), (200, 40), (800, 40)][: 2 if options.quick else None]:
        rng = np.random.default_rng(7)
        X = ct.sample_data(ct.sample_tree(n, random_state=1), d, random_state=2)
        family = HuangWand()
        (start,), near = learn.first_guesses(X, family, SHARED, 1, rng)
        chain = learn.TreeChain(X, family, learn.ChainSettings(warmup=20), start, near, rng)
        for _ in range(20):  # until searches have found their size; compiles, too
            chain.advance()
        now = chain.now
        S = scatter(now.tree, X, now.leaf_noise)
        blocks: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (chain.move, (now,)),
            (scatter, (now.tree, X, now.leaf_noise)),
            (family.update, (now.covariance, S, n - 1, rng)),
            (learn.draw_noise, (now, X, family, rng)),
            (learn.draw_scale, (now, X, family, True, rng)),
        ]
        spent = []
        repeats = 20
        for block, arguments in blocks:
            began = time.process_time()
            for _ in range(repeats):
                block(*arguments)
            spent.append(1000 * (time.process_time() - began) / repeats)
        yield f"| {n} | {d} | " + " | ".join(f"{x:.2f}" for x in spent) + " |"


def usps(options: Options, seed: int = 0) -> np.ndarray:
    """500 images, 50 a digit."""
    if not options.data:
        raise SystemExit("This part needs USPS digits: pass --data FOLDER with usps.npz (X, 256 columns; y).")
    with np.load(options.data / "usps.npz") as parts:
        X, y = parts["X"].astype(float), parts["y"]
    rng = np.random.default_rng(seed)
    chosen = [rng.choice(np.flatnonzero(y == digit), 5 if options.quick else 50, replace=False) for digit in range(10)]
    return X[np.concatenate(chosen)]


def amplitude(options: Options) -> Lines:
    """Amplitude of a spherical Φ on USPS, learned from starts a hundred times too small and too large."""
    X = usps(options)
    family, n_iter = Spherical(), 10 if options.quick else 30
    yield "| start | iteration 1 | 5 | 10 | mean ± sd after 10 | s₀ after 10 |"
    yield "|---|---|---|---|---|---|"
    for factor in (0.01, 1.0, 100.0):
        rng = np.random.default_rng(8)
        now = learn.first_guess(X, family)
        now = now._replace(covariance=family.rescale(now.covariance, 1.0 / factor)[0])
        first = now.covariance.values["variance"]
        values, noises = [], []
        for _ in range(n_iter):
            now = learn.iterate(now, X, family, rng, lambda now: learn.draw_tree(now, X, rng))  # noqa: B023
            values.append(float(now.covariance.values["variance"]))
            noises.append(now.leaf_noise[0])
        late = values[10:] or values[5:]
        yield (
            f"| {first:.3g} | {values[0]:.3g} | {values[4]:.3g} | {values[9]:.3g} "
            f"| {np.mean(late):.2f} ± {np.std(late):.2f} | {np.median(noises[10:] or noises[5:]):.2g} |"
        )


def noise(options: Options) -> Lines:
    """Log evidence on USPS against leaf noise, at the amplitude learned with it."""
    X = usps(options)
    yield "| s₀ | learned amplitude | log evidence, 20 particles | best log joint |"
    yield "|---|---|---|---|"
    for value in (0.0, 0.003, 0.01, 0.03, 0.1, 0.3):
        learned = ct.learn_posterior(X, leaf_noise=value, warmup=100, n_draws=50)
        post = ct.sample_posterior(X, learned.covariance, n_particles=20, leaf_noise=value, n_jobs=2)
        yield f"| {value:g} | {learned.covariance[0, 0]:.1f} | {post.log_evidence:.0f} | {post.log_joint.max():.0f} |"


def refine(options: Options) -> Lines:
    """`refine` on USPS at amplitude 27, from the best tree of every sampler and the tree of every greedy rule."""
    X, phi = usps(options), 27.0 * np.eye(256)
    yield "| start | log joint | refined | CPU s |"
    yield "|---|---|---|---|"
    starts = {
        f"greedy, {rule}": ct.greedy_tree(X, phi, rule=rule) for rule in ("mode", "mean", "truncated_mean", "peak")
    }
    for method, size in {"smc1": 10, "tpost": 10, "mpost2": 10, "mpost1": 2, "postpost": 2}.items():
        starts[f"{method}, {size} particles"] = ct.sample_posterior(
            X, phi, method=method, n_particles=size, n_jobs=2
        ).best_tree()
    for name, tree in starts.items():
        began = time.process_time()
        found = ct.refine(tree, X, phi)
        yield (
            f"| {name} | {ct.log_joint(tree, X, phi):.0f} | {ct.log_joint(found, X, phi):.0f} "
            f"| {time.process_time() - began:.0f} |"
        )


PARTS = {part.__name__: part for part in (covariance, mixing, missing, cost, amplitude, noise, refine)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    parser.add_argument("--data", type=Path, help="folder with usps.npz and osu_run1.npz")
    parser.add_argument("--out", help="write Markdown to this file")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    lines = [f"# Learning, coaltree {ct.__version__}", ""]
    for name in options.parts or PARTS:
        print(f"\n## {name}: {PARTS[name].__doc__}", flush=True)
        lines += [f"## {name}", "", PARTS[name].__doc__ or "", ""]
        for line in PARTS[name](options):
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    if options.out:
        Path(options.out).write_text("\n".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
