"""CoalescentProbit against one model an outcome: area under the ROC curve, log loss, coverage; simulated and real data.

python -m benchmarks.regression --data FOLDER            # FOLDER holds yeast.npz, medical.npz, birds_train.npz, …
python -m benchmarks.regression --replicates 2 --only simulated --iterations 300 --burn-in 100
python -m benchmarks.regression --data FOLDER --scales 0.1 10    # how much the scale of the default prior matters

Finished fits are kept in the folder --keep, so that an interrupted run goes on where it was. The page goes to --out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri, softmax
from scipy.stats import invwishart
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import coaltree as ct
from coaltree.estimators.probit import CoalescentProbit
from coaltree.regression import scores
from coaltree.regression.baselines import BASELINES
from coaltree.regression.comparison import compare
from coaltree.regression.prior import DF, INTERCEPT_SD
from coaltree.rows import Rows

OURS = "coalescent"
N_TRAIN, N_TEST, N_OUTCOMES, N_FEATURES = 2_000, 20_000, 20, 25
PREVALENCES = (0.005, 0.10)
# σ and τ of the prior, and s₀.
WIDTH, SPREAD, LEAF_NOISE = 0.13, 0.1, 0.05
RARITIES = ((0.0, 0.01), (0.01, 0.03), (0.03, 1.0))
LEVEL = 0.9
N_FACTORS = 25
FEWEST_EVENTS, FEW_EVENTS = 5, 50
REAL = {"yeast": ("yeast.npz",), "medical": ("medical.npz",), "birds": ("birds_train.npz", "birds_test.npz")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder of the real data sets; without it only simulated data")
    parser.add_argument("--only", choices=["simulated", *REAL], action="append", help="a part of the benchmark")
    parser.add_argument("--replicates", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=1000)
    parser.add_argument("--burn-in", type=int, default=300)
    parser.add_argument("--chains", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--skip", nargs="*", default=[], help="baselines to leave out")
    parser.add_argument("--scales", nargs="+", type=float, help="the prior's scale times these, instead of baselines")
    parser.add_argument("--keep", type=Path, default=Path("/tmp/coaltree-benchmark"))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    options = parser.parse_args()
    parts = options.only or ["simulated", *(REAL if options.data else ())]
    page = [
        "# CoalescentProbit against one model an outcome\n",
        f"`python -m benchmarks.regression`: coaltree {ct.__version__}, {options.chains} chain(s) of "
        f"{options.iterations} iterations, {options.burn_in} of them burn-in. Differences are ours minus theirs.\n",
    ]
    for part in parts:
        page += simulated(options) if part == "simulated" else real(part, options)
        text = "\n".join(page)
        options.out.write_text(text, encoding="utf-8")
    print(text)


def models(options: argparse.Namespace) -> dict[str, Any]:
    ours = CoalescentProbit(n_iter=options.iterations, burn_in=options.burn_in, n_chains=options.chains, random_state=0)
    if options.scales:
        return {OURS: ours} | {f"scale × {scale:g}": clone(ours).set_params(scale=scale) for scale in options.scales}
    return {OURS: ours} | {name: make() for name, make in BASELINES.items() if name not in options.skip}


# ---- data from the model


def simulate(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, outcomes and coefficients (P, K) from the model, given that all prevalences lie in PREVALENCES.

    Widths and leaf noise are the same in every replicate; tree, Φ, coefficients and intercepts are drawn from the prior
    as it is in `coaltree.regression.prior`. Wide intercepts reach rare outcomes the more often the larger the
    coefficients are, so one of many draws of the coefficients is taken in proportion to that, and intercepts within.
    """
    rng = np.random.default_rng(seed)
    tree = ct.sample_tree(N_OUTCOMES, random_state=rng)
    phi = invwishart.rvs(DF + N_FEATURES - 1, DF * WIDTH**2 * np.eye(N_FEATURES), random_state=rng)
    draws = np.array([ct.sample_data(tree, phi, leaf_noise=LEAF_NOISE, random_state=rng) for _ in range(500)])
    draws += SPREAD * rng.standard_normal((len(draws), 1, N_FEATURES)) - draws.mean(axis=1, keepdims=True)
    # Over standard normal features the prevalence is Ψ(μ / (1 + |β|²)^½).
    reach = np.sqrt(1.0 + (draws**2).sum(axis=2)) / INTERCEPT_SD
    low, high = (ndtri(rate) * reach for rate in PREVALENCES)
    log_weight = np.log(ndtr(high) - ndtr(low)).sum(axis=1)
    chosen = rng.choice(len(draws), p=softmax(log_weight))
    beta = draws[chosen]
    intercept = INTERCEPT_SD * ndtri(rng.uniform(ndtr(low[chosen]), ndtr(high[chosen])))
    X = rng.standard_normal((N_TRAIN + N_TEST, N_FEATURES))
    return X, (rng.random((len(X), N_OUTCOMES)) < ndtr(X @ beta.T + intercept)).astype(np.float64), beta


def run_replicate(seed: int, options: argparse.Namespace) -> dict[str, Any]:
    """Test areas and losses of every method, and how many of our intervals hold the truth."""
    chosen = models(options)
    key = f"simulated-{options.iterations}-{options.burn_in}-{options.chains}-{'-'.join(chosen)}-{seed}.json"
    file = options.keep / key
    if file.exists():
        return json.loads(file.read_text(encoding="utf-8"))
    X, Y, beta = simulate(seed)
    found: dict[str, Any] = {"rate": Y.mean(axis=0).tolist(), "events": Y[:N_TRAIN].sum(axis=0).tolist()}
    for name, model in chosen.items():
        model.fit(X[:N_TRAIN], Y[:N_TRAIN])
        p = model.predict_proba(X[N_TRAIN:])
        score = model.decision_function(X[N_TRAIN:])
        found[name] = {
            "auroc": [scores.auroc(y, s) for y, s in zip(Y[N_TRAIN:].T, score.T, strict=True)],
            "log_loss": [scores.log_loss(y, q) for y, q in zip(Y[N_TRAIN:].T, p.T, strict=True)],
        }
        if name == OURS:
            draws = model.fit_.coef_draws.reshape(-1, *beta.shape)
            low, high = np.quantile(draws, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0)
            found["covered"] = np.mean((low <= beta) & (beta <= high), axis=1).tolist()
            found["r_hat"], found["bulk_ess"] = model.diagnostics_["r_hat"], model.diagnostics_["bulk_ess"]
    options.keep.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(found), encoding="utf-8")
    print(f"replicate {seed}: " + ", ".join(f"{n} {np.mean(found[n]['auroc']):.4f}" for n in chosen), flush=True)
    return found


def simulated(options: argparse.Namespace) -> list[str]:
    from joblib import Parallel, delayed

    runs = Parallel(n_jobs=options.jobs)(delayed(run_replicate)(seed, options) for seed in range(options.replicates))
    rate = np.array([run["rate"] for run in runs])
    area = {name: np.array([run[name]["auroc"] for run in runs]) for name in models(options)}
    rows = Rows()
    for name, values in area.items():
        gain = (area[OURS] - values).mean(axis=1)
        row = {"method": name, "mean AUC": float(values.mean()), "difference": float(gain.mean())}
        row["s.e."] = float(gain.std(ddof=1) / len(gain) ** 0.5) if len(gain) > 1 else float("nan")
        for low, high in RARITIES:
            chosen = (rate >= low) & (rate < high)
            row[f"difference at {100 * low:g}–{100 * high:g} %"] = float((area[OURS] - values)[chosen].mean())
        row["log loss"] = float(np.mean([run[name]["log_loss"] for run in runs]))
        rows.append(row)
    covered = np.array([run["covered"] for run in runs])
    sizes, ratios = ([run[key] for run in runs] for key in ("bulk_ess", "r_hat"))
    error = covered.mean(axis=1).std(ddof=1) / len(runs) ** 0.5 if len(runs) > 1 else float("nan")
    by_rarity = ", ".join(
        f"{100 * low:g}–{100 * high:g} %: {100 * covered[(rate >= low) & (rate < high)].mean():.1f} %"
        for low, high in RARITIES
    )
    return [
        f"## Simulated from the model\n\n{len(runs)} replicates, N = {N_TRAIN:,} (and {N_TEST:,} to test), "
        f"P = {N_OUTCOMES}, K = {N_FEATURES}, prevalences {100 * PREVALENCES[0]:g}–{100 * PREVALENCES[1]:g} %.\n",
        rows.to_markdown(4),
        f"{100 * LEVEL:.0f} % intervals of coefficients cover {100 * covered.mean():.1f} ± {100 * error:.1f} % "
        f"(by prevalence: {by_rarity}). Of the coefficient that mixes worst, over replicates: effective draws "
        f"{min(sizes):.0f}–{max(sizes):.0f}, R-hat {min(ratios):.2f}–{max(ratios):.2f}.\n",
    ]


# ---- real data


def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Features and the outcomes with at least FEWEST_EVENTS events."""
    tables = [np.load(folder / file, allow_pickle=False) for file in REAL[name]]
    X = np.concatenate([table["X"] for table in tables]).astype(np.float64)
    Y = np.concatenate([table["Y"] for table in tables]).astype(np.float64)
    kept = np.flatnonzero(np.minimum(Y.sum(axis=0), len(Y) - Y.sum(axis=0)) >= FEWEST_EVENTS)
    return X, Y[:, kept], [str(tables[0]["outcomes"][j]) for j in kept]


def real(name: str, options: argparse.Namespace) -> list[str]:
    X, Y, outcomes = load(name, options.data)
    # Words that are there or not keep their scale: standardised, the rarest of them would make up the factors.
    binary = np.isin(X, (0.0, 1.0)).all()
    scaler = FunctionTransformer if binary else StandardScaler
    found = compare(
        {
            method: make_pipeline(scaler(), PCA(N_FACTORS, random_state=0), StandardScaler(), model)
            for method, model in models(options).items()
        },
        X,
        Y,
        n_folds=10,
        n_jobs=options.jobs,
        progress=True,
        checkpoint=options.keep / name,
        outcomes=outcomes,
    )
    few = np.flatnonzero(found.n_events < FEW_EVENTS).tolist()
    lines = [
        f"## {name}\n\nN = {len(X):,}, {Y.shape[1]} outcomes with {found.n_events.min()}–{found.n_events.max()} "
        f"events, {X.shape[1]:,} features reduced to {N_FACTORS} factors by PCA inside each of 10 folds.\n",
        _table(found, None),
    ]
    if 0 < len(few) < len(outcomes):
        lines += [f"Outcomes with fewer than {FEW_EVENTS} events, {len(few)} of them:\n", _table(found, few)]
    return lines


def _table(found: Any, columns: Sequence[int] | None) -> str:
    gaps = {row["method"]: row for row in found.differences(OURS, columns, mean_only=True)}
    rows = Rows()
    for row in found.summary(columns):
        gap = gaps.get(row["method"])
        rows.append(
            {
                "method": row["method"],
                "mean AUC": row["auroc"],
                "difference": gap["difference"] if gap else 0.0,
                "95 % interval": f"{gap['low']:.4f} to {gap['high']:.4f}" if gap else "",
                "AUPRC": row["auprc"],
                "log loss": row["log_loss"],
                "median calibration slope": row["calibration_slope"],
            }
        )
    return rows.to_markdown(4)


if __name__ == "__main__":
    main()
