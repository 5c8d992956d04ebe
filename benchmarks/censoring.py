"""Are risks right when subjects leave: known labels alone, and with weights, beside what happened to everybody.

    python -m benchmarks.censoring [--replicates 8] [--out benchmarks/censoring.md]

Subjects with codes before a threshold, three outcomes in the year after it that depend on them, one of them death, and
a share of subjects who leave on a uniform day of that year: at random, or more often the higher their risk. Cohort,
labels, weights and days at risk are those of a study; the probit and ridge regression are fitted with weights, the
Poisson regression to events and days at risk ("time"), and all predict new subjects.
The truth is what happened, whether or not it was observed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy.optimize import brentq
from scipy.special import expit, ndtr

from coaltree.records import CohortRule, build_cohort, build_labels, count_codes, load_outcomes, open_events
from coaltree.records.dataset import weighted_labels
from coaltree.regression import scores
from coaltree.regression.baselines import BASELINES
from coaltree.regression.fit import fit_regression

OUTCOMES = load_outcomes(keys=["death", "stroke", "heart_failure"])
CODES = ("MEDS_DEATH", "ICD9//431", "ICD9//428.0")
INTERCEPT = np.array([-1.9, -1.4, -1.2])
N_CODES, DAYS = 8, 365
SHARES = (0.0, 0.3, 0.6)
DAY_0 = np.datetime64("2010-01-01")


def simulate(n, share, by_risk, rng):
    """Events of n subjects as a table, and what happened to them, (n, 3)."""
    counts = rng.poisson(1.0, (n, N_CODES))
    slopes = np.array([[0.35, 0.0, 0.25, 0.0, 0.2, 0.0, 0.0, 0.0], [0.3, 0.3, 0.0, 0.2, 0.0, -0.2, 0.0, 0.0],
                       [0.0, 0.3, 0.3, 0.0, 0.25, 0.0, -0.2, 0.0]])  # fmt: skip
    eta = (np.sqrt(counts) - 0.75) @ slopes.T + INTERCEPT
    day = np.where(rng.random((n, 3)) < ndtr(eta), rng.integers(0, DAYS, (n, 3)), 9999)
    happened = (day < 9999) & (day <= day[:, :1])  # not after death
    tilt = 1.5 * (eta.mean(axis=1) - eta.mean()) / eta.mean(axis=1).std() if by_risk else np.zeros(n)
    leave = np.full(n, 9999)
    if share > 0:
        level = brentq(lambda a: float(expit(a + tilt).mean()) - share, -20.0, 20.0)
        leave = np.where(rng.random(n) < expit(level + tilt), rng.integers(0, DAYS - 1, n), 9999)
    subject, offset, code = [np.arange(n)], [np.full(n, -900)], [np.full(n, "OBSERVATION_START", dtype=object)]

    def add(rows, days, text):
        subject.append(rows), offset.append(days), code.append(np.full(len(rows), text, dtype=object))

    for k in range(N_CODES):
        rows = np.repeat(np.arange(n), counts[:, k])
        add(rows, rng.integers(-180, 0, len(rows)), f"ICD9//70{k}.0")
    for j, text in enumerate(CODES):
        rows = np.flatnonzero(happened[:, j])
        add(rows, day[rows, j], text)
    rows = np.flatnonzero(leave < day[:, 0])
    add(rows, leave[rows], "OBSERVATION_END")
    add(np.array([n]), np.array([700]), "ICD9//V70.0")  # the data go on beyond the year
    times = (DAY_0 + np.concatenate(offset)).astype("datetime64[us]")
    table = pa.table({"subject_id": np.concatenate(subject), "time": times, "code": pa.array(np.concatenate(code))})
    return table, happened.astype(np.float64)


def observe(table, folder):
    """Labels with weights, and counts of codes, as a study makes them."""
    (folder / "data").mkdir(parents=True)
    pq.write_table(table, folder / "data" / "0.parquet")
    events = open_events(folder)
    cohort = build_cohort(events, "2010-01-01", CohortRule())
    counts = count_codes(events, cohort)
    return weighted_labels(build_labels(events, cohort, OUTCOMES), counts, 0), counts


def timed_risks(labels, X, new, n_iter=200):
    """Probabilities of new subjects by the regression of events in the days at risk."""
    events = np.where(labels.exposure > 0.0, labels.events, np.nan)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = {"n_iter": n_iter, "burn_in": n_iter // 3, "n_chains": 1, "random_state": 0}
        fit = fit_regression(X, events, family="poisson", exposure=labels.exposure, **run)
    return {"poisson": fit.predict_proba(new)}


def risks(labels, weights, X, new, n_iter=200):
    """Probabilities of new subjects, by the probit and by ridge regression."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = {"n_iter": n_iter, "burn_in": n_iter // 3, "n_chains": 1, "random_state": 0}
        fit = fit_regression(X, labels, sample_weight=weights, **run)
        ridge = BASELINES["ridge"]().fit(X, labels, weights)
    return {"probit": fit.predict_proba(new), "ridge": ridge.predict_proba(new)}


def replicate(n, share, by_risk, rng, n_iter=200):
    """For each treatment and method: mean error of risks, calibration slope, and what the study would say of both."""
    with tempfile.TemporaryDirectory() as folder:
        table, happened = simulate(n, share, by_risk, rng)
        labels, counts = observe(table, Path(folder) / "train")
        other, truth = simulate(n, share, by_risk, rng)
        unseen, more = observe(other, Path(folder) / "new")
    columns = [more.codes.index(code) for code in counts.codes]
    X, new = np.sqrt(counts.matrix.toarray()), np.sqrt(more.matrix.toarray()[:, columns])
    rows = []
    found = (
        ("drop", None, risks(labels.Y, None, X, new, n_iter)),
        ("weights", unseen.weights, risks(labels.Y, labels.weights, X, new, n_iter)),
        ("time", unseen.weights, timed_risks(labels, X, new, n_iter)),
    )
    for treatment, judged, predicted in found:
        for method, p in predicted.items():
            for j in range(len(CODES)):
                own = None if judged is None else judged[:, j]
                rows.append(
                    {
                        "treatment": treatment,
                        "method": method,
                        "outcome": OUTCOMES.names[j],
                        "lost": float(labels.lost[:, j].mean()),
                        "true": float(happened[:, j].mean()),
                        "error": float(p[:, j].mean() - 0.5 * (truth[:, j].mean() + happened[:, j].mean())),
                        "slope": scores.calibration(truth[:, j], p[:, j]).slope,
                        "intercept": scores.calibration(truth[:, j], p[:, j]).intercept,
                        "reported_slope": scores.calibration(unseen.Y[:, j], p[:, j], own).slope,
                        "auroc": scores.auroc(truth[:, j], p[:, j]),
                        "reported_auroc": scores.auroc(unseen.Y[:, j], p[:, j], sample_weight=own),
                    }
                )
    return rows


def summary(found, share, by_risk):
    """One line of the table for each treatment and method: means over outcomes and replicates, with their errors."""
    lines = []
    for treatment, method in sorted({(row["treatment"], row["method"]) for rows in found for row in rows}):
        kept = [[row for row in rows if (row["treatment"], row["method"]) == (treatment, method)] for rows in found]

        def mean(what, kept=kept):
            each = np.array([np.mean([row[what] for row in rows]) for rows in kept])
            return each.mean(), each.std(ddof=1) / np.sqrt(len(each))

        error, slope = mean("error"), mean("slope")
        lines.append(
            f"| {share:.0%} {('by risk' if by_risk else 'at random') if share else ''} | {treatment} | {method} "
            f"| {100 * mean('true')[0]:.2f} | {100 * error[0]:+.2f} ± {100 * error[1]:.2f} "
            f"| {slope[0]:.2f} ± {slope[1]:.2f} | {mean('reported_slope')[0]:.2f} "
            f"| {mean('auroc')[0]:.3f} | {mean('reported_auroc')[0]:.3f} |"
        )
    return lines


def main():
    """Measure and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--subjects", type=int, default=6000)
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    started, lines = time.process_time(), []
    for share in SHARES:
        for by_risk in (False, True) if share else (False,):
            streams = [np.random.default_rng([round(100 * share), by_risk, r]) for r in range(options.replicates)]
            found = [replicate(options.subjects, share, by_risk, rng) for rng in streams]
            lines += summary(found, share, by_risk)
            print("\n".join(lines[-5:]), flush=True)
    command = f"python -m benchmarks.censoring --replicates {options.replicates} --subjects {options.subjects}"
    text = f"""# Risks under dropout

`{command}`, {time.process_time() - started:.0f} CPU s.

{__doc__.split("[--out benchmarks/censoring.md]")[1].strip()}

Means over three outcomes and {options.replicates} replicates, ± their standard errors. The error of the mean risk is in
percentage points; slope and area are of predictions against what happened, and "reported" is what a study says of them,
from the labels and weights that it has. With "drop" the study cannot see its own bias.

| leave | labels | method | true risk % | error of mean risk | slope | reported slope | area | reported area |
|---|---|---|---|---|---|---|---|---|
{chr(10).join(lines)}
"""
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
