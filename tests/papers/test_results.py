"""What is committed hangs together, and a quick run bears it out.

A quick run repeats the first replicates of the full one, so it may differ from it only as a new random stream would
make it differ. The tolerances are standard errors of the difference: a sampler with a wrong weight or wrong times is
far beyond them (try it).
"""

import json
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import papers.henao_lucas
import pytest
from papers.henao_lucas.__main__ import NAMES, load
from papers.henao_lucas.artificial import LENGTH, least_deviation, measures_if_known, simulate, squared_exponential
from papers.henao_lucas.exactness import literal
from papers.henao_lucas.exactness.run import FARTHEST, compare_exact, small_case
from papers.henao_lucas.experiment import MARKS, perform
from scipy.integrate import trapezoid

import coaltree as ct

FOLDER = Path(papers.henao_lucas.__file__).parent
DONE = [name for name in NAMES if (FOLDER / name / "results.json").exists()]
SIMULATED = ("structure", "covariance", "greedy", "exactness")
# A claim's tolerance is one standard error; that of a regression in quality is this many.
ERRORS = 4.5


def committed(name):
    return json.loads((FOLDER / name / "results.json").read_text())


def test_all_simulated_experiments_are_committed():
    assert set(SIMULATED) <= set(DONE)


@pytest.mark.parametrize("name", SIMULATED)
def test_claims_and_page_follow_from_the_results(name):
    experiment, results = load(name), committed(name)
    summary, expected = results["summary"], experiment.expected()
    assert not results["quick"]
    found = experiment.claims(summary, expected)
    assert [claim["statement"] for claim in results["claims"]] == [claim.statement for claim in found]
    assert [claim["holds"] for claim in results["claims"]] == [claim.holds for claim in found]
    page = (FOLDER / name / "README.md").read_text()
    between = page.split(MARKS[0])[1].split(MARKS[1])[0]
    for line in experiment.table(summary, expected):
        assert line in between
    for claim in found:
        assert claim.statement in between
    for figure in (FOLDER / name).glob("*.png"):
        assert f"]({figure.name})" in page
        assert figure.with_suffix(".svg").exists()


def worse(quick, full, path=""):
    """Measures of a quick summary that are larger than the full run's by more than so many standard errors."""
    found = []
    for key, value in quick.items():
        if key not in full:  # a method that the full run did not have yet
            continue
        if isinstance(value, dict) and {"mean", "se"} <= value.keys():
            # Few replicates may happen to lie close together: the spread of the full run speaks too.
            error = max(value["se"], full[key]["sd"] * value["se"] / value["sd"])
            limit = full[key]["mean"] + ERRORS * np.hypot(error, full[key]["se"])
            if key != "seconds" and not abs(value["mean"]) <= max(limit, abs(full[key]["mean"])):
                found.append((f"{path}/{key}", value["mean"], limit))
        elif isinstance(value, dict):
            found += worse(value, full[key], f"{path}/{key}")
    return found


@pytest.mark.slow
@pytest.mark.ci
@pytest.mark.parametrize("name", SIMULATED)
def test_a_quick_run_bears_the_claims_out_and_no_measure_has_become_worse(name, tmp_path):
    then = committed(name)
    now = perform(load(name), Namespace(quick=True, replicates=None, data=None, jobs=1), tmp_path)
    failing = {claim["statement"] for claim in then["claims"] if not claim["holds"]}
    checked = 0
    for claim in now["claims"]:
        if claim["timed"] or claim["statement"] in failing:
            continue
        gap = claim["value"] - claim["bound"] if claim["at_least"] else claim["bound"] - claim["value"]
        assert gap >= -ERRORS * claim["tolerance"], claim
        checked += 1
    assert checked >= 5
    if name != "exactness":  # which has claims for all it measures
        now, then = now["summary"], then["summary"]
        assert not worse(now.get("tables", now), then.get("tables", then))


def test_a_worse_sampler_would_be_noticed():
    """Negative control: the errors of literal weights in place of those of proper ones."""
    then = committed("structure")["summary"]["tables"]
    now = json.loads(json.dumps(then))
    now["D1"]["mpost1"]["time_mse"] = {"mean": 0.23, "sd": 0.07, "se": 0.02}
    assert [path for path, *_ in worse(now, then)] == ["/D1/mpost1/time_mse"]


@pytest.mark.parametrize("broken", ["times", "weights"])
def test_wrong_times_or_weights_are_noticed(broken, monkeypatch):
    """Negative control: times five per cent too late, or trees that all weigh the same."""
    sample = ct.sample_posterior

    def sample_wrongly(*data, **how):
        post = sample(*data, **how)
        wrong = {"times": 1.05 * post.times} if broken == "times" else {"weights": np.full(len(post), 1 / len(post))}
        return SimpleNamespace(**{**vars_of(post), **wrong})

    def vars_of(post):
        return {name: getattr(post, name) for name in ("children", "times", "weights", "log_evidence")}

    monkeypatch.setattr(ct, "sample_posterior", sample_wrongly)
    assert compare_exact(2, 0, "mpost2", np.random.default_rng(0))["farthest"] > FARTHEST


def test_the_missing_factor_is_all_that_is_wrong_with_literal_weights():
    """The same code with the factor put back agrees with quadrature."""
    X, exact = small_case(2, 0)
    for method in ("mpost1", "mpost2"):
        rng = np.random.default_rng(0)
        values = np.array([literal.sample(X, None, method, 500, rng, proper=True).log_evidence for _ in range(20)])
        error = np.exp(values).std(ddof=1) / np.exp(values).mean() / np.sqrt(20)
        assert np.log(np.exp(values).mean()) == pytest.approx(exact.log_evidence, abs=4.5 * error)


def test_the_least_deviation_of_the_length():
    """Cramér and Rao's bound against the curvature of the expected log likelihood, each merge at its best v."""
    n, d, step = 20, 6, 1e-4
    phi = squared_exponential(d)

    def expected_log_likelihood(length):
        squares = np.subtract.outer(np.arange(d), np.arange(d)) ** 2.0
        other = np.exp(-squares / (2 * length)) + 1e-9 * np.eye(d)
        best_v = np.trace(np.linalg.solve(other, phi)) / d
        return -0.5 * (n - 1) * (np.linalg.slogdet(other)[1] + d * np.log(best_v))

    low, middle, high = (expected_log_likelihood(LENGTH + shift) for shift in (-step, 0.0, step))
    assert least_deviation(n, d) == pytest.approx((-(low - 2 * middle + high) / step**2) ** -0.5, rel=1e-3)


def test_what_is_left_with_all_merges_known():
    """Two leaves have one merge: the mean of its time by quadrature."""
    data, d = simulate(2, 3, 0), 3
    gap = data.X[0] - data.X[1]
    squared = gap @ np.linalg.solve(data.phi, gap)
    t = np.geomspace(1e-4, 60.0, 200_001)
    density = np.exp(-t - squared / (4 * t)) * t ** (-0.5 * d)
    mean = trapezoid(density * t, t) / trapezoid(density, t)
    spread = np.sqrt(trapezoid(density * (t - mean) ** 2, t) / trapezoid(density, t))
    row = measures_if_known(data, np.random.default_rng(0), n_draws=20_000)
    assert row["td"] == pytest.approx(data.tree.times[-1] - mean, abs=5 * spread / np.sqrt(9_000))
    assert row["distance_mse"] == pytest.approx(row["td"] ** 2)


def test_data_do_not_depend_on_the_method_or_the_order():
    first, again = simulate(8, 5, 3), simulate(8, 5, 3)
    assert np.array_equal(first.X, again.X)
    assert not np.array_equal(first.X, simulate(8, 5, 4).X)
