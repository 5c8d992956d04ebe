"""Forty runs through the public names, frozen as digests: code that only moves gives the same bytes.

`python -m tests.trust.digests [words of names ...]` writes them to tests/data/digests.json, with what they depend on
beside the code: the processor and the versions of the libraries that compute. Several machines may stand there; on
another one `test_digests.py` skips, so write them from the code before the change first. Where a change is meant to
alter results, the tests of exactness and invariance decide; then write the digests again, and the changelog says what
changed.
"""

import hashlib
import json
import sys
import warnings
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import llvmlite.binding as llvm
import numpy as np
from threadpoolctl import threadpool_limits

import coaltree as ct

FILE = Path(__file__).parents[1] / "data" / "digests.json"
BRIEF = {"n_draws": 8, "warmup": 12, "n_chains": 2, "random_state": 3}


def platform():
    """What decides the last bits of a result, beside the code."""
    libraries = ("numpy", "scipy", "numba", "llvmlite", "scikit-learn")
    return {"cpu": llvm.get_host_cpu_name(), **{name: version(name) for name in libraries}}


@cache
def numbers(n=40, d=3):
    return ct.sample_data(ct.sample_tree(n, random_state=1), d, leaf_noise=0.05, random_state=2)


@cache
def with_gaps():
    X = numbers().copy()
    X[np.random.default_rng(5).random(X.shape) < 0.1] = np.nan
    return X


@cache
def mixed_table(n=40):
    import pandas as pd

    X = numbers(n, 6)
    return pd.DataFrame(
        {
            "size": X[:, 0],
            "rounded": np.round(X[:, 1], 1),
            "count": np.floor(np.exp(1.0 + X[:, 2])),
            "yes": np.where(X[:, 3] > 0, "yes", "no"),
            "level": np.array(["low", "middle", "high"])[np.digitize(X[:, 4], [-0.5, 0.5])],
            "colour": np.array(["red", "green", "blue"])[np.argmax(X[:, 3:6], axis=1)],
        }
    )


@cache
def outcomes(k=4, p=5, n=150):
    rng = np.random.default_rng(7)
    beta = ct.sample_data(ct.sample_tree(p, random_state=3), k, random_state=4)
    X = rng.normal(size=(n, k))
    return X, (X @ beta.T - 0.5 + rng.normal(size=(n, p)) > 0).astype(float)


def of_posterior(post):
    return [post.children, post.times, post.weights, post.log_joint, np.array(post.log_evidence)]


def sampled(method, d=3):
    return of_posterior(ct.sample_posterior(numbers(24, d), method=method, n_particles=20, random_state=5))


def grown(rule):
    tree = ct.greedy_tree(numbers(60), rule=rule, leaf_noise=0.01)
    return [tree.children, tree.times]


def learned(X=None, **how):
    found = ct.learn_posterior(numbers() if X is None else X(), **{**BRIEF, **how})
    compared = [row.elpd for row in (found.compared or {}).values()]
    return [*of_posterior(found.posterior), found.covariances, found.leaf_noises, found.completed, np.array(compared)]


def clustered(X=numbers, rows=None, **how):
    table = X()
    model = ct.CoalescentClustering(**{**BRIEF, **how}).fit(table)
    new = (table[:5] if rows is None else rows(table)) + 0.0
    return [*of_posterior(model.posterior_), model.labels_, model.score_samples(new), model.predict(new)]


def clustered_mixed(**how):
    table = mixed_table()
    model = ct.CoalescentClustering(columns="auto", **{**BRIEF, **how}).fit(table)
    holes = table.copy()
    holes.loc[:9, "colour"] = None
    filled = model.impute(holes[:10])
    texts = "|".join(map(str, np.asarray(filled, dtype=object).ravel())).encode()
    return [*of_posterior(model.posterior_), model.score_samples(table[:6]), np.frombuffer(texts, np.uint8)]


def left_out(X=numbers, **how):
    found = ct.learn_posterior(X(), **{**BRIEF, "n_draws": 30, **how}).leave_one_out()
    return [found.log_density]


def regressed(k=4, sparse=False, **how):
    X, Y = outcomes(k)
    if sparse:
        from scipy import sparse as matrices

        X = matrices.csr_array(np.where(np.abs(X) > 1.0, X, 0.0))
    model = ct.CoalescentProbit(n_iter=30, burn_in=15, n_chains=2, random_state=2, **how).fit(X, Y)
    return [model.coef_, model.intercept_, model.node_coef_, model.posterior_.times, model.predict_proba(X)]


def summarised():
    post = ct.learn_posterior(numbers(), **BRIEF).posterior
    tree = post.mcc_tree()
    parts = [tree.times, post.clade_support(tree), post.expected_overlap(tree), post.coclustering(3), post.cophenetic()]
    return [*parts, post.transfer_support(tree), post.consensus(0.5).times]


def studied():
    """A study from simulated events to its table of areas."""
    from coaltree.records import simulate_cohort
    from coaltree.results.records import study

    with TemporaryDirectory() as folder:
        simulate_cohort(Path(folder) / "cohort", 300, 5, n_factors=3, events_per_year=30.0)
        config = Path(folder) / "study.toml"
        config.write_text(
            'seed = 3\n[data]\npath = "cohort"\n[cohort]\nthresholds = ["2009-01-01", "2010-01-01"]\n'
            "[outcomes]\ninclusion = false\nmin_events = 3\n[features]\nn_factors = 3\nmin_subjects = 11\n"
            "[model]\nn_iter = 8\nburn_in = 4\nn_chains = 1\nbaselines = ['ridge']\n"
            "[validation]\nn_folds = 2\nn_resamples = 10\n[cost]\nsource = 'none'\n",
            encoding="utf-8",
        )
        study(config, Path(folder) / "out")
        found = sorted((Path(folder) / "out").rglob("*auc*.csv"))
        return [np.frombuffer(path.read_bytes(), np.uint8) for path in found]


RUNS = {
    **{f"sampler {m}": partial(sampled, m) for m in ("mpost1", "mpost2", "postpost", "smc1", "tpost", "insertion")},
    "sampler auto": partial(sampled, "auto", 20),
    **{f"greedy {rule}": partial(grown, rule) for rule in ("mode", "mean", "truncated_mean", "peak")},
    **{
        f"learned {c}": partial(learned, covariance=c)
        for c in ("spherical", "diagonal", "shrunk", "wishart", "factors")
    },
    "learned, matrix given": partial(learned, covariance=np.eye(3), leaf_noise=0.05),
    "learned, noise per row": partial(learned, leaf_noise=np.linspace(0.01, 0.1, 40)),
    "learned, robust": partial(learned, leaf_noise="robust"),
    "learned, gaps, spherical": partial(learned, with_gaps, covariance="spherical"),
    "learned, gaps, wishart": partial(learned, with_gaps, covariance="wishart"),
    "learned, gaps, robust": partial(learned, with_gaps, covariance="diagonal", leaf_noise="robust"),
    "learned, wide": partial(learned, partial(numbers, 30, 80)),
    "learned, greedy": partial(learned, method="greedy", n_draws=4, warmup=2, n_chains=None),
    "learned, auto": partial(learned, covariance="auto", leaf_noise="auto"),
    "clustering": clustered,
    "clustering, gaps": partial(clustered, with_gaps),
    "clustering, full": partial(clustered, covariance="wishart"),
    "clustering, robust": partial(clustered, leaf_noise="robust"),
    "clustering, gaps, robust": partial(clustered, with_gaps, leaf_noise="robust"),
    "clustering, 700 rows": partial(clustered, partial(numbers, 700), n_draws=2, warmup=1),
    "mixed": clustered_mixed,
    "mixed, full": partial(clustered_mixed, covariance="wishart"),
    "mixed, robust": partial(clustered_mixed, leaf_noise="robust"),
    "left out": left_out,
    "left out, full": partial(left_out, covariance="wishart"),
    "left out, robust": partial(left_out, leaf_noise="robust"),
    "left out, mixed": partial(left_out, mixed_table, columns="auto"),
    "regression": regressed,
    "regression, logit": partial(regressed, link="logit"),
    "regression, wide": partial(regressed, 40, covariance="diagonal"),
    "regression, sparse": partial(regressed, 40, sparse=True),
    "regression, Albert and Chib": partial(regressed, method="albert-chib"),
    "summaries": summarised,
    "study": studied,
}


def digest(run):
    """Digest of the arrays that a run returns."""
    total = hashlib.sha256()
    with warnings.catch_warnings(), threadpool_limits(1):  # sums of blocks depend on how many threads share them
        warnings.simplefilter("ignore")
        for array in run():
            array = np.ascontiguousarray(array)
            total.update(f"{array.dtype.str} {array.shape} ".encode() + array.tobytes())
    return total.hexdigest()[:16]


def read():
    """Digests by name that were frozen on a machine as this one, and the entries of other machines."""
    entries = json.loads(FILE.read_text(encoding="utf-8"))
    own = [entry["digests"] for entry in entries if entry["platform"] == platform()]
    return own[0] if own else {}, [entry for entry in entries if entry["platform"] != platform()]


def main(*words):
    found, others = read()
    for name, run in RUNS.items():
        if not words or any(word in name for word in words):
            found[name] = digest(run)
            print(found[name], name, flush=True)
    kept = {name: found[name] for name in RUNS if name in found}
    entries = [*others, {"platform": platform(), "digests": kept}]
    FILE.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
