"""CoalescentProbit beside its peers: effective draws a second.

python -m benchmarks.probit [--quick]     # Albert–Chib; NumPyro's NUTS if it is installed
python -m benchmarks.probit --sweeps 1 2 4 8    # sweeps of the tree per iteration
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from threadpoolctl import threadpool_limits

import coaltree as ct
from coaltree.posterior.diagnostics import effective_size
from coaltree.regression import chain
from coaltree.regression.fit import RegressionFit, fit_regression
from coaltree.regression.links import PROBIT, probability


def simulate(n: int, n_outcomes: int, n_features: int, prevalence: tuple[float, float], seed: int):
    """Features, outcomes and coefficients from the model; prevalences evenly spaced in logs."""
    rng = np.random.default_rng(seed)
    tree = ct.sample_tree(n_outcomes, random_state=rng)
    beta = ct.sample_data(tree, 0.04 * np.eye(n_features), leaf_noise=0.05, random_state=rng)
    beta += 0.1 * rng.standard_normal(n_features) - beta.mean(axis=0)
    X = rng.standard_normal((n, n_features))
    target = rng.permutation(np.geomspace(*prevalence, n_outcomes))
    eta = X @ beta.T
    intercept = np.empty(n_outcomes)
    for j in range(n_outcomes):  # bisection for the intercept that gives the prevalence
        low, high = -12.0, 12.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if probability(middle + eta[:, j], PROBIT).mean() < target[j] else (low, middle)
        intercept[j] = low
    Y = (rng.random(eta.shape) < probability(eta + intercept, PROBIT)).astype(float)
    return X, Y, beta


def report(fit: RegressionFit, seconds: float, rarest: int, name: str) -> float:
    draws = np.concatenate([fit.intercept_draws[..., rarest, None], fit.coef_draws[:, :, rarest]], axis=-1)
    ess = float(effective_size(draws).min())
    n_draws = draws.shape[0] * draws.shape[1]
    print(
        f"{name:12s} {seconds:8.1f} s CPU, {n_draws} kept draws, min bulk ESS of the rarest {ess:7.1f}, "
        f"{ess / seconds:.3f} a second; R-hat {fit.diagnostics['r_hat']:.3f}, all outcomes' min ESS "
        f"{fit.diagnostics['bulk_ess']:.0f}",
        flush=True,
    )
    return ess / seconds


def speed(quick: bool) -> None:
    n, n_outcomes, n_features = (2000, 6, 5) if quick else (19_000, 21, 25)
    X, Y, _ = simulate(n, n_outcomes, n_features, (0.0013, 0.085), 0)
    events = Y.sum(axis=0)
    rarest = int(np.argmin(events))
    print(f"N {n}, P {n_outcomes}, K {n_features}; events {np.sort(events).astype(int).tolist()}")
    fit_regression(X[:200], Y[:200, np.argsort(-events)[:3]], n_iter=30, burn_in=10)  # compile
    rates = {}
    for method in ("hmc", "albert-chib"):
        n_iter, burn_in, thin = (150, 50, 2) if quick else (2700, 200, 5)  # 1 000 kept draws
        before = time.process_time()
        fit = fit_regression(X, Y, method=method, n_iter=n_iter, burn_in=burn_in, thin=thin, n_chains=2)
        rates[method] = report(fit, time.process_time() - before, rarest, method)
    try:
        rates["nuts"] = nuts(X, Y, rarest, *((30, 30) if quick else (300, 300)))
    except ImportError:
        print("numpyro is not installed: no comparison with NUTS.")
    for name, rate in rates.items():
        print(f"hmc over {name}: {rates['hmc'] / rate:.1f}")


def nuts(X, Y, rarest: int, n_warm_up: int, n_draws: int) -> float:
    """NumPyro's NUTS on the same likelihood with a star prior: β_j ~ N(b, σ²), b and σ learned."""
    import jax
    import jax.numpy as jnp
    import numpyro
    import numpyro.distributions as dist
    from jax.scipy.special import log_ndtr

    jax.config.update("jax_enable_x64", True)
    signs = jnp.asarray(2 * Y - 1)
    X = jnp.asarray(X)

    def model():
        n_outcomes, n_features = Y.shape[1], X.shape[1]
        centre = numpyro.sample("centre", dist.Normal(0, 1).expand([n_features]))
        width = numpyro.sample("width", dist.HalfCauchy(1.0).expand([n_features]))
        intercept = numpyro.sample("intercept", dist.Normal(0, 5).expand([n_outcomes]))
        raw = numpyro.sample("raw", dist.Normal(0, 1).expand([n_outcomes, n_features]))
        beta = numpyro.deterministic("beta", centre + width * raw)
        numpyro.factor("labels", log_ndtr(signs * (X @ beta.T + intercept)).sum())

    sampler = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model), num_warmup=n_warm_up, num_samples=n_draws, num_chains=1, progress_bar=False
    )
    before = time.process_time()
    sampler.run(jax.random.PRNGKey(0))
    found = sampler.get_samples(group_by_chain=True)
    seconds = time.process_time() - before
    draws = np.concatenate([np.asarray(found["intercept"])[..., [rarest]], np.asarray(found["beta"])[:, :, rarest]], -1)
    ess = float(effective_size(draws).min())
    print(f"nuts, star   {seconds:8.1f} s CPU, {n_draws} draws, min bulk ESS {ess:7.1f}, {ess / seconds:.3f} a second")
    return ess / seconds


def sweeps(chosen: list[int], n_data: int = 4, n_iter: int = 1000, burn_in: int = 200) -> None:
    """Least effective draws a second, geometric means over data sets, by the number of sweeps an iteration."""
    names = ("log_joint", "leaf_noise", "last_time", "log_det")
    X, Y, _ = simulate(200, 4, 3, (0.1, 0.5), 0)
    fit_regression(X, Y, n_iter=30, burn_in=10)  # compile
    print("sweeps  ms an iteration  coefficients  " + "  ".join(names) + "  clades, least  median")
    for n_sweeps in chosen:
        chain.Chain.n_sweeps = chain.WideChain.n_sweeps = n_sweeps
        rows = []
        for seed in range(n_data):
            X, Y, _ = simulate(2000, 21, 25, (0.0053, 0.12), seed)
            rarest = int(np.argmin(Y.sum(axis=0)))
            before = time.process_time()
            fit = fit_regression(X, Y, n_iter=n_iter, burn_in=burn_in, n_chains=2, n_jobs=1, random_state=seed + 100)
            seconds = time.process_time() - before
            draws = np.concatenate([fit.intercept_draws[..., rarest, None], fit.coef_draws[:, :, rarest]], axis=-1)
            clades = effective_size(clade_indicators(fit))
            sizes = [effective_size(draws).min(), *(effective_size(fit.trace[name][:, burn_in:]) for name in names)]
            sizes = np.array([*sizes, clades.min(), np.median(clades)]) * n_iter / (n_iter - burn_in)
            rows.append([1000.0 * seconds / (2 * n_iter), *(sizes / seconds)])
        print(n_sweeps, *(f"{value:10.2f}" for value in np.exp(np.log(rows).mean(axis=0))), flush=True)


def clade_indicators(fit: RegressionFit) -> np.ndarray:
    """Which draws have each clade that a tenth to nine tenths of them have, (chains, draws, clades)."""
    children = fit.posterior.children
    n_draws, n_merges, _ = children.shape
    n, everyone = n_merges + 1, np.arange(n_draws)
    members = np.zeros((n_draws, 2 * n - 1), dtype=np.int64)
    members[:, :n] = 1 << np.arange(n)
    for k in range(n_merges):
        members[:, n + k] = members[everyone, children[:, k, 0]] | members[everyone, children[:, k, 1]]
    found, counts = np.unique(members[:, n:-1], return_counts=True)
    unsure = found[(counts > 0.1 * n_draws) & (counts < 0.9 * n_draws)]
    there = np.stack([(members[:, n:-1] == clade).any(axis=1) for clade in unsure], axis=-1)
    return there.astype(float).reshape(*fit.coef_draws.shape[:2], -1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--sweeps", type=int, nargs="+")
    arguments = parser.parse_args()
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if arguments.sweeps:
            sweeps(arguments.sweeps)
        else:
            speed(arguments.quick)


if __name__ == "__main__":
    main()
